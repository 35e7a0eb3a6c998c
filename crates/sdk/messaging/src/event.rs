//! All incoming messages, as one stream of events.

use std::fmt;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::Stream;
pub use sa_protocol::channel::Delivery;
use sa_protocol::channel::handle_key;
use serde_json::{Map, Value};

use crate::queue::{Item, Reader};
use crate::{
    Attachment, ExecutionPause, MessageError, MethodCallRequest, MethodCancel, MethodResult,
    NewMessage, UpdateMessage,
};

/// An event in the channel.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Event {
    Message(Received<NewMessage>),
    UpdateMessage(Received<UpdateMessage>),
    Error(Received<MessageError>),
    MethodCall(Received<MethodCallRequest>),
    MethodResult(Received<MethodResult>),
    MethodCancel(Received<MethodCancel>),
    ExecutionPause(Received<ExecutionPause>),
    Presence(Received<Presence>),
    /// The number of events that were dropped, because this stream was not read in time.
    Lagged(u64),
}

/// A payload with its envelope.
#[derive(Debug, Clone, PartialEq)]
pub struct Received<T> {
    pub envelope: Arc<Envelope>,
    pub payload: T,
}

/// The metadata of a message: its sender, position and time.
#[derive(Debug, Clone, PartialEq)]
pub struct Envelope {
    /// The way in which the message was delivered.
    pub delivery: Delivery,
    /// The position in the channel's log; absent if the message is not stored.
    pub pubsub_id: Option<u64>,
    /// The sender, as the server authenticated it.
    pub sender_id: String,
    /// The sender's metadata at the time.
    pub sender_metadata: Map<String, Value>,
    /// Milliseconds since 1970, by the server's clock.
    pub timestamp_ms: i64,
    pub attachments: Vec<Attachment>,
}

/// `presence`: a participant joined, changed or left.
#[derive(Debug, Clone, PartialEq)]
pub struct Presence {
    pub action: PresenceAction,
    /// The participant's metadata.
    pub metadata: Map<String, Value>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PresenceAction {
    Join,
    Update,
    Leave(LeaveReason),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LeaveReason {
    /// It closed its connection cleanly.
    Graceful,
    /// Its connection was lost.
    Disconnect,
}

/// Selects the events of a stream. The default is new, stored messages to any participant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EventFilter {
    /// Only messages that name this participant in their `at`.
    pub targeted_only: bool,
    /// Also messages that were stored before this client connected; they come first. See
    /// [`ReplayMode`](crate::ReplayMode).
    pub include_replay: bool,
    /// Also messages that are not stored.
    pub include_ephemeral: bool,
}

impl EventFilter {
    pub(crate) fn wants(self, event: &Event, id: &str, handle: Option<&str>) -> bool {
        let Some(envelope) = event.envelope() else { return true };
        let timely = match envelope.delivery {
            Delivery::Persisted => true,
            Delivery::Ephemeral => self.include_ephemeral,
            Delivery::Replay => self.include_replay,
        };
        let targeted = || matches!(event, Event::Message(message) if names(message, id, handle));
        timely && (!self.targeted_only || targeted())
    }
}

/// Returns whether a message is for this participant: its `at` names the participant by id or
/// handle, or is empty.
pub fn is_message_targeted_at(
    message: &NewMessage,
    participant_id: &str,
    handle: Option<&str>,
) -> bool {
    message.at.is_empty() || names(message, participant_id, handle)
}

/// Returns whether a message names this participant.
fn names(message: &NewMessage, participant_id: &str, handle: Option<&str>) -> bool {
    let handle = handle.map(handle_key);
    let is_own = |at: &String| {
        at == participant_id || handle.as_ref().is_some_and(|handle| *handle == handle_key(at))
    };
    message.at.iter().any(is_own)
}

impl Event {
    /// Returns the envelope, or `None` for [`Event::Lagged`].
    pub fn envelope(&self) -> Option<&Envelope> {
        Some(match self {
            Self::Message(it) => &it.envelope,
            Self::UpdateMessage(it) => &it.envelope,
            Self::Error(it) => &it.envelope,
            Self::MethodCall(it) => &it.envelope,
            Self::MethodResult(it) => &it.envelope,
            Self::MethodCancel(it) => &it.envelope,
            Self::ExecutionPause(it) => &it.envelope,
            Self::Presence(it) => &it.envelope,
            Self::Lagged(_) => return None,
        })
    }
}

impl Item for Event {
    fn weight(&self) -> usize {
        let content = match self {
            Self::Message(message) => message.content.len(),
            Self::UpdateMessage(update) => update.content.as_ref().map_or(0, String::len),
            // The size as text is a fair estimate of the size as a tree.
            Self::MethodCall(call) => call.args.to_string().len(),
            Self::MethodResult(result) => {
                result.content.as_ref().map_or(0, |content| content.to_string().len())
            }
            _ => 0,
        };
        let attachments =
            self.envelope().map_or(0, |from| from.attachments.iter().map(|a| a.data.len()).sum());
        512 + content + attachments
    }

    fn lagged(missed: u64) -> Self {
        Self::Lagged(missed)
    }
}

impl<T> Deref for Received<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.payload
    }
}

/// The stream that [`Client::events`](crate::Client::events) returns. It ends when the client is
/// closed or has stopped reconnecting.
pub struct Events {
    pub(crate) reader: Reader<Event>,
}

impl Stream for Events {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        Pin::new(&mut self.reader).poll_next(cx)
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(at: &[&str], delivery: Delivery) -> Event {
        let payload = NewMessage {
            id: "m".into(),
            content: "hi".into(),
            content_type: None,
            reply_to: None,
            at: at.iter().map(ToString::to_string).collect(),
            complete: false,
            error: None,
        };
        let envelope = Envelope {
            delivery,
            pubsub_id: None,
            sender_id: "ann".into(),
            sender_metadata: Map::new(),
            timestamp_ms: 0,
            attachments: Vec::new(),
        };
        Event::Message(Received { envelope: envelope.into(), payload })
    }

    #[track_caller]
    fn check(filter: EventFilter, at: &[&str], delivery: Delivery, wanted: bool) {
        assert_eq!(
            filter.wants(&message(at, delivery), "bob", Some("bobby")),
            wanted,
            "{filter:?} {at:?} {delivery:?}"
        );
    }

    #[test]
    fn filters() {
        let plain = EventFilter::default();
        check(plain, &[], Delivery::Persisted, true);
        check(plain, &[], Delivery::Ephemeral, false);
        check(plain, &[], Delivery::Replay, false);
        check(EventFilter { include_replay: true, ..plain }, &[], Delivery::Replay, true);
        check(EventFilter { include_ephemeral: true, ..plain }, &[], Delivery::Ephemeral, true);
        let targeted = EventFilter { targeted_only: true, ..plain };
        check(targeted, &[], Delivery::Persisted, false);
        check(targeted, &["ann"], Delivery::Persisted, false);
        for name in ["bob", "bobby", "@bobby"] {
            check(targeted, &["ann", name], Delivery::Persisted, true);
        }
        assert!(targeted.wants(&Event::Lagged(1), "bob", None));
    }

    #[test]
    fn who_a_message_is_for() {
        for (at, wanted) in
            [(&[][..], true), (&["ann"], false), (&["ann", "bob"], true), (&["@bobby"], true)]
        {
            let Event::Message(message) = message(at, Delivery::Persisted) else { unreachable!() };
            assert_eq!(is_message_targeted_at(&message, "bob", Some("bobby")), wanted, "{at:?}");
        }
    }
}
