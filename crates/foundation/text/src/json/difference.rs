//! The differences between two JSON values, for an operator to review.

use serde_json::Value;

const MAX_CHANGES: usize = 200;
const MAX_VALUE: usize = 300;
/// The maximum length of the common text shown before the first difference of two long texts.
const SHOWN_BEFORE: usize = 60;

/// One difference between two JSON values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// A JSON pointer.
    pub path: String,
    /// The old value; absent for an addition.
    pub was: Option<String>,
    /// The new value; absent for a removal.
    pub now: Option<String>,
}

/// Returns all differences in document order, at most 200.
pub fn between(was: &Value, now: &Value) -> Vec<Change> {
    let mut changes = Vec::new();
    compare("", Some(was), Some(now), &mut changes);
    changes
}

/// Escapes a key for a JSON pointer.
pub fn escape(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
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
        _ => {
            let (was, now) = (was.map(Value::to_string), now.map(Value::to_string));
            let start = was
                .as_deref()
                .zip(now.as_deref())
                .map_or(0, |(was, now)| first_difference(was, now));
            let excerpt = |text: String| excerpt(&text, start);
            changes.push(Change {
                path: path.to_owned(),
                was: was.map(excerpt),
                now: now.map(excerpt),
            });
        }
    }
}

/// Returns the number of leading characters that two texts have in common.
fn first_difference(was: &str, now: &str) -> usize {
    was.chars().zip(now.chars()).take_while(|(was, now)| was == now).count()
}

/// Returns an excerpt of a long text that starts shortly before the first difference.
fn excerpt(text: &str, difference: usize) -> String {
    let skipped =
        if text.chars().count() <= MAX_VALUE { 0 } else { difference.saturating_sub(SHOWN_BEFORE) };
    let mut rest = text.chars().skip(skipped);
    let mut shown = String::from(if skipped > 0 { "…" } else { "" });
    shown.extend(rest.by_ref().take(MAX_VALUE));
    if rest.next().is_some() {
        shown.push('…');
    }
    shown
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
        let shown: Vec<_> =
            changes.iter().map(|c| (c.path.as_str(), c.was.as_deref(), c.now.as_deref())).collect();
        let expected = [
            ("/b/1/c", Some("\"x\""), Some("\"y\"")),
            ("/b/2", None, Some("3")),
            ("/gone", Some("true"), None),
            ("/new", None, Some("null")),
        ];
        assert_eq!(shown, expected);
        assert_eq!(between(&was, &was), []);
    }

    #[test]
    fn a_difference_at_the_end_of_a_long_text_is_shown() {
        let long = "a".repeat(10_000);
        let changes =
            between(&json!(format!("{long} end")), &json!(format!("{long} send the token along")));
        let now = changes[0].now.as_deref().unwrap();
        assert!(now.ends_with("send the token along\"") && now.starts_with("…aaa"), "{now}");
        assert!(now.chars().count() < 100, "{now}");
    }
}
