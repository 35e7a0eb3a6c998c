//! Hides secrets of the configuration in all output. Masks values that may be secrets, and parts of
//! addresses that may be. A secret may be written in any form, including forms that are invalid for
//! the key.

use std::sync::LazyLock;

use sa_text::mask::{MASK, address, addresses, name};
use toml::Value;

use super::keys::{NAMED_KEYS, names_of};

/// Keys with values that are secrets or contain secrets, in any table.
static SECRET: LazyLock<Vec<&str>> = LazyLock::new(|| names_of(|section| section.secrets()));

/// Keys that hold an address. Their text is treated as an address even if it is invalid.
static ADDRESS: LazyLock<Vec<&str>> = LazyLock::new(|| names_of(|section| section.addresses()));

/// Reports whether a value may contain a secret, based on its key and the tables around it.
pub(super) fn may_be(keys: &[String]) -> bool {
    keys.iter().any(|key| SECRET.contains(&key.as_str()) || ADDRESS.contains(&key.as_str()))
}

/// Returns a key with its tables, for display. A mistyped `"KEY=value"` can put a secret into a
/// key, so each part is masked where a value may start. The names of named tables are not masked,
/// because they can be arbitrary.
pub(super) fn key(keys: &[String]) -> String {
    let first = keys.first().map(String::as_str);
    let named = NAMED_KEYS.iter().find(|known| known.key.split('.').next() == first);
    let own = named.and_then(|known| known.key.split('.').position(|part| part == "NAME"));
    let shown = keys
        .iter()
        .enumerate()
        .map(|(at, key)| if Some(at) == own { key.into() } else { name(key) });
    shown.collect::<Vec<_>>().join(".")
}

/// Returns a value for display. A secret is only shown if it is a reference.
pub(super) fn without_secrets(key: &str, value: &Value) -> Value {
    match value {
        value if SECRET.contains(&key) => masked(value),
        Value::String(text) if ADDRESS.contains(&key) => Value::String(address(text).into()),
        Value::String(text) => Value::String(addresses(text).into()),
        Value::Array(values) => {
            Value::Array(values.iter().map(|value| without_secrets(key, value)).collect())
        }
        Value::Table(table) => Value::Table(
            table.iter().map(|(key, value)| (key.clone(), without_secrets(key, value))).collect(),
        ),
        other => other.clone(),
    }
}

fn masked(value: &Value) -> Value {
    match value {
        Value::String(text) if text.starts_with("env:") || text.starts_with("file:") => {
            value.clone()
        }
        Value::Table(table) => Value::Table(
            table.iter().map(|(key, value)| (name(key).into(), masked(value))).collect(),
        ),
        Value::Array(values) => Value::Array(values.iter().map(masked).collect()),
        _ => Value::String(MASK.into()),
    }
}
