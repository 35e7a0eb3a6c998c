//! What is wrong with a line that is no TOML, for people who do not know its grammar by heart. A value is not repeated: it may
//! be a secret, and what is wrong ends up in logs.

use toml::Table;

/// What to say of a line that the parser refused with these words.
pub(super) fn wrong(line: &str, message: &str) -> String {
    let (key, value) =
        line.split_once('=').map_or((line.trim(), None), |(key, value)| (key.trim(), Some(value.trim())));
    let reads = |value: &str| format!("x = {value}").parse::<Table>().is_ok();
    match value {
        _ if message == "duplicate key" && key.starts_with('[') => {
            format!("{} is there already, as a table or a value", shortened(key))
        }
        _ if message == "duplicate key" => format!("{} is written twice in this table", shortened(key)),
        // A list, or a text of many lines, may go on elsewhere.
        Some(value) if value.starts_with(['"', '\'', '[', '{']) || key.starts_with(['#', '[']) => no_toml(message),
        Some("") => format!("{} has no value", shortened(key)),
        Some(value) if value.starts_with('=') => format!("{} has a second = before its value", shortened(key)),
        Some(value) if !reads(value) => format!("a text must stand in quotes: {} = \"…\"", shortened(key)),
        None if message.starts_with("key with no value") => "it must be KEY = VALUE or [TABLE]".to_owned(),
        _ => no_toml(message),
    }
}

fn no_toml(message: &str) -> String {
    format!("it is no TOML: {}", message.replace('\n', " ").replace('`', "\""))
}

/// What is shown of a key, which may be of any length.
pub(super) const MAX_SHOWN: usize = 80;

pub(super) fn shortened(text: &str) -> String {
    shortened_to(MAX_SHOWN, text)
}

pub(super) fn shortened_to(most: usize, text: &str) -> String {
    if text.chars().count() > most { text.chars().take(most).chain(['…']).collect() } else { text.to_owned() }
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
    fn a_line_is_told_what_it_lacks() {
        check("listen = 127.0.0.1:3210", "a text must stand in quotes: listen = \"…\"");
        check("listen = localhost # here", "a text must stand in quotes: listen = \"…\"");
        check("listen =", "listen has no value");
        check("workers = = 2", "workers has a second = before its value");
        check("[server]", "[server] is there already, as a table or a value");
        check("listen: \"a\"", "it must be KEY = VALUE or [TABLE]");
        check("insecure = false", "insecure is written twice in this table");
        check("[server", "it is no TOML: unclosed table, expected \"]\"");
        check("dirs = [\"a\" \"b\"]", "it is no TOML: missing comma between array elements, expected \",\"");
    }
}
