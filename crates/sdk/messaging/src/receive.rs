//! Processes incoming messages.

use std::sync::Arc;

use sa_protocol::channel::{Delivered, Delivery};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::builder::ReplayMode;
use crate::event::{Envelope, Event, LeaveReason, Presence, PresenceAction, Received};
use crate::payload::*;
use crate::pubsub::RawMessage;
use crate::replay::Replay;
use crate::shared::Shared;
use crate::{Error, execute};

/// The part of a channel's history that a message belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It was stored before the client connected.
    Initial,
    /// It was stored while the client had no connection.
    Gap,
    /// It was sent just now.
    Live,
}

/// Handles the messages of one connection.
pub(crate) struct Receiver {
    shared: Arc<Shared>,
    phase: Phase,
    own_id: String,
    replay: Replay,
    /// Unanswered calls for this participant that arrived while it was not connected.
    open_calls: Vec<(MethodCallRequest, String)>,
}

impl Receiver {
    pub(crate) fn new(shared: &Arc<Shared>, phase: Phase) -> Self {
        let own_id = shared.identity().participant.clone();
        let replay = Replay::new(&shared.config);
        Self { shared: Arc::clone(shared), phase, own_id, replay, open_calls: Vec::new() }
    }

    pub(crate) fn own_id(&self) -> &str {
        &self.own_id
    }

    pub(crate) fn take(&mut self, mut raw: RawMessage) {
        if self.phase == Phase::Initial
            && self.shared.config.replay == ReplayMode::Skip
            && raw.kind != "presence"
        {
            return;
        }
        if self.phase != Phase::Initial {
            self.shared.raw.push(&Ok(raw.clone()));
        }
        let delivery = match (self.phase, raw.delivery) {
            (Phase::Initial, _) => Delivery::Replay,
            // The message was stored a while ago, but is new to this reader.
            (_, Delivery::Replay) => Delivery::Persisted,
            (_, delivery) => delivery,
        };
        let attachments = std::mem::take(&mut raw.attachments);
        let envelope = Arc::new(Envelope {
            delivery,
            pubsub_id: raw.id,
            sender_id: raw.sender_id.clone(),
            sender_metadata: std::mem::take(&mut raw.sender_metadata),
            timestamp_ms: raw.timestamp_ms,
            attachments,
        });
        match read(&raw, &envelope) {
            Ok(Some(event)) => self.deliver(event, &envelope),
            Ok(None) => {}
            Err(error) => self.shared.report(&error),
        }
    }

    fn deliver(&mut self, event: Event, envelope: &Envelope) {
        let sender = &envelope.sender_id;
        match (&event, self.phase) {
            (Event::Presence(presence), Phase::Live) => self.presence(sender, presence),
            (Event::Presence(presence), _) => self.shared.roster().tell(sender, presence),
            // No caller waits for an answer to a message of the history.
            (_, Phase::Initial) => {}
            (Event::MethodCall(call), phase) if call.provider_id == self.own_id => {
                let (call, persist) =
                    (call.payload.clone(), envelope.delivery != Delivery::Ephemeral);
                match phase {
                    Phase::Live => execute::start(&self.shared, call, sender, persist),
                    _ => self.open_calls.push((call, sender.clone())),
                }
            }
            (Event::MethodResult(result), _) => {
                if result.complete || result.is_error {
                    self.open_calls.retain(|(call, _)| call.call_id != result.call_id);
                    self.shared.executions.ended(&result.call_id);
                }
                self.shared.calls.result(
                    sender,
                    result.payload.clone(),
                    envelope.attachments.clone(),
                );
            }
            (Event::MethodCancel(cancel), _) => {
                self.open_calls
                    .retain(|(call, caller)| call.call_id != cancel.call_id || caller != sender);
                self.shared.executions.cancel(&cancel.call_id, sender);
            }
            _ => {}
        }
        if self.phase == Phase::Initial {
            return self.replay.push(event);
        }
        if !(self.shared.config.skip_own && *sender == self.own_id) {
            self.shared.events.push(&event);
        }
    }

    fn presence(&self, sender: &str, presence: &Presence) {
        let update = self.shared.roster().change(sender, presence);
        if let Some(update) = update {
            self.shared.tell_roster(&update);
        }
        // A server with extensions ends the calls of a leaving provider itself. It knows better,
        // because the provider may have answered before.
        if matches!(presence.action, PresenceAction::Leave(_)) && !self.shared.watches_calls() {
            self.shared.calls.provider_left(sender);
        }
    }

    /// Updates the roster from a presence that is not new.
    pub(crate) fn tell_presence(&self, message: &Delivered<'_>) {
        if let Ok(presence) = read_presence(message.payload, &message.sender) {
            self.shared.roster().tell(&message.sender, &presence);
        }
    }

    /// Handles the end of the missed messages.
    pub(crate) fn ready(&mut self, snapshot: Option<&str>) {
        self.own_id = self.shared.identity().participant.clone();
        let update = self.shared.roster().replace(snapshot);
        if let Some(update) = update {
            self.shared.tell_roster(&update);
        }
        if self.phase == Phase::Initial {
            let (replay, dropped) = std::mem::take(&mut self.replay).finish();
            *self.shared.replay.lock() = Arc::new(replay);
            if dropped > 0 {
                let why = format!("{dropped} older messages did not fit into the event_buffer");
                self.shared.report(&Error::received("the whole history", why));
            }
        }
        for (call, caller) in std::mem::take(&mut self.open_calls) {
            execute::start(&self.shared, call, &caller, true);
        }
        self.phase = Phase::Live;
    }
}

fn read(raw: &RawMessage, envelope: &Arc<Envelope>) -> Result<Option<Event>, Error> {
    fn as_event<T: Payload>(
        raw: &RawMessage,
        envelope: &Arc<Envelope>,
        event: impl FnOnce(Received<T>) -> Event,
    ) -> Result<Option<Event>, Error> {
        let payload = T::read(&raw.payload, &raw.sender_id)?;
        Ok(Some(event(Received { envelope: Arc::clone(envelope), payload })))
    }
    match raw.kind.as_str() {
        NewMessage::KIND => as_event(raw, envelope, Event::Message),
        UpdateMessage::KIND => as_event(raw, envelope, Event::UpdateMessage),
        MessageError::KIND => as_event(raw, envelope, Event::Error),
        MethodCallRequest::KIND => as_event(raw, envelope, Event::MethodCall),
        MethodResult::KIND => as_event(raw, envelope, Event::MethodResult),
        MethodCancel::KIND => as_event(raw, envelope, Event::MethodCancel),
        ExecutionPause::KIND => as_event(raw, envelope, Event::ExecutionPause),
        "presence" => {
            let payload = read_presence(&raw.payload, &raw.sender_id)?;
            Ok(Some(Event::Presence(Received { envelope: Arc::clone(envelope), payload })))
        }
        // This protocol does not know the type; only readers of raw messages receive it.
        _ => Ok(None),
    }
}

fn read_presence(json: &str, sender: &str) -> Result<Presence, Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Shape {
        action: Action,
        metadata: Option<Map<String, Value>>,
        leave_reason: Option<String>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Action {
        Join,
        Update,
        Leave,
    }
    let what = format!("a presence of \"{}\"", sender.escape_debug());
    let shape: Shape = parse(json, &what)?;
    let action = match (shape.action, shape.leave_reason.as_deref()) {
        (Action::Join, _) => PresenceAction::Join,
        (Action::Update, _) => PresenceAction::Update,
        (Action::Leave, Some("disconnect")) => PresenceAction::Leave(LeaveReason::Disconnect),
        (Action::Leave, _) => PresenceAction::Leave(LeaveReason::Graceful),
    };
    Ok(Presence { action, metadata: shape.metadata.unwrap_or_default() })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    proptest! {
        #[test]
        fn no_presence_breaks_the_reader(
            text in sa_hostile::nearly(json!({ "action": "leave", "metadata": { "name": "a" }, "leaveReason": "disconnect" })),
        ) {
            match read_presence(&text, "eve") {
                Ok(presence) => prop_assert!(text.contains(match presence.action {
                    PresenceAction::Join => "join",
                    PresenceAction::Update => "update",
                    PresenceAction::Leave(_) => "leave",
                }), "the rule is broken"),
                Err(error) => prop_assert!(error.code() == "validation-error" && error.to_string().len() < sa_hostile::SHORT),
            }
        }
    }
}
