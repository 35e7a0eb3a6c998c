use std::fmt::{self, Write as _};

use serde::ser::Serialize;
use serde_json::value::RawValue;

use crate::Attachment;

/// Writes one frame into a string, field by field. Raw JSON text is copied, never parsed.
pub(crate) struct FrameWriter<'b> {
    out: &'b mut String,
}

impl<'b> FrameWriter<'b> {
    pub(crate) fn begin(out: &'b mut String, kind: &'static str) -> Self {
        out.push_str("{\"type\":\"");
        out.push_str(kind);
        out.push('"');
        Self { out }
    }

    pub(crate) fn end(self) {
        self.out.push('}');
    }

    fn key(&mut self, key: &'static str) {
        self.out.push_str(",\"");
        self.out.push_str(key);
        self.out.push_str("\":");
    }

    pub(crate) fn text(mut self, key: &'static str, value: &str) -> Self {
        self.key(key);
        push_string(self.out, value);
        self
    }

    pub(crate) fn opt_text(self, key: &'static str, value: Option<&str>) -> Self {
        match value {
            Some(value) => self.text(key, value),
            None => self,
        }
    }

    /// Copies JSON text. The caller guarantees that it is one JSON value; debug builds check it.
    pub(crate) fn raw(mut self, key: &'static str, value: &str) -> Self {
        debug_assert!(
            serde_json::from_str::<&RawValue>(value).is_ok(),
            "`{key}` is not JSON: {value}"
        );
        self.key(key);
        self.out.push_str(value);
        self
    }

    pub(crate) fn opt_raw(self, key: &'static str, value: Option<&str>) -> Self {
        match value {
            Some(value) => self.raw(key, value),
            None => self,
        }
    }

    /// Writes a number or a boolean.
    pub(crate) fn plain(mut self, key: &'static str, value: impl fmt::Display) -> Self {
        self.key(key);
        // Writing to a `String` cannot fail.
        let _ = write!(self.out, "{value}");
        self
    }

    pub(crate) fn opt_plain(self, key: &'static str, value: Option<impl fmt::Display>) -> Self {
        match value {
            Some(value) => self.plain(key, value),
            None => self,
        }
    }

    /// Writes a number, or nothing if JSON cannot represent it.
    pub(crate) fn float(self, key: &'static str, value: Option<f64>) -> Self {
        match value.filter(|value| value.is_finite()) {
            // Without an exponent, a huge number would take hundreds of digits.
            Some(value) if value.abs() >= 1e15 => self.plain(key, format_args!("{value:e}")),
            other => self.opt_plain(key, other),
        }
    }

    /// Writes any serialisable value. Used for rare frames.
    pub(crate) fn value(mut self, key: &'static str, value: &impl Serialize) -> Self {
        self.key(key);
        // These types have text keys and no custom `Serialize` that could fail.
        self.out.push_str(&serde_json::to_string(value).unwrap_or_else(|_| "null".to_owned()));
        self
    }

    pub(crate) fn list<T: Serialize>(self, key: &'static str, items: &[T]) -> Self {
        if items.is_empty() { self } else { self.value(key, &items) }
    }

    pub(crate) fn attachments(mut self, attachments: &[Attachment<'_>]) -> Self {
        if attachments.is_empty() {
            return self;
        }
        self.key("attachments");
        for (index, attachment) in attachments.iter().enumerate() {
            self.out.push_str(if index == 0 { "[{\"mime_type\":" } else { ",{\"mime_type\":" });
            push_string(self.out, &attachment.mime_type);
            let rest =
                self.opt_text("name", attachment.name.as_deref()).text("data", &attachment.data);
            rest.out.push('}');
            self = rest;
        }
        self.out.push(']');
        self
    }
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
pub(crate) const fn escaped_len(character: char) -> usize {
    match character {
        '"' | '\\' | '\n' | '\r' | '\t' | '\x08' | '\x0c' => 2,
        '\0'..='\x1f' => 6,
        other => other.len_utf8(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
            let mut out = String::new();
            FrameWriter::begin(&mut out, "x").float("v", Some(value)).end();
            let read: serde_json::Value = serde_json::from_str(&out).unwrap();
            prop_assert_eq!(read.get("v").is_some(), value.is_finite());
        }
    }
}
