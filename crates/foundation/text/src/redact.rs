//! Masks secrets in records: values of keys and of lines that name secrets, the gateway's tokens,
//! private keys, and credentials in URLs.

mod embedded;
mod lines;

use std::borrow::Cow;

use serde_json::{Map, Value};

use crate::mask::MASK;

/// Parts of secret keys. A key names a secret if its letters and digits contain one of them.
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

/// Words of secret keys. They must match a whole word, because they are short: `shipping` contains
/// `pin`.
const WORDS: [&str; 12] =
    ["pass", "pwd", "pw", "bearer", "jwt", "otp", "totp", "mfa", "pin", "cvv", "cvc", "dsn"];

/// The last words of query parameters that name secrets only in URLs.
const PARAMETERS: [&str; 3] = ["key", "sig", "signature"];

/// The prefix of the gateway's tokens, and the minimum length of the rest. Real tokens have 43
/// characters after the prefix.
const TOKEN: &str = "sb_";
const TOKEN_LEAST: usize = 32;

/// The scheme before a credential in a header, and the minimum length of the credential. An English
/// sentence has no word of this length after "bearer".
const BEARER: &[u8] = b"bearer ";
const BEARER_LEAST: usize = 20;

/// Masks the secrets in a JSON text. Most texts contain none and are not parsed.
pub fn mask_json(text: &str) -> Cow<'_, str> {
    if !may_hold_secret(text) {
        return Cow::Borrowed(text);
    }
    match serde_json::from_str::<Value>(text) {
        Ok(mut value) => {
            mask(&mut value);
            Cow::Owned(value.to_string())
        }
        // The JSON is nested too deeply to check. It is masked completely to avoid a leak.
        Err(_) => Cow::Owned(format!("\"{MASK}\"")),
    }
}

/// Masks the gateway's tokens, private keys, the credentials of URLs, and the secrets of lines and
/// of JSON documents in a text.
pub fn mask_text(text: &str) -> Cow<'_, str> {
    let mut shown = Cow::Borrowed(text);
    for find in [token_in, lines::private_key_in, bearer_in, lines::value_in, user_in, parameter_in]
    {
        let mut from = 0;
        while let Some((start, end)) = find(&shown, from) {
            shown.to_mut().replace_range(start..end, MASK);
            from = start + MASK.len();
        }
    }
    match embedded::mask_members(&shown) {
        Some(masked) => Cow::Owned(masked),
        None => shown,
    }
}

fn mask(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if fields.keys().any(|key| matches!(mask_text(key), Cow::Owned(_))) {
                let renamed = std::mem::take(fields)
                    .into_iter()
                    .map(|(key, value)| (mask_text(&key).into(), value));
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

/// Splits a name in camelCase, snake_case or kebab-case into words.
fn words(name: &str) -> impl Iterator<Item = &str> {
    let bytes = name.as_bytes();
    let mut at = 0;
    std::iter::from_fn(move || {
        at += bytes[at..].iter().take_while(|byte| !byte.is_ascii_alphabetic()).count();
        let start = at;
        while at < bytes.len()
            && bytes[at].is_ascii_alphabetic()
            && (at == start || !begins_word(bytes, at))
        {
            at += 1;
        }
        (start < at).then(|| &name[start..at])
    })
}

/// Reports whether a letter that follows a letter starts a word: the `C` of `pinCode` and of
/// `PINCode`.
fn begins_word(bytes: &[u8], at: usize) -> bool {
    bytes[at].is_ascii_uppercase()
        && (bytes[at - 1].is_ascii_lowercase()
            || bytes.get(at + 1).is_some_and(u8::is_ascii_lowercase))
}

/// Finds the next token of the gateway, starting at `from`.
fn token_in(text: &str, from: usize) -> Option<(usize, usize)> {
    let bytes = text.as_bytes();
    let mut at = from;
    while let Some(found) = text[at..].find(TOKEN) {
        let start = at + found;
        let rest = &bytes[start + TOKEN.len()..];
        let length = rest
            .iter()
            .take_while(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(byte))
            .count();
        if length >= TOKEN_LEAST {
            return Some((start, start + TOKEN.len() + length));
        }
        at = start + TOKEN.len();
    }
    None
}

/// Finds the next credential of an `Authorization: Bearer` header, starting at `from`.
fn bearer_in(text: &str, from: usize) -> Option<(usize, usize)> {
    let bytes = text.as_bytes();
    let mut at = from;
    while let Some(found) =
        bytes[at..].windows(BEARER.len()).position(|part| part.eq_ignore_ascii_case(BEARER))
    {
        let start = at + found + BEARER.len();
        let length = bytes[start..]
            .iter()
            .take_while(|byte| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(byte))
            .count();
        if length >= BEARER_LEAST {
            return Some((start, start + length));
        }
        at = start;
    }
    None
}

/// Finds the next user and password in a URL, starting at `from`.
fn user_in(text: &str, from: usize) -> Option<(usize, usize)> {
    let mut at = from;
    while let Some(found) = text[at..].find("://") {
        let start = at + found + "://".len();
        let word = text[start..].split(is_end).next().unwrap_or_default();
        let authority = word.split(['/', '\\', '?', '#']).next().unwrap_or_default();
        // A password with a slash makes the URL invalid, but it must still be masked.
        let user = authority
            .rfind('@')
            .or_else(|| if is_host(authority) { None } else { word.rfind('@') });
        if let Some(length) = user.filter(|length| word[..*length] != *MASK) {
            return Some((start, start + length));
        }
        at = start;
    }
    None
}

/// Finds the next value of a secret parameter, starting at `from`: `?token=…`, `&api_key=…`,
/// `;Password=…`.
fn parameter_in(text: &str, from: usize) -> Option<(usize, usize)> {
    let mut at = from;
    while let Some(found) = text[at..].find('=') {
        let start = at + found + 1;
        let rest = text[..start - 1]
            .trim_end_matches(|c: char| c.is_ascii_alphanumeric() || "_-.%[]".contains(c));
        let name = &text[rest.len()..start - 1];
        let in_url = rest.ends_with(['?', '&', ';', '#']);
        let secret = is_secret_key(name)
            || (in_url
                && words(name).last().is_some_and(|last| {
                    PARAMETERS.iter().any(|known| last.eq_ignore_ascii_case(known))
                }));
        let value = text[start..]
            .split(|c: char| is_end(c) || "&;#".contains(c))
            .next()
            .unwrap_or_default();
        if secret && !value.is_empty() && !value.starts_with('=') && value != MASK {
            return Some((start, start + value.len()));
        }
        at = start;
    }
    None
}

/// Reports whether the character ends a URL within a text.
fn is_end(c: char) -> bool {
    c.is_whitespace() || "\"'<>`".contains(c)
}

/// Reports whether the text is a host with an optional port.
fn is_host(text: &str) -> bool {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port),
        _ => (text, ""),
    };
    let literal = host.starts_with('[') && host.ends_with(']');
    let name = !host.is_empty() && host.chars().all(|c| c.is_alphanumeric() || "-_.".contains(c));
    (name || literal) && port.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns `false` only if the JSON text certainly contains no secret. Every record is checked, so
/// this reads the text only once. Escapes (`\u0074oken`) count as a match because they can hide
/// anything.
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
                // Checks two letters first, because few positions match the start of a secret's
                // name.
                if BEGINNINGS[beginning(before, byte)]
                    && (begins_part(text, before, at) || is_word(text, at))
                {
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
        [before, text[at]].eq_ignore_ascii_case(&part[..2])
            && rest().take(part.len() - 2).eq(part[2..].iter().copied())
    })
}

/// Reports whether a word of [`WORDS`] starts before this position. False positives are possible,
/// false negatives are not.
fn is_word(text: &[u8], at: usize) -> bool {
    let Some(start) = at.checked_sub(1) else { return false };
    let begins =
        start == 0 || !text[start - 1].is_ascii_alphabetic() || text[start].is_ascii_uppercase();
    begins
        && WORDS.iter().any(|word| {
            let end = start + word.len();
            text.get(start..end).is_some_and(|found| found.eq_ignore_ascii_case(word.as_bytes()))
                && !text.get(end).is_some_and(u8::is_ascii_lowercase)
        })
}

fn ends_like_parameter(text: &[u8]) -> bool {
    PARAMETERS.iter().any(|name| {
        text.len() >= name.len()
            && text[text.len() - name.len()..].eq_ignore_ascii_case(name.as_bytes())
    })
}

/// Returns the letters and digits of a text in lower case.
fn plain(text: &[u8]) -> impl Iterator<Item = u8> {
    text.iter().filter(|byte| byte.is_ascii_alphanumeric()).map(u8::to_ascii_lowercase)
}

/// The pairs of first letters of [`PARTS`] and [`WORDS`], indexed by the low bits of both letters.
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
