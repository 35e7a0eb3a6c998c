//! Finds secrets that a line names, such as `Cookie: a=b`, and private keys in PEM format.

use std::ops::Range;

use super::is_secret_key;
use crate::mask::MASK;

/// The beginning of a document in PEM format, and that of its last line.
const BEGIN: &str = "-----BEGIN ";
const END: &str = "-----END";

/// Schemes of an `Authorization` header. They stay readable.
const SCHEMES: [&str; 2] = ["bearer ", "basic "];

/// Finds the next value of a secret name at the beginning of a line or of a quoted text, starting
/// at `from`: a line of a header, of a YAML file, or of a log.
pub(super) fn value_in(text: &str, from: usize) -> Option<(usize, usize)> {
    let mut at = from;
    while let Some(found) = text[at..].find(": ") {
        let colon = at + found;
        at = colon + 1;
        let Some(before) = name_before(text, colon) else { continue };
        let start = after_scheme(text, colon + ": ".len());
        // In quotes, the value ends with them.
        let ends = |c: char| c == '\n' || c == '\r' || (c == before && "'\"`".contains(c));
        let value = text[start..].split(ends).next().unwrap_or_default().trim();
        let Range { start, end } = range_of(text, value);
        if !value.is_empty() && value.trim_matches('"') != MASK {
            return Some((start, end));
        }
    }
    None
}

/// Returns the character before a secret name that ends here, or a line feed if the text begins
/// with the name. `None` if there is no such name, or if it is in the middle of a sentence.
fn name_before(text: &str, colon: usize) -> Option<char> {
    let rest =
        text[..colon].trim_end_matches(|c: char| c.is_ascii_alphanumeric() || "_-.".contains(c));
    let line = rest.trim_end_matches([' ', '\t']);
    let before = line.chars().next_back().unwrap_or('\n');
    let begins = match before {
        '\n' | '\r' => true,
        // `curl -v` writes these before headers. A `-` stands before an item of a list.
        '>' | '<' | '-' => line.len() < rest.len(),
        '\'' | '"' | '`' => line.len() == rest.len(),
        _ => false,
    };
    (begins && is_secret_key(&text[rest.len()..colon])).then_some(before)
}

fn after_scheme(text: &str, start: usize) -> usize {
    let value = &text.as_bytes()[start..];
    let scheme = SCHEMES.iter().find(|scheme| {
        value.get(..scheme.len()).is_some_and(|word| word.eq_ignore_ascii_case(scheme.as_bytes()))
    });
    start + scheme.map_or(0, |scheme| scheme.len())
}

/// Finds the next private key in PEM format, starting at `from`. It may be cut off.
pub(super) fn private_key_in(text: &str, from: usize) -> Option<(usize, usize)> {
    let mut at = from;
    while let Some(found) = text[at..].find(BEGIN) {
        at += found + BEGIN.len();
        let line = text[at..].split('-').next().unwrap_or_default();
        if !line.ends_with("PRIVATE KEY") {
            continue;
        }
        at += line.len();
        let end = text[at..].find(END).map_or(text.len(), |length| at + length);
        let key = text[at..end].trim_start_matches('-').trim();
        if !key.is_empty() && key != MASK {
            let Range { start, end } = range_of(text, key);
            return Some((start, end));
        }
    }
    None
}

/// Returns the position of a part of the text.
fn range_of(text: &str, part: &str) -> Range<usize> {
    let start = part.as_ptr() as usize - text.as_ptr() as usize;
    start..start + part.len()
}
