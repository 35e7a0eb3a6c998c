//! Determines which settings are secret.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;

use crate::settings::{MASK, Settings};

/// The minimum length of a secret. Shorter values would match everywhere, and cannot protect
/// much.
pub(crate) const SHORTEST: usize = 4;

/// All schemas that describe one value. A value without any schema is not described, and counts
/// as secret.
type Schemas<'a> = Vec<&'a Value>;

/// Masks settings for display. A value is shown only if the schema describes it, and nowhere
/// marks it as a password.
pub(crate) fn masked(settings: &Settings, schema: &Value) -> Value {
    let root = holding(schema);
    let shown = |(name, value): (&String, &Value)| (name.clone(), mask(value, &below(&root, name)));
    Value::Object(settings.iter().map(shown).collect())
}

/// Returns the texts that must not be revealed.
pub(crate) fn secrets(settings: &Settings, schema: Option<&Value>) -> Vec<String> {
    let root = schema.map(holding).unwrap_or_default();
    let mut found = Vec::new();
    for (name, value) in settings {
        collect(value, &below(&root, name), &mut found);
    }
    found
}

/// Restores the stored secrets that are absent in the new settings. Only values that the schema
/// marks as secret are restored: undescribed ones could never be removed.
pub(crate) fn keep(settings: &mut Settings, former: &Settings, schema: &Value) {
    keep_in(settings, former, &holding(schema));
}

fn keep_in(settings: &mut Settings, former: &Settings, schemas: &[&Value]) {
    let mut kept = Settings::new();
    for (name, value) in former {
        let fields = below(schemas, name);
        match settings.get_mut(name) {
            Some(Value::Object(inner)) => {
                if let Value::Object(value) = value {
                    keep_in(inner, value, &fields);
                }
            }
            Some(_) => {}
            None => {
                // A new value under another name of the setting replaces this one.
                let is_replaced = settings.keys().any(|other| is_same(schemas, name, other));
                if !fields.is_empty() && is_secret(&fields) && !is_replaced {
                    kept.insert(name.clone(), value.clone());
                }
            }
        }
    }
    settings.extend(kept);
}

/// Returns the first name that the schema does not list, with the listed names. A schema with
/// rules for further names, or with a reference, may allow any name.
pub(crate) fn undescribed(settings: &Settings, schema: &Value) -> Option<(String, Vec<String>)> {
    undescribed_in(settings, &holding(schema), "")
}

fn undescribed_in(
    settings: &Settings,
    schemas: &[&Value],
    path: &str,
) -> Option<(String, Vec<String>)> {
    let open =
        ["additionalProperties", "patternProperties", "unevaluatedProperties", "propertyNames"];
    let fields = fields(schemas);
    let known: Vec<String> = fields.clone().map(|(name, _)| name.clone()).collect();
    let aliases: Vec<&str> = fields.filter_map(|(_, field)| alias(field)).collect();
    let closed = !schemas
        .iter()
        .any(|schema| refers(schema) || open.iter().any(|key| schema.get(key).is_some()));
    for (name, value) in settings {
        if closed && !known.is_empty() && !known.contains(name) && !aliases.contains(&name.as_str())
        {
            return Some((format!("{path}{name}"), known));
        }
        let Value::Object(inner) = value else { continue };
        let found = undescribed_in(inner, &below(schemas, name), &format!("{path}{name}/"));
        if found.is_some() {
            return found;
        }
    }
    None
}

/// Returns the schema and its subschemas. If one of them marks a value as a password, the value
/// counts as one.
fn holding(schema: &Value) -> Schemas<'_> {
    let lists =
        ["allOf", "anyOf", "oneOf"].iter().filter_map(|key| schema.get(key)?.as_array()).flatten();
    let single = ["if", "then", "else", "not"].iter().filter_map(|key| schema.get(key));
    let dependent = schema.get("dependentSchemas").and_then(Value::as_object).into_iter().flatten();
    let parts = lists.chain(single).chain(dependent.map(|(_, schema)| schema)).flat_map(holding);
    std::iter::once(schema).chain(parts).collect()
}

fn is_secret(schemas: &[&Value]) -> bool {
    let says = |schema: &&Value| {
        schema.get("format").and_then(Value::as_str) == Some("password")
            || schema.get("writeOnly") == Some(&true.into())
            || refers(schema)
    };
    schemas.is_empty() || schemas.iter().any(says)
}

/// References are not resolved, so the target may be a password.
fn refers(schema: &Value) -> bool {
    ["$ref", "$dynamicRef", "$recursiveRef"].iter().any(|key| schema.get(key).is_some())
}

/// Returns the schemas of a field.
fn below<'a>(schemas: &[&'a Value], name: &str) -> Schemas<'a> {
    if schemas.iter().any(|schema| refers(schema)) {
        return Schemas::new();
    }
    fields(schemas)
        .filter(|(known, field)| *known == name || alias(field) == Some(name))
        .flat_map(|(_, field)| holding(field))
        .collect()
}

fn fields<'a>(schemas: &[&'a Value]) -> impl Iterator<Item = (&'a String, &'a Value)> + Clone {
    schemas.iter().filter_map(|schema| schema.get("properties")?.as_object()).flatten()
}

/// Returns the alternative name of a setting.
fn alias(field: &Value) -> Option<&str> {
    field.get("x-alias")?.as_str()
}

/// Returns whether both are names of one setting.
fn is_same(schemas: &[&Value], one: &str, other: &str) -> bool {
    fields(schemas).any(|(name, field)| {
        let is_name = |text: &str| name == text || alias(field) == Some(text);
        is_name(one) && is_name(other)
    })
}

fn items<'a>(schemas: &[&'a Value]) -> Schemas<'a> {
    schemas.iter().filter_map(|schema| schema.get("items")).flat_map(holding).collect()
}

fn mask(value: &Value, schemas: &[&Value]) -> Value {
    match value {
        _ if is_secret(schemas) => Value::String(MASK.into()),
        Value::Object(fields) => {
            let shown = |(name, value): (&String, &Value)| {
                (name.clone(), mask(value, &below(schemas, name)))
            };
            Value::Object(fields.iter().map(shown).collect())
        }
        Value::Array(list) => {
            Value::Array(list.iter().map(|item| mask(item, &items(schemas))).collect())
        }
        _ => value.clone(),
    }
}

fn collect(value: &Value, schemas: &[&Value], found: &mut Vec<String>) {
    let secret = is_secret(schemas);
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let schemas = if secret { Schemas::new() } else { below(schemas, name) };
                collect(value, &schemas, found);
            }
        }
        Value::Array(list) => {
            for item in list {
                let schemas = if secret { Schemas::new() } else { items(schemas) };
                collect(item, &schemas, found);
            }
        }
        Value::String(text) if secret && text.len() >= SHORTEST => found.push(text.clone()),
        Value::Number(number) if secret && number.to_string().len() >= SHORTEST => {
            found.push(number.to_string());
        }
        _ => {}
    }
}

/// Returns the credentials of `Authorization` headers: the part after the scheme, and for `Basic`
/// also the password alone.
pub(crate) fn credentials(headers: &[(String, String)]) -> Vec<String> {
    let mut found = Vec::new();
    for (_, value) in headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("authorization"))
    {
        let (kind, after) = value.split_once(' ').unwrap_or(("", value));
        let after = after.trim();
        found.push(after.to_owned());
        let pair =
            BASE64_STANDARD.decode(after).ok().filter(|_| kind.eq_ignore_ascii_case("basic"));
        let pair = pair.and_then(|pair| String::from_utf8(pair).ok());
        found.extend(pair.and_then(|pair| Some(pair.split_once(':')?.1.to_owned())));
    }
    found.retain(|text| text.len() >= SHORTEST);
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(value: Value) -> Settings {
        let Value::Object(settings) = value else { panic!("{value}") };
        settings
    }

    #[track_caller]
    fn check_hidden(schema: &Value) {
        let settings = object(json!({ "apiKey": "canary-1", "more": { "pin": "canary-2" } }));
        let shown = masked(&settings, schema);
        assert!(shown.is_object() && !shown.to_string().contains("canary"), "{schema}: {shown}");
        assert_eq!(secrets(&settings, Some(schema)), ["canary-1", "canary-2"], "{schema}");
    }

    #[test]
    fn a_password_is_one_however_the_schema_says_so() {
        let secret = json!({ "type": "string", "format": "password" });
        let plain = json!({ "type": "string" });
        let both = |field: Value| json!({ "properties": { "apiKey": field, "more": { "properties": { "pin": field } } } });
        let simple = both(plain.clone());
        check_hidden(&both(secret.clone()));
        check_hidden(&both(json!({ "allOf": [plain, { "anyOf": [{}, secret] }] })));
        check_hidden(&both(json!({ "oneOf": [{ "type": "null" }, secret] })));
        check_hidden(&both(json!({ "$ref": "#/$defs/secret" })));
        check_hidden(
            &json!({ "properties": simple["properties"], "allOf": [both(secret.clone())] }),
        );
        check_hidden(
            &json!({ "properties": simple["properties"], "if": {}, "then": both(secret.clone()) }),
        );
        check_hidden(
            &json!({ "properties": simple["properties"], "dependentSchemas": { "x": both(secret) } }),
        );
        check_hidden(&json!({ "properties": simple["properties"], "$ref": "#/$defs/all" }));
        check_hidden(&json!({}));
        let settings = object(json!({ "apiKey": "shown", "more": { "pin": "shown" } }));
        assert_eq!(masked(&settings, &simple), Value::Object(settings));
    }

    #[test]
    fn without_a_schema_everything_is_secret() {
        let settings =
            json!({ "a": "canary-1", "b": ["canary-2", 123_456], "c": "abc", "d": 7, "e": true });
        assert_eq!(secrets(&object(settings), None), ["canary-1", "canary-2", "123456"]);
    }

    #[test]
    fn a_secret_that_is_left_out_stays_and_anything_else_goes() {
        let schema = json!({ "properties": {
            "apiKey": { "format": "password" }, "endpoint": {},
            "more": { "properties": { "pin": { "writeOnly": true }, "depth": {} } }
        } });
        let former = object(
            json!({ "apiKey": "k", "endpoint": "e", "more": { "pin": "p", "depth": 1 }, "else": 1 }),
        );
        let mut settings = object(json!({ "more": {} }));
        keep(&mut settings, &former, &schema);
        assert_eq!(Value::Object(settings), json!({ "apiKey": "k", "more": { "pin": "p" } }));
        let mut settings = object(json!({ "apiKey": "new" }));
        keep(&mut settings, &former, &schema);
        assert_eq!(Value::Object(settings), json!({ "apiKey": "new" }));
    }

    #[test]
    fn a_secret_stays_under_either_of_its_names() {
        let schema = json!({ "properties": {
            "login": { "format": "password", "x-alias": "login_accessToken" }, "other": {}
        } });
        let kept = |settings: Value, former: Value| {
            let mut settings = object(settings);
            keep(&mut settings, &object(former), &schema);
            Value::Object(settings)
        };
        for name in ["login", "login_accessToken"] {
            let both = json!({ "other": 1, (name): "token" });
            assert_eq!(kept(json!({ "other": 1 }), json!({ (name): "token" })), both);
            // A new value under one name replaces an old value under the other.
            for new in ["login", "login_accessToken"] {
                let new = json!({ (new): "new" });
                assert_eq!(kept(new.clone(), json!({ (name): "token" })), new);
            }
        }
        let both = json!({ "login": "used", "login_accessToken": "unused" });
        assert_eq!(kept(json!({}), both.clone()), both);
    }

    #[test]
    fn a_name_is_unknown_only_where_the_schema_lists_the_names() {
        let unknown = |settings: Value, schema: &Value| {
            undescribed(&object(settings), schema).map(|(name, _)| name)
        };
        let listed = json!({ "properties": { "a": { "properties": { "b": {} } } }, "allOf": [{ "properties": { "c": {} } }] });
        assert_eq!(unknown(json!({ "a": { "b": 1 }, "c": 1 }), &listed), None);
        assert_eq!(unknown(json!({ "d": 1 }), &listed).as_deref(), Some("d"));
        assert_eq!(unknown(json!({ "a": { "e": 1 } }), &listed).as_deref(), Some("a/e"));
        let alias = json!({ "properties": { "a": { "x-alias": "b" } } });
        assert_eq!(unknown(json!({ "a": 1, "b": 1 }), &alias), None);
        for open in [
            json!({}),
            json!({ "properties": { "a": {} }, "additionalProperties": true }),
            json!({ "$ref": "#/x", "properties": { "a": {} } }),
        ] {
            assert_eq!(unknown(json!({ "d": 1 }), &open), None, "{open}");
        }
    }

    #[test]
    fn credentials_are_what_follows_the_word() {
        let headers = [
            ("Accept".to_owned(), "text/plain".to_owned()),
            ("authorization".into(), "Basic dTpwYTpzcw==".into()),
        ];
        assert_eq!(credentials(&headers), ["dTpwYTpzcw==", "pa:ss"]);
        assert_eq!(
            credentials(&[("Authorization".to_owned(), "Bearer dTpwYTpzcw==".to_owned())]).len(),
            1
        );
    }
}
