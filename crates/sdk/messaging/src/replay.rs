//! The history that a client receives when it connects.

use std::collections::{HashMap, HashSet, VecDeque};

use crate::builder::{Config, ReplayMode};
use crate::event::Event;
use crate::queue::{Bounds, Item as _};

/// Collects the history while it arrives. The oldest part is dropped if it exceeds the limits.
#[derive(Debug)]
pub(crate) struct Replay {
    mode: ReplayMode,
    since_ms: Option<i64>,
    bounds: Bounds,
    events: VecDeque<Event>,
    bytes: usize,
    /// The number of dropped events.
    dropped: u64,
    /// The index of each message among all events that have arrived.
    messages: HashMap<String, u64>,
}

impl Default for Replay {
    fn default() -> Self {
        Self {
            mode: ReplayMode::Skip,
            since_ms: None,
            bounds: Bounds { items: 0, bytes: 0 },
            events: VecDeque::new(),
            bytes: 0,
            dropped: 0,
            messages: HashMap::new(),
        }
    }
}

impl Replay {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            mode: config.replay,
            since_ms: config.since_ms,
            bounds: config.buffer,
            ..Self::default()
        }
    }

    pub(crate) fn push(&mut self, event: Event) {
        let at = event.envelope().map_or(0, |envelope| envelope.timestamp_ms);
        if self.mode == ReplayMode::Skip || self.since_ms.is_some_and(|since| at < since) {
            return;
        }
        let Some(event) =
            (if self.mode == ReplayMode::Collect { self.merge(event) } else { Some(event) })
        else {
            return;
        };
        self.bytes += event.weight();
        self.events.push_back(event);
        while self.events.len() > self.bounds.items
            || (self.bytes > self.bounds.bytes && self.events.len() > 1)
        {
            if let Some(oldest) = self.events.pop_front() {
                self.bytes -= oldest.weight().min(self.bytes);
                self.dropped += 1;
                if let Event::Message(message) = oldest {
                    self.messages.remove(&message.id);
                }
            }
        }
    }

    /// Merges an update into its message. An update without a message here is kept as it is.
    fn merge(&mut self, event: Event) -> Option<Event> {
        let id = match &event {
            Event::Message(message) => {
                self.messages.insert(message.id.clone(), self.dropped + self.events.len() as u64);
                return Some(event);
            }
            Event::UpdateMessage(update) => &update.id,
            Event::Error(error) => &error.id,
            _ => return Some(event),
        };
        let index = self.messages.get(id).and_then(|number| number.checked_sub(self.dropped));
        let Some(Event::Message(message)) =
            index.and_then(|index| self.events.get_mut(index as usize))
        else {
            return Some(event);
        };
        // An update by another participant is ignored.
        let sender = event.envelope().map(|envelope| envelope.sender_id.as_str());
        if sender != Some(message.envelope.sender_id.as_str()) {
            return None;
        }
        match event {
            Event::UpdateMessage(update) => {
                let more = update.content.as_deref().unwrap_or_default();
                message.payload.content.push_str(more);
                message.payload.complete |= update.complete;
                self.bytes += more.len();
            }
            Event::Error(error) => message.payload.error = Some(error.payload.error),
            _ => {}
        }
        None
    }

    /// Returns the history, oldest first, and the number of dropped events.
    pub(crate) fn finish(self) -> (Vec<Event>, u64) {
        let mut events: Vec<Event> = self.events.into();
        if self.mode == ReplayMode::Collect {
            // A complete result contains its parts, or they mattered only to participants that were
            // connected then.
            let complete: HashSet<String> = events
                .iter()
                .filter_map(|event| match event {
                    Event::MethodResult(result) if result.complete => Some(result.call_id.clone()),
                    _ => None,
                })
                .collect();
            events.retain(|event| match event {
                Event::MethodResult(result) => {
                    result.complete || !complete.contains(&result.call_id)
                }
                _ => true,
            });
        }
        (events, self.dropped)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sa_protocol::channel::Delivery;
    use serde_json::Map;

    use super::*;
    use crate::event::{Envelope, Received};
    use crate::{MethodResult, NewMessage, UpdateMessage};

    fn received<T>(payload: T, sender: &str, at: i64) -> Received<T> {
        let envelope = Arc::new(Envelope {
            delivery: Delivery::Replay,
            pubsub_id: Some(1),
            sender_id: sender.into(),
            sender_metadata: Map::new(),
            timestamp_ms: at,
            attachments: Vec::new(),
        });
        Received { envelope, payload }
    }

    fn message(id: &str, content: &str, at: i64) -> Event {
        let payload: NewMessage =
            serde_json::from_value(serde_json::json!({ "id": id, "content": content })).unwrap();
        Event::Message(received(payload, "ann", at))
    }

    fn update(id: &str, content: &str, complete: bool, sender: &str) -> Event {
        let payload = UpdateMessage {
            id: id.into(),
            content: Some(content.into()),
            content_type: None,
            complete,
        };
        Event::UpdateMessage(received(payload, sender, 9))
    }

    fn result(call: &str, complete: bool) -> Event {
        let payload = MethodResult { call_id: call.into(), complete, ..MethodResult::default() };
        Event::MethodResult(received(payload, "bob", 9))
    }

    fn replay(mode: ReplayMode, items: usize, events: Vec<Event>) -> (Vec<String>, u64) {
        let bounds = Bounds { items, bytes: 1 << 20 };
        let mut replay = Replay { mode, since_ms: Some(5), bounds, ..Replay::default() };
        for event in events {
            replay.push(event);
        }
        let (events, dropped) = replay.finish();
        let shown = events.iter().map(|event| match event {
            Event::Message(message) => {
                format!(
                    "{}={}{}",
                    message.id,
                    message.content,
                    if message.complete { "." } else { "" }
                )
            }
            Event::UpdateMessage(update) => format!("+{}", update.id),
            Event::MethodResult(result) => format!("{}:{}", result.call_id, result.complete),
            other => format!("{other:?}"),
        });
        (shown.collect(), dropped)
    }

    fn events() -> Vec<Event> {
        vec![
            message("old", "x", 4),
            message("a", "1", 5),
            message("b", "2", 6),
            update("a", "+", false, "ann"),
            update("a", "forged", false, "eve"),
            update("a", "3", true, "ann"),
            update("unknown", "", true, "ann"),
            result("c", false),
            result("c", true),
            result("d", false),
        ]
    }

    #[test]
    fn collected_messages_have_all_of_their_updates() {
        let (shown, dropped) = replay(ReplayMode::Collect, 100, events());
        assert_eq!(shown, ["a=1+3.", "b=2", "+unknown", "c:true", "d:false"]);
        assert_eq!(dropped, 0);
    }

    #[test]
    fn streamed_messages_are_as_they_were_said() {
        let (shown, _) = replay(ReplayMode::Stream, 100, events());
        assert_eq!(
            shown,
            ["a=1", "b=2", "+a", "+a", "+a", "+unknown", "c:false", "c:true", "d:false"]
        );
        assert_eq!(replay(ReplayMode::Skip, 100, events()).0, Vec::<String>::new());
    }

    #[test]
    fn the_oldest_makes_room() {
        let (shown, dropped) = replay(ReplayMode::Collect, 2, events());
        assert_eq!(dropped, 4);
        assert_eq!(shown.len(), 2, "{shown:?}");
    }
}
