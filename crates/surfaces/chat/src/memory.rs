//! The parts of a conversation that a client does not see: calls that the gateway ran before or
//! next to a call of the client's own.
//!
//! A client that receives a call of its own returns with a conversation without the gateway's
//! calls. The conversation is valid, but the model would make these calls a second time. So they
//! are stored for a while, and inserted again at the position of the client's call. If they were
//! dropped meanwhile (by a restart or by age), only the model is affected.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sa_limits::eviction::to_evict;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tokio::time::Instant;

use crate::legacy::{LEGACY_CALL_ID, Peek};
use crate::request::raw;

const MAX_ENTRIES: usize = 4_096;
const MAX_BYTES: usize = 64 << 20;
const MAX_EACH: usize = 8 << 20;
const TTL: Duration = Duration::from_secs(3_600);

/// The messages and calls that the client does not know.
#[derive(Debug, Default)]
pub(crate) struct Hidden {
    /// Whole rounds, before the message with the client's calls.
    pub(crate) before: Vec<Box<RawValue>>,
    /// The gateway's calls in that message, and their results.
    pub(crate) calls: Vec<Value>,
    pub(crate) results: Vec<Box<RawValue>>,
    /// Images of these results, which may only follow after all results.
    pub(crate) after: Option<Box<RawValue>>,
}

impl Hidden {
    pub(crate) fn is_empty(&self) -> bool {
        self.before.is_empty() && self.calls.is_empty()
    }

    fn bytes(&self) -> usize {
        let raws = self.before.iter().chain(&self.results).chain(&self.after);
        raws.map(|message| message.get().len()).sum::<usize>() + self.calls.len() * 512
    }
}

/// The principal, and the position in its conversation: the id of a client's call, or a digest of
/// the messages before it.
type Key = (Arc<str>, String);

#[derive(Debug, Default)]
pub(crate) struct Memory(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    entries: HashMap<Key, (Instant, Arc<Hidden>)>,
    order: VecDeque<Key>,
    bytes: usize,
}

impl Memory {
    pub(crate) fn keep(
        &self,
        principal: &Arc<str>,
        places: impl Iterator<Item = String>,
        hidden: Hidden,
    ) {
        if hidden.is_empty() || hidden.bytes() > MAX_EACH {
            return;
        }
        let hidden = Arc::new(hidden);
        let mut table = self.0.lock();
        for place in places {
            let key = (Arc::clone(principal), place);
            table.bytes += hidden.bytes();
            if let Some((_, old)) =
                table.entries.insert(key.clone(), (Instant::now(), Arc::clone(&hidden)))
            {
                table.bytes -= old.bytes();
            } else {
                table.order.push_back(key);
            }
        }
        table.forget();
    }

    fn find(&self, principal: &Arc<str>, place: String) -> Option<Arc<Hidden>> {
        let mut table = self.0.lock();
        table.forget();
        table.entries.get(&(Arc::clone(principal), place)).map(|(_, hidden)| Arc::clone(hidden))
    }

    /// Returns the client's messages with the stored hidden parts inserted.
    pub(crate) fn restore(
        &self,
        principal: &Arc<str>,
        messages: Vec<Box<RawValue>>,
    ) -> Vec<Box<RawValue>> {
        if self.0.lock().entries.is_empty() {
            return messages;
        }
        let mut out: Vec<Box<RawValue>> = Vec::with_capacity(messages.len());
        let mut after: Option<Box<RawValue>> = None;
        let mut leading = Digest::default();
        // Each hidden part is inserted once, even if a conversation refers to it repeatedly.
        let mut back = HashSet::new();
        for place in 0..messages.len() {
            let message = &messages[place];
            let peek = Peek::of(message);
            if !peek.as_ref().is_some_and(Peek::is_result) {
                out.extend(after.take());
            }
            let hidden = peek.as_ref().filter(|peek| peek.is("assistant")).and_then(|peek| {
                if let Some(calls) = peek.tool_calls {
                    let ids = call_ids(calls);
                    return ids.into_iter().find_map(|id| self.find(principal, id));
                }
                let call = peek.function_call?.get();
                leading.go_on(&messages[..place]);
                self.find(principal, leading.place(call))
            });
            match hidden.filter(|hidden| back.insert(Arc::as_ptr(hidden))) {
                Some(hidden) => {
                    out.extend(hidden.before.iter().cloned());
                    out.push(with_calls(message, &hidden.calls));
                    out.extend(hidden.results.iter().cloned());
                    after.clone_from(&hidden.after);
                }
                None => out.push(message.clone()),
            }
        }
        out.extend(after);
        out
    }
}

impl Table {
    fn forget(&mut self) {
        let now = Instant::now();
        while let Some(oldest) = self.order.front() {
            if self.entries.get(oldest).is_some_and(|table| now.duration_since(table.0) < TTL) {
                break;
            }
            if let Some((_, hidden)) = self.entries.remove(oldest) {
                self.bytes -= hidden.bytes();
            }
            self.order.pop_front();
        }
        if self.order.len() > MAX_ENTRIES {
            self.evict(MAX_ENTRIES, |_| 1);
        }
        if self.bytes > MAX_BYTES {
            self.evict(MAX_BYTES, Hidden::bytes);
        }
    }

    /// Evicts entries until the sizes of the others add up to `most` or less. The principal with
    /// the most loses its oldest entries.
    fn evict(&mut self, most: usize, size: impl Fn(&Hidden) -> usize) {
        let size = |key: &Key| self.entries.get(key).map_or(0, |(_, hidden)| size(hidden));
        let items = self.order.iter().map(|key| (&*key.0, size(key)));
        for position in to_evict(items, most) {
            if let Some((_, hidden)) = self.entries.remove(&self.order[position]) {
                self.bytes -= hidden.bytes();
            }
        }
        self.order.retain(|key| self.entries.contains_key(key));
    }
}

/// Returns the digest that identifies a position in a conversation of the older form, in which
/// calls have no ids.
pub(crate) fn digest(before: &[Box<RawValue>], function_call: &str) -> String {
    let mut leading = Digest::default();
    leading.go_on(before);
    leading.place(function_call)
}

/// The digest of the messages before a position. Each message is read once, even if there are many
/// positions.
#[derive(Default)]
struct Digest {
    hasher: blake3::Hasher,
    messages: usize,
}

impl Digest {
    /// Advances to the position after these messages, which begin with those already read.
    fn go_on(&mut self, before: &[Box<RawValue>]) {
        for message in before.iter().skip(self.messages) {
            take_in(&mut self.hasher, message.get());
            self.messages += 1;
        }
    }

    fn place(&self, function_call: &str) -> String {
        let mut hasher = self.hasher.clone();
        take_in(&mut hasher, function_call);
        hasher.finalize().to_hex().to_string()
    }
}

fn take_in(hasher: &mut blake3::Hasher, text: &str) {
    // The text is hashed as a tree, because clients reorder JSON and change its whitespace.
    let tree: Value = serde_json::from_str(text).unwrap_or_default();
    hasher.update(canonical(&tree).as_bytes()).update(b"\n");
}

fn canonical(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().filter(|(_, value)| !value.is_null()).collect();
            fields.sort_by_key(|(name, _)| name.as_str());
            let fields: Vec<_> = fields
                .iter()
                .map(|(name, value)| format!("{name:?}:{}", canonical(value)))
                .collect();
            format!("{{{}}}", fields.join(","))
        }
        Value::Array(items) => {
            format!("[{}]", items.iter().map(canonical).collect::<Vec<_>>().join(","))
        }
        other => other.to_string(),
    }
}

fn call_ids(calls: &RawValue) -> Vec<String> {
    let calls: Vec<Value> = serde_json::from_str(calls.get()).unwrap_or_default();
    calls.iter().filter_map(|call| call["id"].as_str().map(ToOwned::to_owned)).collect()
}

/// Returns the message with these calls before its own.
fn with_calls(message: &RawValue, calls: &[Value]) -> Box<RawValue> {
    if calls.is_empty() {
        return message.to_owned();
    }
    let mut fields: Map<String, Value> = serde_json::from_str(message.get()).unwrap_or_default();
    // A message of the older form now has its single call next to these.
    let own = match (fields.remove("tool_calls"), fields.remove("function_call")) {
        (Some(Value::Array(own)), _) => own,
        (_, Some(call)) => {
            vec![serde_json::json!({ "id": LEGACY_CALL_ID, "type": "function", "function": call })]
        }
        _ => Vec::new(),
    };
    fields.insert("tool_calls".into(), calls.iter().cloned().chain(own).collect());
    raw(&Value::Object(fields))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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

    fn hidden() -> Hidden {
        Hidden {
            before: raws(&json!([{ "round": 1 }])),
            calls: vec![json!({ "id": "ours" })],
            results: raws(&json!([{ "role": "tool", "tool_call_id": "ours" }])),
            after: Some(raw(&json!({ "role": "user", "content": "an image" }))),
        }
    }

    #[test]
    fn calls_are_put_back_in_their_place_for_their_principal_alone() {
        let memory = Memory::default();
        let (me, other): (Arc<str>, Arc<str>) = ("me".into(), "other".into());
        memory.keep(&me, ["theirs".to_owned()].into_iter(), hidden());
        let messages = json!([
            { "role": "user" },
            { "role": "assistant", "content": "kept", "tool_calls": [{ "id": "theirs" }] },
            { "role": "tool", "tool_call_id": "theirs" },
            { "role": "user", "content": "next" },
        ]);
        assert_eq!(
            values(&memory.restore(&me, raws(&messages))),
            json!([
                { "role": "user" },
                { "round": 1 },
                { "role": "assistant", "content": "kept", "tool_calls": [{ "id": "ours" }, { "id": "theirs" }] },
                { "role": "tool", "tool_call_id": "ours" },
                { "role": "tool", "tool_call_id": "theirs" },
                { "role": "user", "content": "an image" },
                { "role": "user", "content": "next" },
            ])
        );
        assert_eq!(values(&memory.restore(&other, raws(&messages))), messages);
    }

    #[test]
    fn a_call_without_an_id_is_found_by_its_position() {
        let a = digest(
            &raws(&json!([{ "role": "user", "content": "x", "name": null }])),
            r#"{"name":"f","arguments":"{}"}"#,
        );
        let b = digest(
            &raws(&json!([{ "content": "x", "role": "user" }])),
            r#"{ "arguments": "{}", "name": "f" }"#,
        );
        assert_eq!(a, b);
        assert_ne!(
            a,
            digest(
                &raws(&json!([{ "content": "y", "role": "user" }])),
                r#"{"name":"f","arguments":"{}"}"#
            )
        );
    }

    #[test]
    fn an_entry_is_restored_once() {
        let memory = Memory::default();
        let me: Arc<str> = "me".into();
        memory.keep(&me, ["theirs".to_owned()].into_iter(), hidden());
        let message = json!({ "role": "assistant", "tool_calls": [{ "id": "theirs" }] });
        let restored = memory.restore(&me, raws(&json!(vec![message; 1_000])));
        assert_eq!(restored.len(), 1_003);
    }

    /// Reading the conversation again for each position would read it ten thousand times.
    #[test]
    fn a_conversation_is_read_once() {
        let memory = Memory::default();
        let me: Arc<str> = "me".into();
        let call = json!({ "name": "f", "arguments": "{}" });
        let messages =
            raws(&json!(vec![json!({ "role": "assistant", "function_call": call }); 10_000]));
        memory.keep(&me, [digest(&messages[..9_000], &call.to_string())].into_iter(), hidden());
        let restored = memory.restore(&me, messages);
        assert_eq!(restored.len(), 10_003);
        assert_eq!(restored[9_000].get(), r#"{"round":1}"#, "in its place");
    }

    proptest::proptest! {
        #[test]
        fn every_conversation_can_be_restored(
            messages in proptest::collection::vec(sa_hostile::json(&["role", "assistant", "tool", "tool_calls", "function_call", "id", "theirs", "name"]), 0..6),
        ) {
            let memory = Memory::default();
            let me: Arc<str> = "me".into();
            memory.keep(&me, ["theirs".to_owned()].into_iter(), hidden());
            let named = messages.iter().map(|message| json!({ "role": "assistant", "tool_calls": message }));
            let raws = raws(&messages.iter().cloned().chain(named).collect::<Value>());
            let restored = memory.restore(&me, raws.clone());
            proptest::prop_assert!((raws.len()..=raws.len() + 3).contains(&restored.len()));
            let modern = crate::legacy::to_modern(restored);
            let _ = crate::legacy::to_legacy(&modern.iter().map(|message| &**message).collect::<Vec<_>>());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn old_and_excess_entries_are_evicted() {
        let memory = Memory::default();
        let me: Arc<str> = "me".into();
        memory.keep(&me, (0..MAX_ENTRIES + 10).map(|place| place.to_string()), hidden());
        assert!(memory.find(&me, "0".into()).is_none());
        assert!(memory.find(&me, (MAX_ENTRIES + 9).to_string()).is_some());
        tokio::time::advance(TTL).await;
        assert!(memory.find(&me, (MAX_ENTRIES + 9).to_string()).is_none());
        assert_eq!(memory.0.lock().bytes, 0);
    }

    #[test]
    fn a_principal_evicts_only_its_own_entries() {
        let memory = Memory::default();
        let (greedy, modest): (Arc<str>, Arc<str>) = ("greedy".into(), "modest".into());
        let place = |number: usize| std::iter::once(number.to_string());
        memory.keep(&modest, place(0), hidden());
        // By their number.
        memory.keep(&greedy, (0..MAX_ENTRIES + 10).map(|number| number.to_string()), hidden());
        assert_eq!(memory.0.lock().order.len(), MAX_ENTRIES);
        assert!(memory.find(&modest, "0".into()).is_some());
        assert!(memory.find(&greedy, "10".into()).is_none());
        assert!(memory.find(&greedy, "11".into()).is_some());
        // By their size.
        let large = || {
            let text = serde_json::json!("x".repeat(MAX_EACH - 1_000));
            Hidden { before: vec![raw(&text)], ..Hidden::default() }
        };
        for number in 0..20 {
            memory.keep(&greedy, place(100_000 + number), large());
        }
        let last = memory.find(&greedy, "100019".into());
        assert!(memory.find(&modest, "0".into()).is_some() && last.is_some());
        assert!(memory.0.lock().bytes <= MAX_BYTES);
    }
}
