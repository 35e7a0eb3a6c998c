//! References stay inside the document, and recursive schemas stay finite.

use sa_openapi::ProblemKind;
use serde_json::{Value, json};

use crate::support::{call, document, schema, target, with};

fn body(schema: Value) -> Value {
    json!({"requestBody": {"content": {"application/json": {"schema": schema}}}})
}

#[track_caller]
fn valid(schema: &Value, arguments: Value, expected: bool) {
    let validator = jsonschema::validator_for(schema).unwrap();
    assert_eq!(validator.is_valid(&arguments), expected, "{schema} {arguments}");
}

#[test]
fn a_schema_is_defined_once() {
    let pet =
        json!({"type": "object", "properties": {"tag": {"$ref": "#/components/schemas/Tag"}}});
    let components =
        json!({"schemas": {"Pet": pet, "Tag": {"type": "string"}, "Unused": {"type": "null"}}});
    let operation = body(json!({"type": "array", "items": {"$ref": "#/components/schemas/Pet"}}));
    let schema = schema(&with(operation, components), "call");
    assert_eq!(
        schema["$defs"],
        json!({
            "Pet": {"type": "object", "properties": {"tag": {"$ref": "#/$defs/Tag"}}},
            "Tag": {"type": "string"},
        })
    );
    valid(&schema, json!({"_requestBody": [{"tag": "x"}]}), true);
    valid(&schema, json!({"_requestBody": [{"tag": 1}]}), false);
}

#[test]
fn a_recursive_schema_is_finite() {
    let tree = json!({"type": "object", "properties": {
        "left": {"$ref": "#/components/schemas/Tree"},
        "others": {"type": "array", "items": {"$ref": "#/components/schemas/Tree"}},
    }});
    let schema = schema(
        &with(
            body(json!({"$ref": "#/components/schemas/Tree"})),
            json!({"schemas": {"Tree": tree}}),
        ),
        "call",
    );
    valid(&schema, json!({"_requestBody": {"left": {"others": [{"left": {}}]}}}), true);
    valid(&schema, json!({"_requestBody": {"left": {"others": [{"left": 1}]}}}), false);
}

#[test]
fn references_lead_anywhere_in_the_document() {
    let components = json!({"schemas": {"a/b": {"properties": {"x": {"type": "integer"}}}}});
    let reference = "#/components/schemas/a~1b/properties/x";
    let schema = schema(&with(body(json!({"$ref": reference})), components.clone()), "call");
    assert_eq!(schema["$defs"], json!({"x": {"type": "integer"}}));
    let encoded = "#/components/schemas/a~1b/properties%2Fx";
    assert!(with(body(json!({"$ref": encoded})), components).problems().is_empty());
}

#[test]
fn two_definitions_of_one_name_stay_apart() {
    let components =
        json!({"schemas": {"x": {"type": "string"}}, "other": {"x": {"type": "integer"}}});
    let both =
        json!({"anyOf": [{"$ref": "#/components/schemas/x"}, {"$ref": "#/components/other/x"}]});
    let schema = schema(&with(body(both), components), "call");
    assert_eq!(schema["$defs"], json!({"x": {"type": "string"}, "x_2": {"type": "integer"}}));
}

#[test]
fn parameters_bodies_and_paths_are_followed() {
    let components = json!({
        "parameters": {"Limit": {"$ref": "#/components/parameters/Real"}, "Real": {"name": "limit", "in": "query"}},
        "requestBodies": {"Pet": {"required": true, "content": {"application/json": {}}}},
        "pathItems": {"Shared": {"post": {
            "operationId": "call",
            "parameters": [{"$ref": "#/components/parameters/Limit"}],
            "requestBody": {"$ref": "#/components/requestBodies/Pet"},
        }}},
    });
    let document = document(json!({"/x": {"$ref": "#/components/pathItems/Shared"}}), components);
    let request = call(&document, json!({"limit": 5, "_requestBody": {}})).unwrap();
    assert_eq!(target(&request), "/x?limit=5");
}

#[test]
fn a_remote_reference_leaves_its_operation_out() {
    for remote in [
        "https://evil.example/x.json",
        "other.yaml#/Pet",
        "file:///etc/passwd",
        "//evil.example/x",
        "Pet",
    ] {
        let bad = |operation: Value| json!({"post": operation, "get": {"operationId": "fine"}});
        for operation in [
            body(json!({"properties": {"deep": {"items": {"$ref": remote}}}})),
            json!({"parameters": [{"$ref": remote}]}),
            json!({"requestBody": {"$ref": remote}}),
        ] {
            let document = document(json!({"/a": bad(operation)}), json!({}));
            assert_eq!(document.operations().len(), 1, "{remote}");
            let [problem] = document.problems() else { panic!("{:?}", document.problems()) };
            assert_eq!(problem.kind, ProblemKind::RemoteReference);
            assert!(problem.pointer.starts_with("/paths/~1a/post"), "{problem}");
        }
    }
}

#[test]
fn what_is_not_called_may_be_broken() {
    let responses = json!({"200": {"content": {"application/json": {"schema": {"$ref": "https://evil.example/"}}}}});
    let document = document(
        json!({"/a": {"get": {"operationId": "call", "responses": responses}}}),
        json!({}),
    );
    assert!(document.problems().is_empty());
}

#[test]
fn a_broken_reference_in_a_field_only_frees_the_field() {
    let document =
        with(body(json!({"properties": {"a": {"$ref": "#/components/schemas/Gone"}}})), json!({}));
    assert_eq!(document.problems()[0].kind, ProblemKind::BrokenReference);
    assert!(
        document.problems()[0].pointer.ends_with("/schema/properties/a"),
        "{}",
        document.problems()[0]
    );
    valid(&schema(&document, "call"), json!({"_requestBody": {"a": [1]}}), true);
}

#[test]
fn references_that_go_in_circles() {
    let circle = json!({"schemas": {"A": {"$ref": "#/components/schemas/B"}, "B": {"$ref": "#/components/schemas/A"}}});
    let document = with(body(json!({"$ref": "#/components/schemas/A"})), circle);
    assert_eq!(document.problems()[0].kind, ProblemKind::BrokenReference);
    valid(&schema(&document, "call"), json!({"_requestBody": 1}), true);
    let circle = json!({"parameters": {"A": {"$ref": "#/components/parameters/A"}}});
    let operation =
        json!({"operationId": "x", "parameters": [{"$ref": "#/components/parameters/A"}]});
    let paths = json!({"/a": {"post": operation, "get": {"operationId": "fine"}}});
    let document = crate::support::document(paths, circle);
    assert_eq!(document.problems()[0].kind, ProblemKind::BrokenReference);
    assert_eq!(document.operations().len(), 1);
}
