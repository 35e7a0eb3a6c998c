//! JSON that passes through the gateway as the text in which it was received.

pub mod difference;
mod object;
mod tree;
mod write;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde_json::value::RawValue;

use crate::excerpt;

pub use self::object::{Object, object};
pub use self::write::{ObjectWriter, escaped_len, push_string, to_json};

/// A JSON text that every parser accepts and interprets in the same way. Cloning it shares the
/// text.
///
/// The text is well-formed and no deeper than [`MAX_DEPTH`]. It contains nothing that is valid by
/// the grammar alone: see [`check`]. Arguments and results use this type, so that no text breaks
/// its receiver.
///
/// Arguments and results are never rebuilt from a parsed tree. That would cost four to five times
/// as much. It would also change number formats and the order of keys.
#[derive(Clone, PartialEq, Eq)]
pub struct RawJson(Arc<str>);

impl RawJson {
    /// Checks that `text` is one readable JSON value, and stores it unchanged.
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        Self::part(serde_json::from_str(text)?)
    }

    /// Stores a part of a JSON text, if it is readable.
    pub fn part(raw: &RawValue) -> Result<Self, serde_json::Error> {
        Self::well_formed(raw.get())
    }

    /// Stores a part that a decoder has already found to be JSON within its frame, if it is
    /// readable.
    pub fn well_formed(text: &str) -> Result<Self, serde_json::Error> {
        check(text)?;
        Ok(Self::from_checked(text))
    }

    /// Stores a text without checking it. It must have been checked as part of a larger one, or be
    /// composed of checked parts.
    pub fn from_checked(text: &str) -> Self {
        debug_assert!(
            serde_json::from_str::<&RawValue>(text).is_ok_and(|raw| check(raw.get()).is_ok()),
            "not JSON"
        );
        Self(text.into())
    }

    /// Returns the JSON text of a value that the program itself has built.
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

    /// Returns the parsed tree. A key that appears twice is an error, and so is a tree that would
    /// take more than [`MAX_PARSED_BYTES`].
    pub fn to_value(&self) -> Result<serde_json::Value, serde_json::Error> {
        check_parsed_bytes(self.0.as_bytes())?;
        serde_json::from_str::<tree::Tree>(&self.0).map(|tree| tree.0)
    }
}

/// Checks that every parser accepts a JSON text and interprets it in the same way.
///
/// A text that is too deep overflows a parser's stack. `1e999` and `"\ud800"` are valid by the
/// grammar, but hardly any parser accepts them. `serde_json` reserves one key for internal use.
/// Most texts have none of these, so one scan is enough and the text is not parsed.
pub fn check(text: &str) -> Result<(), serde_json::Error> {
    check_within(MAX_DEPTH, text)
}

/// Does the same for a message that contains such texts, with another maximum depth.
pub fn check_within(most: usize, text: &str) -> Result<(), serde_json::Error> {
    match look(most, text.as_bytes()) {
        Look::Plain => Ok(()),
        Look::Odd => serde_json::from_str::<tree::Readable>(text).map(drop),
        Look::TooDeep => {
            Err(serde::de::Error::custom(format_args!("it is nested deeper than {most} levels")))
        }
    }
}

/// The maximum length of a quoted foreign text in a message, in characters.
const MAX_QUOTED: usize = 200;

/// Returns the beginning of a foreign text, for a message that quotes it.
pub fn shortened(text: &str) -> Cow<'_, str> {
    excerpt(MAX_QUOTED, text)
}

/// Returns the reason why a JSON text cannot be read, for its author. The parser's own message
/// quotes unexpected input at full length, so it is shortened.
pub fn why(error: &serde_json::Error) -> String {
    let said = error.to_string();
    match shortened(&said) {
        Cow::Owned(short) if error.line() > 0 => {
            format!("{short} at line {} column {}", error.line(), error.column())
        }
        short => short.into_owned(),
    }
}

/// The maximum depth of accepted texts. It is less than serde's own limit of 128, so that receivers
/// can parse the text inside a frame too.
pub const MAX_DEPTH: usize = 100;

/// The approximate size of a parsed value in bytes, and of a parsed object in addition to its
/// values. A map reserves space for several entries, so `{"":0}` takes a hundred times its text.
const PARSED_VALUE: usize = 64;
const PARSED_OBJECT: usize = 640;

/// The maximum approximate size of a text together with its parsed values. A text of this size in
/// small objects has about a megabyte.
pub const MAX_PARSED_BYTES: usize = 128 << 20;

/// Texts up to this size never exceed [`MAX_PARSED_BYTES`].
const ALWAYS_FITS: usize = 1 << 20;

/// Returns the approximate size of a JSON text together with the values that a parser makes of it.
pub fn parsed_bytes(text: &[u8]) -> usize {
    let (values, objects) = count(text);
    let values = values.saturating_mul(PARSED_VALUE);
    text.len().saturating_add(values).saturating_add(objects.saturating_mul(PARSED_OBJECT))
}

/// Returns the approximate number of values in a JSON text, counted by the places where one begins.
pub fn values(text: &[u8]) -> usize {
    count(text).0
}

/// Returns the approximate numbers of all values and of objects.
fn count(text: &[u8]) -> (usize, usize) {
    let (mut values, mut objects, mut in_text, mut is_escape) = (0, 0, false, false);
    for byte in text {
        match byte {
            _ if is_escape => is_escape = false,
            b'\\' => is_escape = in_text,
            b'"' => in_text = !in_text,
            b',' | b'[' if !in_text => values += 1,
            b'{' if !in_text => (values, objects) = (values + 1, objects + 1),
            _ => {}
        }
    }
    (values, objects)
}

/// Checks that the parsed values of a text take at most [`MAX_PARSED_BYTES`].
pub fn check_parsed_bytes(text: &[u8]) -> Result<(), serde_json::Error> {
    if text.len() <= ALWAYS_FITS || parsed_bytes(text) <= MAX_PARSED_BYTES {
        return Ok(());
    }
    let most = MAX_PARSED_BYTES >> 20;
    Err(serde::de::Error::custom(format_args!(
        "it has too many values: they would take more than {most} MiB of memory"
    )))
}

/// Parses a text whose values take at most [`MAX_PARSED_BYTES`].
pub fn parse_value(text: &[u8]) -> Result<serde_json::Value, serde_json::Error> {
    check_parsed_bytes(text)?;
    serde_json::from_slice(text)
}

/// Returns whether a JSON text is nested deeper than [`MAX_DEPTH`].
pub fn is_too_deep(json: &str) -> bool {
    is_deeper_than(MAX_DEPTH, json.as_bytes())
}

/// Returns whether a JSON text is nested deeper than `most` levels. Uses no stack.
pub fn is_deeper_than(most: usize, json: &[u8]) -> bool {
    matches!(look(most, json), Look::TooDeep)
}

enum Look {
    Plain,
    /// The text may contain something that not every parser accepts. Examples are a numeric escape
    /// that may be half of a surrogate pair, and a number that may be too large. Another is a
    /// string that begins like a key that `serde_json` reserves.
    Odd,
    TooDeep,
}

/// Classifies a JSON text by its bytes, in one pass without recursion or allocation.
fn look(most: usize, json: &[u8]) -> Look {
    let (mut depth, mut digits, mut odd) = (0_usize, 0_usize, false);
    let mut bytes = json.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => {
                digits = 0;
                odd |= bytes.as_slice().first() == Some(&b'$');
                while let Some(byte) = bytes.next() {
                    match byte {
                        b'"' => break,
                        b'\\' => odd |= bytes.next() == Some(&b'u'),
                        _ => {}
                    }
                }
            }
            b'[' | b'{' => {
                digits = 0;
                depth += 1;
                if depth > most {
                    return Look::TooDeep;
                }
            }
            b']' | b'}' => {
                digits = 0;
                depth = depth.saturating_sub(1);
            }
            b'0'..=b'9' => {
                digits += 1;
                odd |= digits > MAX_DIGITS;
            }
            b'e' | b'E' => odd |= digits > 0,
            _ => digits = 0,
        }
    }
    if odd { Look::Odd } else { Look::Plain }
}

/// A number with at most this many digits in a row and no exponent is never too large.
const MAX_DIGITS: usize = 300;

impl From<&serde_json::Value> for RawJson {
    fn from(value: &serde_json::Value) -> Self {
        Self::of(value)
    }
}

impl fmt::Debug for RawJson {
    /// Shows the size alone, because arguments may hold secrets and `Debug` output ends up in logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RawJson({} bytes)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, accepted: bool) {
        assert_eq!(RawJson::parse(text).is_ok(), accepted, "{}", &text[..text.len().min(40)]);
    }

    #[test]
    fn only_whole_json_of_bounded_depth_is_taken() {
        check("{}", true);
        check(" [1, 2] ", true);
        check("{} {}", false);
        check("{", false);
        check("", false);
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        check(&nested(MAX_DEPTH), true);
        check(&nested(MAX_DEPTH + 1), false);
        check(&nested(1_000_000), false);
        check(&format!("[\"{}\"]", "[".repeat(500)), true);
        check(&format!("[\"\\\"{}\"]", "[".repeat(500)), true);
    }

    #[test]
    fn what_not_every_reader_takes_as_it_is_written_is_refused() {
        let long = |digits: usize| format!("[1{}]", "0".repeat(digits));
        for text in [
            "1e9",
            r#"{"\u0061":"\ud83d\ude00"}"#,
            r#""1e999""#,
            "[1,true,null]",
            "{}",
            "1e-999",
            &long(299),
        ] {
            check(text, true);
        }
        check(r#"["$ref",{"$serde":1},"\\ud800","$serde_json::private::RawValue"]"#, true);
        let own = r#"{"a":{"$serde_json::private::RawValue":"[1]"}}"#;
        let escaped = r#"[{"\u0024serde_json::privat\u0065::RawValue":"[1]"}]"#;
        for text in
            ["1e999", "[-1E+999]", r#""\ud800""#, r#"{"\udc00":1}"#, own, escaped, &long(400)]
        {
            check(text, false);
        }
    }

    #[test]
    fn a_tree_is_what_serde_reads_but_for_keys_that_appear_twice() {
        let text = r#"{"a":[1,-2,1.5e3,true,null,"x",18446744073709551615],"b":{"c":{}}}"#;
        let plain: serde_json::Value = serde_json::from_str(text).unwrap();
        assert_eq!(RawJson::parse(text).unwrap().to_value().unwrap(), plain);
        for twice in [r#"{"a":1,"a":2}"#, r#"[{"x":{"a":1,"\u0061":2}}]"#] {
            let error = RawJson::parse(twice).unwrap().to_value().unwrap_err();
            assert!(error.to_string().contains("\"a\" appears twice"), "{error}");
        }
    }

    #[test]
    fn what_is_said_of_a_long_text_is_short() {
        let long = "\u{1}".repeat(100_000);
        let twice = format!("{{{0}:1,{0}:2}}", serde_json::Value::from(long.as_str()));
        let error = RawJson::parse(&twice).unwrap().to_value().unwrap_err();
        assert!(error.to_string().len() < 2_000);
        let wrong =
            serde_json::from_str::<Vec<u8>>(&format!("[\n{}]", serde_json::Value::from(long)))
                .unwrap_err();
        let said = why(&wrong);
        assert!(said.len() < 2_000 && said.contains("at line 2 column"), "{said}");
        assert_eq!(
            why(&serde_json::from_str::<u8>("[]").unwrap_err()),
            "invalid type: sequence, expected u8 at line 1 column 0"
        );
    }

    #[test]
    fn a_text_of_very_many_values_is_not_parsed() {
        let objects = |count: usize| format!("[{}1]", "{\"\":0},".repeat(count));
        let few = RawJson::parse(&objects(100_000)).unwrap();
        assert!(few.to_value().is_ok());
        let many = RawJson::parse(&objects(500_000)).unwrap();
        let error = many.to_value().unwrap_err().to_string();
        assert!(error.contains("too many values"), "{error}");
        assert!(parse_value(many.as_str().as_bytes()).is_err());
        let numbers = RawJson::parse(&format!("[{}1]", "1,".repeat(1_500_000))).unwrap();
        assert!(numbers.to_value().is_ok());
        let text = RawJson::parse(&format!("\"{}\"", "{,[".repeat(5 << 20))).unwrap();
        assert!(text.to_value().is_ok());
    }
}
