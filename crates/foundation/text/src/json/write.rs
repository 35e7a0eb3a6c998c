//! Writes JSON objects field by field. Nested JSON was validated on receipt and is copied.

use std::borrow::BorrowMut;
use std::fmt::{self, Write as _};

use serde::Serialize;

use super::RawJson;

/// A JSON object that is being written into a string.
#[derive(Debug)]
pub struct ObjectWriter<S: BorrowMut<String>> {
    out: S,
    is_empty: bool,
}

impl ObjectWriter<String> {
    pub fn with_capacity(bytes: usize) -> Self {
        Self::begin(String::with_capacity(bytes))
    }

    /// Reuses the memory of an existing string.
    pub fn over(mut out: String) -> Self {
        out.clear();
        Self::begin(out)
    }
}

impl<S: BorrowMut<String>> ObjectWriter<S> {
    /// Appends an object to a string.
    pub fn begin(mut out: S) -> Self {
        out.borrow_mut().push('{');
        Self { out, is_empty: true }
    }

    pub fn end(mut self) -> S {
        self.out().push('}');
        self.out
    }

    fn out(&mut self) -> &mut String {
        self.out.borrow_mut()
    }

    fn key(&mut self, key: &str) {
        let separator = if self.is_empty { "\"" } else { ",\"" };
        self.is_empty = false;
        let out = self.out();
        out.push_str(separator);
        out.push_str(key);
        out.push_str("\":");
    }

    #[must_use]
    pub fn text(mut self, key: &'static str, value: &str) -> Self {
        self.key(key);
        push_string(self.out(), value);
        self
    }

    /// Adds a number or a boolean.
    #[must_use]
    pub fn plain(mut self, key: &'static str, value: impl fmt::Display) -> Self {
        self.key(key);
        // Writing to a `String` cannot fail.
        let _ = write!(self.out(), "{value}");
        self
    }

    #[must_use]
    pub fn raw(self, key: &'static str, value: &RawJson) -> Self {
        self.raw_text(key, value.as_str())
    }

    /// Adds a value without a check. The caller guarantees that the text is one JSON value; debug
    /// builds check it.
    #[must_use]
    pub fn raw_text(mut self, key: &'static str, value: &str) -> Self {
        debug_assert!(is_json(value), "`{key}` is not JSON: {value}");
        self.key(key);
        self.out().push_str(value);
        self
    }

    #[must_use]
    pub fn opt_text(self, key: &'static str, value: Option<&str>) -> Self {
        self.maybe(value, |object, value| object.text(key, value))
    }

    #[must_use]
    pub fn opt_raw_text(self, key: &'static str, value: Option<&str>) -> Self {
        self.maybe(value, |object, value| object.raw_text(key, value))
    }

    #[must_use]
    pub fn opt_plain(self, key: &'static str, value: Option<impl fmt::Display>) -> Self {
        self.maybe(value, |object, value| object.plain(key, value))
    }

    /// Adds a number, unless JSON cannot represent it.
    #[must_use]
    pub fn float(self, key: &'static str, value: f64) -> Self {
        match value {
            _ if !value.is_finite() => self,
            // Without an exponent, a huge number would take hundreds of digits.
            _ if value.abs() >= 1e15 => self.plain(key, format_args!("{value:e}")),
            _ => self.plain(key, value),
        }
    }

    /// Adds the fields of another object, given as JSON.
    #[must_use]
    pub fn fields_of(mut self, object: &str) -> Self {
        debug_assert!(is_json(object), "the object is not JSON: {object}");
        let fields = object.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
        if let Some(fields) = fields.filter(|fields| !fields.is_empty()) {
            if !std::mem::take(&mut self.is_empty) {
                self.out().push(',');
            }
            self.out().push_str(fields);
        }
        self
    }

    /// Adds a list unless it is empty.
    #[must_use]
    pub fn list<T: Serialize>(self, key: &'static str, items: &[T]) -> Self {
        if items.is_empty() { self } else { self.value(key, items) }
    }

    /// Adds any serializable value.
    #[must_use]
    pub fn value(mut self, key: &'static str, value: &(impl Serialize + ?Sized)) -> Self {
        self.key(key);
        self.out().push_str(&to_json(value));
        self
    }

    /// Adds an object. Its fields are written by the closure.
    #[must_use]
    pub fn object(
        mut self,
        key: &'static str,
        fields: impl FnOnce(ObjectWriter<&mut String>) -> ObjectWriter<&mut String>,
    ) -> Self {
        self.key(key);
        fields(ObjectWriter::begin(self.out())).end();
        self
    }

    /// Adds a list of objects.
    #[must_use]
    pub fn objects<T>(
        mut self,
        key: &'static str,
        items: impl IntoIterator<Item = T>,
        mut fields: impl FnMut(ObjectWriter<&mut String>, T) -> ObjectWriter<&mut String>,
    ) -> Self {
        self.key(key);
        self.out().push('[');
        for (index, item) in items.into_iter().enumerate() {
            if index > 0 {
                self.out().push(',');
            }
            fields(ObjectWriter::begin(self.out()), item).end();
        }
        self.out().push(']');
        self
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

fn is_json(text: &str) -> bool {
    serde_json::from_str::<&serde_json::value::RawValue>(text).is_ok()
}

/// Serializes one of the gateway's own structs, which cannot fail.
pub fn to_json(value: &(impl Serialize + ?Sized)) -> String {
    serde_json::to_string(value).unwrap_or_else(|_| "null".into())
}

/// Writes a JSON string with its quotes.
pub fn push_string(out: &mut String, text: &str) {
    out.reserve(text.len() + 2);
    out.push('"');
    // Most texts have nothing to escape. Scanning the whole text is faster than stopping at the
    // first byte to escape, because the scan is vectorised.
    if !text.bytes().fold(false, |found, byte| found | needs_escape(byte)) {
        out.push_str(text);
        out.push('"');
        return;
    }
    let mut clean_from = 0;
    for (at, byte) in text.bytes().enumerate() {
        if !needs_escape(byte) {
            continue;
        }
        // All bytes that need an escape are ASCII, so both sides of one are character boundaries.
        out.push_str(&text[clean_from..at]);
        clean_from = at + 1;
        match byte {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            0x08 => out.push_str("\\b"),
            0x0c => out.push_str("\\f"),
            other => {
                let _ = write!(out, "\\u{other:04x}");
            }
        }
    }
    out.push_str(&text[clean_from..]);
    out.push('"');
}

const fn needs_escape(byte: u8) -> bool {
    byte < 0x20 || byte == b'"' || byte == b'\\'
}

/// Returns the number of bytes that [`push_string`] writes for a character.
pub const fn escaped_len(character: char) -> usize {
    match character {
        '"' | '\\' | '\n' | '\r' | '\t' | '\x08' | '\x0c' => 2,
        '\0'..='\x1f' => 6,
        other => other.len_utf8(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn objects_are_json() {
        let json = ObjectWriter::with_capacity(0)
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

    proptest! {
        #[test]
        fn strings_are_written_as_serde_json_does(text in any::<String>()) {
            let mut out = String::new();
            push_string(&mut out, &text);
            prop_assert_eq!(&out, &serde_json::to_string(&text).unwrap());
            prop_assert_eq!(out.len() - 2, text.chars().map(escaped_len).sum::<usize>());
        }

        #[test]
        fn control_characters_are_escaped(text in "[\\x00-\\x1f\"\\\\a]*") {
            let mut out = String::new();
            push_string(&mut out, &text);
            prop_assert!(!out.bytes().any(|byte| byte < 0x20));
            prop_assert_eq!(serde_json::from_str::<String>(&out).unwrap(), text);
        }

        #[test]
        fn floats_are_json(value: f64) {
            let json = ObjectWriter::with_capacity(0).float("v", value).end();
            let read: serde_json::Value = serde_json::from_str(&json).unwrap();
            prop_assert_eq!(read.get("v").is_some(), value.is_finite());
        }
    }
}
