//! JSON that travels through the gateway as the text it came as.

use std::fmt;
use std::sync::Arc;

use serde_json::value::RawValue;

/// A JSON text that is known to be well-formed. Cloning it shares the text.
///
/// Arguments and results are never re-built from a parsed tree: that would cost four to five times as much, and
/// would change what the caller wrote (number formats, the order of keys).
#[derive(Clone, PartialEq, Eq)]
pub struct RawJson(Arc<str>);

impl RawJson {
    /// Checks that `text` is one JSON value and keeps it as it is.
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str::<&RawValue>(text).map(Self::from)
    }

    /// Takes a text that a decoder has already checked, as part of the frame it came in.
    pub fn from_checked(text: &str) -> Self {
        debug_assert!(Self::parse(text).is_ok(), "not JSON");
        Self(text.into())
    }

    /// The JSON text of a value of our own making.
    pub fn of(value: &serde_json::Value) -> Self {
        Self(value.to_string().into())
    }

    pub fn null() -> Self {
        Self("null".into())
    }

    pub fn empty_object() -> Self {
        Self("{}".into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        false
    }

    pub fn is_null(&self) -> bool {
        self.as_str() == "null"
    }

    /// The parsed tree, for the places that must look inside.
    ///
    /// Nesting deeper than serde's limit (128) is an error here: such a text can pass through the gateway but not
    /// be validated.
    pub fn to_value(&self) -> Result<serde_json::Value, serde_json::Error> {
        serde_json::from_str(&self.0)
    }
}

impl From<&RawValue> for RawJson {
    fn from(raw: &RawValue) -> Self {
        Self(raw.get().into())
    }
}

impl From<&serde_json::Value> for RawJson {
    fn from(value: &serde_json::Value) -> Self {
        Self::of(value)
    }
}

impl fmt::Debug for RawJson {
    /// Shows the size alone: arguments may hold secrets, and a `Debug` ends up in logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RawJson({} bytes)", self.0.len())
    }
}
