//! Makes untrusted text safe for terminals and logs.

use std::borrow::Cow;

use crate::is_invisible;

/// Reports whether a terminal interprets a character or shows nothing for it: control,
/// bidirectional and invisible characters. Joiners and variation selectors are allowed, because
/// emoji and Persian texts need them, though names do not. Tag characters are not allowed, although
/// three flags use them. They can hide whole sentences that a model reads and a person does not
/// see.
pub fn affects_display(c: char) -> bool {
    let joins =
        matches!(c, '\u{200c}' | '\u{200d}' | '\u{fe00}'..='\u{fe0f}' | '\u{e0100}'..='\u{e01ef}');
    c.is_control() || (is_invisible(c) && !joins)
}

/// Makes an untrusted text safe for a terminal or a log line. Control characters become visible
/// escapes.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.chars().any(affects_display) {
        return Cow::Borrowed(text);
    }
    text.chars()
        .map(|c| if affects_display(c) { c.escape_unicode().to_string() } else { c.to_string() })
        .collect::<String>()
        .into()
}

/// Returns the JSON escape of a character. A character outside of the BMP becomes two escapes, one
/// for each UTF-16 surrogate.
pub fn json_escape(c: char) -> String {
    let mut halves = [0; 2];
    let escapes: Vec<String> =
        c.encode_utf16(&mut halves).iter().map(|half| format!("\\u{half:04x}")).collect();
    escapes.concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_become_visible() {
        assert_eq!(printable("plain ü"), "plain ü");
        assert_eq!(printable("a\x1b[31mb\n"), "a\\u{1b}[31mb\\u{a}");
        assert_eq!(printable("a\u{202e}b"), "a\\u{202e}b");
        for hidden in [
            '\u{200b}',
            '\u{2028}',
            '\u{2029}',
            '\u{61c}',
            '\u{200f}',
            '\u{3164}',
            '\u{feff}',
            '\u{e0041}',
        ] {
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
        fn no_part_of_an_address_that_is_for_its_server_alone_is_shown(
            text in sa_hostile::text(&["https:", "ftp:", "/", "\\", "@", "canary", ":", "?", "#", "example.com", "[::1]", "80", "\t"]),
        ) {
            let parsed = url::Url::parse(&text).ok().filter(url::Url::has_host);
            let Some(url) = parsed.filter(|url| !url.path().contains("canary")) else { return Ok(()) };
            let secret = [url.username(), url.password().unwrap_or_default(), url.query().unwrap_or_default()];
            let shown = crate::mask::address(&text);
            let host = url.host_str().unwrap_or_default().contains("canary") || text.starts_with("canary");
            let hidden = secret.iter().any(|part| part.contains("canary")) || url.fragment().is_some_and(|part| part.contains("canary"));
            proptest::prop_assert!(host || !hidden || !shown.contains("canary"), "{} is shown as {}", text, shown);
        }

        #[test]
        fn whatever_comes_in_is_harmless(text in proptest::prelude::any::<String>()) {
            proptest::prop_assert!(!printable(&text).chars().any(char::is_control));
        }
    }
}
