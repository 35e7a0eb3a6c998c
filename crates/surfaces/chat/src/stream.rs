//! The pieces of an answer on their way to the client: those of all rounds as one message.
//!
//! Text passes at once. Of calls, only those of the client's own tools pass, as soon as their names are whole; the others
//! are the gateway's business.

use std::collections::HashSet;

use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

use crate::chat::Event;
use crate::error::ChatError;
use crate::round::{Call, Round, new_id};

#[derive(Debug)]
pub(crate) struct Forward<'a> {
    events: &'a mpsc::Sender<Event>,
    /// Whether the client calls functions in the older form.
    legacy: bool,
    /// The names of the client's tools.
    own: &'a HashSet<String>,
    /// What the first piece said of the answer as a whole; the pieces of all rounds say the same.
    about: Map<String, Value>,
    begun: bool,
    /// Whether any text has passed, and whether the next one begins a round after it.
    said: bool,
    parted: bool,
    slots: Vec<Slot>,
    handed: usize,
}

/// How far a call of the round has come.
#[derive(Debug, Default)]
struct Slot {
    owner: Owner,
    /// How much of its arguments has passed.
    sent: usize,
}

/// Whose call it is.
#[derive(Debug, Default, PartialEq, Eq)]
enum Owner {
    /// Its name may not be whole yet.
    #[default]
    Unknown,
    /// The gateway's, or nobody's.
    Other,
    /// The client's, where it has this number and id.
    Client { index: usize, id: String },
}

impl<'a> Forward<'a> {
    pub(crate) fn new(events: &'a mpsc::Sender<Event>, legacy: bool, own: &'a HashSet<String>) -> Self {
        Self {
            events,
            legacy,
            own,
            about: Map::new(),
            begun: false,
            said: false,
            parted: false,
            slots: Vec::new(),
            handed: 0,
        }
    }

    /// Whether the client has been sent anything of an answer.
    pub(crate) fn has_begun(&self) -> bool {
        self.begun
    }

    pub(crate) fn has_said(&self) -> bool {
        self.said
    }

    pub(crate) fn owns(&self, name: &str) -> bool {
        self.own.contains(name)
    }

    /// Tells that the model's server has begun to answer.
    pub(crate) async fn started(&self, left_out: usize) -> Result<(), ChatError> {
        send(self.events, Event::Started { left_out }).await
    }

    pub(crate) fn new_round(&mut self) {
        self.slots.clear();
        self.parted = self.said;
    }

    /// Passes a piece on, which the round has taken in already.
    pub(crate) async fn piece(&mut self, mut piece: Map<String, Value>, round: &Round) -> Result<(), ChatError> {
        let choices = piece.remove("choices").unwrap_or_default();
        piece.remove("usage");
        if self.about.is_empty() {
            // Clients want these, and some servers leave them out.
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
            if self.begun {
                delta.remove("role");
            }
            match delta.get("content") {
                Some(Value::String(text)) if !text.is_empty() => {
                    if std::mem::take(&mut self.parted) {
                        let text = format!("\n\n{text}");
                        delta.insert("content".into(), json!(text));
                    }
                    self.said = true;
                }
                _ if self.begun => drop(delta.remove("content")),
                _ => {}
            }
            if !delta.is_empty() {
                self.begun = true;
                choice["delta"] = Value::Object(delta);
                choice["finish_reason"] = Value::Null;
                piece.insert("choices".into(), json!([choice]));
                self.send(&Value::Object(piece)).await?;
            }
        }
        self.calls(round, false).await
    }

    /// Passes on what is new of the client's calls.
    async fn calls(&mut self, round: &Round, end: bool) -> Result<(), ChatError> {
        self.slots.resize_with(round.calls.len(), Slot::default);
        for (place, call) in round.calls.iter().enumerate() {
            // A name is whole when something comes after it.
            let whole = end || !call.arguments.is_empty() || place + 1 < round.calls.len();
            if self.slots[place].owner == Owner::Unknown && whole {
                // The older form has one call a message.
                let theirs = self.own.contains(&call.name) && !(self.legacy && self.handed > 0);
                self.slots[place].owner =
                    if theirs { Owner::Client { index: self.handed, id: new_id(&call.id) } } else { Owner::Other };
                if theirs {
                    self.handed += 1;
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
            let mut head = call.known_as(id).to_value();
            head["index"] = json!(index);
            head[kind] = json!({ "name": call.name, text: "" });
            json!({ "tool_calls": [head] })
        };
        self.delta(delta, Value::Null).await
    }

    /// Ends a round, and gives back the calls that the client was handed in it, under the ids that it knows them by.
    pub(crate) async fn end_round(&mut self, round: &Round) -> Result<Vec<Call>, ChatError> {
        self.calls(round, true).await?;
        let handed = self.slots.iter().zip(&round.calls).filter_map(|(slot, call)| {
            let Owner::Client { id, .. } = &slot.owner else { return None };
            Some(call.known_as(id))
        });
        Ok(handed.collect())
    }

    /// A piece with this in it.
    pub(crate) async fn delta(&mut self, mut delta: Value, finish: Value) -> Result<(), ChatError> {
        if !std::mem::replace(&mut self.begun, true) {
            delta["role"] = json!("assistant");
        }
        let choice = json!({ "index": 0, "delta": delta, "finish_reason": finish });
        self.extra("choices", json!([choice])).await
    }

    /// A piece with one more field. Without `choices` of its own it has none: clients pass over it.
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

/// Fills in what every piece has.
fn complete(piece: &mut Map<String, Value>) {
    piece.entry("id").or_insert_with(|| json!(format!("chatcmpl-{}", uuid::Uuid::new_v4().simple())));
    piece.entry("object").or_insert_with(|| json!("chat.completion.chunk"));
    piece.entry("created").or_insert_with(|| json!(sa_core::clock::now_ms() / 1_000));
    piece.entry("model").or_insert_with(|| json!(""));
}

/// Fails once nobody reads any more.
pub(crate) async fn send(events: &mpsc::Sender<Event>, event: Event) -> Result<(), ChatError> {
    events.send(event).await.map_err(|_| ChatError::new(499, "cancelled", "cancelled", "the client went away"))
}
