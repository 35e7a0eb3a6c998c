//! Nearly valid requests and frames, as sent by clients with bugs or by attackers.

use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

/// Returns this number of values from a strategy, the same ones in each run.
pub(crate) fn some<T: std::fmt::Debug>(count: usize, strategy: impl Strategy<Value = T>) -> Vec<T> {
    let mut runner = TestRunner::deterministic();
    (0..count).map(|_| strategy.new_tree(&mut runner).unwrap().current()).collect()
}

/// Returns the values as text.
pub(crate) fn some_text(count: usize, strategy: impl Strategy<Value = Vec<u8>>) -> Vec<String> {
    some(count, strategy)
        .into_iter()
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .collect()
}

/// Returns only texts that Rust's JSON parsers accept. A channel forwards messages unchanged, so
/// the participants of these tests must be able to parse them.
pub(crate) fn some_readable(count: usize, strategy: impl Strategy<Value = Vec<u8>>) -> Vec<String> {
    let texts = some_text(count, strategy);
    texts.into_iter().filter(|text| sa_text::json::check(text).is_ok()).collect()
}

/// Generates values of an unexpected type.
fn odd() -> impl Strategy<Value = Value> {
    let deep = (0..110).fold(json!(1), |inner, _| json!([inner]));
    let values = vec![
        Value::Null,
        json!(true),
        json!(0),
        json!(-1),
        json!(1.5),
        json!(1e300),
        json!(u64::MAX),
        json!(""),
        json!("\0"),
        json!("\u{1b}[31m\u{202e}"),
        json!("../../etc/passwd"),
        json!("x".repeat(50_000)),
        json!([]),
        json!({}),
        json!([[]]),
        json!({ "$serde_json::private::RawValue": "[" }),
        json!({ "$serde_json::private::Number": "x" }),
        deep,
    ];
    select(values)
}

/// Generates JSON text with one error, or with a corrupted or truncated text.
pub(crate) fn nearly(right: Value) -> impl Strategy<Value = Vec<u8>> {
    let places = places(&right);
    let text = right.to_string();
    let change = (any::<Index>(), odd(), 0..5_u8);
    let changed = change.prop_map(move |(place, odd, how)| {
        let mut value = right.clone();
        change_at(&mut value, &places[place.index(places.len())], &odd, how);
        value.to_string().into_bytes()
    });
    let bent = (any::<Index>(), any::<u8>(), 0..8_u8).prop_map(move |(at, byte, how)| {
        let mut bytes = text.clone().into_bytes();
        let at = at.index(bytes.len());
        match how {
            0 => bytes.truncate(at),
            1 => bytes[at] = byte,
            2 => bytes.insert(at, byte),
            3 => drop(bytes.splice(0..0, *b"\xef\xbb\xbf")),
            4 => bytes.extend_from_slice(&bytes.clone()),
            // Valid by the JSON grammar, but rejected by parsers.
            5 => bytes = text.replacen(':', ":1e999,\"x\":", 1).into_bytes(),
            6 => bytes = text.replacen(':', ":\"\\ud800\",\"x\":", 1).into_bytes(),
            // The first key appears twice.
            _ => {
                bytes = text
                    .replacen('{', &format!("{{{},", text.trim_matches(['{', '}'])), 1)
                    .into_bytes();
            }
        }
        bytes
    });
    prop_oneof![3 => changed, 2 => bent]
}

/// Returns the paths of all values in a value, as keys and indexes.
fn places(value: &Value) -> Vec<Vec<String>> {
    let below: Vec<(String, &Value)> = match value {
        Value::Object(map) => map.iter().map(|(key, value)| (key.clone(), value)).collect(),
        Value::Array(items) => {
            items.iter().enumerate().map(|(at, value)| (at.to_string(), value)).collect()
        }
        _ => Vec::new(),
    };
    let deeper = |(key, value): (String, &Value)| {
        places(value)
            .into_iter()
            .map(move |place| [vec![key.clone()], place].concat())
            .collect::<Vec<_>>()
    };
    [vec![Vec::new()], below.into_iter().flat_map(deeper).collect()].concat()
}

fn change_at(value: &mut Value, place: &[String], odd: &Value, how: u8) {
    match (place, value) {
        // An object lacks a member or has an additional one.
        ([key], Value::Object(map)) if how == 0 => drop(map.remove(key)),
        ([], Value::Object(map)) if how == 1 => drop(map.insert("no_such_key".into(), odd.clone())),
        ([], value) if how == 2 => *value = json!([value.take()]),
        ([], value) if how == 3 => *value = json!({ "value": value.take() }),
        ([], value) => *value = odd.clone(),
        ([key, rest @ ..], Value::Object(map)) => {
            change_at(map.get_mut(key).unwrap(), rest, odd, how);
        }
        ([at, rest @ ..], Value::Array(items)) => {
            change_at(&mut items[at.parse::<usize>().unwrap()], rest, odd, how);
        }
        (_, value) => *value = odd.clone(),
    }
}
