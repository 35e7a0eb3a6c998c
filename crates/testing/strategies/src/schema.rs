//! JSON Schemas, and what is nearly one.

use proptest::prelude::*;
use serde_json::{Value, json};

/// Anything that is made of the words of JSON Schema, with a definition that it may refer to.
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
