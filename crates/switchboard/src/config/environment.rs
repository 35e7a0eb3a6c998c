//! Variables of the environment: which of them set a key, and which only look as if they did.

use sa_core::nearest;
use toml::Value;

use super::settings::{FILE_ONLY, KEYS};

/// Variables with this prefix set configuration keys: `SWITCHBOARD_SERVER_LISTEN` is `server.listen`.
const PREFIX: &str = "SWITCHBOARD_";

/// The variable that sets a key. Tables of things with names of their own can only be written in the file.
pub fn variable_name(key: &str) -> Option<String> {
    let plain = KEYS.iter().any(|(known, _)| *known == key) && !FILE_ONLY.contains(&key);
    plain.then(|| format!("{PREFIX}{}", key.replace('.', "_").to_uppercase()))
}

/// The variables of this process. Those that are no UTF-8 cannot be ours.
pub fn environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

/// Variables of this process that look like ours and are not.
pub fn unknown_variables() -> Vec<String> {
    const OTHERS: [&str; 5] =
        ["SWITCHBOARD_CONFIG", "SWITCHBOARD_URL", "SWITCHBOARD_TOKEN", "SWITCHBOARD_CA", "SWITCHBOARD_KEY"];
    let known =
        |name: &str| OTHERS.contains(&name) || KEYS.iter().any(|(key, _)| variable_name(key).as_deref() == Some(name));
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    names.filter(|name| name.starts_with(PREFIX) && !known(name)).collect()
}

/// Says that a variable sets nothing, and which one was probably meant.
pub fn unknown_variable(name: &str) -> String {
    // Without what all of them begin with, which would make any two of them alike.
    let own = |name: &str| name.strip_prefix(PREFIX).unwrap_or(name).to_owned();
    let known: Vec<String> = KEYS.iter().filter_map(|(key, _)| variable_name(key)).map(|name| own(&name)).collect();
    let near = nearest(&own(name), known.iter().map(String::as_str));
    let name = crate::redact::printable(name);
    match near {
        Some(near) => format!("the variable {name} sets nothing; did you mean {PREFIX}{near}?"),
        None => format!("the variable {name} sets nothing; switchboard config explain lists the keys"),
    }
}

/// Reads a variable's text as the kind of value that the key has by default, or says what it must be.
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
        let told = unknown_variable("SWITCHBOARD_COLOUR");
        assert!(told.contains("config explain"), "{told}");
    }
}
