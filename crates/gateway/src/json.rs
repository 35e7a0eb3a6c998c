//! Serializes JSON objects field by field. Nested JSON was validated on receipt and is copied.

use std::fmt::{self, Write as _};

use sa_core::RawJson;
use serde::Serialize;

/// A JSON object that is being written. Used for records of every call; other code uses serde.
#[derive(Debug)]
pub struct Object(String);

impl Object {
    pub fn with_capacity(bytes: usize) -> Self {
        Self::over(String::with_capacity(bytes))
    }

    /// Reuses the memory of an existing string.
    pub fn over(mut out: String) -> Self {
        out.clear();
        out.push('{');
        Self(out)
    }

    pub fn end(mut self) -> String {
        self.0.push('}');
        self.0
    }

    fn key(&mut self, key: &'static str) {
        // A value cannot end with `{`, so this is the start of an object.
        self.0.push_str(if self.0.as_bytes().last() == Some(&b'{') { "\"" } else { ",\"" });
        self.0.push_str(key);
        self.0.push_str("\":");
    }

    #[must_use]
    pub fn text(mut self, key: &'static str, value: &str) -> Self {
        self.key(key);
        sa_protocol::push_string(&mut self.0, value);
        self
    }

    /// Adds a number or a boolean.
    #[must_use]
    pub fn plain(mut self, key: &'static str, value: impl fmt::Display) -> Self {
        self.key(key);
        // Writing to a `String` cannot fail.
        let _ = write!(self.0, "{value}");
        self
    }

    #[must_use]
    pub fn raw(self, key: &'static str, value: &RawJson) -> Self {
        self.raw_text(key, value.as_str())
    }

    /// Adds a value without a check. The caller guarantees that the text is valid JSON.
    #[must_use]
    pub fn raw_text(mut self, key: &'static str, value: &str) -> Self {
        self.key(key);
        self.0.push_str(value);
        self
    }

    /// Adds any serializable value.
    #[must_use]
    pub fn value(self, key: &'static str, value: &impl Serialize) -> Self {
        self.raw_text(key, &to_json(value))
    }

    #[must_use]
    pub fn object(mut self, key: &'static str, fields: impl FnOnce(Self) -> Self) -> Self {
        self.key(key);
        self.0.push('{');
        let mut object = fields(self);
        object.0.push('}');
        object
    }

    /// Adds a field if the value is present.
    #[must_use]
    pub fn maybe<T>(self, value: Option<T>, add: impl FnOnce(Self, T) -> Self) -> Self {
        match value {
            Some(value) => add(self, value),
            None => self,
        }
    }
}

/// Serializes one of the gateway's own structs, which cannot fail.
pub fn to_json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_else(|_| "null".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_json() {
        let json = Object::with_capacity(0)
            .object("empty", |object| object)
            .text("text", "{\"\n{")
            .object("inner", |object| object.plain("n", 1).plain("b", true))
            .raw("raw", &RawJson::empty_object())
            .maybe(None::<u8>, |object, value| object.plain("absent", value))
            .maybe(Some(2), |object, value| object.plain("present", value))
            .value("list", &["{"])
            .end();
        let expected = r#"{"empty":{},"text":"{\"\n{","inner":{"n":1,"b":true},"raw":{},"present":2,"list":["{"]}"#;
        assert_eq!(json, expected);
    }
}
