//! Rule: checking hostile arguments against a hostile schema takes a bounded time. A schema that
//! cannot be checked is refused with a reason, and real schemas still work.

use std::time::{Duration, Instant};

use sa_schema::{Error, Schema};
use sa_text::RawJson;
use serde_json::{Map, Value, json};

/// Generous, for an unoptimized build on a busy machine. Every bomb here would take minutes or much
/// longer.
const BOUND: Duration = Duration::from_secs(20);

#[track_caller]
fn check(schema: &Value, args: &Value) -> Result<(), String> {
    let started = Instant::now();
    let result = Schema::new(RawJson::of(schema)).validate(&RawJson::of(args));
    assert!(started.elapsed() < BOUND, "took {:?}", started.elapsed());
    result.map_err(|error| error.to_string())
}

#[track_caller]
fn refused(schema: &Value, why: &str) {
    let started = Instant::now();
    let schema = Schema::new(RawJson::of(schema));
    let error = schema.check().expect_err("the schema must be refused");
    assert!(error.contains(why), "{error}");
    assert!(started.elapsed() < BOUND, "took {:?}", started.elapsed());
    let error = schema.validate(&RawJson::empty_object()).expect_err("and the call fails");
    assert!(matches!(error, Error::Schema(_)), "{error}");
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

/// `levels` definitions, each composed of two references to the next.
fn fan(levels: usize, part: impl Fn(Value) -> Value, leaf: Value) -> Value {
    let mut defs = Map::new();
    for level in 0..levels {
        defs.insert(format!("d{level}"), part(json!({"$ref": format!("#/$defs/d{}", level + 1)})));
    }
    defs.insert(format!("d{levels}"), leaf);
    json!({"$defs": defs, "$ref": "#/$defs/d0"})
}

fn nested(levels: usize, leaf: Value) -> Value {
    (0..levels).fold(leaf, |value, _| json!({"a": value}))
}

#[test]
fn circles_at_one_value_are_refused() {
    let why = "refers to itself without going deeper";
    refused(&json!({"$ref": "#"}), why);
    refused(
        &json!({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}),
        why,
    );
    refused(&json!({"allOf": [{"$ref": "#"}, {"$ref": "#"}]}), why);
    refused(&json!({"not": {"$ref": "#"}}), why);
    refused(&json!({"if": true, "then": {"$ref": "#"}}), why);
    refused(&json!({"properties": {"a": {"anyOf": [{"$ref": "#/properties/a"}]}}}), why);
    refused(&json!({"$anchor": "top", "anyOf": [{"$ref": "#top"}]}), why);
    refused(&json!({"$dynamicAnchor": "top", "oneOf": [{"$dynamicRef": "#top"}]}), why);
    refused(&json!({"%24x": 1, "$defs": {"a": {"$ref": "#/%24defs/a"}}, "$ref": "#/$defs/a"}), why);
    refused(&json!({"$id": "http://a/b.json", "$ref": "b.json"}), why);
}

#[test]
fn circles_that_go_deeper_are_what_trees_are_made_of() {
    let tree =
        json!({"type": "object", "properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}});
    accepts(&tree, &json!({"left": {"right": {}}, "right": {}}));
    rejects(&tree, &json!({"left": {"right": 5}}), "\"left/right\" must be object, not number");
    let list = json!({"items": {"$ref": "#"}, "type": "array"});
    accepts(&list, &json!([[], [[]]]));
}

#[test]
fn fans_at_one_value_are_refused() {
    let why = "more than 4000 schemas to one value";
    for keyword in ["allOf", "anyOf", "oneOf"] {
        refused(&fan(30, |next| json!({keyword: [next, next]}), json!({"type": "string"})), why);
    }
    refused(&fan(30, |next| json!({"if": next, "then": next, "else": next}), json!(true)), why);
    refused(&fan(30, |next| json!({"dependentSchemas": {"a": next, "b": next}}), json!(true)), why);
    refused(&fan(30, |next| json!({"not": {"allOf": [next, next]}}), json!(true)), why);
    // Deeper in the schema, where the first argument does not lead.
    let mut deep = fan(30, |next| json!({"allOf": [next, next]}), json!({}));
    deep["properties"] = json!({"x": {"$ref": "#/$defs/d0"}});
    deep.as_object_mut().unwrap().remove("$ref");
    refused(&deep, why);
}

#[test]
fn divisors_with_many_digits_are_refused() {
    refused(&json!({"multipleOf": 1e-300}), "more than 15 digits");
    refused(&json!({"properties": {"a": {"multipleOf": 1e16}}}), "more than 15 digits");
    accepts(&json!({"multipleOf": 0.000_001}), &json!(1.25));
}

#[test]
fn long_chains_at_one_value_are_refused() {
    let why = "chains more than 64 schemas";
    refused(&fan(2_000, |next| next, json!(true)), why);
    refused(&(0..90).fold(json!({}), |inner, _| json!({"not": inner})), why);
    accepts(&fan(20, |next| next, json!({"type": "object"})), &json!({}));
}

#[test]
fn fans_that_go_deeper_are_measured_with_the_arguments() {
    let both =
        |next: Value| json!({"allOf": [{"properties": {"a": next}}, {"properties": {"a": next}}]});
    let schema = fan(40, both, json!({"type": "object"}));
    accepts(&schema, &nested(5, json!({})));
    rejects(&schema, &nested(40, json!({})), "would take too long");
}

#[test]
fn recursion_in_several_branches_is_no_bomb_for_deep_arguments() {
    let schema = json!({"type": "object", "allOf": [
        {"properties": {"a": {"$ref": "#"}}}, {"properties": {"a": {"$ref": "#"}}}, {"additionalProperties": {"$ref": "#"}}
    ]});
    accepts(&schema, &nested(100, json!({})));
    rejects(&schema, &nested(100, json!(5)), "too large to locate the error");
    rejects(&schema, &nested(2, json!(5)), "\"a/a\" must be object, not number");
    let union = json!({"anyOf": [
        {"properties": {"op": {"const": "and"}, "a": {"$ref": "#"}}, "required": ["op"]},
        {"properties": {"op": {"const": "or"}, "a": {"$ref": "#"}}, "required": ["op"]},
    ]});
    let chain =
        |op: &str| (0..60).fold(json!({"op": op}), |value, _| json!({"op": op, "a": value}));
    accepts(&union, &chain("or"));
    rejects(&union, &chain("xor"), "too large to locate the error");
}

#[test]
fn the_stack_holds_the_deepest_arguments_under_the_longest_chain() {
    let mut schema = fan(
        60,
        |next| json!({"allOf": [next]}),
        json!({"properties": {"a": {"$ref": "#/$defs/d0"}}}),
    );
    schema["$defs"]["d60"]["type"] = json!("object");
    rejects(&schema, &nested(100, json!({})), "chains more than 64");
    let mut schema = fan(
        10,
        |next| json!({"allOf": [next]}),
        json!({"properties": {"a": {"$ref": "#/$defs/d0"}}}),
    );
    schema["$defs"]["d10"]["type"] = json!("object");
    accepts(&schema, &nested(60, json!({})));
    rejects(&schema, &nested(60, json!(1)), "must be object, not number");
    rejects(&schema, &nested(100, json!({})), "nested too deeply");
}

#[test]
fn arguments_that_were_taken_in_are_never_too_deep_to_check() {
    let schema = Schema::new(RawJson::parse("{}").unwrap());
    for (levels, taken) in [(100, true), (101, false), (100_000, false)] {
        let args = RawJson::parse(&format!("{}{}", "[".repeat(levels), "]".repeat(levels)));
        assert_eq!(args.is_ok(), taken, "{levels}");
        if let Ok(args) = args {
            assert!(schema.validate(&args).is_ok(), "{levels}");
        }
    }
}

#[test]
fn wide_schemas_and_long_arguments() {
    let names: Vec<String> = (0..8_000).map(|n| format!("v{n}")).collect();
    rejects(&json!({"items": {"enum": names}}), &json!(vec!["nope"; 2_000]), "must be one of");
    let consts: Vec<Value> = (0..3_000).map(|n| json!({"const": n})).collect();
    rejects(
        &json!({"items": {"anyOf": consts}}),
        &json!(vec![-1; 1_000]),
        "too large to locate the error",
    );
    rejects(
        &json!({"items": {"anyOf": consts}}),
        &json!(vec![2_999; 100_000]),
        "would take too long",
    );
    accepts(&json!({"items": {"type": "number"}}), &json!(vec![1; 200_000]));
    let many: Vec<Value> = (0..5_000).map(|n| json!({"minimum": n})).collect();
    refused(&json!({"allOf": many}), "more than 4000 schemas");
    refused(&json!({"enum": vec!["x".repeat(100); 2_000]}), "more than 131072");
}

#[test]
fn a_pattern_that_cannot_run_in_linear_time_is_left_out_alone() {
    let schema = json!({"type": "object", "properties": {
        "password": {"type": "string", "pattern": "^(?=.*[0-9]).+$", "minLength": 3},
        "twice": {"pattern": r"^(a)\1$"},
        "plain": {"pattern": "^a+$"},
    }, "required": ["password"]});
    accepts(&schema, &json!({"password": "abc", "twice": "no", "plain": "aa"}));
    rejects(&schema, &json!({"password": "ab"}), "shorter than 3");
    rejects(&schema, &json!({"password": "abc", "plain": "b"}), "does not match");
    rejects(&schema, &json!({}), "missing \"password\" (string)");
    let kept = Schema::new(RawJson::of(&schema));
    let _ = kept.check();
    assert!(kept.raw().as_str().contains("(?="), "clients see what the author wrote");
}

#[test]
fn pattern_is_a_good_name_for_a_property_too() {
    let schema = json!({"properties": {"pattern": {"type": "string"}, "x": {"const": {"pattern": "(?=a)"}}},
        "required": ["pattern"], "additionalProperties": false});
    accepts(&schema, &json!({"pattern": "(?=a)", "x": {"pattern": "(?=a)"}}));
    rejects(&schema, &json!({"pattern": 5}), "\"pattern\" must be string");
    rejects(&schema, &json!({"pattern": "a", "x": {}}), "\"x\": ");
    // A property with this name and an `enum` schema is not a pattern either.
    let schema = json!({"properties": {"pattern": {"enum": ["(?=a)", "b"]}}});
    rejects(&schema, &json!({"pattern": "c"}), "must be one of");
}

#[test]
fn members_under_a_pattern_that_cannot_run_are_not_surplus() {
    let schema = json!({"patternProperties": {"^(?!x)": {"type": "number"}, "^n": {"type": "number"}},
        "additionalProperties": false});
    accepts(&schema, &json!({"a": "unchecked"}));
    rejects(&schema, &json!({"n": "checked"}), "must be number");
}

#[test]
fn patterns_that_are_costly_to_compile() {
    let property = |n: usize| {
        (format!("p{n}"), json!({"pattern": format!("((a{{1,100}}){{1,100}}){{1,{}}}", n + 50)}))
    };
    let bombs: Map<String, Value> = (0..100).map(property).collect();
    accepts(&json!({"properties": bombs}), &json!({"p1": "unchecked"}));
    let many: Map<String, Value> =
        (0..3_000).map(|n| (format!("p{n}"), json!({"pattern": format!("^{n}$")}))).collect();
    refused(&json!({"properties": many}), "more than 200 different patterns");
}

#[test]
fn many_alternatives_times_large_arguments_are_not_copied() {
    let choices: Vec<Value> = (0..3_000).map(|n| json!({"required": [format!("x{n}")]})).collect();
    let small = json!({"y": 1});
    let large = json!({"y": vec![json!({"z": "z"}); 4_000]});
    rejects(&json!({"oneOf": choices}), &small, "");
    rejects(&json!({"type": "object", "oneOf": choices}), &large, "too large to locate the error");
    rejects(&json!({"type": "object", "anyOf": choices}), &large, "too large to locate the error");
}

#[test]
fn a_schema_that_takes_much_room_once_it_is_compiled_is_refused() {
    // Each of them is a few bytes, and compiles to a hundred kilobytes.
    let property =
        |n: usize| (format!("p{n}"), json!({"pattern": format!("^([a-f]{{1,{}}}x)+$", 1_000 + n)}));
    let bombs: Map<String, Value> = (0..190).map(property).collect();
    refused(&json!({"properties": bombs}), "its compiled form would take about");
    let few: Map<String, Value> = (0..20).map(property).collect();
    rejects(&json!({"properties": few}), &json!({"p1": "z"}), "does not match");
    // Real schemas have many short patterns.
    let short: Map<String, Value> =
        (0..190).map(|n| (format!("p{n}"), json!({"pattern": format!("^[a-z]+{n}$")}))).collect();
    rejects(&json!({"properties": short}), &json!({"p1": "z"}), "does not match");
}

#[test]
fn all_schemas_together_take_no_more_room_than_there_is() {
    let heavy = |n: usize| {
        let property = |p: usize| {
            (format!("p{p}"), json!({"pattern": format!("^([a-f{n}]{{1,{}}}x)+$", 1_000 + p)}))
        };
        Schema::new(RawJson::of(
            &json!({"properties": (0..60).map(property).collect::<Map<_, _>>()}),
        ))
    };
    // The memory never exceeds the budgets of 128 and 64 MiB. An evicted schema is checked as
    // before.
    let schemas: Vec<Schema> = (0..10).map(heavy).collect();
    for schema in schemas.iter().chain(&schemas[..2]) {
        assert!(schema.validate(&RawJson::of(&json!({"p1": "z"}))).is_err());
        assert!(schema.validate(&RawJson::of(&json!({"p1": "ax"}))).is_ok());
        assert!(sa_schema::compiled_bytes() <= 192 << 20, "{}", sa_schema::compiled_bytes());
    }
    assert!(sa_schema::compiled_bytes() > 100 << 20, "they would not have fitted in all at once");
    drop(schemas);
    assert!(sa_schema::compiled_bytes() < 100 << 20, "they take no room once their tools are gone");
}

#[test]
fn what_takes_long_to_check_weighs_more_than_its_text() {
    let args = RawJson::of(&json!({"a": "x".repeat(2_000)}));
    let validation_cost = |schema: Value| Schema::new(RawJson::of(&schema)).validation_cost(&args);
    let checked = |schema: Value| {
        let schema = Schema::new(RawJson::of(&schema));
        let _ = schema.check();
        schema.validation_cost(&args)
    };
    let plain = json!({"type": "object", "properties": {"a": {"type": "string"}}});
    let pattern = json!({"properties": {"a": {"pattern": "^x+$"}}});
    let hidden = RawJson::parse(r#"{"properties": {"a": {"\u0070attern": "^x+$"}}}"#).unwrap();
    let choices: Vec<Value> = (0..3_000).map(|n| json!({"const": n})).collect();
    // A schema counts as large if it is not compiled and may take long. A plain or compiled one
    // does not.
    assert_eq!(
        (validation_cost(plain.clone()), validation_cost(pattern.clone())),
        (args.len(), sa_limits::offload::LARGE)
    );
    assert_eq!(Schema::new(hidden).validation_cost(&args), sa_limits::offload::LARGE);
    assert_eq!((checked(plain), checked(pattern)), (args.len(), args.len()));
    // Thousands of alternatives for one value count as large.
    assert!(checked(json!({"properties": {"a": {"anyOf": choices}}})) > sa_limits::offload::LARGE);
}
