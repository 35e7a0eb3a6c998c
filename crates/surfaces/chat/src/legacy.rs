//! Converts between the older form of calls, `function_call` and the `function` role, and the newer
//! one.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::request::raw;

/// The placeholder id of a call of the older form next to calls of the newer one, until it gets its
/// own id.
pub(crate) const LEGACY_CALL_ID: &str = "function_call of the older form";

/// The fields of a message that determine its form.
#[derive(Debug, Deserialize)]
pub(crate) struct Peek<'a> {
    #[serde(default, borrow)]
    role: Option<&'a RawValue>,
    #[serde(default, borrow)]
    pub(crate) tool_calls: Option<&'a RawValue>,
    #[serde(default, borrow)]
    pub(crate) function_call: Option<&'a RawValue>,
}

impl Peek<'_> {
    pub(crate) fn of(message: &RawValue) -> Option<Peek<'_>> {
        serde_json::from_str(message.get()).ok()
    }

    pub(crate) fn is(&self, role: &str) -> bool {
        self.role.is_some_and(|found| found.get().trim_matches('"') == role)
    }

    /// Returns whether it is the result of a call.
    pub(crate) fn is_result(&self) -> bool {
        self.is("tool") || self.is("function")
    }
}

/// Converts messages into the newer form. A call of the older form has no id. It gets one from its
/// position in the conversation, in a form that even strict servers accept.
pub(crate) fn to_modern(messages: Vec<Box<RawValue>>) -> Vec<Box<RawValue>> {
    let mut last_id = String::new();
    let convert = |(place, message): (usize, Box<RawValue>)| {
        let Some(peek) = Peek::of(&message) else { return message };
        let called = peek.is("assistant") && peek.function_call.is_some();
        if peek.tool_calls.is_some_and(|calls| calls.get().contains(LEGACY_CALL_ID)) {
            last_id = format!("fc{place:07}");
            let text = message.get().replacen(LEGACY_CALL_ID, &last_id, 1);
            return RawValue::from_string(text).unwrap_or(message);
        }
        if !called && !peek.is("function") {
            return message;
        }
        let Ok(mut fields) = serde_json::from_str::<Map<String, Value>>(message.get()) else {
            return message;
        };
        if called {
            last_id = format!("fc{place:07}");
            let call = fields.remove("function_call").unwrap_or_default();
            fields.insert(
                "tool_calls".into(),
                json!([{ "id": last_id, "type": "function", "function": call }]),
            );
            fields.entry("content").or_insert(Value::Null);
        } else {
            fields.remove("name");
            fields.insert("role".into(), json!("tool"));
            fields.insert("tool_call_id".into(), json!(last_id));
        }
        raw(&Value::Object(fields))
    };
    messages.into_iter().enumerate().map(convert).collect()
}

/// Converts messages into the older form, which allows one call per message: several calls become a
/// sequence of calls and results.
pub(crate) fn to_legacy(messages: &[&RawValue]) -> Vec<Box<RawValue>> {
    let mut out: Vec<Box<RawValue>> = Vec::with_capacity(messages.len());
    // The calls that still wait for their result, by id.
    let mut waiting: Vec<(String, Value)> = Vec::new();
    for message in messages {
        let peek = Peek::of(message);
        let calls =
            peek.as_ref().is_some_and(|peek| peek.is("assistant") && peek.tool_calls.is_some());
        let result = peek.as_ref().is_some_and(|peek| peek.is("tool"));
        let fields = (calls || result)
            .then(|| serde_json::from_str::<Map<String, Value>>(message.get()).ok())
            .flatten();
        let Some(mut fields) = fields else {
            out.push((*message).to_owned());
            continue;
        };
        if calls {
            let calls = fields.remove("tool_calls").unwrap_or_default();
            if fields.get("content").is_some_and(|content| !content.is_null() && *content != "") {
                out.push(raw(&Value::Object(fields)));
            }
            let id = |call: &Value| call["id"].as_str().unwrap_or_default().to_owned();
            waiting = calls
                .as_array()
                .into_iter()
                .flatten()
                .map(|call| (id(call), call["function"].clone()))
                .collect();
        } else {
            let id = fields.get("tool_call_id").and_then(Value::as_str).unwrap_or_default();
            let Some(at) = waiting.iter().position(|(known, _)| known == id) else { continue };
            let (_, call) = waiting.remove(at);
            let name = call["name"].clone();
            out.push(raw(&json!({ "role": "assistant", "content": null, "function_call": call })));
            out.push(raw(
                &json!({ "role": "function", "name": name, "content": fields.get("content") }),
            ));
        }
    }
    out
}

/// Converts the call of a message in the older form into the newer form.
pub(crate) fn modern_call(function_call: &Value) -> Value {
    json!({ "index": 0, "type": "function", "function": function_call })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raws(messages: &Value) -> Vec<Box<RawValue>> {
        messages.as_array().unwrap().iter().map(raw).collect()
    }

    fn values(messages: &[Box<RawValue>]) -> Value {
        messages
            .iter()
            .map(|message| serde_json::from_str::<Value>(message.get()).unwrap())
            .collect()
    }

    #[test]
    fn round_trip() {
        let call = json!({ "name": "f", "arguments": "{}" });
        let old = json!([
            { "role": "user", "content": "x" },
            { "role": "assistant", "content": null, "function_call": call },
            { "role": "function", "name": "f", "content": "1" },
            { "role": "assistant", "content": "done" },
        ]);
        let modern = to_modern(raws(&old));
        assert_eq!(
            values(&modern),
            json!([
                { "role": "user", "content": "x" },
                { "role": "assistant", "content": null, "tool_calls": [{ "id": "fc0000001", "type": "function", "function": call }] },
                { "role": "tool", "tool_call_id": "fc0000001", "content": "1" },
                { "role": "assistant", "content": "done" },
            ])
        );
        let modern: Vec<&RawValue> = modern.iter().map(|message| &**message).collect();
        assert_eq!(values(&to_legacy(&modern)), old);
    }

    #[test]
    fn several_calls_become_a_sequence() {
        let call = |id: &str| json!({ "id": id, "type": "function", "function": { "name": id, "arguments": "{}" } });
        let messages = raws(&json!([
            { "role": "assistant", "content": "both", "tool_calls": [call("a"), call("b")] },
            { "role": "tool", "tool_call_id": "b", "content": "2" },
            { "role": "tool", "tool_call_id": "a", "content": "1" },
        ]));
        let messages: Vec<&RawValue> = messages.iter().map(|message| &**message).collect();
        let old = values(&to_legacy(&messages));
        let roles: Vec<_> = old
            .as_array()
            .unwrap()
            .iter()
            .map(|message| message["role"].as_str().unwrap())
            .collect();
        assert_eq!(roles, ["assistant", "assistant", "function", "assistant", "function"]);
        assert_eq!((&old[1]["function_call"]["name"], &old[2]["name"]), (&json!("b"), &json!("b")));
    }
}
