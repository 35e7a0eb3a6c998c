//! Rule: the work of checking arguments is bounded. Excessive work is refused with a clear error,
//! and checks of real arguments against real schemas complete.

use sa_schema::{Error, Schema};
use sa_text::RawJson;
use serde_json::{Map, Value, json};

#[track_caller]
fn check(schema: &Value, args: &Value) -> Result<(), String> {
    let error = Schema::new(RawJson::of(schema)).validate(&RawJson::of(args)).err();
    error.map_or(Ok(()), |error| {
        assert!(!matches!(error, Error::Schema(_)), "{error}");
        Err(error.to_string())
    })
}

#[track_caller]
fn accepts(schema: &Value, args: &Value) {
    assert_eq!(check(schema, args), Ok(()));
}

#[track_caller]
fn rejects(schema: &Value, args: &Value, why: &str) {
    let error = check(schema, args).expect_err("the arguments must be refused");
    assert!(error.contains(why), "{error}");
}

fn members(count: usize, prefix: &str, value: impl Fn(usize) -> Value) -> Value {
    Value::Object((0..count).map(|n| (format!("{prefix}{n}"), value(n))).collect())
}

fn list(count: usize, item: impl Fn(usize) -> Value) -> Value {
    (0..count).map(item).collect()
}

/// Schemas for one property each.
fn parts(count: usize) -> Value {
    list(count, |n| json!({"properties": {format!("p{n}"): {}}}))
}

const LONG: &str = "would take too long";
const UNSAID: &str = "too large to locate the error";

#[test]
fn members_that_each_of_many_branches_goes_over() {
    let args = members(60_000, "q", |_| json!(1));
    for keyword in ["anyOf", "oneOf", "allOf"] {
        let schema = json!({keyword: parts(1_800), "if": true, "then": {}, "unevaluatedProperties": {"type": "number"}});
        // One error is enough to fail `oneOf`, which then does not visit the members again.
        if keyword != "oneOf" {
            rejects(&schema, &args, LONG);
        }
        rejects(&json!({keyword: parts(1_800), "unevaluatedProperties": false}), &args, "");
    }
    let needed = members(1_800, "q", |n| json!({"properties": {format!("p{n}"): {}}}));
    rejects(
        &json!({"dependentSchemas": needed, "unevaluatedProperties": {"type": "number"}}),
        &args,
        LONG,
    );
    // The error is detected quickly here, but its report would need each branch.
    rejects(&json!({"allOf": parts(1_800), "unevaluatedProperties": false}), &args, UNSAID);
}

#[test]
fn items_that_each_of_many_branches_goes_over() {
    let args = list(100_000, |n| json!(n));
    let contains = list(1_000, |n| json!({"contains": {"const": 90_000 + n}}));
    rejects(&json!({"allOf": contains}), &args, LONG);
    rejects(&json!({"anyOf": contains, "unevaluatedItems": {"type": "number"}}), &args, LONG);
    let unlike = list(1_000, |_| json!({"uniqueItems": true}));
    rejects(&json!({"allOf": unlike}), &args, LONG);
}

#[test]
fn items_that_each_mistake_is_told_with() {
    let schema = json!({"allOf": list(10, |_| json!({"unevaluatedItems": false}))});
    rejects(&schema, &json!(["x"]), "unexpected");
    rejects(&schema, &json!([list(100_000, |_| json!("x"))]), UNSAID);
}

#[test]
fn branches_that_look_at_nothing_take_their_time_too() {
    let args = list(100_000, |_| json!(1));
    for branch in [json!(true), json!({}), json!({"title": "x"}), json!({"$ref": "#/$defs/any"})] {
        let schema = json!({"$defs": {"any": true}, "items": {"type": "number", "allOf": list(1_900, |_| branch.clone())}});
        rejects(&schema, &args, LONG);
    }
}

#[test]
fn names_that_are_looked_for_in_each_item() {
    let names: Vec<String> = (0..3_000).map(|n| format!("p{n}")).collect();
    let item = members(3_000, "p", |_| json!(1));
    let args = list(100, |_| item.clone());
    let each = list(20, |_| json!({"$ref": "#/$defs/all"}));
    rejects(&json!({"$defs": {"all": {"required": names}}, "items": {"allOf": each}}), &args, LONG);
    let needed = members(3_000, "p", |_| json!({"type": "object"}));
    rejects(
        &json!({"items": {"dependentSchemas": needed}}),
        &list(100_000, |_| json!({"x": 1})),
        LONG,
    );
}

#[test]
fn patterns_for_each_name_and_each_text() {
    let patterns: Map<String, Value> =
        (0..190).map(|n| (format!("^a.*{n}x$"), json!({}))).collect();
    let schema = json!({"patternProperties": patterns, "additionalProperties": {"type": "number"}});
    rejects(&schema, &members(100_000, "q", |_| json!(1)), LONG);
    accepts(&schema, &members(1_000, "q", |_| json!(1)));
    // The state after each letter depends on the last thousand letters.
    let much = json!({"pattern": "[ab]*a[ab]{1000}c"});
    rejects(&much, &json!("ab".repeat(500_000)), LONG);
    let named =
        json!({"propertyNames": {"anyOf": list(3_000, |n| json!({"const": format!("z{n}")}))}});
    rejects(&named, &members(100_000, "q", |_| json!(1)), "");
}

#[test]
fn values_that_are_compared_with_many() {
    let large = |last: usize| list(5_001, |n| json!(if n == 5_000 { last } else { 1 }));
    let schema = json!({"items": {"enum": list(10, large)}});
    rejects(&schema, &list(300, |_| large(9)), LONG);
    accepts(&schema, &list(20, |_| large(9)));
    rejects(
        &json!({"uniqueItems": true}),
        &list(100_000, |n| json!((1_u64 << 63) + n as u64)),
        LONG,
    );
}

#[test]
fn numbers_that_are_divided() {
    let cents = json!({"items": {"multipleOf": 0.01}});
    accepts(&cents, &list(100_000, |_| json!(12.25)));
    let long = json!({"items": {"allOf": list(20, |_| json!({"multipleOf": 0.01}))}});
    rejects(&long, &list(20_000, |_| json!(1e300)), LONG);
}

#[test]
fn branches_within_branches_multiply() {
    for keyword in ["allOf", "anyOf"] {
        let inner = json!({"properties": {"a": {}}});
        let nested = |levels: usize| {
            (0..levels).fold(
                inner.clone(),
                |schema, _| json!({keyword: [schema], "unevaluatedProperties": {"type": "number"}}),
            )
        };
        accepts(&nested(4), &members(100, "q", |_| json!(1)));
        rejects(&nested(40), &members(100, "q", |_| json!(1)), LONG);
    }
}

#[test]
fn a_schema_of_many_parts_with_nothing_beside_them() {
    // Composed of a dozen parts, like schemas for events and resources.
    let part =
        |n: usize| json!({"type": "object", "properties": {format!("p{n}"): {"type": "integer"}}});
    let schema = json!({"allOf": list(12, part), "unevaluatedProperties": false});
    accepts(&schema, &members(12, "p", |n| json!(n)));
    rejects(&schema, &json!({"p1": 1, "x": 1}), "'x' was unexpected");
    let schema = json!({"allOf": list(12, part), "unevaluatedProperties": {"type": "array"}});
    accepts(&schema, &members(50_000, "q", |_| json!([])));
}

#[test]
fn an_object_of_thousands_of_properties() {
    let kind = |n: usize| json!({"type": (["string", "integer", "boolean"][n % 3])});
    let value = |n: usize| [json!("x"), json!(1), json!(true)][n % 3].clone();
    let names: Vec<String> = (0..2_000).map(|n| format!("p{n}")).collect();
    let schema = json!({"type": "object", "properties": members(3_000, "p", kind), "required": names,
        "additionalProperties": false});
    accepts(&schema, &members(3_000, "p", value));
    accepts(&json!({"type": "array", "items": schema}), &list(100, |_| members(2_500, "p", value)));
    rejects(&schema, &members(1_999, "p", value), "missing \"p1999\"");
}

#[test]
fn a_large_union_of_kinds_as_in_an_openapi_document() {
    let kind = |n: usize| {
        json!({"type": "object", "properties": {"kind": {"const": format!("k{n}")}, "name": {"type": "string", "minLength": 1},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}, "propertyNames": {"pattern": "^[a-z]+$"}},
            "children": {"type": "array", "items": {"$ref": "#/$defs/any"}}}, "required": ["kind"]})
    };
    let mut defs: Map<String, Value> = (0..200).map(|n| (format!("k{n}"), kind(n))).collect();
    defs.insert(
        "any".to_owned(),
        json!({"oneOf": list(200, |n| json!({"$ref": format!("#/$defs/k{n}")}))}),
    );
    let schema =
        json!({"$defs": defs, "type": "object", "properties": {"root": {"$ref": "#/$defs/any"}}});
    let leaf =
        |n: usize| json!({"kind": format!("k{}", n % 200), "name": "x", "labels": {"team": "y"}});
    let branch = |n: usize| json!({"kind": format!("k{n}"), "children": list(20, leaf)});
    accepts(&schema, &json!({"root": {"kind": "k7", "children": list(50, branch)}}));
}

#[test]
fn megabytes_of_plain_arguments() {
    accepts(
        &json!({"items": {"type": "integer", "minimum": 0}}),
        &list(1_000_000, |n| json!(n % 10)),
    );
    let row = json!({"type": "object", "properties": {"id": {"type": "integer"}, "name": {"type": "string", "maxLength": 80},
        "tags": {"type": "array", "items": {"type": "string"}, "uniqueItems": true}}, "required": ["id", "name"],
        "additionalProperties": false});
    accepts(
        &json!({"items": row}),
        &list(60_000, |n| json!({"id": n, "name": "some name", "tags": ["a", "b", "c"]})),
    );
    let encoded =
        json!({"properties": {"data": {"type": "string", "pattern": "^[A-Za-z0-9+/]*={0,2}$"}}});
    accepts(&encoded, &json!({"data": "QUJD".repeat(900_000)}));
    accepts(&json!({"uniqueItems": true}), &list(300_000, |n| json!(n)));
    accepts(&json!({"uniqueItems": true}), &list(50_000, |n| json!({"id": n})));
}
