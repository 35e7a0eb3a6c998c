//! What has changed between two manifests, for whoever has to accept it.

use serde::Serialize;
use serde_json::Value;

use crate::places::escape;

const MAX_CHANGES: usize = 200;
const MAX_VALUE: usize = 300;

/// One place in which two JSON texts differ.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Change {
    /// A JSON pointer.
    pub path: String,
    /// What stood there; absent for what is new.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub was: Option<String>,
    /// What stands there now; absent for what is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub now: Option<String>,
}

/// All the places, in the order in which they stand.
pub(crate) fn between(was: &Value, now: &Value) -> Vec<Change> {
    let mut changes = Vec::new();
    compare("", Some(was), Some(now), &mut changes);
    changes
}

fn compare(path: &str, was: Option<&Value>, now: Option<&Value>, changes: &mut Vec<Change>) {
    if was == now || changes.len() >= MAX_CHANGES {
        return;
    }
    match (was, now) {
        (Some(Value::Object(was)), Some(Value::Object(now))) => {
            let added = now.keys().filter(|key| !was.contains_key(*key));
            for key in was.keys().chain(added) {
                compare(&format!("{path}/{}", escape(key)), was.get(key), now.get(key), changes);
            }
        }
        (Some(Value::Array(was)), Some(Value::Array(now))) => {
            for index in 0..was.len().max(now.len()) {
                compare(&format!("{path}/{index}"), was.get(index), now.get(index), changes);
            }
        }
        _ => changes.push(Change { path: path.to_owned(), was: was.map(excerpt), now: now.map(excerpt) }),
    }
}

fn excerpt(value: &Value) -> String {
    let text = value.to_string();
    if text.chars().count() <= MAX_VALUE { text } else { text.chars().take(MAX_VALUE).chain(['…']).collect() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_place_is_named_once() {
        let was = json!({ "a": 1, "b": [1, { "c": "x" }], "gone": true });
        let now = json!({ "a": 1, "b": [1, { "c": "y" }, 3], "new": null });
        let changes = between(&was, &now);
        let shown: Vec<_> = changes.iter().map(|c| (c.path.as_str(), c.was.as_deref(), c.now.as_deref())).collect();
        let expected = [
            ("/b/1/c", Some("\"x\""), Some("\"y\"")),
            ("/b/2", None, Some("3")),
            ("/gone", Some("true"), None),
            ("/new", None, Some("null")),
        ];
        assert_eq!(shown, expected);
        assert_eq!(between(&was, &was), []);
    }
}
