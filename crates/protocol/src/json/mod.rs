//! Shared code to read and write frames: borrowed text, raw parts, escaping, and a limit on
//! nesting.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::{FrameError, FrameErrorKind};

mod write;

pub(crate) use write::{add_attachments, begin};

/// The deepest nesting of a frame: 100 levels of arguments or of a result, and a few levels for the
/// frame around them.
///
/// `serde_json` parses 127 levels into values, but skips raw parts of any depth. Without this
/// limit, a raw part that was passed on would fail at the peer that parses it inside an envelope or
/// two. The limit leaves enough levels for those envelopes.
pub const MAX_NESTING: usize = 104;

/// Reads a flat frame. If its type is not in `known`, only the type is read. Raw parts are scanned
/// but not parsed.
///
/// A frame of an unknown type may use our field names with another meaning. It is ignored, not
/// rejected.
pub(crate) fn decode_flat<'a, F: Deserialize<'a>>(
    text: &'a str,
    known: &[&str],
    unknown: impl FnOnce(Cow<'a, str>) -> F,
) -> Result<F, FrameError> {
    let error = if too_deep(text) {
        FrameError::new(FrameErrorKind::TooDeep, "")
    } else {
        match object(text) {
            Ok(frame) => return Ok(frame),
            Err(error) => FrameError::new(FrameErrorKind::Malformed, error),
        }
    };
    let label = Label::read(text);
    match label.kind {
        Some(kind)
            if label.is_whole
                && !known.contains(&&*kind)
                && error.kind() == FrameErrorKind::Malformed =>
        {
            Ok(unknown(kind))
        }
        Some(kind) => {
            let id = text_field(label.request_id.or(label.id), "id").unwrap_or_default();
            Err(error.in_frame(&kind, id.as_deref()))
        }
        None => Err(error),
    }
}

/// Reads a struct from text of another program, which must be a JSON object.
pub fn object<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, serde_json::Error> {
    // serde's struct visitor also accepts a list of the fields in order, which no sender intends.
    if !text.trim_start().starts_with('{') {
        return Err(serde_json::Error::custom("it is not a JSON object"));
    }
    serde_json::from_str(text)
}

/// The fields that can be read from an invalid frame, so that an error can name the frame.
///
/// The frame is read as far as it is valid JSON. Of a repeated field the last one counts, as with
/// most readers. `serde_json` skips unlisted fields in a loop, so that deep nesting cannot exhaust
/// the stack.
#[derive(Default)]
struct Label<'a> {
    kind: Option<Cow<'a, str>>,
    request_id: Option<&'a RawValue>,
    id: Option<&'a RawValue>,
    /// Whether the whole frame was read and has exactly one type.
    is_whole: bool,
}

impl<'a> Label<'a> {
    fn read(text: &'a str) -> Self {
        let (mut label, mut reader) = (Self::default(), serde_json::Deserializer::from_str(text));
        let read = (&mut reader).deserialize_map(Labelling(&mut label));
        label.is_whole = read.is_ok_and(|has_one_type| has_one_type) && reader.end().is_ok();
        label
    }
}

/// Fills a label while a frame is read, so that the fields before an error are kept.
struct Labelling<'l, 'a>(&'l mut Label<'a>);

impl<'de> Visitor<'de> for Labelling<'_, 'de> {
    /// Whether the frame has exactly one type.
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<bool, A::Error> {
        let mut types = 0;
        while let Some(Text(key)) = fields.next_key()? {
            match &*key {
                "type" => {
                    types += 1;
                    self.0.kind = Some(fields.next_value::<Text<'_>>()?.0);
                }
                "request_id" => self.0.request_id = Some(fields.next_value()?),
                "id" => self.0.id = Some(fields.next_value()?),
                _ => {
                    fields.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(types == 1)
    }
}

/// Reads the type and the request id from the beginning of a frame.
pub(crate) fn beginning(text: &str) -> (Option<Cow<'_, str>>, Option<Cow<'_, str>>) {
    let label = Label::read(text);
    (label.kind, text_field(label.request_id, "request_id").unwrap_or_default())
}

/// Adds the frame's type and call id to an error.
pub(crate) fn explained<T>(
    kind: Cow<'_, str>,
    id: Option<Cow<'_, str>>,
    read: Result<T, FrameError>,
) -> Result<T, FrameError> {
    read.map_err(|error| error.in_frame(&kind, id.as_deref()))
}

/// Returns whether brackets are nested deeper than [`MAX_NESTING`].
fn too_deep(text: &str) -> bool {
    // A frame with few brackets cannot be deep. Counting them is vectorised, so that all usual
    // frames return here.
    let bytes = text.as_bytes();
    if bytes.len() <= 2 * MAX_NESTING
        || bytes.iter().filter(|&&byte| opens(byte)).count() <= MAX_NESTING
    {
        return false;
    }
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for &byte in bytes {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'[' | b'{' => {
                depth += 1;
                if depth > MAX_NESTING {
                    return true;
                }
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    false
}

const fn opens(byte: u8) -> bool {
    // `[` and `{` differ in one bit, so one comparison per byte is enough.
    byte | 0x20 == b'{'
}

/// A string that borrows when possible. serde's own `Option<Cow<str>>` always allocates.
struct Text<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Borrowed(text)))
            }
            fn visit_str<E>(self, text: &str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(TextVisitor)
    }
}

pub(crate) fn cow<'de: 'a, 'a, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Cow<'a, str>, D::Error> {
    Ok(Text::deserialize(deserializer)?.0)
}

pub(crate) fn opt_cow<'de: 'a, 'a, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Cow<'a, str>>, D::Error> {
    Ok(Option::<Text<'a>>::deserialize(deserializer)?.map(|text| text.0))
}

pub(crate) fn cow_or_empty<'de: 'a, 'a, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Cow<'a, str>, D::Error> {
    Ok(opt_cow(deserializer)?.unwrap_or_default())
}

/// Reads `null` for an optional field as an absent field.
pub(crate) fn null_as_default<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: Deserialize<'de> + Default,
    D: Deserializer<'de>,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// Parses one raw field of a frame as the type that the frame requires.
pub(crate) fn field<'a, T: Deserialize<'a>>(
    raw: Option<&'a RawValue>,
    name: &'static str,
) -> Result<Option<T>, FrameError> {
    raw.map(|raw| serde_json::from_str(raw.get()))
        .transpose()
        .map_err(|error| FrameError::new(FrameErrorKind::InvalidField(name), error))
}

/// Parses one raw field of a frame as an object.
pub(crate) fn object_field<'a, T: Deserialize<'a>>(
    raw: Option<&'a RawValue>,
    name: &'static str,
) -> Result<Option<T>, FrameError> {
    let read = raw.map(|raw| object(raw.get())).transpose();
    read.map_err(|error| FrameError::new(FrameErrorKind::InvalidField(name), error))
}

/// Parses one raw field of a frame as a list of objects. An absent field is an empty list.
pub(crate) fn object_list<'a, T: Deserialize<'a>>(
    raw: Option<&'a RawValue>,
    name: &'static str,
) -> Result<Vec<T>, FrameError> {
    let items = field::<Vec<&'a RawValue>>(raw, name)?.unwrap_or_default();
    let read: Result<_, _> = items.into_iter().map(|item| object(item.get())).collect();
    read.map_err(|error| FrameError::new(FrameErrorKind::InvalidField(name), error))
}

pub(crate) fn text_field<'a>(
    raw: Option<&'a RawValue>,
    name: &'static str,
) -> Result<Option<Cow<'a, str>>, FrameError> {
    Ok(field::<Text<'a>>(raw, name)?.map(|text| text.0))
}

/// Returns the text of a ping's timestamp. It is echoed unchanged, so that a number of any width
/// survives. A text that is not a number is an error.
pub(crate) fn timestamp(raw: Option<&RawValue>) -> Result<&str, FrameError> {
    field::<f64>(raw, "timestamp")?;
    Ok(raw.map_or("0", RawValue::get))
}

pub(crate) fn required<T>(value: Option<T>, name: &'static str) -> Result<T, FrameError> {
    value.ok_or_else(|| FrameError::new(FrameErrorKind::MissingField(name), ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_depth(text: &str, expected: bool) {
        assert_eq!(too_deep(text), expected, "{text:.60}");
    }

    #[test]
    fn nesting() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        check_depth(&nested(MAX_NESTING), false);
        check_depth(&nested(MAX_NESTING + 1), true);
        check_depth(&"[".repeat(100_000), true);
        check_depth(&format!("[{}]", vec!["[]"; 500].join(",")), false);
        check_depth(&format!("{{\"a\":\"{}\"}}", "[".repeat(1000)), false);
        check_depth(&format!("{{\"a\":\"\\\"{}\"}}", "{".repeat(1000)), false);
    }
}
