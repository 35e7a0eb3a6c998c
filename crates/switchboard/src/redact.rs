//! Keeps secrets out of records, and control characters out of terminals and logs.

use std::borrow::Cow;

pub use sa_core::mask::MASK;
use serde_json::Value;

/// Parts of key names whose values are not for the record.
const SECRET_KEYS: [&str; 9] =
    ["password", "passwd", "secret", "token", "apikey", "authorization", "credential", "privatekey", "cookie"];

/// A JSON text with the values of keys that name secrets masked. Most texts have none, and are not even parsed.
pub fn mask_json(text: &str) -> Cow<'_, str> {
    if !mentions_secret(text) {
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

fn mask(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                if is_secret_key(key) && !value.is_null() && !value.is_boolean() {
                    *value = Value::String(MASK.into());
                } else {
                    mask(value);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(mask),
        _ => {}
    }
}

fn is_secret_key(key: &str) -> bool {
    let letters: Vec<u8> = plain(key.as_bytes()).collect();
    SECRET_KEYS.iter().any(|secret| letters.windows(secret.len()).any(|part| part == secret.as_bytes()))
}

/// A quick look: whether the letters and digits of a text have such a key among them, whatever stands in between.
/// Escapes (`\u0074oken`) count as a yes, because they may hide one. Every record passes here, so that the text is gone
/// through once, and not once for each word.
fn mentions_secret(text: &str) -> bool {
    let text = text.as_bytes();
    let mut before = b' ';
    for (at, &byte) in text.iter().enumerate() {
        if byte == b'\\' {
            return true;
        }
        if !byte.is_ascii_alphanumeric() {
            continue;
        }
        // Two letters first: nearly no place in a text has those of a key.
        if BEGINNINGS[beginning(before, byte)] {
            let rest = || plain(&text[at + 1..]);
            let begins = |key: &&str| {
                let key = key.as_bytes();
                [before, byte].eq_ignore_ascii_case(&key[..2])
                    && rest().take(key.len() - 2).eq(key[2..].iter().copied())
            };
            if SECRET_KEYS.iter().any(begins) {
                return true;
            }
        }
        before = byte;
    }
    false
}

/// The letters of a text as the names of secrets are compared with.
fn plain(text: &[u8]) -> impl Iterator<Item = u8> {
    text.iter().filter(|byte| byte.is_ascii_alphanumeric()).map(u8::to_ascii_lowercase)
}

/// With which two letters, by the low bits of each, a key of [`SECRET_KEYS`] begins.
const BEGINNINGS: [bool; 1 << 10] = {
    let mut known = [false; 1 << 10];
    let mut index = 0;
    while index < SECRET_KEYS.len() {
        let key = SECRET_KEYS[index].as_bytes();
        known[beginning(key[0], key[1])] = true;
        index += 1;
    }
    known
};

const fn beginning(first: u8, second: u8) -> usize {
    ((first & 31) as usize) << 5 | (second & 31) as usize
}

/// Whether a terminal obeys a character instead of showing it, or shows nothing: control characters, those that turn text
/// around, and those that nobody sees. What joins and varies the characters beside it belongs to texts, as in emoji and
/// Persian, though not to names. Tags are none of these, for all that three flags are made of them: whole sentences can be
/// written in them, for a model to read and for nobody to see.
pub fn steers(c: char) -> bool {
    let joins = matches!(c, '\u{200c}' | '\u{200d}' | '\u{fe00}'..='\u{fe0f}' | '\u{e0100}'..='\u{e01ef}');
    c.is_control() || (sa_protocol::is_invisible(c) && !joins)
}

/// A text from outside, made safe for a terminal or a log line: control characters become visible escapes.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.chars().any(steers) {
        return Cow::Borrowed(text);
    }
    text.chars()
        .map(|c| if steers(c) { c.escape_unicode().to_string() } else { c.to_string() })
        .collect::<String>()
        .into()
}

/// A character as an escape of JSON, which has four digits: one beyond them is two escapes, of the halves that UTF-16 has for it.
pub(crate) fn json_escape(c: char) -> String {
    let mut halves = [0; 2];
    let escapes: Vec<String> = c.encode_utf16(&mut halves).iter().map(|half| format!("\\u{half:04x}")).collect();
    escapes.concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(input: &str, expected: &str) {
        assert_eq!(mask_json(input), expected);
    }

    #[test]
    fn secrets_are_masked_by_the_name_of_their_key() {
        check(r#"{"query":"x"}"#, r#"{"query":"x"}"#);
        check(r#"{"password":"x"}"#, r#"{"password":"***"}"#);
        check(r#"{"a":[{"API_Key":{"deep":1}}]}"#, r#"{"a":[{"API_Key":"***"}]}"#);
        check(r#"{"api-key":12}"#, r#"{"api-key":"***"}"#);
        check(r#"{"\u0074oken":"x"}"#, r#"{"token":"***"}"#);
        check(r#"{"text":"my password is x"}"#, r#"{"text":"my password is x"}"#);
        check(r#"{"has_token":true}"#, r#"{"has_token":true}"#);
        check("\"just text\"", "\"just text\"");
        check(r#"{"api.key":"x","to ken":"y"}"#, r#"{"api.key":"***","to ken":"***"}"#);
    }

    #[test]
    fn control_characters_become_visible() {
        assert_eq!(printable("plain ü"), "plain ü");
        assert_eq!(printable("a\x1b[31mb\n"), "a\\u{1b}[31mb\\u{a}");
        assert_eq!(printable("a\u{202e}b"), "a\\u{202e}b");
        for hidden in ['\u{200b}', '\u{2028}', '\u{2029}', '\u{61c}', '\u{200f}', '\u{3164}', '\u{feff}', '\u{e0041}'] {
            assert_eq!(printable(&hidden.to_string()), hidden.escape_unicode().to_string());
        }
        let joined = "👩\u{200d}🔧 ❤\u{fe0f} می\u{200c}خواهم";
        assert_eq!(printable(joined), joined);
    }

    proptest::proptest! {
        #[test]
        fn an_escape_stands_for_its_character(c: char) {
            let read: String = serde_json::from_str(&format!("\"{}\"", json_escape(c))).unwrap();
            proptest::prop_assert_eq!(read, c.to_string());
        }

        #[test]
        fn a_quick_look_misses_nothing(text in "[a-zA-Z\"_. é]{0,6}(pass|to|T|api|cookie|)[_\"-]?(word|ken|Key|oken|s|)[ -~]{0,4}") {
            let plain: String = text.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_lowercase();
            let slowly = text.contains('\\') || SECRET_KEYS.iter().any(|key| plain.contains(key));
            proptest::prop_assert_eq!(mentions_secret(&text), slowly);
        }

        #[test]
        fn no_part_of_an_address_that_is_for_its_server_alone_is_shown(
            text in sa_hostile::text(&["https:", "ftp:", "/", "\\", "@", "canary", ":", "?", "#", "example.com", "[::1]", "80", "\t"]),
        ) {
            let parsed = url::Url::parse(&text).ok().filter(url::Url::has_host);
            let Some(url) = parsed.filter(|url| !url.path().contains("canary")) else { return Ok(()) };
            let secret = [url.username(), url.password().unwrap_or_default(), url.query().unwrap_or_default()];
            let shown = sa_core::mask::address(&text);
            let host = url.host_str().unwrap_or_default().contains("canary") || text.starts_with("canary");
            let hidden = secret.iter().any(|part| part.contains("canary")) || url.fragment().is_some_and(|part| part.contains("canary"));
            proptest::prop_assert!(host || !hidden || !shown.contains("canary"), "{} is shown as {}", text, shown);
        }

        #[test]
        fn whatever_comes_in_stays_json_and_harmless(text in proptest::prelude::any::<String>()) {
            let json = serde_json::json!({ "password": text, "n": { text.clone(): 1 } }).to_string();
            let masked = mask_json(&json);
            let value: Value = serde_json::from_str(&masked).unwrap();
            proptest::prop_assert_eq!(&value["password"], MASK);
            let _ = mask_json(&text);
            proptest::prop_assert!(!printable(&text).chars().any(char::is_control));
        }
    }
}
