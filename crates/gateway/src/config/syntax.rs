//! Explains TOML syntax errors in simple terms. Messages do not repeat a value, because it may be a
//! secret and messages are logged.

use toml::Table;

use super::keys::{KEYS, NAMED_KEYS};
use sa_text::excerpt;

/// Returns the explanation for a line that the parser rejected with this message.
pub(super) fn wrong(line: &str, message: &str) -> String {
    let (key, value) = line
        .split_once('=')
        .map_or((line.trim(), None), |(key, value)| (key.trim(), Some(value.trim())));
    let name = if is_key(key) { shortened(key) } else { "KEY".to_owned() };
    let reads = |value: &str| format!("x = {value}").parse::<Table>().is_ok();
    match value {
        _ if message == "duplicate key" && key.starts_with('[') => {
            format!("{name} is already defined, as a table or a value")
        }
        _ if message == "duplicate key" => format!("{name} is defined twice in this table"),
        // A list or multi-line string may continue on other lines.
        Some(value) if value.starts_with(['"', '\'', '[', '{']) || key.starts_with(['#', '[']) => {
            no_toml(message)
        }
        Some("") => format!("{name} has no value"),
        Some(value) if value.starts_with('=') => format!("{name} has a second = before its value"),
        Some(value) if !reads(value) => format!("a string must be quoted: {name} = \"…\""),
        None if message.starts_with("key with no value") => {
            "it must be KEY = VALUE or [TABLE]".to_owned()
        }
        _ => no_toml(message),
    }
}

/// Reports whether the text is a key or table header that starts with a known name. After an
/// unterminated multi-line string, other text can look like a key.
fn is_key(text: &str) -> bool {
    let plain = |part: &str| {
        !part.is_empty() && part.chars().all(|c| c.is_alphanumeric() || "-_".contains(c))
    };
    let parts =
        text.trim_matches(['[', ']']).split('.').map(|part| part.trim().trim_matches(['"', '\'']));
    let mut known = KEYS.iter().chain(NAMED_KEYS.iter()).map(|known| &known.key);
    let first = parts.clone().next().unwrap_or_default();
    parts.clone().all(plain) && known.any(|key| key.split('.').any(|part| part == first))
}

/// Returns the line where nesting exceeds any valid setting. The parser limits the nesting of keys
/// and of values, but not their combination. Dropping thousands of levels would overflow the stack.
pub(super) fn too_deep(text: &str) -> Option<usize> {
    const MOST: usize = 64;
    let bytes = text.as_bytes();
    // The parts of the current key, of each key with an open value, and their total.
    let (mut parts, mut open, mut depth) = (0, Vec::new(), 0);
    let (mut at, mut line) = (0, 1);
    while let Some(byte) = bytes.get(at) {
        let next = match byte {
            b'#' => bytes[at..]
                .iter()
                .position(|byte| *byte == b'\n')
                .map_or(bytes.len(), |end| at + end),
            b'"' | b'\'' => after_text(bytes, at),
            _ => at + 1,
        };
        match byte {
            b'.' => parts += 1,
            b'[' | b'{' => {
                open.push(parts + 1);
                depth += parts + 1;
                parts = 0;
            }
            b']' | b'}' => {
                parts = 0;
                depth -= open.pop().unwrap_or(0);
            }
            b',' => parts = 0,
            b'\n' if open.is_empty() => parts = 0,
            _ => {}
        }
        if depth + parts > MOST {
            return Some(line);
        }
        line += line_ends(&bytes[at..next]);
        at = next;
    }
    None
}

/// Counts the line breaks in the text.
pub(super) fn line_ends(text: &[u8]) -> usize {
    text.split(|byte| *byte == b'\n').count() - 1
}

/// Returns the end of the string that starts at this quote. An unterminated string ends with its
/// line.
fn after_text(bytes: &[u8], start: usize) -> usize {
    let quote = bytes[start];
    let long = bytes[start..].starts_with(&[quote; 3]);
    let end = if long { &[quote; 3][..] } else { &[quote][..] };
    let mut at = start + end.len();
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'\\' if quote == b'"' => at += 2,
            b'\n' if !long => return at,
            _ if bytes[at..].starts_with(end) => return at + end.len(),
            _ => at += 1,
        }
    }
    bytes.len()
}

fn no_toml(message: &str) -> String {
    format!("it is not valid TOML: {}", message.replace('\n', " ").replace('`', "\""))
}

/// The maximum displayed length of a key.
pub(super) const MAX_SHOWN: usize = 80;

pub(super) fn shortened(text: &str) -> String {
    excerpt(MAX_SHOWN, text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, expected: &str) {
        let text = format!("[server]\ninsecure = true\n{line}\n");
        let error = toml::de::DeTable::parse(&text).unwrap_err();
        assert_eq!(wrong(line, error.message()), expected, "{}", error.message());
    }

    #[test]
    fn what_is_nested_too_deeply_is_called_that() {
        let nested =
            |levels: usize| format!("\n# a\nx = {}1{}\n", "[".repeat(levels), "]".repeat(levels));
        assert_eq!((too_deep(&nested(64)), too_deep(&nested(65))), (None, Some(3)));
        assert_eq!(too_deep(&format!("[a]\nx{} = 1", ".x".repeat(65))), Some(2));
        assert_eq!(
            too_deep(&"x = { y.z = [1.5, 2.5], a.b.c = [[{}]] }\n[a.b.c]\n".repeat(100)),
            None
        );
        let (dots, open) = (".".repeat(100), "[".repeat(100));
        for text in [
            format!("x = \"{dots}{open}\\\"{open}\""),
            format!("x = '{dots}{open}\\'\ny = 1"),
            format!("x = \"\"\"\n{dots}\"{open}\n\"\"\""),
            format!("x = '''\n{dots}'{open}\n'''"),
            format!("# {dots}{open}"),
            format!("x = \"not closed {dots}\n"),
        ] {
            assert_eq!(too_deep(&text), None, "{text}");
        }
    }

    #[test]
    fn a_line_is_told_what_it_lacks() {
        check("listen = 127.0.0.1:3210", "a string must be quoted: listen = \"…\"");
        check("listen = localhost # here", "a string must be quoted: listen = \"…\"");
        check("listen =", "listen has no value");
        check("workers = = 2", "workers has a second = before its value");
        check("[server]", "[server] is already defined, as a table or a value");
        check("listen: \"a\"", "it must be KEY = VALUE or [TABLE]");
        check("insecure = false", "insecure is defined twice in this table");
        check("canary = x", "a string must be quoted: KEY = \"…\"");
        check("bearer: canary=x", "a string must be quoted: KEY = \"…\"");
        check("[server", "it is not valid TOML: unclosed table, expected \"]\"");
        check(
            "dirs = [\"a\" \"b\"]",
            "it is not valid TOML: missing comma between array elements, expected \",\"",
        );
    }
}
