//! What is not repeated of a configuration, whoever asks: values that may be secrets, and those parts of addresses that may
//! be. A secret may stand in such a place in any form, also in one that the key cannot have.

use sa_core::mask::{MASK, address, addresses, name};
use toml::Value;

/// Keys whose values are secrets, or have secrets in them, wherever they stand.
const SECRET: [&str; 6] = ["api_key", "bearer", "client_secret", "env", "headers", "oauth"];

/// Keys that hold an address. A text for one of them is taken for an address even if it is none.
const ADDRESS: [&str; 7] =
    ["allowed_hosts", "allowed_origins", "allow_private", "base_url", "otlp_endpoint", "public_url", "url"];

/// Whether a value may be a secret, or have one in it, by its key and those of the tables around it.
pub(super) fn may_be(keys: &[String]) -> bool {
    keys.iter().any(|key| SECRET.contains(&key.as_str()) || ADDRESS.contains(&key.as_str()))
}

/// A key as it is shown, with those of the tables around it. People write `"KEY=value"` for `KEY = "value"`; only the names
/// of tables with names of their own may be anything.
pub(super) fn key(keys: &[String]) -> String {
    let own = match keys.first().map(String::as_str) {
        Some("upstream" | "models") => 1,
        Some("sessions") => 2,
        _ => usize::MAX,
    };
    let shown = keys.iter().enumerate().map(|(at, key)| if at == own { key.into() } else { name(key) });
    shown.collect::<Vec<_>>().join(".")
}

/// A value for people to see. A secret is shown only where it is a reference to one.
pub(super) fn without_secrets(key: &str, value: &Value) -> Value {
    match value {
        value if SECRET.contains(&key) => masked(value),
        Value::String(text) if ADDRESS.contains(&key) => Value::String(address(text).into()),
        Value::String(text) => Value::String(addresses(text).into()),
        Value::Array(values) => Value::Array(values.iter().map(|value| without_secrets(key, value)).collect()),
        Value::Table(table) => {
            Value::Table(table.iter().map(|(key, value)| (key.clone(), without_secrets(key, value))).collect())
        }
        other => other.clone(),
    }
}

fn masked(value: &Value) -> Value {
    match value {
        Value::String(text) if text.starts_with("env:") || text.starts_with("file:") => value.clone(),
        Value::Table(table) => {
            Value::Table(table.iter().map(|(key, value)| (name(key).into(), masked(value))).collect())
        }
        Value::Array(values) => Value::Array(values.iter().map(masked).collect()),
        _ => Value::String(MASK.into()),
    }
}
