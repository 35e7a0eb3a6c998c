//! Rule: any content of a configuration file or variable is either used or reported with its file,
//! line and key.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select, subsequence};
use sa_gateway::config::environment::variable_name;
use sa_gateway::config::keys::KEYS;
use sa_gateway::config::layers::{Layers, Source};
use sa_gateway::config::{Config, ConfigError, Mistake};
use toml::Value;

/// Reads a file and variables. Returns the layers and all mistakes.
fn read(file: &[u8], variables: &[(&str, OsString)]) -> (Layers, Vec<Mistake>, String) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("switchboard.toml");
    std::fs::write(&path, file).unwrap();
    let variables: Vec<_> =
        variables.iter().map(|(name, value)| (OsString::from(name), value.clone())).collect();
    let (layers, unreadable) = Layers::read_despite_mistakes(Some(&path), variables.clone(), &[]);
    let mistakes = match Layers::read(Some(&path), variables, &[]) {
        Ok(layers) => Config::resolve(&layers).err().map(|error| error.0).unwrap_or_default(),
        Err(error) => error.0,
    };
    assert!(unreadable.is_empty() || !mistakes.is_empty(), "{unreadable:?}");
    // Keys can be looked up even if other parts are wrong.
    for key in [&*KEYS[0].key, &*KEYS[KEYS.len() - 1].key] {
        let _ = (layers.value(key), layers.place_of(key), layers.named());
    }
    (layers, mistakes, path.display().to_string())
}

/// Reads a file without variables.
fn layers(file: &str) -> Result<Layers, ConfigError> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("switchboard.toml");
    std::fs::write(&path, file).unwrap();
    Layers::read(Some(&path), Vec::new(), &[])
}

/// Checks the properties that all mistakes of a file must have.
fn check_mistakes(file: &[u8]) -> Result<(), TestCaseError> {
    let (_, mistakes, path) = read(file, &[]);
    let lines = std::str::from_utf8(file).map_or(0, |text| text.lines().count()).max(1);
    for mistake in mistakes {
        let told = mistake.to_string();
        prop_assert!(told.len() < 4_000, "{} bytes", told.len());
        prop_assert!(!told.chars().any(|c| c.is_control() && c != '\n'), "{told:?}");
        prop_assert!(told.starts_with(&path), "{told}");
        match mistake.line {
            Some(line) => {
                prop_assert!((1..=lines).contains(&line), "{told}: there are {lines} lines");
                prop_assert!(told.starts_with(&format!("{path}:{line}: ")), "{told}");
            }
            // The file is not UTF-8, or the number of mistakes exceeds the limit.
            None => prop_assert!(mistake.key.is_empty(), "{told}"),
        }
    }
    Ok(())
}

/// Generates file fragments that are difficult for parsers.
fn pieces() -> impl Strategy<Value = Vec<u8>> {
    let words: &'static [&'static str] = &[
        "[",
        "]",
        "[[",
        "]]",
        "{",
        "}",
        "=",
        ".",
        ",",
        "\n",
        "\r\n",
        "\r",
        " ",
        "#",
        "\"",
        "'",
        "\"\"\"",
        "'''",
        "\\",
        "\\u00e9",
        "é",
        "\u{feff}",
        "\u{1b}",
        "\0",
        "server",
        "listen",
        "limits",
        "pending_total",
        "upstream",
        "models",
        "gpt-5.1",
        "headers",
        "sessions",
        "agents",
        "command",
        "oauth",
        "server.listen = \"x\"\n",
        "[server]\n",
        "[upstream.a]\n",
        "[[server]]\n",
        "[sessions.agents.b]\n",
        "x = { y = [1, 2] }\n",
        "\"\" = 1\n",
        "true",
        "-1",
        "9223372036854775808",
        "0x1F",
        "1.5",
        "nan",
        "1979-05-27T07:32:00Z",
        "workers",
        "dirs = [\n\"a\",\n5]\n",
    ];
    let piece = prop_oneof![
        12 => select(words).prop_map(|word| word.as_bytes().to_vec()),
        1 => vec(any::<u8>(), 0..4),
    ];
    vec(piece, 0..25).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn any_bytes_are_a_configuration_or_a_mistake(file in vec(any::<u8>(), 0..200)) {
        check_mistakes(&file)?;
    }

    #[test]
    fn anything_like_a_configuration_is_one_or_a_mistake(file in pieces()) {
        check_mistakes(&file)?;
    }
}

#[test]
fn a_file_that_is_nested_too_deeply_is_told_so() {
    let deep = |open: &str, close: &str| {
        format!("[server]\n\nx = {}1{}\n", open.repeat(100_000), close.repeat(100_000))
    };
    let both = format!("a{}", ".a".repeat(78));
    let both =
        format!("[server]\n\nx = {}1{}\n", format!("{{ {both} = ").repeat(78), "}".repeat(78));
    for text in [
        deep("[", "]"),
        deep("{ a = ", " }"),
        format!("[server]\n\nx{} = 1\n", ".x".repeat(100_000)),
        format!("# a\n\n[x{}]\n", ".x".repeat(100_000)),
        both,
    ] {
        let (_, mistakes, _) = read(text.as_bytes(), &[]);
        assert_eq!(mistakes.first().and_then(|mistake| mistake.line), Some(3), "{mistakes:?}");
    }
}

/// Returns each key with a valid value and with invalid values.
fn keys() -> Vec<(&'static str, Value, &'static [&'static str])> {
    let defaults = layers("").unwrap();
    let plain = KEYS.iter().filter(|known| !known.is_table).map(|known| known.key.as_str());
    let keys = plain.map(|key| {
        let value = defaults.value(key).unwrap();
        let wrong: &[&str] = match &value {
            Value::String(_) => &["5", "true", "[\"x\"]", "{ x = 1 }", "1979-05-27"],
            Value::Integer(_) => &["\"x\"", "-1", "1.5", "true", "99999999999999999999", "[\n1\n]"],
            Value::Boolean(_) => &["\"yes\"", "1", "[]"],
            Value::Array(_) => &["\"x\"", "[5]", "{}", "[[\"x\"]]"],
            other => panic!("{key} is {other}"),
        };
        (key, value, wrong)
    });
    keys.collect()
}

/// Writes a file with these keys in varying syntax: tables, dotted keys, inline tables, quotes and
/// comments. Returns the line of each key.
fn written(values: &[(&str, String)], layouts: &[u8]) -> (String, BTreeMap<String, usize>) {
    let mut sections: BTreeMap<&str, Vec<(&str, &str)>> = BTreeMap::new();
    for (key, value) in values {
        let (section, name) = key.split_once('.').unwrap();
        sections.entry(section).or_default().push((name, value));
    }
    let (mut text, mut lines) = ("# server.listen = 1\n\n".to_owned(), BTreeMap::new());
    let mut sections: Vec<_> = sections.into_iter().zip(layouts.iter().cycle()).collect();
    // Keys outside of tables must come first.
    sections.sort_by_key(|(_, layout)| **layout);
    for ((section, keys), layout) in sections {
        let here = |text: &str| text.matches('\n').count() + 1;
        match layout {
            0 => {
                text += &format!("{section} = {{ ");
                for (number, (name, value)) in keys.into_iter().enumerate() {
                    text += if number == 0 { "" } else { ", " };
                    lines.insert(format!("{section}.{name}"), here(&text));
                    text += &format!("{name} = {value}");
                }
                text += " }\n";
            }
            1 => {
                for (name, value) in keys {
                    lines.insert(format!("{section}.{name}"), here(&text));
                    text += &format!("{section}.{name} = {value} # [{section}]\n");
                }
            }
            2 => {
                text += &format!("\n[{section}]\n# listen = 1\n");
                for (name, value) in keys {
                    lines.insert(format!("{section}.{name}"), here(&text));
                    text += &format!("{name} = {value}\n");
                }
            }
            _ => {
                text += &format!("  [ \"{section}\" ] # [server]\r\n");
                for (name, value) in keys {
                    text += "\n\n";
                    lines.insert(format!("{section}.{name}"), here(&text));
                    text += &format!("\t'{name}'= {value}\r\n");
                }
            }
        }
    }
    (text, lines)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn one_wrong_value_is_told_with_its_line_and_key(
        keys in subsequence(keys(), 1..12),
        layouts in vec(0_u8..4, 16),
        (which, wrong) in any::<(Index, Index)>(),
    ) {
        let which = which.index(keys.len());
        let value = |(number, (key, value, bad)): (usize, &(&'static str, Value, &'static [&'static str]))| {
            let text = if number == which { bad[wrong.index(bad.len())].to_owned() } else { value.to_string() };
            (*key, text)
        };
        let values: Vec<(&str, String)> = keys.iter().enumerate().map(value).collect();
        let (text, lines) = written(&values, &layouts);
        let (layers, mistakes, _) = read(text.as_bytes(), &[]);
        let told: Vec<_> = mistakes.iter().map(|mistake| (mistake.line, mistake.key.as_str())).collect();
        let key = keys[which].0;
        prop_assert_eq!(told, [(Some(lines[key]), key)], "{}\n{:?}", text, mistakes);
        // The other keys keep their lines.
        for (key, ..) in keys.iter().enumerate().filter(|(number, _)| *number != which).map(|(_, key)| key) {
            let found = if let Source::File { line, .. } = layers.source(key) { line } else { 0 };
            prop_assert_eq!(found, lines[*key], "{} in\n{}", key, text);
        }
    }

    #[test]
    fn one_misspelt_key_is_told_with_its_line(
        keys in subsequence(keys(), 1..12),
        layouts in vec(0_u8..4, 16),
        which in any::<Index>(),
    ) {
        let misspelt = format!("{}s", keys[which.index(keys.len())].0);
        let values: Vec<(&str, String)> = keys.iter().enumerate().map(|(number, (key, value, _))| {
            (if number == which.index(keys.len()) { misspelt.as_str() } else { *key }, value.to_string())
        }).collect();
        let (text, lines) = written(&values, &layouts);
        let (_, mistakes, _) = read(text.as_bytes(), &[]);
        let told: Vec<_> = mistakes.iter().map(|mistake| (mistake.line, mistake.key.as_str())).collect();
        prop_assert_eq!(told, [(Some(lines[&misspelt]), misspelt.as_str())], "{}\n{:?}", text, mistakes);
    }
}

/// Generates texts with characters that need escapes in TOML.
fn text() -> impl Strategy<Value = String> {
    vec(
        prop_oneof![any::<char>(), select(&['"', '\'', '\\', '\n', '\t', '#', '[', '='][..])],
        0..12,
    )
    .prop_map(|chars| chars.into_iter().collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn what_is_shown_can_be_written_again(
        texts in vec(text(), 4),
        lists in vec(vec(text(), 0..4), 2),
        numbers in vec(1_i64..1_000, 3),
        search in any::<bool>(),
        layouts in vec(0_u8..4, 16),
    ) {
        let list = |texts: &[String]| Value::Array(texts.iter().cloned().map(Value::String).collect()).to_string();
        let text = |text: &str| Value::String(text.to_owned()).to_string();
        let values = [
            ("data.dir", text(&texts[0])),
            ("nodes.primary", text(&texts[1])),
            ("telemetry.service_name", text(&texts[2])),
            ("skills.dirs", list(&lists[0])),
            ("policy.deny", list(&lists[1])),
            ("server.workers", numbers[0].to_string()),
            ("limits.pending_total", numbers[1].to_string()),
            ("mcp.search", search.to_string()),
        ];
        let (file, lines) = written(&values, &layouts);
        // The values need not be valid together.
        let layers = layers(&file).map_err(|error| TestCaseError::fail(format!("{file}\n{error}")))?;
        let plain = KEYS.iter().filter(|known| !known.is_table).map(|known| known.key.as_str());
        let shown: Vec<(&str, String)> = plain.map(|key| (key, layers.value(key).unwrap().to_string())).collect();
        for (key, value) in &values {
            let found = shown.iter().find(|(shown, _)| shown == key).unwrap().1.parse::<Value>();
            prop_assert_eq!(found.ok(), value.parse::<Value>().ok(), "{}", key);
            let found = if let Source::File { line, .. } = layers.source(key) { line } else { 0 };
            prop_assert_eq!(found, lines[*key], "{} in\n{}", key, file);
        }
        let again = self::layers(&written(&shown, &layouts).0).map_err(|error| TestCaseError::fail(error.to_string()))?;
        let settings = |layers: &Layers| toml::Table::try_from(layers.settings().unwrap()).unwrap();
        prop_assert_eq!(settings(&again), settings(&layers));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn whatever_a_variable_says_it_counts_or_is_told_by_its_name(
        which in any::<Index>(),
        value in prop_oneof![
            vec(any::<u8>(), 0..20),
            text().prop_map(String::into_bytes),
            "[0-9,a-z: ]{0,12}".prop_map(String::into_bytes),
            Just(vec![b'9'; 5_000]),
        ],
    ) {
        let known = KEYS.iter().filter_map(|known| Some((variable_name(&known.key)?, &*known.key)));
        let known: Vec<_> = known.chain([("SA_NODE_TOKENS".to_owned(), "SA_NODE_TOKENS")]).collect();
        let (name, key) = &known[which.index(known.len())];
        // A variable cannot contain a null byte.
        let value: Vec<u8> = value.into_iter().filter(|byte| *byte != 0).collect();
        let (layers, mistakes, _) = read(b"", &[(name.as_str(), OsString::from_vec(value))]);
        for mistake in mistakes {
            let told = mistake.to_string();
            prop_assert!(told.len() < 1_000, "{} bytes", told.len());
            // Some values are only invalid together with another key, which is then reported.
            let other = mistake.key != *key && layers.source(&mistake.key) == Source::Default;
            prop_assert!(told.starts_with(&format!("the environment variable {name}: ")) || other, "{told}");
        }
    }
}
