//! Rule: any schema is either refused or decides about any value, with short errors.

use proptest::prelude::*;
use sa_schema::{Error, Schema};
use sa_text::RawJson;
use serde_json::json;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn a_schema_is_refused_or_judges_any_arguments_in_few_words(
        schema in sa_hostile::schema(), args in sa_hostile::schema(), long in sa_hostile::long(),
    ) {
        let schema = Schema::new(RawJson::of(&schema));
        let usable = schema.check().is_ok();
        prop_assert!(schema.check().err().unwrap_or_default().len() < sa_hostile::SHORT);
        for args in [args, json!({ &long: { &long: 1 } }), json!({ "a": long }), json!([[long]])] {
            let args = RawJson::of(&args);
            for judged in [schema.validate(&args), schema.validate_secret(&args)] {
                let Err(error) = judged else { continue };
                prop_assert!(error.to_string().len() < 4 * sa_hostile::SHORT, "{error}");
                prop_assert_eq!(usable, !matches!(error, Error::Schema(_)));
            }
        }
    }
}

proptest! {
    /// Bounding the work does not change the result.
    #[test]
    fn a_value_is_valid_if_it_is_valid_without_bounds(
        schema in sa_hostile::schema(), value in sa_hostile::schema(),
    ) {
        let text = schema.to_string();
        // Patterns that another engine runs are not checked here.
        if text.contains("attern") { return Ok(()) }
        let Ok(unbounded) = jsonschema::options().build(&schema) else { return Ok(()) };
        for value in [value, json!({}), json!([1, 1.0]), json!("x"), json!({ "a": { "b": [0] } })] {
            match Schema::new(RawJson::of(&schema)).validate(&RawJson::of(&value)) {
                Ok(()) => prop_assert!(unbounded.is_valid(&value), "{} {}", text, value),
                Err(Error::Invalid(why)) => {
                    prop_assert!(!unbounded.is_valid(&value), "{} {}: {}", text, value, why);
                }
                Err(Error::Schema(_) | Error::TooExpensive(_)) => {}
            }
        }
    }
}

/// Each of its errors is at a path with a name of one megabyte.
#[test]
fn the_place_of_a_mistake_is_told_in_few_words() {
    let long = "x".repeat(1 << 20);
    for schema in [
        json!({ "additionalProperties": { "type": "string" } }),
        json!({ "additionalProperties": { "enum": ["a"] } }),
        json!({ "additionalProperties": { "minimum": 9 } }),
        json!({ "additionalProperties": { "required": ["a"], "type": ["object", "integer"], "not": {} } }),
        json!({ "additionalProperties": { "additionalProperties": false, "type": ["object", "integer"], "minimum": 9 } }),
        json!({ "propertyNames": { "maxLength": 3 } }),
        json!({ "additionalProperties": false }),
    ] {
        let args = RawJson::of(&json!({ &long: 5 }));
        let error = Schema::new(RawJson::of(&schema)).validate(&args).unwrap_err();
        assert!(matches!(error, Error::Invalid(_)), "{schema}");
        let bytes = error.to_string().len();
        assert!(bytes < sa_hostile::SHORT, "{schema}: {bytes} bytes");
    }
    let twice = format!("{{\"{long}\":1,\"{long}\":2}}");
    let error = Schema::new(RawJson::empty_object())
        .validate(&RawJson::parse(&twice).unwrap())
        .unwrap_err();
    assert!(error.to_string().len() < sa_hostile::SHORT, "{} bytes", error.to_string().len());
}
