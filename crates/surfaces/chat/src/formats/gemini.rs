//! Converts JSON Schema into the subset that Gemini supports: that of OpenAPI 3.0, without
//! references, and with a type everywhere.

use serde_json::{Map, Value, json};

use super::schema::follow;

const MAX_DEPTH: usize = 16;
/// The maximum number of schemas in one tool's schema after its references are expanded.
const MAX_NODES: usize = 2_000;
/// The maximum size of repeated expansions, for another reference or another type, in bytes.
const MAX_REPEATED: usize = 2 << 20;
/// The number of types without `null`.
const TYPES: usize = 6;
/// Fields that are copied unchanged.
const SUPPORTED_FIELDS: [&str; 13] = [
    "title",
    "description",
    "nullable",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "pattern",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "propertyOrdering",
];

pub(super) fn subset(schema: &Value) -> Value {
    let mut work = Work { root: schema, nodes: 0, repeated: 0, followed: Vec::new() };
    Value::Object(work.convert(schema, 0))
}

struct Work<'a> {
    root: &'a Value,
    nodes: usize,
    repeated: usize,
    /// The references that are being expanded, to detect cycles.
    followed: Vec<String>,
}

impl Work<'_> {
    fn convert(&mut self, schema: &Value, depth: usize) -> Map<String, Value> {
        self.nodes += 1;
        let Some(fields) = schema.as_object() else { return typed("STRING") };
        if depth > MAX_DEPTH || self.nodes > MAX_NODES {
            return typed("OBJECT");
        }
        if let Some(place) = fields.get("$ref").and_then(Value::as_str) {
            return self.reference(place, fields, depth);
        }
        if let Some(parts) = fields.get("allOf").and_then(Value::as_array) {
            let mut merged = fields.clone();
            merged.remove("allOf");
            for part in parts {
                merge(&mut merged, part.as_object().cloned().unwrap_or_default());
            }
            return self.convert(&Value::Object(merged), depth + 1);
        }
        let (choices, nullable) = choices(fields);
        match choices.as_slice() {
            [] => {}
            [only] => {
                let mut merged = fields.clone();
                merged.remove("anyOf");
                merged.remove("oneOf");
                merged.remove("type");
                merge(&mut merged, only.as_object().cloned().unwrap_or_default());
                let mut converted = self.convert(&Value::Object(merged), depth + 1);
                if nullable {
                    converted.insert("nullable".into(), json!(true));
                }
                return converted;
            }
            // A choice must be the only field of its schema.
            several => {
                let several: Vec<Value> = several
                    .iter()
                    .map(|choice| {
                        Value::Object(if self.repeats(choice) {
                            self.convert(choice, depth + 1)
                        } else {
                            typed("OBJECT")
                        })
                    })
                    .collect();
                return Map::from_iter([("anyOf".to_owned(), Value::Array(several))]);
            }
        }
        self.plain(fields, nullable, depth)
    }

    fn reference(
        &mut self,
        place: &str,
        fields: &Map<String, Value>,
        depth: usize,
    ) -> Map<String, Value> {
        let target =
            follow(self.root, place).filter(|_| !self.followed.iter().any(|known| known == place));
        let Some(mut target) =
            target.filter(|target| self.repeats(target)).and_then(Value::as_object).cloned()
        else {
            return typed("OBJECT");
        };
        let beside = fields
            .iter()
            .filter(|(name, _)| *name != "$ref")
            .map(|(name, value)| (name.clone(), value.clone()));
        target.extend(beside);
        self.followed.push(place.to_owned());
        let converted = self.convert(&Value::Object(target), depth + 1);
        self.followed.pop();
        converted
    }

    /// Returns whether the budget allows another expansion.
    fn repeats(&mut self, schema: &Value) -> bool {
        self.repeated = self.repeated.saturating_add(schema.to_string().len());
        self.repeated <= MAX_REPEATED
    }

    fn plain(
        &mut self,
        fields: &Map<String, Value>,
        nullable: bool,
        depth: usize,
    ) -> Map<String, Value> {
        let mut out: Map<String, Value> = fields
            .iter()
            .filter(|(name, _)| SUPPORTED_FIELDS.contains(&name.as_str()))
            .map(|(n, v)| (n.clone(), v.clone()))
            .collect();
        let kind = kind(fields);
        out.insert("type".into(), json!(kind));
        if nullable {
            out.insert("nullable".into(), json!(true));
        }
        let format = fields.get("format").and_then(Value::as_str).unwrap_or_default();
        let known = match kind {
            "STRING" => ["date-time", "enum"],
            "NUMBER" => ["float", "double"],
            "INTEGER" => ["int32", "int64"],
            _ => ["", ""],
        };
        if !format.is_empty() && known.contains(&format) {
            out.insert("format".into(), json!(format));
        }
        let constant = fields.get("const").map(|value| vec![value.clone()]);
        if let Some(values) = fields.get("enum").and_then(Value::as_array).cloned().or(constant) {
            let words: Vec<&str> =
                values.iter().filter_map(Value::as_str).filter(|word| !word.is_empty()).collect();
            if kind == "STRING" && !words.is_empty() {
                out.insert("enum".into(), json!(words));
            } else if kind != "STRING" {
                // Only texts may be enumerated; other values are listed in the description.
                let list: Vec<String> = values.iter().map(ToString::to_string).collect();
                let description =
                    out.get("description").and_then(Value::as_str).unwrap_or_default();
                let text = format!("{description} One of {}.", list.join(", "));
                out.insert("description".into(), json!(text.trim()));
            }
        }
        if kind == "ARRAY" {
            let items = match fields.get("items").or_else(|| fields.get("prefixItems")) {
                Some(Value::Array(each)) => each.first().cloned().unwrap_or_default(),
                Some(items) => items.clone(),
                None => Value::Null,
            };
            out.insert("items".into(), Value::Object(self.convert(&items, depth + 1)));
        }
        if let Some(properties) =
            fields.get("properties").and_then(Value::as_object).filter(|_| kind == "OBJECT")
        {
            let converted: Map<String, Value> = properties
                .iter()
                .map(|(name, property)| {
                    (name.clone(), Value::Object(self.convert(property, depth + 1)))
                })
                .collect();
            let required: Vec<&str> = fields
                .get("required")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .filter(|name| converted.contains_key(*name))
                .collect();
            if !required.is_empty() {
                out.insert("required".into(), json!(required));
            }
            out.insert("properties".into(), Value::Object(converted));
        }
        out
    }
}

/// Returns the alternatives without `null`, and whether `null` was one of them.
fn choices(fields: &Map<String, Value>) -> (Vec<Value>, bool) {
    let is_null = |schema: &Value| schema["type"] == "null";
    if let Some(each) =
        fields.get("anyOf").or_else(|| fields.get("oneOf")).and_then(Value::as_array)
    {
        let nullable = each.iter().any(is_null);
        return (each.iter().filter(|schema| !is_null(schema)).cloned().collect(), nullable);
    }
    match fields.get("type").and_then(Value::as_array) {
        Some(kinds) => {
            let nullable = kinds.iter().any(|kind| kind == "null");
            let kinds: Vec<&Value> =
                kinds.iter().filter(|kind| *kind != "null").take(TYPES).collect();
            let alone = |kind: &&Value| {
                let mut fields = fields.clone();
                fields.insert("type".into(), (*kind).clone());
                Value::Object(fields)
            };
            if kinds.len() == 1 {
                let mut fields = fields.clone();
                fields.insert("type".into(), kinds[0].clone());
                return (vec![Value::Object(fields)], nullable);
            }
            (kinds.iter().map(alone).collect(), nullable)
        }
        None => (Vec::new(), false),
    }
}

fn kind(fields: &Map<String, Value>) -> &'static str {
    let declared = fields.get("type").and_then(Value::as_str).map(str::to_ascii_lowercase);
    let example =
        fields.get("const").or_else(|| fields.get("enum").and_then(|values| values.get(0)));
    match (declared.as_deref(), example) {
        (Some("object"), _) => "OBJECT",
        (Some("array"), _) => "ARRAY",
        (Some("integer"), _) => "INTEGER",
        (Some("number"), _) => "NUMBER",
        (Some("boolean"), _) => "BOOLEAN",
        (None, _) if fields.contains_key("properties") => "OBJECT",
        (None, _) if fields.contains_key("items") => "ARRAY",
        (None, Some(Value::Bool(_))) => "BOOLEAN",
        (None, Some(Value::Number(number))) if number.is_f64() => "NUMBER",
        (None, Some(Value::Number(_))) => "INTEGER",
        _ => "STRING",
    }
}

/// Adds the fields of one schema to another, so that both apply.
fn merge(into: &mut Map<String, Value>, from: Map<String, Value>) {
    for (name, value) in from {
        match (into.get_mut(&name), value) {
            (Some(Value::Object(known)), Value::Object(more)) if name == "properties" => {
                known.extend(more);
            }
            (Some(Value::Array(known)), Value::Array(more)) if name == "required" => {
                known.extend(more);
            }
            (Some(_), _) => {}
            (None, value) => {
                into.insert(name, value);
            }
        }
    }
}

fn typed(kind: &str) -> Map<String, Value> {
    Map::from_iter([("type".to_owned(), json!(kind))])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(schema: Value, expected: Value) {
        assert_eq!(subset(&schema), expected, "{schema}");
    }

    #[test]
    fn unsupported_schemas_are_expressed_with_supported_fields() {
        check(
            json!({ "type": "string", "format": "uri", "minLength": 1 }),
            json!({ "type": "STRING", "minLength": 1 }),
        );
        check(json!({ "type": ["string", "null"] }), json!({ "type": "STRING", "nullable": true }));
        check(
            json!({ "type": ["string", "integer"] }),
            json!({ "anyOf": [{ "type": "STRING" }, { "type": "INTEGER" }] }),
        );
        check(
            json!({ "oneOf": [{ "type": "integer" }, { "type": "null" }] }),
            json!({ "type": "INTEGER", "nullable": true }),
        );
        check(json!({ "const": "x" }), json!({ "type": "STRING", "enum": ["x"] }));
        check(
            json!({ "enum": [1, 2] }),
            json!({ "type": "INTEGER", "description": "One of 1, 2." }),
        );
        check(
            json!({ "type": "array" }),
            json!({ "type": "ARRAY", "items": { "type": "STRING" } }),
        );
        check(
            json!({ "type": "object", "additionalProperties": false, "properties": { "a": true }, "required": ["a", "b"] }),
            json!({ "type": "OBJECT", "properties": { "a": { "type": "STRING" } }, "required": ["a"] }),
        );
    }

    #[test]
    fn references_are_written_out_and_circles_end() {
        let schema = json!({ "type": "object", "properties": { "a": { "$ref": "#/$defs/n", "description": "d" } },
            "$defs": { "n": { "type": "object", "properties": { "next": { "$ref": "#/$defs/n" } } } } });
        let node = json!({ "type": "OBJECT", "description": "d", "properties": { "next": { "type": "OBJECT" } } });
        check(schema, json!({ "type": "OBJECT", "properties": { "a": node } }));
    }

    #[test]
    fn a_schema_that_grows_without_bounds_does_not() {
        let mut definitions = Map::new();
        for level in 0..12 {
            let next = json!({ "$ref": format!("#/$defs/l{}", level + 1) });
            let properties: Map<String, Value> =
                (0..10).map(|n| (format!("p{n}"), next.clone())).collect();
            definitions
                .insert(format!("l{level}"), json!({ "type": "object", "properties": properties }));
        }
        definitions.insert("l12".into(), json!({ "type": "string" }));
        let schema = json!({ "$ref": "#/$defs/l0", "$defs": definitions });
        assert!(subset(&schema).to_string().len() < 5_000_000);
    }

    #[test]
    fn a_long_reference_is_expanded_a_limited_number_of_times() {
        let long = json!({ "type": "string", "description": "x".repeat(60_000) });
        let references: Map<String, Value> =
            (0..1_000).map(|n| (format!("p{n}"), json!({ "$ref": "#/$defs/long" }))).collect();
        let referring = json!({ "properties": references, "$defs": { "long": long } });
        let kinds = vec!["string"; 1_000];
        let choosing = json!({ "type": kinds, "description": "x".repeat(60_000) });
        for schema in [referring, choosing] {
            assert!(subset(&schema).to_string().len() < 2 * MAX_REPEATED);
        }
    }

    /// Returns whether there is a type, or a choice, everywhere Gemini requires one.
    fn has_types(schema: &Value) -> bool {
        let inner = |key: &str| {
            schema.get(key).and_then(Value::as_object).into_iter().flat_map(Map::values)
        };
        let choices = schema.get("anyOf").and_then(Value::as_array).into_iter().flatten();
        let mut parts = inner("properties").chain(choices).chain(schema.get("items"));
        (schema["type"].is_string() || schema["anyOf"].is_array()) && parts.all(has_types)
    }

    proptest::proptest! {
        #[test]
        fn every_schema_has_a_type_everywhere(schema in sa_hostile::schema()) {
            let subset = subset(&schema);
            proptest::prop_assert!(has_types(&subset), "{subset}");
        }
    }
}
