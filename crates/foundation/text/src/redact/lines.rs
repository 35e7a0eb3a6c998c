//! Finds secrets that a line names, such as `Cookie: a=b`, and private keys in PEM format.

use std::ops::Range;

use super::is_secret_key;
use crate::mask::MASK;

/// The beginning of a document in PEM format, and that of its last line.
const BEGIN: &str = "-----BEGIN ";
const END: &str = "-----END";

/// Schemes of an `Authorization` header. They stay readable.
const SCHEMES: [&str; 2] = ["bearer ", "basic "];

/// The maximum length of what may stand before a name in its line: a path with a line number.
const MAX_PREFIX: usize = 200;

/// Finds the next value of a secret name at the beginning of a line or of a quoted text, starting
/// at `from`: a line of a header, of a YAML, TOML or INI file, or of a log.
pub(super) fn value_in(text: &str, from: usize) -> Option<(usize, usize)> {
    let mut at = from;
    while let Some(found) = text[at..].find([':', '=']) {
        let separator = at + found;
        at = separator + 1;
        // These belong to code: `token::Kind`, `token == 1`, `token => 1`, `token://a`.
        if text[at..].starts_with([':', '=', '>', '/']) {
            at += 1;
            continue;
        }
        let Some(before) = before_name(text, separator) else { continue };
        let quote = before.chars().next_back().filter(|c| is_quote(*c));
        let rest = text[at..].trim_start_matches([' ', '\t']);
        let start = after_scheme(text, text.len() - rest.len());
        // In quotes, the value ends with them. A word of a shell ends with a blank.
        let is_word = text.as_bytes()[separator] == b'=' && !rest.starts_with(['"', '\'']);
        let ends =
            |c: char| c == '\n' || c == '\r' || Some(c) == quote || (is_word && c.is_whitespace());
        let value = text[start..].split(ends).next().unwrap_or_default().trim();
        let Range { start, end } = range_of(text, value);
        if !value.is_empty() && value.trim_matches('"') != MASK {
            return Some((start, end));
        }
    }
    None
}

/// Returns the text before a secret name that ends here. `None` if there is no such name, or if it
/// is in the middle of a sentence.
fn before_name(text: &str, separator: usize) -> Option<&str> {
    let text = text[..separator].trim_end_matches([' ', '\t']);
    let rest = text.trim_end_matches(|c: char| c.is_ascii_alphanumeric() || "_-.".contains(c));
    if !is_secret_key(&text[rest.len()..]) {
        return None;
    }
    if rest.ends_with(is_quote) {
        return Some(rest);
    }
    let window = &rest[rest.floor_char_boundary(rest.len().saturating_sub(MAX_PREFIX))..];
    let prefix = match window.rfind(['\n', '\r']) {
        Some(end) => &window[end + 1..],
        None if window.len() == rest.len() => window,
        None => return None,
    };
    begins_line(prefix.trim()).then_some(rest)
}

fn is_quote(c: char) -> bool {
    "'\"`".contains(c)
}

/// Returns whether the rest of a line begins after this prefix: nothing, the marker of a list, a
/// comment or a difference, `curl -v`'s marker of a header, or a line number of a search.
fn begins_line(prefix: &str) -> bool {
    let number = prefix.trim_end_matches([':', '-']);
    let path = number.trim_end_matches(|c: char| c.is_ascii_digit());
    prefix.is_empty()
        || [">", "<", "-", "*", "+", "#"].contains(&prefix)
        || (path.len() < number.len() && (path.is_empty() || path.ends_with([':', '-'])))
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
