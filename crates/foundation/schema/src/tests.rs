use super::*;

#[track_caller]
fn check(schema: &str, args: &str, expected: Option<&str>) {
    let schema = Schema::new(RawJson::parse(schema).unwrap());
    let result = schema.validate(&RawJson::parse(args).unwrap());
    assert_eq!(result.err().map(|error| error.to_string()).as_deref(), expected);
}

const SEARCH: &str = r#"{"type":"object","properties":{"query":{"type":"string"},"limit":{"type":"integer","minimum":1}},
    "required":["query"],"additionalProperties":false}"#;

#[test]
fn mistakes_are_named() {
    check(SEARCH, r#"{"query":"x"}"#, None);
    check(SEARCH, "{}", Some("missing \"query\" (string)"));
    check(SEARCH, r#"{"query":5}"#, Some("\"query\" must be string, not number"));
    check(SEARCH, "null", Some("the arguments must be object, not null"));
    check(SEARCH, r#"{"query":"x","limt":1}"#, Some("unknown \"limt\", did you mean \"limit\"?"));
    check(SEARCH, r#"{"query":"x","colour":1}"#, Some("unknown \"colour\""));
    check(SEARCH, r#"{"query":"x","limit":1,"limt":1}"#, Some("unknown \"limt\""));
    check(SEARCH, r#"{"query":"x","limit":0}"#, Some("\"limit\": 0 is less than the minimum of 1"));
}

#[test]
fn a_name_that_is_missing_may_have_been_misspelt() {
    let open = r#"{"properties":{"text":{"type":"string"},"next":{}},"required":["text"]}"#;
    check(
        open,
        r#"{"txt":"x"}"#,
        Some("missing \"text\" (string), did you misspell it as \"txt\"?"),
    );
    check(open, r#"{"next":"x"}"#, Some("missing \"text\" (string)"));
    check(open, r#"{"colour":"x"}"#, Some("missing \"text\" (string)"));
    let closed = r#"{"properties":{"text":{}},"required":["text"],"additionalProperties":false}"#;
    let told = "unknown \"txt\", did you mean \"text\"?; missing \"text\"";
    check(closed, r#"{"txt":"x"}"#, Some(told));
}

#[test]
fn formats_are_checked_where_that_is_asked_for() {
    let schema = r#"{"properties":{"at":{"format":"date-time"},"n":{"format":"int32"},"key":{"format":"password"}}}"#;
    let args = RawJson::parse(r#"{"at":"yesterday","n":1,"key":"x"}"#).unwrap();
    assert!(Schema::new(RawJson::parse(schema).unwrap()).validate(&args).is_ok());
    let checked = Schema::with_formats(RawJson::parse(schema).unwrap());
    let error = checked.validate(&args).unwrap_err();
    assert_eq!(error.to_string(), "\"at\": \"yesterday\" is not a \"date-time\"");
    assert!(!checked.validate_secret(&args).unwrap_err().to_string().contains("yesterday"));
    let right = RawJson::parse(r#"{"at":"2026-11-18T08:00:00Z","n":1,"key":"x"}"#).unwrap();
    assert!(checked.validate(&right).is_ok());
}

#[test]
fn a_secret_is_not_repeated() {
    let schema = r#"{"properties":{"a":{"minLength":99},"b":{"pattern":"^x$"},"c":{"enum":["x"]},"d":{"const":1},
        "e":{"type":"integer"},"f":{"maximum":3},"g":{"not":{}},"h":{"anyOf":[{"type":"null"}]}}}"#;
    let schema = Schema::new(RawJson::parse(schema).unwrap());
    for key in ["a", "b", "c", "d", "e", "g", "h"] {
        let value = RawJson::of(&serde_json::json!({ key: "canary-91" }));
        let error = schema.validate_secret(&value).unwrap_err();
        assert!(
            !error.to_string().contains("canary") && error.to_string().contains(key),
            "{}",
            error.to_string()
        );
    }
    let error = schema.validate_secret(&RawJson::parse(r#"{"f":40417}"#).unwrap()).unwrap_err();
    assert!(!error.to_string().contains("40417"), "{}", error.to_string());
}

#[test]
fn what_is_wrong_with_a_schema_is_said_with_its_place() {
    let check = |schema: Value, words: &[&str]| {
        let schema = Schema::new(RawJson::of(&schema));
        let said = schema.check().unwrap_err();
        assert!(words.iter().all(|word| said.contains(word)), "{said}");
    };
    check(
        serde_json::json!({ "properties": { "a": { "type": "strin" } } }),
        &["\"strin\" is not a type", "/properties/a/type"],
    );
    check(
        serde_json::json!({ "properties": { "a": { "minLength": "x" } } }),
        &["/properties/a/minLength"],
    );
    check(
        serde_json::json!({ "$ref": "https://evil.example/s.json" }),
        &["external references are not followed"],
    );
}

#[test]
fn a_glance_sees_what_is_plainly_wrong_and_compiles_nothing() {
    let check = |schema: Value, wrong: bool| {
        let schema = Schema::new(RawJson::of(&schema));
        assert_eq!(
            (schema.check_fast().is_err(), schema.flaw().is_some()),
            (wrong, wrong),
            "{}",
            schema.raw().as_str()
        );
        assert_eq!(
            schema.check().is_err(),
            wrong,
            "what is seen at a glance is so: {}",
            schema.raw().as_str()
        );
        assert_eq!(schema.check_fast().is_err(), wrong);
    };
    check(serde_json::json!({ "type": "objekt" }), true);
    check(
        serde_json::json!({ "properties": { "a": { "type": "strin", "pattern": "^a+$" } } }),
        true,
    );
    check(serde_json::json!({ "$ref": "#/$defs/none" }), true);
    check(serde_json::json!({ "$ref": "#" }), true);
    check(
        serde_json::json!({ "$ref": "#/$defs/a", "$defs": { "a": { "type": "string" } } }),
        false,
    );
    check(serde_json::json!({ "pattern": "(" }), false);
    check(
        serde_json::json!({ "$schema": "http://json-schema.org/draft-07/schema#", "minimum": 1 }),
        false,
    );
    check(serde_json::json!({}), false);
    let sound = Schema::new(RawJson::parse(SEARCH).unwrap());
    assert!(sound.check_fast().is_ok() && sound.0.usable.get().is_none());
}

#[test]
fn a_schema_never_reaches_out() {
    for reference in ["http://127.0.0.1:1/schema.json", "file:///etc/passwd"] {
        let schema = Schema::new(RawJson::of(&serde_json::json!({ "$ref": reference })));
        assert!(schema.check().is_err(), "{reference}");
    }
}

#[test]
fn a_catastrophic_pattern_takes_linear_time() {
    let long = format!("\"{}!\"", "a".repeat(200_000));
    let schema = Schema::new(RawJson::parse(r#"{"pattern":"^(a+)+$"}"#).unwrap());
    assert!(schema.validate(&RawJson::parse(&long).unwrap()).is_err());
}
