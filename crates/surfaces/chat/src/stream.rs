//! Forwards the pieces of an answer to the client: those of all rounds as one message.
//!
//! Text is forwarded at once. Only calls of the client's own tools are forwarded, as soon as their
//! names are complete; the gateway runs the others.

use std::collections::HashSet;

use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

use crate::chat::Event;
use crate::error::ChatError;
use crate::round::{Call, Round, new_id};

#[derive(Debug)]
pub(crate) struct Forward<'a> {
    events: &'a mpsc::Sender<Event>,
    /// Whether the client uses the older form of function calls.
    legacy: bool,
    /// The names of the client's tools.
    own: &'a HashSet<String>,
    /// The common fields of the first piece; the pieces of all rounds repeat them.
    about: Map<String, Value>,
    started: bool,
    /// Whether any text was forwarded, and whether the next text begins a new round after it.
    has_sent_text: bool,
    parted: bool,
    slots: Vec<Slot>,
    passed_on: usize,
}

/// The forwarding state of a call in the round.
#[derive(Debug, Default)]
struct Slot {
    owner: Owner,
    /// The number of bytes of its arguments that were forwarded.
    sent: usize,
}

/// The owner of a call's tool.
#[derive(Debug, Default, PartialEq, Eq)]
enum Owner {
    /// The name may not be complete yet.
    #[default]
    Unknown,
    /// The gateway, or no known tool.
    Other,
    /// The client, with its number and id for the call.
    Client { index: usize, id: String },
}

impl<'a> Forward<'a> {
    pub(crate) fn new(
        events: &'a mpsc::Sender<Event>,
        legacy: bool,
        own: &'a HashSet<String>,
    ) -> Self {
        Self {
            events,
            legacy,
            own,
            about: Map::new(),
            started: false,
            has_sent_text: false,
            parted: false,
            slots: Vec::new(),
            passed_on: 0,
        }
    }

    /// Returns whether any part of an answer was sent to the client.
    pub(crate) fn has_started(&self) -> bool {
        self.started
    }

    pub(crate) fn has_text(&self) -> bool {
        self.has_sent_text
    }

    pub(crate) fn owns(&self, name: &str) -> bool {
        self.own.contains(name)
    }

    /// Reports that the model's server has begun to answer.
    pub(crate) async fn started(&self, left_out: usize) -> Result<(), ChatError> {
        send(self.events, Event::Started { left_out }).await
    }

    pub(crate) fn new_round(&mut self) {
        self.slots.clear();
        self.parted = self.has_sent_text;
    }

    /// Forwards a piece that the round has already processed.
    pub(crate) async fn piece(
        &mut self,
        mut piece: Map<String, Value>,
        round: &Round,
    ) -> Result<(), ChatError> {
        let choices = piece.remove("choices").unwrap_or_default();
        piece.remove("usage");
        if self.about.is_empty() {
            // Clients require these fields, and some servers omit them.
            complete(&mut piece);
            self.about.clone_from(&piece);
        }
        for (field, value) in &self.about {
            if matches!(field.as_str(), "id" | "created" | "model" | "object") {
                piece.insert(field.clone(), value.clone());
            }
        }
        if let Some(choice) = choices.get(0) {
            let mut choice = choice.clone();
            let mut delta = choice["delta"].as_object().cloned().unwrap_or_default();
            delta.remove("tool_calls");
            delta.remove("function_call");
            if self.started {
                delta.remove("role");
            }
            match delta.get("content") {
                Some(Value::String(text)) if !text.is_empty() => {
                    if std::mem::take(&mut self.parted) {
                        let text = format!("\n\n{text}");
                        delta.insert("content".into(), json!(text));
                    }
                    self.has_sent_text = true;
                }
                _ if self.started => drop(delta.remove("content")),
                _ => {}
            }
            if !delta.is_empty() {
                self.started = true;
                choice["delta"] = Value::Object(delta);
                choice["finish_reason"] = Value::Null;
                piece.insert("choices".into(), json!([choice]));
                self.send(&Value::Object(piece)).await?;
            }
        }
        self.calls(round, false).await
    }

    /// Forwards new parts of the client's calls.
    async fn calls(&mut self, round: &Round, end: bool) -> Result<(), ChatError> {
        self.slots.resize_with(round.calls.len(), Slot::default);
        for (place, call) in round.calls.iter().enumerate() {
            // A name is complete when something follows it.
            let whole = end || !call.arguments.is_empty() || place + 1 < round.calls.len();
            if self.slots[place].owner == Owner::Unknown && whole {
                // The older form allows one call per message.
                let client_calls =
                    self.own.contains(&call.name) && !(self.legacy && self.passed_on > 0);
                self.slots[place].owner = if client_calls {
                    Owner::Client { index: self.passed_on, id: new_id(&call.id) }
                } else {
                    Owner::Other
                };
                if client_calls {
                    self.passed_on += 1;
                    self.head(place, call).await?;
                }
            }
            let slot = &mut self.slots[place];
            let fresh = call.arguments.get(slot.sent..).unwrap_or_default();
            if let (Owner::Client { index, .. }, false) = (&slot.owner, fresh.is_empty()) {
                let (kind, text) = call.words();
                let delta = if self.legacy {
                    json!({ "function_call": { "arguments": fresh } })
                } else {
                    json!({ "tool_calls": [{ "index": index, kind: { text: fresh } }] })
                };
                slot.sent = call.arguments.len();
                self.delta(delta, Value::Null).await?;
            }
        }
        Ok(())
    }

    async fn head(&mut self, place: usize, call: &Call) -> Result<(), ChatError> {
        let Owner::Client { index, id } = &self.slots[place].owner else { return Ok(()) };
        let delta = if self.legacy {
            json!({ "function_call": { "name": call.name, "arguments": "" } })
        } else {
            let (kind, text) = call.words();
            let mut head = call.with_id(id).to_value();
            head["index"] = json!(index);
            head[kind] = json!({ "name": call.name, text: "" });
            json!({ "tool_calls": [head] })
        };
        self.delta(delta, Value::Null).await
    }

    /// Ends a round, and returns the calls that were forwarded to the client, with the client's
    /// ids.
    pub(crate) async fn end_round(&mut self, round: &Round) -> Result<Vec<Call>, ChatError> {
        self.calls(round, true).await?;
        let passed_on = self.slots.iter().zip(&round.calls).filter_map(|(slot, call)| {
            let Owner::Client { id, .. } = &slot.owner else { return None };
            Some(call.with_id(id))
        });
        Ok(passed_on.collect())
    }

    /// Sends a piece with this delta.
    pub(crate) async fn delta(&mut self, mut delta: Value, finish: Value) -> Result<(), ChatError> {
        if !std::mem::replace(&mut self.started, true) {
            delta["role"] = json!("assistant");
        }
        let choice = json!({ "index": 0, "delta": delta, "finish_reason": finish });
        self.extra("choices", json!([choice])).await
    }

    /// Sends a piece with one more field. Its `choices` are empty unless given, so that clients
    /// ignore it.
    pub(crate) async fn extra(&mut self, field: &str, value: Value) -> Result<(), ChatError> {
        let mut piece = self.about.clone();
        complete(&mut piece);
        if self.about.is_empty() {
            self.about = piece.clone();
        }
        piece.insert("choices".into(), json!([]));
        piece.insert(field.to_owned(), value);
        self.send(&Value::Object(piece)).await
    }

    async fn send(&self, piece: &Value) -> Result<(), ChatError> {
        send(self.events, Event::Data(piece.to_string())).await
    }
}

/// Adds the fields that every piece has.
fn complete(piece: &mut Map<String, Value>) {
    piece
        .entry("id")
        .or_insert_with(|| json!(format!("chatcmpl-{}", uuid::Uuid::new_v4().simple())));
    piece.entry("object").or_insert_with(|| json!("chat.completion.chunk"));
    piece.entry("created").or_insert_with(|| json!(sa_core::clock::now_ms() / 1_000));
    piece.entry("model").or_insert_with(|| json!(""));
}

/// Sends an event. Fails once it has no reader any more.
pub(crate) async fn send(events: &mpsc::Sender<Event>, event: Event) -> Result<(), ChatError> {
    events
        .send(event)
        .await
        .map_err(|_| ChatError::new(499, "cancelled", "cancelled", "the client disconnected"))
}
