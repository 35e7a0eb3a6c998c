//! Parses JSON or YAML into a JSON value, within limits.

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Number, Value};

use crate::error::{DocumentError, DocumentErrorKind};

/// The limits of a document. The defaults allow the largest published ones (GitHub's is about 12
/// MB).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub bytes: usize,
    /// The nesting of objects and arrays.
    pub depth: usize,
    /// The number of values. An object counts as eight, which matches its memory.
    pub values: usize,
    pub operations: usize,
    /// The size of one operation's input schema as text.
    pub schema_bytes: usize,
    /// The size of all input schemas together.
    pub total_schema_bytes: usize,
}

impl Limits {
    pub const DEFAULT: Self = Self {
        bytes: 16 << 20,
        depth: 96,
        values: 2_000_000,
        operations: 2_000,
        schema_bytes: 128 << 10,
        total_schema_bytes: 16 << 20,
    };
}

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

pub(crate) fn read(bytes: &[u8], limits: &Limits) -> Result<Value, DocumentError> {
    if bytes.len() > limits.bytes {
        let message = format!(
            "the document has {} bytes, but at most {} are allowed",
            bytes.len(),
            limits.bytes
        );
        return Err(DocumentError::new(DocumentErrorKind::TooLarge, "", message));
    }
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let line = bytes[..error.valid_up_to()].split(|byte| *byte == b'\n').count();
        let mut error = DocumentError::new(
            DocumentErrorKind::Syntax,
            "",
            "the text is not UTF-8; save it as UTF-8",
        );
        error.place = Some((line, 1));
        error
    })?;
    if text.trim_start().starts_with('{') {
        return measured(limits, |meter| json(text, meter));
    }
    let (text, restored) = match controls::replaced(text) {
        Some(replaced) => (Cow::Owned(replaced), true),
        None => (Cow::Borrowed(text), false),
    };
    // The YAML parser takes up to 25 kB of stack per level, more than the threads that serve
    // requests have.
    let stack = (limits.depth + 32) * (64 << 10);
    std::thread::scope(|scope| {
        let reader = || measured(limits, |meter| yaml(&text, meter, limits));
        let reader = std::thread::Builder::new()
            .name("yaml".to_owned())
            .stack_size(stack)
            .spawn_scoped(scope, reader);
        let read = reader.ok().and_then(|reader| reader.join().ok());
        read.unwrap_or_else(|| {
            let message =
                "cannot start a thread to read YAML; try again, or provide the document as JSON";
            Err(DocumentError::new(DocumentErrorKind::TooLarge, "", message))
        })
    })
    .map(|value| if restored { controls::restored(value) } else { value })
}

/// Handling of C1 control characters and DEL. YAML does not allow them, but some documents have
/// them: quotation marks and dashes of Windows-1252 that were read as Latin-1. The YAML parser
/// receives private-use characters instead.
mod controls {
    use serde_json::Value;

    const FIRST: u32 = 0x7f;
    const LAST: u32 = 0x9f;
    /// The distance to U+10FF7F and the characters after it.
    const DISTANCE: u32 = 0x0010_ff00;

    fn is_control(c: char) -> bool {
        (FIRST..=LAST).contains(&u32::from(c)) && c != '\u{85}'
    }

    fn stands_in(c: char) -> bool {
        (FIRST + DISTANCE..=LAST + DISTANCE).contains(&u32::from(c))
    }

    /// Replaces control characters. Returns `None` for a text without them, and for one that
    /// contains the private-use characters itself.
    pub(super) fn replaced(text: &str) -> Option<String> {
        if !text.contains(is_control) || text.contains(stands_in) {
            return None;
        }
        let replace = |c: char| {
            if is_control(c) { char::from_u32(u32::from(c) + DISTANCE).unwrap_or(c) } else { c }
        };
        Some(text.chars().map(replace).collect())
    }

    pub(super) fn restored(value: Value) -> Value {
        let restore = |c: char| {
            if stands_in(c) { char::from_u32(u32::from(c) - DISTANCE).unwrap_or(c) } else { c }
        };
        let text = |text: String| {
            if text.contains(stands_in) { text.chars().map(restore).collect() } else { text }
        };
        match value {
            Value::String(string) => Value::String(text(string)),
            Value::Array(items) => Value::Array(items.into_iter().map(restored).collect()),
            Value::Object(fields) => {
                fields.into_iter().map(|(name, value)| (text(name), restored(value))).collect()
            }
            value => value,
        }
    }
}

/// Parses within the limits, and reports which limit was exceeded.
fn measured(
    limits: &Limits,
    read: impl FnOnce(&Meter) -> Result<Value, DocumentError>,
) -> Result<Value, DocumentError> {
    let meter =
        Meter { values: Cell::new(limits.values), breach: Cell::new(None), depth: limits.depth };
    read(&meter).map_err(|mut error| {
        if let Some(breach) = meter.breach.get() {
            error.kind = DocumentErrorKind::TooLarge;
            error.message = match breach {
                Breach::Depth => {
                    format!("objects and lists are nested more than {} deep", limits.depth)
                }
                Breach::Values => format!("the document has more than {} values", limits.values),
            };
        }
        error
    })
}

fn json(text: &str, meter: &Meter) -> Result<Value, DocumentError> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let read = Measured { meter, depth: 0 }
        .deserialize(&mut reader)
        .and_then(|value| reader.end().map(|()| value));
    read.map_err(|error| {
        // The position has its own field and is removed from the message.
        let message = error.to_string();
        let message = message.split(" at line ").next().unwrap_or_default();
        let message = format!("this is not valid JSON: {message}");
        let mut located = DocumentError::new(DocumentErrorKind::Syntax, "", message);
        located.place = (error.line() > 0).then(|| (error.line(), error.column()));
        located
    })
}

fn yaml(text: &str, meter: &Meter, limits: &Limits) -> Result<Value, DocumentError> {
    use serde_saphyr::Error;
    // Authors repeat a definition a few times. More repetition indicates an attack.
    let repeated = (limits.values / 10).max(1_000);
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_events: limits.values.saturating_mul(3),
            max_nodes: limits.values,
            max_aliases: 10_000,
            max_anchors: 10_000,
            max_recorded_anchor_events: repeated,
            // The parser looks ahead, and the meter has the better error message.
            max_depth: limits.depth + 8,
            flow_nesting_limit: limits.depth + 1,
            max_merge_keys: 1_000,
            max_documents: 1,
        },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: repeated },
        // As in JSON, the last of equal keys counts.
        duplicate_keys: serde_saphyr::options::DuplicateKeyPolicy::LastWins,
        // OpenAPI requires YAML 1.2, in which `no` is a word, for example the code of Norway.
        strict_booleans: true,
        non_finite_float_policy: serde_saphyr::options::NonFiniteFloatPolicy::AsString,
        with_snippet: false,
    };
    let read = serde_saphyr::with_deserializer_from_str_with_options(text, options, |reader| {
        Measured { meter, depth: 0 }.deserialize(reader)
    });
    read.map_err(|error| {
        let mut cause = error.without_snippet();
        while let Error::AliasError { error, .. } = cause {
            cause = error;
        }
        let kind = match cause {
            Error::Budget { .. }
            | Error::AliasReplayLimitExceeded { .. }
            | Error::AliasExpansionLimitExceeded { .. }
            | Error::AliasReplayStackDepthExceeded { .. } => DocumentErrorKind::TooLarge,
            // The scanner's error for nested brackets has no kind of its own.
            Error::ExternalMessage { msg, .. } if msg == "recursion limit exceeded" => {
                meter.breach.set(Some(Breach::Depth));
                DocumentErrorKind::TooLarge
            }
            _ => DocumentErrorKind::Syntax,
        };
        let message = error.without_snippet().to_string();
        let message = message.lines().next().unwrap_or_default().trim();
        let mut located =
            DocumentError::new(kind, "", format!("this cannot be read as YAML: {message}"));
        located.place =
            error.location().map(|location| (location.line() as usize, location.column() as usize));
        located
    })
}

#[derive(Clone, Copy)]
enum Breach {
    Depth,
    Values,
}

/// The remaining limits while a document is parsed.
struct Meter {
    values: Cell<usize>,
    breach: Cell<Option<Breach>>,
    depth: usize,
}

impl Meter {
    fn spend<E: serde::de::Error>(&self, values: usize) -> Result<(), E> {
        match self.values.get().checked_sub(values) {
            Some(left) => {
                self.values.set(left);
                Ok(())
            }
            None => Err(self.breach(Breach::Values)),
        }
    }

    fn breach<E: serde::de::Error>(&self, breach: Breach) -> E {
        self.breach.set(Some(breach));
        E::custom("over the limit")
    }
}

/// Builds a [`Value`] like `serde_json`, but stops at the limits: a kilobyte of `[{},{},…` takes a
/// hundred kilobytes of memory.
#[derive(Clone, Copy)]
struct Measured<'a> {
    meter: &'a Meter,
    depth: usize,
}

impl Measured<'_> {
    fn deeper<E: serde::de::Error>(self) -> Result<Self, E> {
        if self.depth >= self.meter.depth {
            return Err(self.meter.breach(Breach::Depth));
        }
        Ok(Self { meter: self.meter, depth: self.depth + 1 })
    }
}

impl<'de> DeserializeSeed<'de> for Measured<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Value, D::Error> {
        self.meter.spend(1)?;
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Measured<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_i128<E>(self, value: i128) -> Result<Value, E> {
        Ok(Value::from(value as f64))
    }

    fn visit_u128<E>(self, value: u128) -> Result<Value, E> {
        Ok(Value::from(value as f64))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, reader: D) -> Result<Value, D::Error> {
        reader.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let seed = self.deeper()?;
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(seed)? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let seed = self.deeper()?;
        self.meter.spend(7)?;
        let mut map = Map::new();
        while let Some(Key(key)) = entries.next_key()? {
            map.insert(key, entries.next_value_seed(seed)?);
        }
        Ok(Value::Object(map))
    }
}

/// A key as text: in YAML, `200:` and `true:` are keys, too.
struct Key(String);

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        String::deserialize(reader)
            .map(Self)
            .map_err(|error| D::Error::custom(format!("a key has to be text: {error}")))
    }
}
