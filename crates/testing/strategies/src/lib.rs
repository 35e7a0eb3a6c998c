//! What decoders are given in tests: noise, texts in the punctuation of a format, JSON that is nearly right, streams that are
//! cut anywhere, and the transcripts of what is right.
//!
//! Each crate says of its own decoders what has to hold for all of these: that what it accepts keeps to its rules, that what
//! it refuses is refused in few words, that what it writes it can read, and that no cut of a stream changes what was said.

mod json;
mod schema;
mod transcripts;

pub use json::{json, list, nearly};
pub use schema::schema;
pub use transcripts::{Line, transcripts};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

/// No refusal is longer than this, in bytes, whatever it refuses.
pub const SHORT: usize = 4_096;

/// Any bytes.
pub fn noise() -> impl Strategy<Value = Vec<u8>> + Clone {
    vec(any::<u8>(), 0..200)
}

/// Text that is made of a format's own words and punctuation, and of what readers of text stumble over.
pub fn text(words: &'static [&'static str]) -> impl Strategy<Value = String> + Clone {
    let piece = prop_oneof![
        6 => select(words).prop_map(str::to_owned),
        2 => select(STUMBLES).prop_map(str::to_owned),
        1 => "[a-z0-9]{1,4}",
        1 => any::<char>().prop_map(String::from),
    ];
    vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

/// Something long, to see that nobody repeats it.
pub fn long() -> impl Strategy<Value = String> + Clone {
    (select(&["x", "é", "\u{1}", "\"", "\\", "/", "~", "\u{202e}"][..]), 1_000_usize..20_000)
        .prop_map(|(piece, count)| piece.repeat(count))
}

/// A stream in the pieces in which it may come. There are empty ones, too.
pub fn pieces<B: AsRef<[u8]> + std::fmt::Debug + Clone>(
    stream: impl Strategy<Value = B>,
) -> impl Strategy<Value = (B, Vec<Vec<u8>>)> {
    (stream, vec(any::<prop::sample::Index>(), 0..12)).prop_map(|(stream, cuts)| {
        let bytes = stream.as_ref();
        let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        places.push(bytes.len());
        places.sort_unstable();
        let mut start = 0;
        let pieces = places.into_iter().map(|end| bytes[std::mem::replace(&mut start, end)..end].to_vec()).collect();
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
