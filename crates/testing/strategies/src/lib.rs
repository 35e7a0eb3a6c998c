//! Inputs for decoder tests: noise, texts with a format's punctuation, nearly valid JSON, streams
//! that are cut anywhere, and transcripts of valid messages.
//!
//! Each crate defines the properties of its own decoders for all of these. Accepted input follows
//! the rules, and errors are short. A decoder can read the output of its encoder, and no cut of a
//! stream changes the decoded messages.

mod json;
mod schema;
mod transcripts;

pub use json::{json, list, nearly};
pub use schema::schema;
pub use transcripts::{Line, transcripts};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

/// The maximum length of an error text, in bytes, for any input.
pub const SHORT: usize = 4_096;

/// Any bytes.
pub fn noise() -> impl Strategy<Value = Vec<u8>> + Clone {
    vec(any::<u8>(), 0..200)
}

/// Text from a format's own words and punctuation, and from characters that often break text
/// parsers.
pub fn text(words: &'static [&'static str]) -> impl Strategy<Value = String> + Clone {
    let piece = prop_oneof![
        6 => select(words).prop_map(str::to_owned),
        2 => select(STUMBLES).prop_map(str::to_owned),
        1 => "[a-z0-9]{1,4}",
        1 => any::<char>().prop_map(String::from),
    ];
    vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

/// A long text, to check that errors do not repeat it.
pub fn long() -> impl Strategy<Value = String> + Clone {
    (select(&["x", "é", "\u{1}", "\"", "\\", "/", "~", "\u{202e}"][..]), 1_000_usize..20_000)
        .prop_map(|(piece, count)| piece.repeat(count))
}

/// A stream, cut into the pieces in which it may arrive. Some pieces are empty.
pub fn pieces<B: AsRef<[u8]> + std::fmt::Debug + Clone>(
    stream: impl Strategy<Value = B>,
) -> impl Strategy<Value = (B, Vec<Vec<u8>>)> {
    (stream, vec(any::<prop::sample::Index>(), 0..12)).prop_map(|(stream, cuts)| {
        let bytes = stream.as_ref();
        let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        places.push(bytes.len());
        places.sort_unstable();
        let mut start = 0;
        let pieces = places
            .into_iter()
            .map(|end| bytes[std::mem::replace(&mut start, end)..end].to_vec())
            .collect();
        (stream, pieces)
    })
}

const STUMBLES: &[&str] = &[
    "\0",
    "\r",
    "\n",
    "\r\n",
    "\t",
    " ",
    "\u{1}",
    "\u{7f}",
    "\u{85}",
    "\u{a0}",
    "\u{ad}",
    "\u{200b}",
    "\u{2028}",
    "\u{202e}",
    "\u{feff}",
    "\u{fffd}",
    "\u{10ffff}",
    "é",
    "e\u{301}",
    "ß",
    "İ",
    "🙂",
    "\\",
    "\\u0000",
    "\\ud800",
    "\\udc00\\ud800",
    "\\x",
    "%",
    "%00",
    "%zz",
    "+",
    "-0",
    "1e999",
    "99999999999999999999",
    "null",
    "..",
    "//",
    "*",
];

#[cfg(test)]
mod tests {
    use super::*;

    proptest! {
        #[test]
        fn the_pieces_are_the_stream((stream, pieces) in pieces(noise())) {
            prop_assert_eq!(pieces.concat(), stream);
        }
    }
}
