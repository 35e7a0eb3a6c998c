//! Rule: every parser of the core accepts a text by its rules or refuses it with a short error, and
//! never panics.

use proptest::prelude::*;
use sa_core::{CallErrorKind, CallId, LogLevel, Pattern, RawJson};
use sa_text::json::{MAX_DEPTH, Object, is_too_deep, shortened, why};
use sa_text::{closest, similar};
use serde_json::{Value, json};

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

fn document() -> Value {
    json!({ "a": [1, -2.5, "é\"\\", { "b": null, "$serde": true }], "content": [{ "type": "text", "text": "t" }] })
}

proptest! {
    #[test]
    fn json_is_taken_as_it_is_written(
        nearly in sa_hostile::nearly(document()), text in sa_hostile::text(&["{", "}", "[", "]", "\"", ":", ",", "\\u0024", "$serde_json::private::RawValue"]),
    ) {
        for text in [nearly, text] {
            match RawJson::parse(&text) {
                Ok(json) => {
                    prop_assert_eq!(json.as_str(), text.trim_matches([' ', '\t', '\r', '\n']));
                    prop_assert!(!is_too_deep(&text));
                    match json.to_value() {
                        Ok(value) => {
                            prop_assert!(depth(&value) <= MAX_DEPTH);
                            // Every parser reads the same value.
                            prop_assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
                        }
                        // A duplicate key: other parsers use the last one.
                        Err(error) => {
                            prop_assert!(error.to_string().len() < sa_hostile::SHORT);
                            prop_assert!(serde_json::from_str::<Value>(&text).is_ok());
                        }
                    }
                }
                Err(error) => prop_assert!(why(&error).len() < sa_hostile::SHORT),
            }
        }
    }

    #[test]
    fn json_of_our_own_is_read_back(value in sa_hostile::json(&["a", "$", "\\u0024"])) {
        let json = RawJson::of(&value);
        prop_assert_eq!(json.to_value().unwrap(), value);
        prop_assert_eq!(RawJson::parse(json.as_str()).unwrap(), json);
    }

    #[test]
    fn a_list_is_no_object(list in sa_hostile::list(&["a"]), object in sa_hostile::nearly(json!({ "a": "x", "b": null }))) {
        #[derive(Debug, Default, serde::Deserialize)]
        #[serde(default)]
        struct Fields {
            a: Option<String>,
            b: Option<u8>,
        }
        prop_assert!(serde_json::from_str::<Object<Fields>>(&list).is_err());
        match sa_text::json::object::<Fields>(object.as_bytes()) {
            Ok(Fields { a, b }) => {
                prop_assert!(object.starts_with('{'), "it is none");
                // A part that is not parsed may be too deep for a tree.
                if let Ok(read) = serde_json::from_str::<Value>(&object) {
                    prop_assert!(read["a"] == json!(a) && read["b"] == json!(b), "{}", object);
                }
            }
            Err(error) => prop_assert!(why(&error).len() < sa_hostile::SHORT),
        }
    }

    #[test]
    fn errors_quote_only_a_short_excerpt(text in sa_hostile::long()) {
        prop_assert!(shortened(&text).chars().count() <= 201 && text.starts_with(shortened(&text).trim_end_matches('…')));
        let quoted = Value::from(text).to_string();
        prop_assert!(why(&serde_json::from_str::<u8>(&quoted).unwrap_err()).len() < sa_hostile::SHORT);
    }

    #[test]
    fn ids_and_words_are_read_back_and_nothing_else_is(text in sa_hostile::text(&["0190a5b2-7f5e-7cc3-98a1-0123456789ab", "-", "{", "}", "urn:uuid:", "failed", "info"])) {
        if let Ok(id) = text.parse::<CallId>() {
            prop_assert_eq!(id.encode(&mut [0; CallId::LEN]).parse::<CallId>().unwrap(), id);
        }
        prop_assert!(CallErrorKind::parse(&text).is_none_or(|kind| kind.as_str() == text));
        prop_assert!(LogLevel::parse(&text).is_none_or(|level| level.as_str() == text));
    }

    #[test]
    fn a_suggestion_is_a_known_name(
        written in prop_oneof![sa_hostile::text(&["a", "b", "_", "-"]), sa_hostile::long()],
        known in prop::collection::vec(prop_oneof![sa_hostile::text(&["a", "b", "_"]), sa_hostile::long()], 0..4),
    ) {
        let names = || known.iter().map(String::as_str);
        prop_assert!(closest(&written, names()).is_none_or(|found| known.iter().any(|name| name == found)));
        prop_assert!(similar(&written, names()).iter().all(|found| known.iter().any(|name| name == found) && *found != written));
    }

    #[test]
    fn a_pattern_matches_like_the_reference(pattern in "[ab*é]{0,8}", name in "[abé]{0,8}") {
        prop_assert_eq!(Pattern::new(&pattern).matches(&name), matches(pattern.as_bytes(), name.as_bytes()));
    }
}

/// A simple recursive matcher as a reference.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    match pattern.split_first() {
        None => name.is_empty(),
        Some((b'*', rest)) => (0..=name.len()).any(|skipped| matches(rest, &name[skipped..])),
        Some((first, rest)) => {
            name.split_first().is_some_and(|(byte, name)| byte == first && matches(rest, name))
        }
    }
}
