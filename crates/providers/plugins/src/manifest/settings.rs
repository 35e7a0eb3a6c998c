//! The settings that users can store, with a warning about fields that look like secrets.

use sa_core::{RawJson, Schema};
use serde_json::Value;

use super::reader::{Reader, excerpt};
use crate::places;

impl Reader<'_> {
    pub(super) fn settings(&mut self, value: Option<&Value>) -> Option<Value> {
        let value = value.filter(|value| !value.is_null())?;
        if !value.is_object() {
            self.error("/settings", "\"settings\" must be a JSON Schema of type object");
            return None;
        }
        if value.get("type").is_some_and(|kind| kind != "object") {
            self.error("/settings/type", "the schema of the settings must be of type \"object\"");
            return None;
        }
        if let Err(why) = Schema::new(RawJson::of(value)).check() {
            self.error("/settings", format!("the schema of the settings cannot be used: {why}"));
        }
        for (name, field) in
            value.get("properties").and_then(Value::as_object).into_iter().flatten()
        {
            let secret = field.get("format").and_then(Value::as_str) == Some("password");
            if !secret && sounds_secret(name) {
                let path = format!("/settings/properties/{}", places::escape(name));
                let name = excerpt(name);
                self.warn(&path, format!("\"{name}\" looks like a secret but has no \"format\": \"password\", so its value is shown to its user"));
            }
        }
        Some(value.clone())
    }
}

fn sounds_secret(name: &str) -> bool {
    let plain: String =
        name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
    ["password", "secret", "token", "apikey", "credential"].iter().any(|word| plain.contains(word))
}
