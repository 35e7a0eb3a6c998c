//! What is wrong with a line that is no TOML, for people who do not know its grammar by heart.

use toml::Table;

/// What to say of a line that the parser refused with these words.
pub(super) fn wrong(line: &str, message: &str) -> String {
    let (key, value) =
        line.split_once('=').map_or((line.trim(), None), |(key, value)| (key.trim(), Some(value.trim())));
    let reads = |value: &str| format!("x = {value}").parse::<Table>().is_ok();
    match value {
        _ if message == "duplicate key" => format!("it is written twice in this table: {}", shortened(line.trim())),
        // A list, or a text of many lines, may go on elsewhere.
        Some(value) if value.starts_with(['"', '\'', '[', '{']) || key.starts_with(['#', '[']) => no_toml(message),
        Some("") => format!("{} has no value", shortened(key)),
        Some(value) if !reads(value) => {
            let value = value.split(" #").next().unwrap_or_default().trim();
            let quoted = toml::Value::String(value.to_owned());
            format!("a text must stand in quotes: {}", shortened(&format!("{key} = {quoted}")))
        }
        None if message.starts_with("key with no value") => {
            format!("it must be KEY = VALUE or [TABLE], and is {}", shortened(line.trim()))
        }
        _ => no_toml(message),
    }
}

fn no_toml(message: &str) -> String {
    format!("it is no TOML: {}", message.replace('\n', " ").replace('`', "\""))
}

fn shortened(text: &str) -> String {
    const MOST: usize = 80;
    if text.chars().count() > MOST { text.chars().take(MOST).chain(['…']).collect() } else { text.to_owned() }
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
        check("listen = 127.0.0.1:3210", "a text must stand in quotes: listen = \"127.0.0.1:3210\"");
        check("listen = localhost # here", "a text must stand in quotes: listen = \"localhost\"");
        check("listen =", "listen has no value");
        check("listen: \"a\"", "it must be KEY = VALUE or [TABLE], and is listen: \"a\"");
        check("insecure = false", "it is written twice in this table: insecure = false");
        check("[server", "it is no TOML: unclosed table, expected \"]\"");
        check("dirs = [\"a\" \"b\"]", "it is no TOML: missing comma between array elements, expected \",\"");
    }
}
