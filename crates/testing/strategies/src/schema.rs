//! JSON Schemas, and nearly valid ones.

use proptest::prelude::*;
use serde_json::{Value, json};

/// Any value made from the words of JSON Schema, with a definition to which it may refer.
pub fn schema() -> impl Strategy<Value = Value> + Clone {
    (crate::json(WORDS), crate::json(WORDS)).prop_map(|(mut schema, definition)| {
        if let Some(fields) = schema.as_object_mut() {
            fields.insert("$defs".into(), json!({ "a": definition }));
        }
        schema
    })
}

const WORDS: &[&str] = &[
    "type",
    "string",
    "integer",
    "object",
    "array",
    "null",
    "properties",
    "items",
    "prefixItems",
    "required",
    "anyOf",
    "oneOf",
    "allOf",
    "not",
    "if",
    "then",
    "else",
    "enum",
    "const",
    "pattern",
    "^a+$",
    "(?=a)b",
    "patternProperties",
    "additionalProperties",
    "unevaluatedProperties",
    "propertyNames",
    "dependentSchemas",
    "$ref",
    "$dynamicRef",
    "#",
    "#/$defs/a",
    "#/%24defs/a",
    "#a",
    "$defs",
    "$id",
    "$anchor",
    "a",
    "minimum",
    "multipleOf",
    "maxLength",
    "uniqueItems",
    "format",
    "date",
    "description",
    "nullable",
];
