//! What is shown in place of secrets.

use std::borrow::Cow;

/// What stands in place of a secret.
pub const MASK: &str = "***";

/// An address without what may be a secret in it: the user and the password before its host, and whatever is asked or pointed
/// at behind its path. What stands in the place of an address and is none loses the same, and rather too much of it.
pub fn address(text: &str) -> Cow<'_, str> {
    let scheme = text.find("://").filter(|at| !text[..*at].contains(['@', '?', '#', '/']));
    let scheme = scheme.map_or(0, |at| at + "://".len());
    // Parsers pass over slashes that are too many.
    let begin = text.len() - text[scheme..].trim_start_matches(['/', '\\']).len();
    let authority = text[begin..].split(['/', '\\', '?', '#']).next().unwrap_or_default();
    // A password with a slash in it makes no address, and is a password all the same.
    let whole = scheme > 0 && is_host(authority);
    let user = authority.rfind('@').or_else(|| if whole { None } else { text[begin..].rfind('@') });
    let host = user.map_or(begin, |at| begin + at + 1);
    // Which of the two it is, a password or what is asked, cannot be told.
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

/// A text in which addresses may stand between other words, with each of them masked.
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

/// A name, such as that of a header or a variable, up to where a value has slipped into it.
pub fn name(text: &str) -> Cow<'_, str> {
    let end = text.find(|c: char| !c.is_alphanumeric() && !"-_.".contains(c));
    end.map_or(Cow::Borrowed(text), |end| format!("{}{MASK}", &text[..end]).into())
}

/// Whether this can be what stands between `://` and the path: a host, or a host and a port.
fn is_host(text: &str) -> bool {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port),
        _ => (text, ""),
    };
    let is_name = !host.is_empty() && host.chars().all(|c| c.is_alphanumeric() || "-_.".contains(c));
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
        check("somebody@example.com @scope/package why?", "somebody@example.com @scope/package why?");
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
