//! Converts the schema of a tool's arguments into the form that OpenAI and Anthropic accept: an
//! object at the top level, and no choice between several.
//!
//! The removed constraints are not lost: the router checks arguments against the tool's own schema,
//! and the model receives the errors.

use serde_json::{Map, Value, json};

/// The maximum length of a chain of references at the top level.
const MAX_HOPS: usize = 8;
/// The keywords that neither of them accepts at the top level.
const CHOICES: [&str; 10] =
    ["allOf", "anyOf", "oneOf", "not", "enum", "const", "if", "then", "else", "dependentSchemas"];

pub(super) fn object(schema: Option<Value>) -> Value {
    let mut top = match schema {
        Some(Value::Object(top)) => top,
        _ => Map::new(),
    };
    let root = Value::Object(top.clone());
    for _ in 0..MAX_HOPS {
        let Some(target) =
            top.get("$ref").and_then(Value::as_str).and_then(|place| follow(&root, place))
        else {
            break;
        };
        let definitions: Vec<_> = ["$defs", "definitions"]
            .into_iter()
            .filter_map(|name| Some((name, top.get(name)?.clone())))
            .collect();
        top = target.as_object().cloned().unwrap_or_default();
        for (name, definitions) in definitions {
            top.entry(name).or_insert(definitions);
        }
    }
    for field in ["$ref", "$schema", "$id"] {
        top.remove(field);
    }
    if CHOICES.iter().any(|field| top.contains_key(*field)) {
        flatten(&mut top, &root);
    }
    top.insert("type".into(), json!("object"));
    if !top.get("properties").is_some_and(Value::is_object) {
        top.insert("properties".into(), json!({}));
    }
    Value::Object(top)
}

/// Merges the alternatives: the result has the properties of all of them. A property is required if
/// every alternative requires it, or with `allOf`, if any does.
fn flatten(top: &mut Map<String, Value>, root: &Value) {
    let mut properties =
        top.get("properties").and_then(Value::as_object).cloned().unwrap_or_default();
    let mut required = names(top.get("required"));
    for field in ["allOf", "anyOf", "oneOf"] {
        let branches: Vec<&Value> =
            top.get(field).and_then(Value::as_array).into_iter().flatten().collect();
        let branches: Vec<&Value> = branches
            .into_iter()
            .map(|branch| {
                branch["$ref"].as_str().and_then(|place| follow(root, place)).unwrap_or(branch)
            })
            .collect();
        let mut common: Option<Vec<String>> = None;
        for branch in branches {
            for (name, property) in branch["properties"].as_object().into_iter().flatten() {
                properties.entry(name.clone()).or_insert_with(|| property.clone());
            }
            let wanted = names(branch.get("required"));
            common = Some(match common {
                Some(common) if field == "allOf" => common.into_iter().chain(wanted).collect(),
                Some(common) => common.into_iter().filter(|name| wanted.contains(name)).collect(),
                None => wanted,
            });
        }
        for name in common.unwrap_or_default() {
            if !required.contains(&name) {
                required.push(name);
            }
        }
    }
    for field in CHOICES {
        top.remove(field);
    }
    top.insert("properties".into(), Value::Object(properties));
    if !required.is_empty() {
        top.insert("required".into(), json!(required));
    }
}

fn names(list: Option<&Value>) -> Vec<String> {
    list.and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(ToOwned::to_owned)
        .collect()
}

/// Returns the target of a reference within the same document.
pub(super) fn follow<'a>(root: &'a Value, place: &str) -> Option<&'a Value> {
    root.pointer(place.strip_prefix('#')?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(schema: Value, expected: Value) {
        assert_eq!(object(Some(schema)), expected);
    }

    #[test]
    fn an_object_stays_as_it_is() {
        let plain = json!({ "type": "object", "properties": { "a": { "$ref": "#/$defs/x" } }, "$defs": { "x": {} } });
        check(plain.clone(), plain);
        check(json!({ "$schema": "x" }), json!({ "type": "object", "properties": {} }));
        check(json!(true), json!({ "type": "object", "properties": {} }));
        check(json!({ "type": ["object", "null"] }), json!({ "type": "object", "properties": {} }));
    }

    #[test]
    fn choices_at_the_top_are_taken_apart() {
        let branch = |name: &str| json!({ "properties": { name: { "type": "string" }, "x": {} }, "required": [name, "x"] });
        let all = json!({ "a": { "type": "string" }, "b": { "type": "string" }, "x": {} });
        check(
            json!({ "anyOf": [branch("a"), branch("b")] }),
            json!({ "type": "object", "properties": all, "required": ["x"] }),
        );
        let both = object(Some(json!({ "allOf": [branch("a"), branch("b")] })));
        assert_eq!(both["required"], json!(["a", "x", "b"]));
    }

    #[test]
    fn a_reference_at_the_top_is_followed_and_a_circle_ends() {
        let schema = json!({ "$ref": "#/$defs/a", "$defs": { "a": { "type": "object", "properties": { "p": {} } } } });
        assert_eq!(object(Some(schema))["properties"], json!({ "p": {} }));
        let circle = json!({ "$ref": "#/$defs/a", "$defs": { "a": { "$ref": "#/$defs/a" } } });
        assert_eq!(object(Some(circle))["properties"], json!({}));
        check(
            json!({ "$ref": "http://elsewhere/x" }),
            json!({ "type": "object", "properties": {} }),
        );
    }
}
