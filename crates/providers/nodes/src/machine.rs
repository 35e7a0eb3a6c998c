//! Reads the machine description of a node: its role, its system and the keys of its environment.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

/// The maximum number of environment keys, and the maximum length of one.
const MAX_ENV: usize = 512;
const MAX_ENV_KEY: usize = 128;
/// The maximum length of a system name.
const MAX_OS: usize = 32;
/// The maximum size of the other fields of a machine description.
const MAX_MORE: usize = 16 * 1024;

/// Returns the `host` field of a hello in the form in which it is displayed.
///
/// It contains `role` as sent, `os`, only the keys of `env`, and all other fields. If the other
/// fields are too large, they are left out and `ignored` gets a message.
pub(crate) fn shown(host: Option<&str>, ignored: &mut Vec<String>) -> Value {
    let Some(Value::Object(mut host)) = host.and_then(|host| serde_json::from_str(host).ok())
    else {
        return Value::Null;
    };
    let role =
        host.remove("role").filter(|role| role.as_str().is_some_and(|role| role.len() <= MAX_OS));
    let os = host.remove("os").and_then(|os| Some(os.as_str()?.to_lowercase())).filter(|os| {
        (1..=MAX_OS).contains(&os.len())
            && os.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
    });
    let env = host.remove("env").map(|env| keys(&env));
    let more = Value::Object(host.clone()).to_string().len();
    let mut shown = if more > MAX_MORE {
        ignored.push(format!(
            "host: the fields other than role, os and env have {more} bytes; the maximum is {MAX_MORE}"
        ));
        Map::new()
    } else {
        host
    };
    for (name, value) in
        [("role", role), ("os", os.map(Value::from)), ("env", env.map(|env| json!(env)))]
    {
        shown.extend(value.map(|value| (name.to_owned(), value)));
    }
    Value::Object(shown)
}

/// Returns the keys of an environment in any form.
///
/// A value may be a secret. Text after a `=` and names that cannot be a key are dropped.
fn keys(env: &Value) -> BTreeSet<String> {
    let names: Vec<&str> = match env {
        Value::Array(items) => items.iter().filter_map(Value::as_str).collect(),
        Value::Object(fields) => fields.keys().map(String::as_str).collect(),
        _ => Vec::new(),
    };
    let key = |name: &str| {
        let key = name.split('=').next().unwrap_or_default();
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.()".contains(&byte);
        ((1..=MAX_ENV_KEY).contains(&key.len()) && key.bytes().all(plain)).then(|| key.to_owned())
    };
    names.into_iter().filter_map(key).take(MAX_ENV).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(host: &str, expected: Value) {
        assert_eq!(shown(Some(host), &mut Vec::new()), expected, "{host}");
    }

    #[test]
    fn an_environment_is_its_keys() {
        check(r#"{"env":["B","A=secret","A"]}"#, json!({ "env": ["A", "B"] }));
        check(r#"{"env":{"LANG":"C","TOKEN":"secret"}}"#, json!({ "env": ["LANG", "TOKEN"] }));
        check(
            r#"{"env":["=x","a b","\u001b[1m","","ProgramFiles(x86)",7]}"#,
            json!({ "env": ["ProgramFiles(x86)"] }),
        );
        check(r#"{"env":"A=1"}"#, json!({ "env": [] }));
    }

    #[test]
    fn what_is_odd_is_left_out() {
        check(
            r#"{"role":"execution","os":"Linux","cpu":8}"#,
            json!({ "role": "execution", "os": "linux", "cpu": 8 }),
        );
        check(r#"{"role":7,"os":"a\u001b"}"#, json!({}));
        let mut ignored = Vec::new();
        let long = json!({ "os": "linux", "more": "x".repeat(20_000) }).to_string();
        assert_eq!(shown(Some(&long), &mut ignored), json!({ "os": "linux" }));
        assert_eq!(ignored.len(), 1, "{ignored:?}");
        check("{\"a\":1e999}", Value::Null);
        let many: Vec<String> = (0..2_000).map(|n| format!("K{n}")).collect();
        assert_eq!(
            shown(Some(&json!({ "env": many }).to_string()), &mut ignored)["env"]
                .as_array()
                .map(Vec::len),
            Some(MAX_ENV)
        );
    }

    const WORDS: &[&str] =
        &["role", "os", "env", "execution", "Linux", "A=secret", "PATH", "cpu", "="];

    proptest::proptest! {
        #[test]
        fn nothing_is_shown_that_could_be_a_secret_or_too_much(
            host in sa_hostile::json(WORDS), text in sa_hostile::nearly(json!({ "role": "execution", "os": "linux", "env": ["A=secret"], "cpu": 8 })),
        ) {
            for host in [host.to_string(), text] {
                let shown = shown(Some(&host), &mut Vec::new());
                proptest::prop_assert!(shown.is_object() || shown.is_null());
                proptest::prop_assert!(shown.to_string().len() <= MAX_MORE + MAX_ENV * (MAX_ENV_KEY + 4) + 200);
                for key in shown["env"].as_array().into_iter().flatten() {
                    let key = key.as_str().unwrap();
                    proptest::prop_assert!((1..=MAX_ENV_KEY).contains(&key.len()) && !key.contains('='));
                }
                proptest::prop_assert!(shown["os"].as_str().is_none_or(|os| (1..=MAX_OS).contains(&os.len())));
            }
        }
    }
}
