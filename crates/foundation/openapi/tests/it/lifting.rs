//! Schemas of OpenAPI 3.0 keep their meaning as JSON Schema 2020-12, and invalid keywords are
//! dropped.

use serde_json::{Value, json};

use crate::support::{parse, schema};

fn lifted(version: &str, written: Value) -> Value {
    let document = parse(&json!({
        "openapi": version,
        "paths": {"/a": {"post": {
            "operationId": "call",
            "requestBody": {"content": {"application/json": {"schema": written}}},
        }}},
        "components": {"schemas": {"Pet": {"type": "object"}, "Id": {"type": "integer", "readOnly": true}}},
    }));
    let schema = schema(&document, "call");
    jsonschema::validator_for(&schema).unwrap();
    schema["properties"]["_requestBody"].clone()
}

#[track_caller]
fn check(written: Value, expected: Value) {
    assert_eq!(lifted("3.0.3", written), expected);
}

#[track_caller]
fn check_31(written: Value, expected: Value) {
    assert_eq!(lifted("3.1.0", written), expected);
}

#[test]
fn nullable() {
    check(json!({"type": "string", "nullable": true}), json!({"type": ["string", "null"]}));
    check(json!({"type": "string", "nullable": false}), json!({"type": "string"}));
    let either = json!({"type": ["string", "null"], "enum": ["a", null]});
    check(json!({"type": "string", "nullable": true, "enum": ["a"]}), either);
    let reference = json!({"$ref": "#/$defs/Pet"});
    check(
        json!({"nullable": true, "allOf": [{"$ref": "#/components/schemas/Pet"}]}),
        json!({"anyOf": [{"allOf": [reference]}, {"type": "null"}]}),
    );
    check(
        json!({"nullable": true, "$ref": "#/components/schemas/Pet"}),
        json!({"anyOf": [reference, {"type": "null"}]}),
    );
    check(json!({"nullable": true}), json!({}));
    check_31(
        json!({"type": ["string", "null"], "nullable": true}),
        json!({"type": ["string", "null"]}),
    );
}

#[test]
fn exclusive_bounds() {
    check(json!({"minimum": 1, "exclusiveMinimum": true}), json!({"exclusiveMinimum": 1}));
    check(json!({"maximum": 9, "exclusiveMaximum": true}), json!({"exclusiveMaximum": 9}));
    check(json!({"minimum": 1, "exclusiveMinimum": false}), json!({"minimum": 1}));
    check_31(json!({"exclusiveMinimum": 1}), json!({"exclusiveMinimum": 1}));
    check_31(json!({"minimum": 1, "exclusiveMinimum": true}), json!({"exclusiveMinimum": 1}));
}

#[test]
fn examples_and_formats() {
    check(json!({"example": {"a": 1}}), json!({"examples": [{"a": 1}]}));
    check_31(json!({"examples": [1], "example": 2}), json!({"examples": [1]}));
    check(
        json!({"type": "string", "format": "binary"}),
        json!({"type": "string", "contentMediaType": "application/octet-stream"}),
    );
    check(
        json!({"type": "string", "format": "byte"}),
        json!({"type": "string", "contentEncoding": "base64"}),
    );
    check(json!({"type": "string", "format": "date"}), json!({"type": "string", "format": "date"}));
}

#[test]
fn beside_a_reference() {
    let written =
        json!({"$ref": "#/components/schemas/Pet", "description": "d", "minProperties": 1});
    check(written.clone(), json!({"$ref": "#/$defs/Pet", "description": "d"}));
    check_31(written, json!({"$ref": "#/$defs/Pet", "description": "d", "minProperties": 1}));
}

#[test]
fn what_only_the_server_sets_is_not_sent() {
    check(
        json!({
            "properties": {
                "id": {"$ref": "#/components/schemas/Id"},
                "at": {"type": "string", "readOnly": true},
                "name": {"type": "string"},
            },
            "required": ["id", "at", "name"],
        }),
        json!({"properties": {"name": {"type": "string"}}, "required": ["name"]}),
    );
}

#[test]
fn what_belongs_to_openapi_alone_is_dropped() {
    let written = json!({
        "type": "object", "discriminator": {"propertyName": "a"}, "xml": {}, "externalDocs": {}, "x-internal": 1,
        "$id": "https://evil.example/", "$schema": "https://evil.example/", "$anchor": "a", "$dynamicRef": "#a",
    });
    check_31(written, json!({"type": "object"}));
}

#[test]
fn sloppy_schemas() {
    check(json!({"type": "any"}), json!({}));
    check(json!({"type": "String"}), json!({"type": "string"}));
    check(json!({"type": "int"}), json!({"type": "integer"}));
    check_31(json!({"type": ["string", "string", "nonsense"]}), json!({"type": ["string"]}));
    check(json!({"type": "string", "required": true}), json!({"type": "string"}));
    check(json!({"required": ["a", "a", 1]}), json!({"required": ["a"]}));
    check(json!({"minLength": "1", "maxLength": -1, "multipleOf": 0, "minimum": "x"}), json!({}));
    check(
        json!({"enum": [], "allOf": [], "pattern": 1, "properties": [], "uniqueItems": "yes"}),
        json!({}),
    );
    check(json!({"items": [{"type": "string"}]}), json!({"prefixItems": [{"type": "string"}]}));
    check(
        json!({"properties": {"a": "string", "b": null}}),
        json!({"properties": {"a": true, "b": true}}),
    );
    check_31(
        json!({"additionalProperties": false, "not": true}),
        json!({"additionalProperties": false, "not": true}),
    );
    check(json!("string"), json!(true));
}
