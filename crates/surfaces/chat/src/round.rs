//! One round: the model's message, assembled from the pieces of a stream or read from a whole
//! answer.

use serde_json::{Map, Value, json};

use crate::legacy::modern_call;

/// The maximum number of calls in a round; no model makes more.
pub(crate) const MAX_CALLS: usize = 1_024;

/// The model's output in one round.
#[derive(Debug, Default)]
pub(crate) struct Round {
    /// The message without its calls, as it is sent back to the model: role, content, and all other
    /// fields of the server.
    pub(crate) message: Map<String, Value>,
    pub(crate) calls: Vec<Call>,
    /// Whether there were more calls than the limit.
    pub(crate) overflowed: bool,
    pub(crate) finish: Option<String>,
    pub(crate) usage: Option<Value>,
}

/// A call as the server wrote it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Call {
    pub(crate) id: String,
    pub(crate) name: String,
    /// The text of its arguments, which may not be valid JSON.
    pub(crate) arguments: String,
    /// Whether it is a call of a `custom` tool, which has an `input` in place of arguments.
    pub(crate) custom: bool,
    /// Other fields of the server, which it may require back.
    more: Map<String, Value>,
    /// The number of the call in the server's stream.
    index: Option<u64>,
}

impl Call {
    /// Returns the call in the form of a message.
    pub(crate) fn to_value(&self) -> Value {
        let (kind, text) = self.words();
        let mut call = self.more.clone();
        call.insert("id".into(), json!(self.id));
        call.insert("type".into(), json!(kind));
        call.insert(kind.into(), json!({ "name": self.name, text: self.arguments }));
        Value::Object(call)
    }

    /// Returns the same call with the id that the client knows.
    pub(crate) fn with_id(&self, id: &str) -> Self {
        Self { id: id.to_owned(), ..self.clone() }
    }

    /// Returns the names of its type and of its arguments.
    pub(crate) fn words(&self) -> (&'static str, &'static str) {
        if self.custom { ("custom", "input") } else { ("function", "arguments") }
    }
}

impl Round {
    /// Reads a whole answer.
    pub(crate) fn of(answer: &Map<String, Value>) -> Self {
        let choice = &answer["choices"][0];
        let mut round = Self { usage: answer.get("usage").cloned(), ..Self::default() };
        round.push(&choice["message"]);
        round.finish = choice["finish_reason"].as_str().map(ToOwned::to_owned);
        round.end();
        round
    }

    pub(crate) fn text(&self) -> &str {
        self.message.get("content").and_then(Value::as_str).unwrap_or_default()
    }

    /// Adds a piece of a stream.
    pub(crate) fn take(&mut self, piece: &Map<String, Value>) {
        if let Some(usage) = piece.get("usage").filter(|usage| usage.is_object()) {
            self.usage = Some(usage.clone());
        }
        if let Some(choice) = piece.get("choices").and_then(|choices| choices.get(0)) {
            self.push(&choice["delta"]);
            if let Some(finish) = choice["finish_reason"].as_str() {
                self.finish = Some(finish.to_owned());
            }
        }
    }

    /// Adds a piece of a message.
    pub(crate) fn push(&mut self, delta: &Value) {
        for (name, value) in delta.as_object().into_iter().flatten() {
            match (name.as_str(), value) {
                ("tool_calls", calls) => {
                    for call in calls.as_array().into_iter().flatten() {
                        self.push_call(call);
                    }
                }
                ("function_call", Value::Object(_)) => self.push_call(&modern_call(value)),
                ("function_call", _) => {}
                ("role", value) => drop(self.message.insert("role".into(), value.clone())),
                (name, value) => join(self.message.entry(name).or_insert(Value::Null), value),
            }
        }
    }

    fn push_call(&mut self, delta: &Value) {
        let index = delta["index"].as_u64();
        let id = delta["id"].as_str().filter(|id| !id.is_empty());
        let inner = if delta["custom"].is_object() { &delta["custom"] } else { &delta["function"] };
        let name = inner["name"].as_str().unwrap_or_default();
        // Some servers give every call the same number, or none. Their ids then distinguish them.
        let begins = |call: &Call| {
            id.is_some_and(|id| !call.id.is_empty() && call.id != id) && !name.is_empty()
        };
        let known = match index {
            Some(_) => self.calls.iter().rposition(|call| call.index == index),
            None => self.calls.len().checked_sub(1).filter(|_| id.is_none() && name.is_empty()),
        };
        let place = match known.filter(|place| !begins(&self.calls[*place])) {
            Some(place) => place,
            None if self.calls.len() >= MAX_CALLS => {
                self.overflowed = true;
                return;
            }
            None => {
                self.calls.push(Call { index, ..Call::default() });
                self.calls.len() - 1
            }
        };
        let call = &mut self.calls[place];
        if let Some(id) = id.filter(|_| call.id.is_empty()) {
            id.clone_into(&mut call.id);
        }
        // A name is complete, or arrives in pieces before the arguments. Some servers repeat it
        // with each piece of the arguments.
        if call.arguments.is_empty() && call.name != name {
            call.name.push_str(name);
        }
        call.custom |= delta["custom"].is_object();
        match &inner[if call.custom { "input" } else { "arguments" }] {
            Value::String(text) => call.arguments.push_str(text),
            Value::Null => {}
            // Some servers send the arguments as an object instead of a text.
            other => call.arguments = other.to_string(),
        }
        for (field, value) in delta.as_object().into_iter().flatten() {
            if !matches!(field.as_str(), "index" | "id" | "type" | "function" | "custom") {
                call.more.insert(field.clone(), value.clone());
            }
        }
    }

    /// Makes sure that every call has a unique id.
    pub(crate) fn end(&mut self) {
        self.calls.retain(|call| !call.name.is_empty() || !call.arguments.is_empty());
        for place in 0..self.calls.len() {
            let (before, rest) = self.calls.split_at_mut(place);
            if rest[0].id.is_empty() || before.iter().any(|call| call.id == rest[0].id) {
                rest[0].id = new_id("");
            }
        }
        self.message.insert("role".into(), json!("assistant"));
        self.message.entry("content").or_insert(Value::Null);
    }
}

/// Returns a unique id. Some servers accept only ids of the length that they create themselves.
pub(crate) fn new_id(like: &str) -> String {
    const LETTERS: &[u8] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    let random = |length: usize| -> String {
        (0..length).map(|_| LETTERS[rand::random_range(0..LETTERS.len())] as char).collect()
    };
    let short =
        (8..=16).contains(&like.len()) && like.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if short { random(like.len()) } else { format!("call_{}", random(24)) }
}

/// Joins the pieces of a field like OpenAI's own clients: texts and lists are concatenated, and of
/// other values the last one counts.
fn join(known: &mut Value, more: &Value) {
    match (known, more) {
        (_, Value::Null) => {}
        (Value::String(known), Value::String(more)) => known.push_str(more),
        (Value::Array(known), Value::Array(more)) => known.extend(more.iter().cloned()),
        (known, more) => *known = more.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assemble(deltas: &[Value]) -> Round {
        let mut round = Round::default();
        for delta in deltas {
            round.push(delta);
        }
        round.end();
        round
    }

    #[track_caller]
    fn check(deltas: &[Value], expected: &[(&str, &str, &str)]) {
        let round = assemble(deltas);
        let found: Vec<_> = round
            .calls
            .iter()
            .map(|call| (call.id.as_str(), call.name.as_str(), call.arguments.as_str()))
            .collect();
        assert_eq!(found, expected, "{deltas:?}");
    }

    fn call(index: u64, id: Option<&str>, name: Option<&str>, arguments: &str) -> Value {
        json!({ "tool_calls": [{ "index": index, "id": id, "function": { "name": name, "arguments": arguments } }] })
    }

    #[test]
    fn calls_are_put_together_wherever_they_were_cut() {
        let whole = [("a", "notes_search", "{\"q\":\"é\"}"), ("b", "x", "{}")];
        check(
            &[
                call(0, Some("a"), Some("notes_"), ""),
                call(0, None, Some("search"), "{\"q"),
                call(1, Some("b"), Some("x"), ""),
                call(0, None, None, "\":\"é\"}"),
                call(1, None, None, "{}"),
            ],
            &whole,
        );
    }

    #[test]
    fn servers_with_habits_of_their_own() {
        // The name is repeated in every piece.
        check(
            &[call(0, Some("a"), Some("f"), "{"), call(0, Some("a"), Some("f"), "}")],
            &[("a", "f", "{}")],
        );
        // Every call has the same number.
        check(
            &[call(0, Some("a"), Some("f"), "{}"), call(0, Some("b"), Some("f"), "{}")],
            &[("a", "f", "{}"), ("b", "f", "{}")],
        );
        // There is no number.
        let call = |id: Value, name: &str, arguments: Value| json!({ "tool_calls": [{ "id": id, "function": { "name": name, "arguments": arguments } }] });
        check(
            &[
                call(json!("a"), "f", json!("{")),
                call(json!(null), "", json!("}")),
                call(json!("b"), "g", json!({ "x": 1 })),
            ],
            &[("a", "f", "{}"), ("b", "g", "{\"x\":1}")],
        );
        // There is no id, or all are equal: the calls get one.
        let round = assemble(&[json!({ "tool_calls": [
            { "index": 0, "function": { "name": "f", "arguments": "{}" } },
            { "index": 1, "function": { "name": "f", "arguments": "{}" } } ] })]);
        assert_eq!(round.calls.len(), 2);
        assert!(!round.calls[0].id.is_empty() && round.calls[0].id != round.calls[1].id);
    }

    #[test]
    fn the_older_form_and_unknown_fields() {
        let round = assemble(&[
            json!({ "role": "assistant", "content": null, "reasoning": "a" }),
            json!({ "function_call": { "name": "f", "arguments": "{" }, "reasoning": "b" }),
            json!({ "function_call": { "arguments": "}" } }),
        ]);
        assert_eq!(round.calls[0].arguments, "{}");
        assert_eq!(round.message["reasoning"], "ab");
        let signed = assemble(&[
            json!({ "tool_calls": [{ "index": 0, "id": "a", "extra_content": { "s": 1 }, "function": { "name": "f" } }] }),
        ]);
        assert_eq!(signed.calls[0].to_value()["extra_content"], json!({ "s": 1 }));
    }

    #[test]
    fn ids_are_of_the_kind_that_the_server_makes() {
        assert_eq!(new_id("D681PevKs").len(), 9);
        assert!(new_id("call_abc").starts_with("call_") && new_id("") != new_id(""));
    }

    const WORDS: &[&str] = &[
        "tool_calls",
        "function_call",
        "function",
        "custom",
        "name",
        "arguments",
        "input",
        "index",
        "id",
        "type",
        "content",
        "role",
        "refusal",
        "f",
    ];

    proptest::proptest! {
        #[test]
        fn no_delta_breaks_it(deltas in proptest::collection::vec(sa_hostile::json(WORDS), 0..6)) {
            let wrapped = deltas.iter().map(|delta| json!({ "tool_calls": [delta] }));
            let round = assemble(&deltas.iter().cloned().chain(wrapped).collect::<Vec<_>>());
            proptest::prop_assert!(round.calls.len() <= MAX_CALLS);
            let ids: std::collections::HashSet<_> = round.calls.iter().map(|call| &call.id).collect();
            proptest::prop_assert_eq!(ids.len(), round.calls.len(), "each call has an id of its own");
            proptest::prop_assert!(!ids.contains(&String::new()));
        }

        #[test]
        fn arguments_are_the_same_wherever_they_were_cut(
            text in "\\PC{0,40}", cuts in proptest::collection::vec(proptest::prelude::any::<proptest::sample::Index>(), 0..6),
        ) {
            let mut places: Vec<_> = cuts.iter().map(|cut| text.floor_char_boundary(cut.index(text.len() + 1))).collect();
            places.push(text.len());
            places.sort_unstable();
            let mut start = 0;
            let pieces = places.into_iter().map(|end| call(0, None, None, &text[std::mem::replace(&mut start, end)..end]));
            let deltas: Vec<_> = [call(0, Some("a"), Some("f"), "")].into_iter().chain(pieces).collect();
            check(&deltas, &[("a", "f", &text)]);
        }
    }
}
