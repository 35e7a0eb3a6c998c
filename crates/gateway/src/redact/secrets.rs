//! Keeps secrets out of records: values of keys that name secrets, our own tokens, and credentials in URLs.

use std::borrow::Cow;

use sa_core::mask::MASK;
use serde_json::{Map, Value};

/// A key whose letters and digits contain one of these names a secret.
const PARTS: [&str; 12] = [
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "apikey",
    "accesskey",
    "authorization",
    "credential",
    "privatekey",
    "connectionstring",
    "cookie",
];

/// A key with one of these as a whole word names a secret. They are too short to be looked for inside of words: `shipping`
/// has a `pin`.
const WORDS: [&str; 6] = ["pwd", "bearer", "jwt", "otp", "pin", "dsn"];

/// Query parameters that name secrets in URLs only.
const PARAMETERS: [&str; 3] = ["key", "sig", "signature"];

/// How our tokens begin, and the least length of what follows. They have 43 characters there.
const TOKEN: &str = "sb_";
const TOKEN_LEAST: usize = 32;

/// A JSON text with its secrets masked. Most texts have none, and are not even parsed.
pub fn mask_json(text: &str) -> Cow<'_, str> {
    if !may_hold_secret(text) {
        return Cow::Borrowed(text);
    }
    match serde_json::from_str::<Value>(text) {
        Ok(mut value) => {
            mask(&mut value);
            Cow::Owned(value.to_string())
        }
        // Too deep to look into: better no record of it than a leak.
        Err(_) => Cow::Owned(format!("\"{MASK}\"")),
    }
}

/// A text with our own tokens and the credentials of URLs masked.
pub fn mask_text(text: &str) -> Cow<'_, str> {
    let mut shown = Cow::Borrowed(text);
    for find in [token_in, user_in, parameter_in] {
        let mut from = 0;
        while let Some((start, end)) = find(&shown, from) {
            shown.to_mut().replace_range(start..end, MASK);
            from = start + MASK.len();
        }
    }
    shown
}

fn mask(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if fields.keys().any(|key| matches!(mask_text(key), Cow::Owned(_))) {
                let renamed = std::mem::take(fields).into_iter().map(|(key, value)| (mask_text(&key).into(), value));
                *fields = renamed.collect::<Map<String, Value>>();
            }
            for (key, value) in fields {
                if is_secret_key(key) && !value.is_null() && !value.is_boolean() {
                    *value = Value::String(MASK.into());
                } else {
                    mask(value);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(mask),
        Value::String(text) => {
            if let Cow::Owned(masked) = mask_text(text) {
                *text = masked;
            }
        }
        _ => {}
    }
}

fn is_secret_key(key: &str) -> bool {
    let letters: Vec<u8> = plain(key.as_bytes()).collect();
    PARTS.iter().any(|part| letters.windows(part.len()).any(|window| window == part.as_bytes()))
        || words(key).any(|word| WORDS.iter().any(|secret| word.eq_ignore_ascii_case(secret)))
}

/// The words of a name in camelCase, snake_case, kebab-case or a mixture.
fn words(name: &str) -> impl Iterator<Item = &str> {
    let bytes = name.as_bytes();
    let mut at = 0;
    std::iter::from_fn(move || {
        at += bytes[at..].iter().take_while(|byte| !byte.is_ascii_alphabetic()).count();
        let start = at;
        while at < bytes.len() && bytes[at].is_ascii_alphabetic() && (at == start || !begins_word(bytes, at)) {
            at += 1;
        }
        (start < at).then(|| &name[start..at])
    })
}

/// Whether a letter after a letter begins a word: the `C` of `pinCode`, and of `PINCode`.
fn begins_word(bytes: &[u8], at: usize) -> bool {
    bytes[at].is_ascii_uppercase()
        && (bytes[at - 1].is_ascii_lowercase() || bytes.get(at + 1).is_some_and(u8::is_ascii_lowercase))
}

/// Where one of our tokens is, from `from` on.
fn token_in(text: &str, from: usize) -> Option<(usize, usize)> {
    let bytes = text.as_bytes();
    let mut at = from;
    while let Some(found) = text[at..].find(TOKEN) {
        let start = at + found;
        let rest = &bytes[start + TOKEN.len()..];
        let length = rest.iter().take_while(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(byte)).count();
        if length >= TOKEN_LEAST {
            return Some((start, start + TOKEN.len() + length));
        }
        at = start + TOKEN.len();
    }
    None
}

/// Where the user and the password of a URL are, from `from` on.
fn user_in(text: &str, from: usize) -> Option<(usize, usize)> {
    let mut at = from;
    while let Some(found) = text[at..].find("://") {
        let start = at + found + "://".len();
        let word = text[start..].split(is_end).next().unwrap_or_default();
        let authority = word.split(['/', '\\', '?', '#']).next().unwrap_or_default();
        // A password with a slash makes no valid URL, and is a password all the same.
        let user = authority.rfind('@').or_else(|| if is_host(authority) { None } else { word.rfind('@') });
        if let Some(length) = user.filter(|length| word[..*length] != *MASK) {
            return Some((start, start + length));
        }
        at = start;
    }
    None
}

/// Where the value of a parameter that names a secret is, from `from` on: `?token=…`, `&api_key=…`, `;Password=…`.
fn parameter_in(text: &str, from: usize) -> Option<(usize, usize)> {
    let mut at = from;
    while let Some(found) = text[at..].find('=') {
        let start = at + found + 1;
        let rest = text[..start - 1].trim_end_matches(|c: char| c.is_ascii_alphanumeric() || "_-.%[]".contains(c));
        let name = &text[rest.len()..start - 1];
        let in_url = rest.ends_with(['?', '&', ';', '#']);
        let secret = is_secret_key(name) || (in_url && PARAMETERS.iter().any(|known| name.eq_ignore_ascii_case(known)));
        let value = text[start..].split(|c: char| is_end(c) || "&;#".contains(c)).next().unwrap_or_default();
        if secret && !value.is_empty() && !value.starts_with('=') && value != MASK {
            return Some((start, start + value.len()));
        }
        at = start;
    }
    None
}

/// What ends a URL in a text.
fn is_end(c: char) -> bool {
    c.is_whitespace() || "\"'<>`".contains(c)
}

/// Whether this can stand between `://` and the path: a host, or a host and a port.
fn is_host(text: &str) -> bool {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port),
        _ => (text, ""),
    };
    let literal = host.starts_with('[') && host.ends_with(']');
    let name = !host.is_empty() && host.chars().all(|c| c.is_alphanumeric() || "-_.".contains(c));
    (name || literal) && port.bytes().all(|byte| byte.is_ascii_digit())
}

/// A quick look: `false` when a JSON text certainly holds no secret. Every record passes here, so the text is read once.
/// Escapes (`\u0074oken`) count as a yes, because they may hide anything.
fn may_hold_secret(text: &str) -> bool {
    let text = text.as_bytes();
    let (mut before, mut url) = (b' ', false);
    for (at, &byte) in text.iter().enumerate() {
        match byte {
            b'\\' => return true,
            b'_' if text[..at].ends_with(b"sb") => return true,
            b':' => url |= text[at..].starts_with(b"://"),
            b'@' if url => return true,
            b'=' if ends_like_parameter(&text[..at]) => return true,
            _ if !byte.is_ascii_alphanumeric() => {}
            _ => {
                // Two letters first: nearly no position of a text has those of a secret's name.
                if BEGINNINGS[beginning(before, byte)] && (begins_part(text, before, at) || is_word(text, at)) {
                    return true;
                }
                before = byte;
            }
        }
    }
    false
}

fn begins_part(text: &[u8], before: u8, at: usize) -> bool {
    let rest = || plain(&text[at + 1..]);
    PARTS.iter().map(|part| part.as_bytes()).any(|part| {
        [before, text[at]].eq_ignore_ascii_case(&part[..2]) && rest().take(part.len() - 2).eq(part[2..].iter().copied())
    })
}

/// Whether a word of [`WORDS`] begins before this position. It may find one too many, and misses none.
fn is_word(text: &[u8], at: usize) -> bool {
    let Some(start) = at.checked_sub(1) else { return false };
    let begins = start == 0 || !text[start - 1].is_ascii_alphabetic() || text[start].is_ascii_uppercase();
    begins
        && WORDS.iter().any(|word| {
            let end = start + word.len();
            text.get(start..end).is_some_and(|found| found.eq_ignore_ascii_case(word.as_bytes()))
                && !text.get(end).is_some_and(u8::is_ascii_lowercase)
        })
}

fn ends_like_parameter(text: &[u8]) -> bool {
    PARAMETERS
        .iter()
        .any(|name| text.len() >= name.len() && text[text.len() - name.len()..].eq_ignore_ascii_case(name.as_bytes()))
}

/// The letters and digits of a text, in lower case.
fn plain(text: &[u8]) -> impl Iterator<Item = u8> {
    text.iter().filter(|byte| byte.is_ascii_alphanumeric()).map(u8::to_ascii_lowercase)
}

/// With which two letters, by the low bits of each, a name of [`PARTS`] or [`WORDS`] begins.
const BEGINNINGS: [bool; 1 << 10] = {
    let mut known = [false; 1 << 10];
    let mut index = 0;
    while index < PARTS.len() + WORDS.len() {
        let name = if index < PARTS.len() { PARTS[index] } else { WORDS[index - PARTS.len()] };
        known[beginning(name.as_bytes()[0], name.as_bytes()[1])] = true;
        index += 1;
    }
    known
};

const fn beginning(first: u8, second: u8) -> usize {
    ((first & 31) as usize) << 5 | (second & 31) as usize
}

#[cfg(test)]
mod tests;
