//! JSON, and nearly valid JSON.

use std::fmt;

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::{Map, Value};

/// Any JSON with keys and texts mostly from these words, which a decoder looks for.
pub fn json(words: &'static [&'static str]) -> impl Strategy<Value = Value> + Clone {
    let leaf = prop_oneof![
        1 => Just(Value::Null),
        1 => any::<bool>().prop_map(Value::from),
        1 => any::<i64>().prop_map(Value::from),
        1 => any::<i32>().prop_map(|eighths| Value::from(f64::from(eighths) / 8.0)),
        4 => select(words).prop_map(Value::from),
        1 => ".{0,8}".prop_map(Value::from),
    ];
    let key = prop_oneof![6 => select(words).prop_map(str::to_owned), 1 => ".{0,6}"];
    leaf.prop_recursive(5, 48, 6, move |inner| {
        prop_oneof![
            1 => vec(inner.clone(), 0..5).prop_map(Value::from),
            2 => btree_map(key.clone(), inner, 0..6).prop_map(|map| map.into_iter().collect::<Value>()),
        ]
    })
}

/// A list that a struct's default deserializer would read as its fields in order. The first
/// elements are often from these words, and the others are mostly `null`.
pub fn list(words: &'static [&'static str]) -> impl Strategy<Value = String> + Clone {
    let first = prop_oneof![4 => select(words).prop_map(|word| Value::from(word).to_string()), 1 => select(ODD).prop_map(str::to_owned)];
    let other = prop_oneof![8 => Just("null"), 1 => select(ODD)].prop_map(str::to_owned);
    (vec(first, 0..4), vec(other, 0..40), "[ \n\t]{0,2}").prop_map(|(first, others, space)| {
        format!("{space}[{}]", [first, others].concat().join(","))
    })
}

/// A document with up to four changes: values that are replaced, removed, duplicated or unknown.
/// Sometimes the end is cut off.
pub fn nearly(document: Value) -> impl Strategy<Value = String> + Clone {
    let changes = vec((any::<Index>(), change()), 0..5);
    (changes, prop::option::weighted(0.1, any::<Index>())).prop_map(move |(changes, cut)| {
        let mut json = Json::from(&document);
        for (place, change) in changes {
            json.change(&mut place.index(json.count()), &change);
        }
        let mut text = json.to_string();
        if let Some(cut) = cut {
            text.truncate(text.floor_char_boundary(cut.index(text.len() + 1)));
        }
        text
    })
}

/// JSON as written, which may have duplicate keys and invalid numbers.
#[derive(Debug, Clone)]
enum Json {
    Written(String),
    List(Vec<Json>),
    Object(Vec<(String, Json)>),
}

#[derive(Debug, Clone)]
enum Change {
    Become(String),
    Lose(Index),
    Double(Index),
    Add(String, String),
    /// Wraps the value in this number of lists.
    Wrap(usize),
}

fn change() -> impl Strategy<Value = Change> + Clone {
    let written = prop_oneof![
        6 => select(ODD).prop_map(str::to_owned),
        1 => any::<i64>().prop_map(|number| number.to_string()),
        1 => any::<String>().prop_map(|text| Value::from(text).to_string()),
        1 => crate::long().prop_map(|text| Value::from(text).to_string()),
    ];
    let key = prop_oneof![
        3 => "[a-zA-Z_]{1,8}",
        1 => any::<String>(),
        1 => Just("$serde_json::private::RawValue".to_owned()),
        1 => crate::long(),
    ];
    prop_oneof![
        4 => written.clone().prop_map(Change::Become),
        2 => any::<Index>().prop_map(Change::Lose),
        1 => any::<Index>().prop_map(Change::Double),
        2 => (key, written).prop_map(|(key, value)| Change::Add(key, value)),
        1 => select(&[1, 2, 99, 127, 130, 3_000][..]).prop_map(Change::Wrap),
    ]
}

const ODD: &[&str] = &[
    "null",
    "true",
    "0",
    "-0",
    "-1",
    "0.5",
    "1e3",
    "1e999",
    "-1e999",
    "5e-324",
    "9007199254740993",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "\"\"",
    "\" \"",
    "\"0\"",
    "\"\\u0000\"",
    "\"\\ud800\"",
    "\"\\udc00x\"",
    "\"\\ud83d\\ude00\"",
    "\"\u{feff}\"",
    "\"../..\"",
    "[]",
    "[null]",
    "[[]]",
    "{}",
    "{\"\":null}",
    "{\"id\":1}",
    "[1,\"a\",{}]",
    "\"a\\nb\"",
    "\"{}\"",
    "\"%2e%2e\"",
];

impl Json {
    fn count(&self) -> usize {
        1 + match self {
            Self::Written(_) => 0,
            Self::List(items) => items.iter().map(Self::count).sum(),
            Self::Object(fields) => fields.iter().map(|(_, value)| value.count()).sum(),
        }
    }

    /// Changes the part at this position, counted from the outside in. Returns whether it was
    /// found.
    fn change(&mut self, place: &mut usize, change: &Change) -> bool {
        if *place == 0 {
            self.become_changed(change);
            return true;
        }
        *place -= 1;
        match self {
            Self::Written(_) => false,
            Self::List(items) => items.iter_mut().any(|item| item.change(place, change)),
            Self::Object(fields) => fields.iter_mut().any(|(_, value)| value.change(place, change)),
        }
    }

    fn become_changed(&mut self, change: &Change) {
        match (change, &mut *self) {
            (Change::Become(written), _) => *self = Self::Written(written.clone()),
            (Change::Lose(which), Self::Object(fields)) if !fields.is_empty() => {
                fields.remove(which.index(fields.len()));
            }
            (Change::Lose(which), Self::List(items)) if !items.is_empty() => {
                items.remove(which.index(items.len()));
            }
            (Change::Double(which), Self::Object(fields)) if !fields.is_empty() => {
                fields.push(fields[which.index(fields.len())].clone());
            }
            (Change::Double(which), Self::List(items)) if !items.is_empty() => {
                items.push(items[which.index(items.len())].clone());
            }
            (Change::Add(key, value), Self::Object(fields)) => {
                fields.push((key.clone(), Self::Written(value.clone())));
            }
            (Change::Add(_, value), Self::List(items)) => items.push(Self::Written(value.clone())),
            (Change::Wrap(depth), inner) => {
                *self =
                    Self::Written(format!("{}{inner}{}", "[".repeat(*depth), "]".repeat(*depth)));
            }
            (Change::Lose(_) | Change::Double(_) | Change::Add(..), _) => {}
        }
    }
}

impl From<&Value> for Json {
    fn from(value: &Value) -> Self {
        let fields = |map: &Map<String, Value>| {
            map.iter().map(|(key, value)| (key.clone(), Self::from(value))).collect()
        };
        match value {
            Value::Array(items) => Self::List(items.iter().map(Self::from).collect()),
            Value::Object(map) => Self::Object(fields(map)),
            other => Self::Written(other.to_string()),
        }
    }
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Written(text) => f.write_str(text),
            Self::List(items) => {
                f.write_str("[")?;
                for (at, item) in items.iter().enumerate() {
                    write!(f, "{}{item}", if at == 0 { "" } else { "," })?;
                }
                f.write_str("]")
            }
            Self::Object(fields) => {
                f.write_str("{")?;
                for (at, (key, value)) in fields.iter().enumerate() {
                    write!(
                        f,
                        "{}{}:{value}",
                        if at == 0 { "" } else { "," },
                        Value::from(key.as_str())
                    )?;
                }
                f.write_str("}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_not_changed_is_the_document() {
        let document = json!({ "a": [1, { "b": "\u{1}\"" }], "": null });
        assert_eq!(
            serde_json::from_str::<Value>(&Json::from(&document).to_string()).unwrap(),
            document
        );
    }

    #[test]
    fn each_part_can_be_changed() {
        let document = json!({ "a": [1, 2], "b": {} });
        let changed = |place: usize, change: Change| {
            let mut json = Json::from(&document);
            assert!(json.change(&mut { place }, &change), "there is no part {place}");
            json.to_string()
        };
        assert_eq!(Json::from(&document).count(), 5);
        assert_eq!(changed(3, Change::Become("1e999".into())), r#"{"a":[1,1e999],"b":{}}"#);
        assert_eq!(changed(4, Change::Add("x".into(), "0".into())), r#"{"a":[1,2],"b":{"x":0}}"#);
        assert_eq!(changed(1, Change::Wrap(2)), r#"{"a":[[[1,2]]],"b":{}}"#);
    }
}
