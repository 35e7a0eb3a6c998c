//! Removes secrets from a server's answer, in all common encodings.
//!
//! A server may repeat a secret as it was sent, or in the encoding of a library: JSON, URL, HTML,
//! base64, hex, or another text encoding. All of these are found. A server that deliberately
//! hides a secret in its answer (reversed, encrypted, compressed or split) cannot be stopped: it
//! has received the secret.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt::Write as _;

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};
use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD_NO_PAD, BASE64_URL_SAFE_NO_PAD};
use bytes::Bytes;
use sa_protocol::plugin::ascii_json;
use serde::de::IgnoredAny;
use serde_json::Value;

use crate::secrets::SHORTEST;
use crate::settings::MASK;

/// The maximum depth of JSON nested in JSON strings. Below it, only the encoded forms are
/// searched.
const MAX_DEPTH: usize = 4;
/// The minimum length of a base64 fragment. A shorter one would match unrelated texts.
const SHORTEST_BASE64: usize = 8;

/// The secrets to remove.
pub(crate) struct Hidden {
    secrets: Vec<String>,
    spellings: Option<AhoCorasick>,
    /// The index of the first pattern that is a base64 fragment.
    base64_from: usize,
}

impl Hidden {
    pub(crate) fn new(secrets: &[String]) -> Self {
        let secrets: Vec<String> =
            secrets.iter().filter(|secret| secret.len() >= SHORTEST).cloned().collect();
        let mut spellings: Vec<Vec<u8>> =
            secrets.iter().flat_map(|secret| spellings(secret)).collect();
        let base64_from = spellings.len();
        spellings.extend(secrets.iter().flat_map(|secret| base64_parts(secret)));
        let spellings = if secrets.is_empty() { None } else { searcher(&spellings) };
        Self { secrets, spellings, base64_from }
    }

    /// Removes the secrets from a text. JSON stays valid JSON.
    pub(crate) fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let Some(spellings) = &self.spellings else { return Cow::Borrowed(text) };
        let numbers = self.secrets.iter().any(|secret| number(secret).is_some());
        if !numbers && !text.contains('\\') && !spellings.is_match(text) {
            return Cow::Borrowed(text);
        }
        self.within(text, 0)
    }

    /// Removes the secrets from a body. In a binary body they are overwritten, so that all other
    /// bytes keep their positions.
    pub(crate) fn body(&self, body: &Bytes) -> Bytes {
        if self.spellings.is_none() {
            return body.clone();
        }
        match std::str::from_utf8(body) {
            // UTF-16 text may look like this, too.
            Ok(text) if !body.contains(&0) => match self.text(text) {
                Cow::Borrowed(_) => body.clone(),
                Cow::Owned(text) => text.into(),
            },
            _ => self.covered_body(body),
        }
    }

    fn covered_body(&self, body: &Bytes) -> Bytes {
        let stars = |found: usize| vec![b'*'; found];
        let narrow = self.covered(body, stars).map_or_else(|| body.clone(), Bytes::from);
        let all = self
            .secrets
            .iter()
            .flat_map(|secret| spellings(secret).into_iter().chain(base64_parts(secret)));
        let texts = all.filter_map(|spelling| String::from_utf8(spelling).ok());
        let wide: Vec<Vec<u8>> = texts
            .flat_map(|text| [wide(&text, u16::to_le_bytes), wide(&text, u16::to_be_bytes)])
            .collect();
        let wide =
            Self { secrets: Vec::new(), base64_from: wide.len(), spellings: searcher(&wide) };
        wide.covered(&narrow, stars).map_or(narrow, Bytes::from)
    }

    fn within<'a>(&self, text: &'a str, depth: usize) -> Cow<'a, str> {
        let compound = text.trim_start().starts_with(['{', '[', '"'])
            || (depth == 0 && number(text).is_some());
        if compound && depth < MAX_DEPTH && serde_json::from_str::<IgnoredAny>(text).is_ok() {
            return self.json(text, depth);
        }
        match self.covered(text.as_bytes(), |_| MASK.into()) {
            Some(bytes) => Cow::Owned(String::from_utf8_lossy(&bytes).into_owned()),
            None => Cow::Borrowed(text),
        }
    }

    /// Removes secrets from JSON. A secret number is replaced with a string.
    fn json<'a>(&self, text: &'a str, depth: usize) -> Cow<'a, str> {
        let (mut kept, mut copied, mut at) = (String::new(), 0, 0);
        let bytes = text.as_bytes();
        while at < bytes.len() {
            let start = at;
            let replaced = if bytes[at] == b'"' {
                at = end_of_string(bytes, at);
                let inner: String = serde_json::from_str(&text[start..at]).unwrap_or_default();
                match self.within(&inner, depth + 1) {
                    Cow::Owned(shown) => Some(Value::from(shown).to_string()),
                    Cow::Borrowed(_) => None,
                }
            } else if bytes[at] == b'-' || bytes[at].is_ascii_digit() {
                at +=
                    bytes[at..].iter().take_while(|byte| b"+-.eE0123456789".contains(byte)).count();
                self.is_number(&text[start..at]).then(|| Value::from(MASK).to_string())
            } else {
                at += 1;
                None
            };
            if let Some(replaced) = replaced {
                kept.push_str(&text[copied..start]);
                kept.push_str(&replaced);
                copied = at;
            }
        }
        if copied == 0 {
            return Cow::Borrowed(text);
        }
        kept.push_str(&text[copied..]);
        Cow::Owned(kept)
    }

    /// Returns whether a number equals a secret, in any notation.
    fn is_number(&self, token: &str) -> bool {
        let value = number(token);
        self.secrets
            .iter()
            .any(|secret| secret == token || (value.is_some() && value == number(secret)))
    }

    /// Replaces all matches in the bytes; `None` if there are none.
    fn covered(&self, bytes: &[u8], cover: impl Fn(usize) -> Vec<u8>) -> Option<Vec<u8>> {
        let mut kept: Vec<u8> = Vec::new();
        let mut copied = 0;
        for found in self.spellings.as_ref()?.find_iter(bytes) {
            let (mut start, mut end) = (found.start(), found.end());
            // Already covered. Searching again for the end of a run that is full of matches would
            // take quadratic time.
            if end <= copied {
                continue;
            }
            if found.pattern().as_usize() >= self.base64_from {
                // The adjacent base64 characters belong to the match.
                while start > copied && is_base64(bytes[start - 1]) {
                    start -= 1;
                }
                end += bytes[end..].iter().take_while(|byte| is_base64(**byte)).count();
            }
            if start >= copied {
                kept.extend_from_slice(&bytes[copied..start]);
                kept.extend(cover(end - start));
            }
            copied = copied.max(end);
        }
        if copied == 0 {
            return None;
        }
        kept.extend_from_slice(&bytes[copied..]);
        Some(kept)
    }
}

/// Builds the search automaton. It is used for one answer, so the kind with the fastest
/// construction is chosen. The longest match wins.
fn searcher(spellings: &[Vec<u8>]) -> Option<AhoCorasick> {
    let mut builder = AhoCorasick::builder();
    builder.match_kind(MatchKind::LeftmostLongest).kind(Some(AhoCorasickKind::NoncontiguousNFA));
    builder.build(spellings).ok()
}

/// Encodes a text in UTF-16.
fn wide(text: &str, bytes: fn(u16) -> [u8; 2]) -> Vec<u8> {
    text.encode_utf16().flat_map(bytes).collect()
}

fn end_of_string(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// Parses a JSON number of a minimum length. A short one would match everywhere.
fn number(text: &str) -> Option<f64> {
    let text = text.trim();
    let plain =
        text.starts_with(|c: char| c == '-' || c.is_ascii_digit()) && text.len() >= SHORTEST;
    plain.then(|| text.parse().ok()).flatten()
}

fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"+/-_=".contains(&byte)
}

/// Returns a secret in all encodings in which a server may repeat it: plain, in JSON, in a URL,
/// in a form, in HTML, in hex, and in Latin-1. The settings header has its own encoding, which
/// may also be nested in JSON.
fn spellings(secret: &str) -> Vec<Vec<u8>> {
    let quoted = |text: String| text[1..text.len() - 1].to_owned();
    let json = |text: &str| quoted(Value::from(text).to_string());
    let header = quoted(ascii_json(&Value::from(secret)));
    let percent = percent(secret);
    let form: String = url::form_urlencoded::byte_serialize(secret.as_bytes()).collect();
    let page = secret.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let page_quotes = page.replace('"', "&quot;").replace('\'', "&#39;");
    let hex = secret.bytes().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    });
    let texts = [
        secret.to_owned(),
        json(secret),
        json(secret).replace('/', "\\/"),
        json(&header),
        header,
        lower_percent(&percent),
        percent,
        lower_percent(&form),
        form,
        page,
        page_quotes,
        hex.to_uppercase(),
        hex,
    ];
    let mut found: Vec<Vec<u8>> = texts.into_iter().map(String::into_bytes).collect();
    found.extend(
        secret.chars().map(|c| u8::try_from(u32::from(c)).ok()).collect::<Option<Vec<u8>>>(),
    );
    found
}

fn percent(secret: &str) -> String {
    secret.bytes().fold(String::new(), |mut text, byte| {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                text.push(char::from(byte));
            }
            _ => drop(write!(text, "%{byte:02X}")),
        }
        text
    })
}

/// Converts percent-encoding to lower case, such as `%2B` to `%2b`.
fn lower_percent(encoded: &str) -> String {
    let mut left = 0;
    let lower = encoded.chars().map(|c| {
        let digit = left > 0;
        left = if c == '%' { 2 } else { left.max(1) - 1 };
        if digit { c.to_ascii_lowercase() } else { c }
    });
    lower.collect()
}

/// Returns the base64 fragments of a secret, and of its forms in a URL, a form or a header. They
/// are found at any position in the encoded text.
fn base64_parts(secret: &str) -> Vec<Vec<u8>> {
    let header = ascii_json(&Value::from(secret));
    let form = url::form_urlencoded::byte_serialize(secret.as_bytes()).collect();
    let inner = BTreeSet::from([
        secret.to_owned(),
        percent(secret),
        form,
        header[1..header.len() - 1].to_owned(),
    ]);
    inner.iter().flat_map(|text| base64_part(text)).collect()
}

/// Returns the base64 characters that do not depend on the surrounding text.
fn base64_part(text: &str) -> Vec<Vec<u8>> {
    let mut parts = Vec::new();
    for before in 0..3 {
        let padded = [&vec![0; before], text.as_bytes()].concat();
        let (first, last) = ((before * 8).div_ceil(6), padded.len() * 8 / 6);
        for encoded in
            [BASE64_STANDARD_NO_PAD.encode(&padded), BASE64_URL_SAFE_NO_PAD.encode(&padded)]
        {
            if last - first >= SHORTEST_BASE64 {
                parts.push(encoded.as_bytes()[first..last].to_vec());
            }
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(secret: &str, said: &str, shown: &str) {
        let hidden = Hidden::new(&["canary".to_owned(), secret.to_owned()]);
        assert_eq!(hidden.text(said), shown, "{said}");
    }

    #[test]
    fn a_secret_is_found_in_every_spelling() {
        for (secret, spelled) in [
            ("canary-2", "canary-2"),
            ("q\"uo", "q\\\"uo"),
            ("ends with\"", "ends with\\\""),
            ("schlüssel", "schl\\u00fcssel"),
            ("schlüssel", "schl\\\\u00fcssel"),
            ("q\"uo", "q\\\\\\\"uo"),
            ("a b+c/d=", "a%20b%2Bc%2Fd%3D"),
            ("a b+c/d=", "a%20b%2bc%2fd%3d"),
            ("a b+c/d=", "a+b%2Bc%2Fd%3D"),
            ("a/b/c", "a\\/b\\/c"),
            ("a&b<c", "a&amp;b&lt;c"),
            ("canary-2", "63616e6172792d32"),
            ("canary-2", "63616E6172792D32"),
            ("canary-2", "Y2FuYXJ5LTI="),
            ("canary-2", "dXNlcjpjYW5hcnktMg=="),
            ("canary-2", "bWU6Y2FuYXJ5LTI6bW9yZQ"),
            ("a b+c/d=", "P2tleT1hJTIwYiUyQmMlMkZkJTNEJng9MQ=="),
        ] {
            check(secret, &format!("<{spelled}>"), "<***>");
        }
        check("abc", "abcd", "abcd");
        check("canary-2", "nothing of it: canar", "nothing of it: canar");
    }

    #[test]
    fn json_stays_json() {
        let check_json = |secret: &str, said: &str, shown: Value| {
            let found = Hidden::new(&[secret.to_owned()]).text(said).into_owned();
            assert_eq!(serde_json::from_str::<Value>(&found).unwrap(), shown, "{said}");
        };
        check_json(
            "12345678",
            r#"{"pin":12345678,"more":123456789}"#,
            json!({ "pin": "***", "more": 123_456_789 }),
        );
        check_json(
            "12345678",
            "[12345678.0, 1.2345678e7, \"12345678\"]",
            json!(["***", "***", "***"]),
        );
        check_json("12345678", "12345678", json!("***"));
        check_json("schlüssel", r#"{"key":"schl\u00FCssel"}"#, json!({ "key": "***" }));
        check_json(
            "q\"uo",
            r#"{"q\"uo":"{\"in\":\"q\\\"uo\"}"}"#,
            json!({ "***": "{\"in\":\"***\"}" }),
        );
        check_json("true", r#"{"is":true,"said":"true"}"#, json!({ "is": true, "said": "***" }));
        let deep = (0..12).fold("canary".to_owned(), |text, _| json!([text]).to_string());
        assert!(!Hidden::new(&["canary".to_owned()]).text(&deep).contains("canary"), "{deep}");
    }

    #[test]
    fn in_bytes_they_are_covered() {
        let hidden = Hidden::new(&["schlüssel".to_owned()]);
        let latin = b"\xff<schl\xfcssel>";
        assert_eq!(hidden.body(&Bytes::from_static(latin)), &b"\xff<*********>"[..]);
        let wide: Vec<u8> = "ÿ schlüssel".encode_utf16().flat_map(u16::to_be_bytes).collect();
        let covered = hidden.body(&Bytes::from(wide.clone()));
        assert!(covered.len() == wide.len() && covered.ends_with(&[b'*'; 18]), "{covered:?}");
        // The same text as base64 in UTF-16, which is also valid UTF-8.
        let body: Vec<u8> =
            "key c2NobMO8c3NlbA==".encode_utf16().flat_map(u16::to_le_bytes).collect();
        let covered = hidden.body(&Bytes::from(body));
        assert!(
            !String::from_utf8_lossy(&covered).replace('\0', "").contains("NobMO8c3N"),
            "{covered:?}"
        );
        let untouched = Bytes::from_static(b"\x89PNG\xff");
        assert_eq!(hidden.body(&untouched), untouched);
        // In Latin-1 it begins in the middle of a UTF-8 character.
        assert!(Hidden::new(&["©abc".to_owned()]).text("éabc").contains("***"));
    }

    proptest::proptest! {
        #[test]
        fn no_text_keeps_a_secret_or_breaks(before in "\\PC{0,20}", secret in "\\PC{4,20}", after in "\\PC{0,20}") {
            let hidden = Hidden::new(std::slice::from_ref(&secret));
            let said = json!({ "a": format!("{before}{secret}{after}"), "b": [1, secret] }).to_string();
            let shown: Value = serde_json::from_str(&hidden.text(&said)).unwrap();
            proptest::prop_assert!(secret.contains('*') || !shown.to_string().contains(&secret));
        }
    }

    /// A server may repeat a secret many times. Each part of the run must be examined only once.
    #[test]
    fn an_answer_that_is_nothing_but_a_secret_is_soon_covered() {
        let secret = "NobMO8c3N-long-enough".to_owned();
        let run = base64::prelude::BASE64_STANDARD.encode(&secret).repeat(40_000);
        let hidden = Hidden::new(&[secret]);
        assert_eq!(hidden.text(&run), MASK);
        let covered = hidden.body(&[b"\0", run.as_bytes()].concat().into());
        assert!(covered.len() == run.len() + 1 && covered[1..].iter().all(|byte| *byte == b'*'));
    }

    proptest::proptest! {
        #[test]
        fn no_body_breaks_it_and_what_has_no_secret_is_left_alone(
            noise in sa_hostile::noise(), json in sa_hostile::nearly(serde_json::json!({ "a": ["x", { "b": 12_345_678 }], "c": "{\"d\":\"e\"}" })),
        ) {
            let hidden = Hidden::new(&["canary-secret-91".to_owned(), "12345670".to_owned()]);
            for body in [Bytes::from(noise), Bytes::from(json)] {
                proptest::prop_assert_eq!(hidden.body(&body), body);
            }
        }
    }
}
