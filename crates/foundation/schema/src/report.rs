//! Errors as sentences: of values, and of schemas.

use std::fmt::Write as _;

use jsonschema::ValidationError;
use jsonschema::error::{TypeKind, ValidationErrorKind};
use sa_text::closest;
use sa_text::json::shortened;
use serde_json::Value;

/// The maximum number of errors in one message.
const MAX_ERRORS: usize = 5;

/// Describes the first errors of a value. `whole` names the value, and `describe` describes errors
/// without a sentence of their own.
pub(crate) fn message<'e>(
    errors: impl Iterator<Item = ValidationError<'e>>,
    schema: &Value,
    whole: &str,
    describe: impl Fn(&ValidationError<'_>) -> String,
) -> String {
    let mut message = String::new();
    for error in errors.take(MAX_ERRORS) {
        let separator = if message.is_empty() { "" } else { "; " };
        let _ = write!(message, "{separator}{}", sentence(&error, schema, whole, &describe));
    }
    message
}

fn sentence(
    error: &ValidationError<'_>,
    schema: &Value,
    whole: &str,
    describe: impl Fn(&ValidationError<'_>) -> String,
) -> String {
    let place = error.instance_path().to_string();
    match error.kind() {
        ValidationErrorKind::Required { property } => {
            let name = property.as_str().unwrap_or_default();
            // The error's schema path ends in `/required`. The property's own schema is its
            // sibling.
            let path = error.schema_path().to_string();
            let parent = path.strip_suffix("/required").unwrap_or_default();
            let kind = schema
                .pointer(parent)
                .and_then(|schema| schema.get("properties")?.get(name)?.get("type"))
                .map(|kind| kind.as_str().map_or_else(|| kind.to_string(), str::to_owned))
                .map(|kind| format!(" ({})", shortened(&kind)));
            let given = schema
                .pointer(parent)
                .and_then(|schema| misspelled(schema, name, error.instance()));
            let given = given
                .map(|given| format!(", did you misspell it as \"{given}\"?"))
                .unwrap_or_default();
            format!(
                "missing \"{}\"{}{}{given}",
                shortened(name),
                kind.unwrap_or_default(),
                at(&place)
            )
        }
        ValidationErrorKind::AdditionalProperties { unexpected } => {
            let path = error.schema_path().to_string();
            let parent = path.strip_suffix("/additionalProperties").unwrap_or_default();
            let known =
                schema.pointer(parent).and_then(|schema| schema.get("properties")?.as_object());
            let meant = suggestions(unexpected, known, error.instance());
            format!(
                "{}{}{meant}",
                shortened(&format!("unknown \"{}\"", unexpected.join("\", \""))),
                at(&place)
            )
        }
        ValidationErrorKind::Type { kind } => {
            let expected = match kind {
                TypeKind::Single(kind) => kind.to_string(),
                TypeKind::Multiple(kinds) => {
                    kinds.iter().map(|kind| kind.to_string()).collect::<Vec<_>>().join(" or ")
                }
            };
            let subject = subject(&place, whole);
            format!("{subject} must be {expected}, not {}", type_name(error.instance()))
        }
        ValidationErrorKind::Enum { options } => {
            let allowed: Vec<String> =
                options.as_array().into_iter().flatten().take(12).map(Value::to_string).collect();
            let more =
                if options.as_array().is_some_and(|all| all.len() > 12) { ", …" } else { "" };
            let subject = subject(&place, "the value");
            format!(
                "{subject} must be one of {}",
                shortened(&format!("{}{more}", allowed.join(", ")))
            )
        }
        _ if place.is_empty() => shortened(&describe(error)).into_owned(),
        _ => format!("{}: {}", subject(&place, ""), shortened(&describe(error))),
    }
}

/// The maximum number of names that are compared with known names.
const MAX_NAMES: usize = 16;

/// Returns the given name that is probably a misspelling of the missing one. If the schema refuses
/// other names, that error already suggests it.
fn misspelled<'a>(schema: &Value, missing: &str, given: &'a Value) -> Option<&'a str> {
    let known = schema.get("properties").and_then(Value::as_object);
    if schema.get("additionalProperties") == Some(&Value::Bool(false)) {
        return None;
    }
    let names = given.as_object()?.keys().map(String::as_str);
    let unknown = names.filter(|name| !known.is_some_and(|known| known.contains_key(*name)));
    closest(missing, unknown.take(MAX_NAMES))
}

/// Suggests known names that were not given, for unknown names.
fn suggestions(
    unknown: &[String],
    known: Option<&serde_json::Map<String, Value>>,
    given: &Value,
) -> String {
    let free = || {
        known
            .into_iter()
            .flat_map(|known| known.keys())
            .filter(|name| given.get(name.as_str()).is_none())
    };
    let nearest = |name: &String| closest(name, free().map(String::as_str));
    let meant: Vec<&str> = unknown.iter().take(MAX_NAMES).filter_map(nearest).collect();
    if meant.is_empty() {
        String::new()
    } else {
        format!(", did you mean \"{}\"?", meant.join("\", \""))
    }
}

fn at(place: &str) -> String {
    if place.is_empty() { String::new() } else { format!(" at {}", shortened(place)) }
}

/// Returns the subject of an error message for a location.
fn subject(place: &str, whole: &str) -> String {
    place
        .strip_prefix('/')
        .map_or_else(|| whole.to_owned(), |place| format!("\"{}\"", shortened(place)))
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Describes the error in a schema, with its location.
pub(crate) fn schema_error(error: &ValidationError<'_>) -> String {
    let place = error.instance_path().to_string();
    match error.kind() {
        ValidationErrorKind::Referencing(_) => {
            format!(
                "a \"$ref\" has no target in it, and external references are not followed: {}",
                shortened(&error.to_string())
            )
        }
        ValidationErrorKind::AnyOf { .. } if place.ends_with("/type") => {
            let kinds = "\"string\", \"number\", \"integer\", \"boolean\", \"object\", \"array\" and \"null\"";
            format!(
                "{} is not a type; valid types are {kinds}{}",
                shortened(&error.instance().to_string()),
                at(&place)
            )
        }
        _ => format!("{}{}", shortened(&error.to_string()), at(&place)),
    }
}
