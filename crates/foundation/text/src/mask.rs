//! Masking of secrets in displayed text.

use std::borrow::Cow;

/// The replacement for a secret.
pub const MASK: &str = "***";

/// Masks the possible secrets in an address: the user and password before the host, the query and
/// the fragment.
/// Text that is not a valid address is masked in the same way, rather too much than too little.
pub fn address(text: &str) -> Cow<'_, str> {
    let scheme = text.find("://").filter(|at| !text[..*at].contains(['@', '?', '#', '/']));
    let scheme = scheme.map_or(0, |at| at + "://".len());
    // Parsers ignore extra slashes.
    let begin = text.len() - text[scheme..].trim_start_matches(['/', '\\']).len();
    let authority = text[begin..].split(['/', '\\', '?', '#']).next().unwrap_or_default();
    // A password that contains a slash makes the address invalid, but it is still a password.
    let whole = scheme > 0 && is_host(authority);
    let user = authority.rfind('@').or_else(|| if whole { None } else { text[begin..].rfind('@') });
    let host = user.map_or(begin, |at| begin + at + 1);
    // The text before the host may be a password or a query; both are masked.
    if text[begin..host].contains(['?', '#']) {
        return format!("{}{MASK}", &text[..begin]).into();
    }
    let asked = text[host..].find(['?', '#']).map(|at| host + at + 1);
    if user.is_none() && asked.is_none() {
        return Cow::Borrowed(text);
    }
    let user = user.map(|_| format!("{MASK}@")).unwrap_or_default();
    let (rest, asked) = asked.map_or((&text[host..], ""), |end| (&text[host..end], MASK));
    format!("{}{user}{rest}{asked}", &text[..begin]).into()
}

/// Masks every address in a text that may contain other words.
pub fn addresses(text: &str) -> Cow<'_, str> {
    if !text.contains("://") {
        return Cow::Borrowed(text);
    }
    let words = text.split_inclusive(char::is_whitespace).map(|word| {
        let (word, space) = word.split_at(word.trim_end().len());
        let shown = if word.contains("://") { address(word) } else { Cow::Borrowed(word) };
        format!("{shown}{space}")
    });
    words.collect::<String>().into()
}

/// Returns a name, such as that of a header or a variable. Masks it from the first character that
/// belongs to a value.
pub fn name(text: &str) -> Cow<'_, str> {
    let end = text.find(|c: char| !c.is_alphanumeric() && !"-_.".contains(c));
    end.map_or(Cow::Borrowed(text), |end| format!("{}{MASK}", &text[..end]).into())
}

/// Returns whether the text is a valid host, or host and port, between `://` and the path.
fn is_host(text: &str) -> bool {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port),
        _ => (text, ""),
    };
    let is_name =
        !host.is_empty() && host.chars().all(|c| c.is_alphanumeric() || "-_.".contains(c));
    let is_literal = host.starts_with('[') && host.ends_with(']');
    (is_name || is_literal) && port.chars().all(|c| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(address(text), expected, "{text}");
    }

    #[test]
    fn an_address_is_shown_without_its_secrets() {
        for plain in [
            "",
            "https://example.com",
            "https://example.com:8443/mcp",
            "http://[::1]:3210/a",
            "https://unpkg.com/@scope/package",
            "localhost:4318",
            "a:b",
        ] {
            check(plain, plain);
        }
        check("https://me:canary@example.com/mcp", "https://***@example.com/mcp");
        check("https://canary@example.com/mcp", "https://***@example.com/mcp");
        check("https://me:can@ary@example.com/", "https://***@example.com/");
        check("https://example.com/mcp?key=canary", "https://example.com/mcp?***");
        check("https://example.com?canary#canary", "https://example.com?***");
        check("https://example.com/#canary", "https://example.com/#***");
        check("https://me:canary@[::1]:80/?a=canary@b", "https://***@[::1]:80/?***");
        check("postgres://me:canary@db/name", "postgres://***@db/name");
    }

    #[test]
    fn what_is_no_address_has_none_either() {
        check("me:canary@example.com", "***@example.com");
        check("https:me:canary@example.com", "***@example.com");
        check("https:\\\\me:canary@example.com", "***@example.com");
        check("https:////me:canary@example.com", "https:////***@example.com");
        check("https://me:can/ary@example.com", "https://***@example.com");
        check("https://me:can#ary@example.com", "https://***");
        check("https://me:can?ary@example.com", "https://***");
        check("https:example.com?next=a@canary", "***");
        check("example.com?key=canary", "example.com?***");
        check("example.com?next=canary://x", "example.com?***");
    }

    #[test]
    fn addresses_are_masked_between_other_words() {
        let check = |text: &str, expected: &str| assert_eq!(addresses(text), expected);
        check(
            "somebody@example.com @scope/package why?",
            "somebody@example.com @scope/package why?",
        );
        check("--db=postgres://me:canary@db/x", "--db=postgres://***@db/x");
        check("a https://canary@b c@d\nhttp://e/?canary f", "a https://***@b c@d\nhttp://e/?*** f");
    }

    #[test]
    fn a_name_ends_where_a_value_begins() {
        let check = |text: &str, expected: &str| assert_eq!(name(text), expected);
        check("X-Api_Key.2", "X-Api_Key.2");
        check("KEY=canary", "KEY***");
        check("Authorization: Bearer canary", "Authorization***");
    }
}
