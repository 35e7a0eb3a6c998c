//! Masks the secret members of JSON documents within a text, such as a text block of an MCP result.
//!
//! The text is scanned and not parsed. So a document may have any size and depth, may be cut off,
//! and may stand between other words. The rest of the text stays as it is.
//!
//! A string of a document may contain another document. The number of backslashes before a quote
//! shows how deep the quote is: none at level 0, one at level 1, three at level 2.

use std::ops::Range;

use super::is_secret_key;
use crate::mask::MASK;

/// Returns the text with masked members, or `None` if it has no secret ones.
pub(super) fn mask_members(text: &str) -> Option<String> {
    let mut masked = String::new();
    let (mut copied, mut at) = (0, 0);
    while let Some(found) = text[at..].find(':') {
        let colon = at + found;
        at = colon + 1;
        let Some(level) = secret_key_before(text, colon) else { continue };
        let Some(value) = value_after(text, colon, level) else { continue };
        let quote = format!("{}\"", "\\".repeat(backslashes(level)));
        masked.extend([&text[copied..value.start], &quote, MASK, &quote]);
        (copied, at) = (value.end, value.end);
    }
    (copied > 0).then(|| masked + &text[copied..])
}

/// Returns the level of the quotes around a key that ends here, if the key names a secret.
fn secret_key_before(text: &str, colon: usize) -> Option<u32> {
    let quoted = text[..colon].trim_end().strip_suffix('"')?;
    let key = quoted.trim_end_matches('\\');
    let start = key.rfind('"')? + 1;
    is_secret_key(&key[start..]).then(|| level(quoted.len() - key.len()))
}

/// Returns the position of the value after a colon. `null`, `true` and `false` are not secrets.
fn value_after(text: &str, colon: usize, key_level: u32) -> Option<Range<usize>> {
    let rest = &text[colon + 1..];
    let value = rest.trim_start();
    let start = text.len() - value.len();
    let run = value.len() - value.trim_start_matches('\\').len();
    let length = match value.as_bytes().get(run)? {
        b'"' if level(run) == key_level => length(value, key_level),
        b'{' | b'[' if run == 0 => length(value, key_level),
        b'-' | b'0'..=b'9' if run == 0 => value
            .bytes()
            .take_while(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(byte))
            .count(),
        _ => return None,
    };
    Some(start..start + length)
}

/// Returns the length of a string, an object or an array with quotes of this level. It ends with
/// the string around it if it was cut off.
fn length(value: &str, own_level: u32) -> usize {
    let (mut depth, mut in_string, mut run) = (0_usize, false, 0);
    for (at, byte) in value.bytes().enumerate() {
        match byte {
            b'\\' => {
                run += 1;
                continue;
            }
            b'"' if level(run) < own_level => return at - backslashes(level(run)),
            b'"' if level(run) == own_level => in_string = !in_string,
            b'{' | b'[' if !in_string => depth += 1,
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
        run = 0;
        if depth == 0 && !in_string && b"\"}]".contains(&byte) {
            return at + 1;
        }
    }
    value.len()
}

/// Returns the level of a quote after this number of backslashes. Some of them may be escaped
/// backslashes at the end of a string.
fn level(run: usize) -> u32 {
    run.trailing_ones()
}

/// Returns the number of backslashes that escape a quote of this level.
fn backslashes(level: u32) -> usize {
    (1 << level) - 1
}
