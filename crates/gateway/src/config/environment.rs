//! Environment variables: maps variables to configuration keys and detects unknown variables.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

use sa_text::{closest, similar};
use toml::Value;

use super::Mistake;
use super::keys::{KEYS, find, names_of};

/// The prefix of variables that set configuration keys: `SWITCHBOARD_SERVER_LISTEN` sets
/// `server.listen`.
const PREFIX: &str = "SWITCHBOARD_";

/// Returns the variable that sets a key. Named tables can only be set in the file.
pub fn variable_name(key: &str) -> Option<String> {
    find(key)
        .filter(|known| !known.is_table)
        .map(|_| format!("{PREFIX}{}", key.replace('.', "_").to_uppercase()))
}

/// Variables that hold a file name, which need not be UTF-8.
const FILES: [&str; 3] = ["SWITCHBOARD_CONFIG", "SWITCHBOARD_CA", "SWITCHBOARD_RELAY_SOCKET"];
/// Variables that set no configuration key.
const OTHERS: [&str; 3] = ["SWITCHBOARD_URL", "SWITCHBOARD_TOKEN", "SWITCHBOARD_KEY"];

/// Returns the variables that are valid UTF-8, and a mistake for each of the gateway's variables
/// that is not. Ignoring such a variable would be unsafe: without its node token, the gateway would
/// accept any node. Other variables are ignored.
pub(super) fn readable(
    variables: impl IntoIterator<Item = (OsString, OsString)>,
) -> (BTreeMap<String, String>, Vec<Mistake>) {
    let (mut readable, mut mistakes) = (BTreeMap::new(), Vec::new());
    let of_sections = names_of(|section| section.variables());
    for (name, value) in variables {
        let Ok(name) = name.into_string() else { continue };
        let ours =
            of_sections.contains(&&*name) || (name.starts_with(PREFIX) && !FILES.contains(&&*name));
        match value.into_string() {
            Ok(value) => drop(readable.insert(name, value)),
            Err(_) if ours => {
                let place = format!("the environment variable {}", sa_text::printable(&name));
                let key =
                    KEYS.iter().find(|known| variable_name(&known.key).as_deref() == Some(&name));
                let key = key.map_or(name, |known| known.key.clone());
                let message =
                    "its value is not valid UTF-8; set it to a UTF-8 text, or unset it".to_owned();
                mistakes.push(Mistake { place, message, key, line: None });
            }
            Err(_) => {}
        }
    }
    (readable, mistakes)
}

/// Returns the variables of this process that have the prefix but are unknown.
pub fn unknown_variables() -> Vec<String> {
    let known = |name: &str| {
        let others = FILES.iter().chain(&OTHERS).any(|other| *other == name);
        others || KEYS.iter().any(|known| variable_name(&known.key).as_deref() == Some(name))
    };
    let names = std::env::vars_os().map(|(name, _)| OsStr::to_string_lossy(&name).into_owned());
    names.filter(|name| name.starts_with(PREFIX) && !known(name)).collect()
}

/// Returns the message for an unknown variable, with a suggestion.
pub fn unknown_variable(name: &str) -> String {
    format!("the variable {} is not a setting; {}", sa_text::printable(name), instead_of(name))
}

/// Returns a suggestion for an unknown variable.
pub fn instead_of(name: &str) -> String {
    // Compares without the prefix, which would make all names similar.
    let own = |name: &str| name.strip_prefix(PREFIX).unwrap_or(name).to_owned();
    let known: Vec<String> =
        KEYS.iter().filter_map(|known| variable_name(&known.key)).map(|name| own(&name)).collect();
    let known = || known.iter().map(String::as_str);
    let near = match closest(&own(name), known()) {
        Some(near) => vec![near],
        // Also suggest variables that contain the typed name.
        None => similar(&own(name), known()),
    };
    match near.iter().map(|near| format!("{PREFIX}{near}")).collect::<Vec<_>>().join(", ") {
        none if none.is_empty() => "run `switchboard config explain` to list the keys".to_owned(),
        near => format!("did you mean {near}?"),
    }
}

/// Parses a variable as the type of the key's default value. Returns the expected type on error.
pub(super) fn parse_like(example: Option<&Value>, text: &str) -> Result<Value, String> {
    let must_be = |wanted: &str| format!("it must be {wanted}, and is \"{text}\"");
    Ok(match example {
        Some(Value::Boolean(_)) => match text {
            "1" | "true" | "yes" | "on" => Value::Boolean(true),
            "0" | "false" | "no" | "off" => Value::Boolean(false),
            _ => return Err(must_be("true or false")),
        },
        Some(Value::Integer(_)) => {
            let number = text.parse().ok().filter(|number: &i64| *number >= 0);
            Value::Integer(number.ok_or_else(|| must_be("a whole number from 0 up"))?)
        }
        Some(Value::Array(_)) => {
            let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
            Value::Array(items.map(|item| Value::String(item.into())).collect())
        }
        _ => Value::String(text.into()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_that_sets_nothing_names_the_one_that_was_meant() {
        let told = unknown_variable("SWITCHBOARD_LIMITS_PENDNIG_TOTAL");
        assert!(told.ends_with("did you mean SWITCHBOARD_LIMITS_PENDING_TOTAL?"), "{told}");
        let told = unknown_variable("SWITCHBOARD_LIMITS_PENDNG");
        assert!(
            told.contains("did you mean ") && told.contains("SWITCHBOARD_LIMITS_PENDING_TOTAL"),
            "{told}"
        );
        let told = unknown_variable("SWITCHBOARD_LISTEN");
        assert!(told.ends_with("did you mean SWITCHBOARD_SERVER_LISTEN?"), "{told}");
        let told = unknown_variable("SWITCHBOARD_COLOUR");
        assert!(told.contains("config explain"), "{told}");
    }

    #[test]
    fn a_list_has_commas_between_its_items() {
        let check = |text: &str, expected: &[&str]| {
            let read = parse_like(Some(&Value::Array(Vec::new())), text).unwrap();
            assert_eq!(read, Value::from(expected.to_vec()), "{text:?}");
        };
        check("gw.example.com,gw:8443", &["gw.example.com", "gw:8443"]);
        check(" a , b,", &["a", "b"]);
        check("a", &["a"]);
        check("", &[]);
    }

    #[test]
    fn what_is_ours_must_be_text_unless_it_is_the_name_of_a_file() {
        use std::os::unix::ffi::OsStringExt as _;
        let broken = || OsString::from_vec(b"canary\xff".to_vec());
        let check = |name: &str, expected: Option<&str>| {
            let (readable, mistakes) = readable([(name.into(), broken())]);
            assert!(readable.is_empty(), "{name}");
            assert_eq!(mistakes.first().map(|mistake| mistake.key.as_str()), expected, "{name}");
            let told = mistakes.iter().map(ToString::to_string).collect::<String>();
            assert!(expected.is_none() || told.contains(name), "{told}");
            assert!(!told.contains("canary"), "{told}");
        };
        check("SA_NODE_TOKEN", Some("SA_NODE_TOKEN"));
        check("SA_NODE_TOKENS", Some("SA_NODE_TOKENS"));
        check("SWITCHBOARD_KEY", Some("SWITCHBOARD_KEY"));
        check("SWITCHBOARD_TOKEN", Some("SWITCHBOARD_TOKEN"));
        check("SWITCHBOARD_DATA_DIR", Some("data.dir"));
        check("SWITCHBOARD_LIMITS_PENDING_TOTAL", Some("limits.pending_total"));
        check("SWITCHBOARD_COLOUR", Some("SWITCHBOARD_COLOUR"));
        check("SWITCHBOARD_CONFIG", None);
        check("SWITCHBOARD_CA", None);
        check("LS_COLORS", None);
    }
}
