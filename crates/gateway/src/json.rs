//! Writes JSON objects field by field. What is JSON already was checked when it came in, and is copied.

use std::fmt::{self, Write as _};

use sa_core::RawJson;
use serde::Serialize;

/// An object in the making. For what is written for every call; everything else leaves it to serde.
pub(crate) struct Object(String);

impl Object {
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        Self::over(String::with_capacity(bytes))
    }

    /// Written into memory that there is already.
    pub(crate) fn over(mut out: String) -> Self {
        out.clear();
        out.push('{');
        Self(out)
    }

    pub(crate) fn end(mut self) -> String {
        self.0.push('}');
        self.0
    }

    fn key(&mut self, key: &'static str) {
        // No value ends like this, so it is the beginning of an object.
        self.0.push_str(if self.0.as_bytes().last() == Some(&b'{') { "\"" } else { ",\"" });
        self.0.push_str(key);
        self.0.push_str("\":");
    }

    pub(crate) fn text(mut self, key: &'static str, value: &str) -> Self {
        self.key(key);
        sa_protocol::push_string(&mut self.0, value);
        self
    }

    /// A number or a boolean.
    pub(crate) fn plain(mut self, key: &'static str, value: impl fmt::Display) -> Self {
        self.key(key);
        // Writing to a `String` does not fail.
        let _ = write!(self.0, "{value}");
        self
    }

    pub(crate) fn raw(self, key: &'static str, value: &RawJson) -> Self {
        self.raw_text(key, value.as_str())
    }

    /// The caller vouches for the text being JSON.
    pub(crate) fn raw_text(mut self, key: &'static str, value: &str) -> Self {
        self.key(key);
        self.0.push_str(value);
        self
    }

    /// Anything that serde can write.
    pub(crate) fn value(self, key: &'static str, value: &impl Serialize) -> Self {
        self.raw_text(key, &to_json(value))
    }

    pub(crate) fn object(mut self, key: &'static str, fields: impl FnOnce(Self) -> Self) -> Self {
        self.key(key);
        self.0.push('{');
        let mut object = fields(self);
        object.0.push('}');
        object
    }

    /// Adds something, if it is there.
    pub(crate) fn maybe<T>(self, value: Option<T>, add: impl FnOnce(Self, T) -> Self) -> Self {
        match value {
            Some(value) => add(self, value),
            None => self,
        }
    }
}

/// JSON of our own structs, which cannot fail.
pub(crate) fn to_json(value: &impl Serialize) -> String {
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
