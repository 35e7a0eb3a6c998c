//! Messages that were sent and not yet acknowledged.
//!
//! The outbox outlives connections. Messages that a lost connection may not have delivered are sent
//! again on the next one, with the same id, so that the server stores them once.

use std::collections::BTreeMap;
use std::time::Duration;

use sa_protocol::channel::{
    Publish, binary, encode_get_messages_before, encode_publish, encode_update_metadata,
};
use serde_json::{Map, Value};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_tungstenite::tungstenite::Message;

use crate::Error;
use crate::pubsub::HistoryPage;
use crate::shared::{Command, Draft};

/// The maximum number of unacknowledged messages, and of their bytes. Further messages wait.
const MAX_WAITING: usize = 256;
const MAX_BYTES: usize = 32 << 20;
/// The delay before a rate-limited message is sent again, and the maximum number of retries.
const TOO_FAST: Duration = Duration::from_millis(250);
const MAX_RETRIES: u32 = 40;
/// If a message of at least this size was not acknowledged on this number of connections, it is
/// considered the cause of their loss.
const LARGE: usize = 1 << 20;
const MAX_CONNECTIONS: u32 = 4;

type Done<T> = oneshot::Sender<Result<T, Error>>;

#[derive(Default)]
pub(crate) struct Outbox {
    last_reference: i64,
    waiting: BTreeMap<i64, Waiting>,
    bytes: usize,
    retries: BTreeMap<i64, Instant>,
}

enum Waiting {
    Publish { draft: Draft, done: Done<Option<u64>>, connections: u32, retries: u32 },
    Metadata { metadata: Map<String, Value>, done: Done<Option<u64>> },
    History { before: Option<u64>, limit: usize, done: Done<HistoryPage> },
}

impl Outbox {
    pub(crate) fn next_reference(&mut self) -> i64 {
        self.last_reference += 1;
        self.last_reference
    }

    pub(crate) fn has_room(&self) -> bool {
        self.waiting.is_empty() || (self.waiting.len() < MAX_WAITING && self.bytes < MAX_BYTES)
    }

    /// Takes a command and returns its frame.
    pub(crate) fn take(&mut self, command: Command, idempotent: bool) -> Option<Message> {
        let reference = self.next_reference();
        let waiting = match command {
            Command::Publish { draft, done } => {
                self.bytes += draft.len();
                Waiting::Publish { draft, done, connections: 0, retries: 0 }
            }
            Command::Metadata { metadata, done } => Waiting::Metadata { metadata, done },
            Command::History { before, limit, done } => Waiting::History { before, limit, done },
        };
        self.waiting.insert(reference, waiting);
        self.frame(reference, idempotent)
    }

    /// Returns all waiting messages, for a new connection.
    pub(crate) fn all(&mut self, idempotent: bool) -> Vec<Message> {
        self.retries.clear();
        let references: Vec<i64> = self.waiting.keys().copied().collect();
        references.into_iter().filter_map(|reference| self.frame(reference, idempotent)).collect()
    }

    /// Handles a lost connection. Fails messages that may have arrived and cannot be sent again
    /// without the risk of a duplicate.
    pub(crate) fn lost(&mut self, idempotent: bool) {
        let doubtful = self.waiting.extract_if(.., |_, waiting| match waiting {
            Waiting::Publish { draft, connections, .. } => {
                let hopeless = *connections >= MAX_CONNECTIONS && draft.len() >= LARGE;
                *connections > 0 && (hopeless || !(draft.persist && idempotent))
            }
            Waiting::Metadata { .. } | Waiting::History { .. } => false,
        });
        for (_, waiting) in doubtful.collect::<Vec<_>>() {
            if let Waiting::Publish { draft, done, .. } = waiting {
                self.bytes -= draft.len();
                let why = "the connection was lost before the server answered; it is unknown whether the message was received";
                let _ = done.send(Err(Error::Connection(why.into())));
            }
        }
    }

    /// Handles a close that the server made because of a message's size. The largest sent message
    /// fails.
    pub(crate) fn too_large(&mut self) {
        let size = |waiting: &Waiting| match waiting {
            Waiting::Publish { draft, connections: 1.., .. } => draft.len(),
            _ => 0,
        };
        let largest = self
            .waiting
            .iter()
            .max_by_key(|(_, waiting)| size(waiting))
            .map(|(reference, _)| *reference);
        if let Some(Waiting::Publish { draft, done, .. }) =
            largest.and_then(|reference| self.remove(reference))
        {
            let why = format!(
                "the server does not accept messages of {} bytes; send less at once",
                draft.len()
            );
            let _ = done.send(Err(Error::sent("the message", why)));
        }
    }

    /// Handles an acknowledgement. Returns the new metadata that the server has accepted.
    pub(crate) fn acknowledged(
        &mut self,
        reference: i64,
        id: Option<u64>,
    ) -> Option<Map<String, Value>> {
        match self.remove(reference)? {
            Waiting::Publish { done, .. } => {
                let _ = done.send(Ok(id));
                None
            }
            Waiting::Metadata { metadata, done } => {
                let _ = done.send(Ok(id));
                Some(metadata)
            }
            Waiting::History { done, .. } => {
                let _ = done.send(Err(Error::received(
                    "the history",
                    "the server answered with a message",
                )));
                None
            }
        }
    }

    /// Completes a waiting message that was replayed: its acknowledgement was lost with its
    /// connection.
    pub(crate) fn replayed(&mut self, kind: &str, subject: &str, id: Option<u64>) {
        let same = |waiting: &Waiting| {
            matches!(waiting, Waiting::Publish { draft, .. }
                if draft.persist && draft.kind == kind && draft.subject.as_deref() == Some(subject))
        };
        let found =
            self.waiting.iter().find(|(_, waiting)| same(waiting)).map(|(reference, _)| *reference);
        found.map(|reference| self.acknowledged(reference, id));
    }

    pub(crate) fn page(&mut self, reference: i64, page: Result<HistoryPage, Error>) {
        if let Some(Waiting::History { done, .. }) = self.remove(reference) {
            let _ = done.send(page);
        }
    }

    /// Handles a rejection. Returns `false` if no message waits for this answer.
    pub(crate) fn refused(&mut self, reference: i64, code: Option<&str>, message: &str) -> bool {
        if let Some(Waiting::Publish { retries, .. }) = self.waiting.get_mut(&reference)
            && code == Some("rate-limited")
            && *retries < MAX_RETRIES
        {
            *retries += 1;
            self.retries.insert(reference, Instant::now() + TOO_FAST);
            return true;
        }
        let error = Error::refused(code, message);
        match self.remove(reference) {
            None => return false,
            // A call or a result that was sent again, and had arrived the first time.
            Some(Waiting::Publish { draft, done, connections: 2.., .. })
                if code == Some("conflict") && draft.kind.starts_with("method-") =>
            {
                let _ = done.send(Ok(None));
            }
            Some(Waiting::Publish { done, .. } | Waiting::Metadata { done, .. }) => {
                drop(done.send(Err(error)));
            }
            Some(Waiting::History { done, .. }) => drop(done.send(Err(error))),
        }
        true
    }

    /// Returns the time of the next retry.
    pub(crate) fn next_retry(&self) -> Option<Instant> {
        self.retries.values().min().copied()
    }

    /// Returns the messages that are due to be sent again.
    pub(crate) fn due(&mut self, idempotent: bool) -> Vec<Message> {
        let now = Instant::now();
        let due: Vec<i64> = self
            .retries
            .extract_if(.., |_, at| *at <= now)
            .map(|(reference, _)| reference)
            .collect();
        due.into_iter().filter_map(|reference| self.frame(reference, idempotent)).collect()
    }

    fn remove(&mut self, reference: i64) -> Option<Waiting> {
        self.retries.remove(&reference);
        let waiting = self.waiting.remove(&reference)?;
        if let Waiting::Publish { draft, .. } = &waiting {
            self.bytes -= draft.len();
        }
        Some(waiting)
    }

    fn frame(&mut self, reference: i64, idempotent: bool) -> Option<Message> {
        Some(match self.waiting.get_mut(&reference)? {
            Waiting::Publish { draft, connections, .. } => {
                *connections += 1;
                publish(draft, reference, idempotent)
            }
            Waiting::Metadata { metadata, .. } => {
                let json = Value::Object(metadata.clone()).to_string();
                Message::text(encode_update_metadata(&json, Some(reference)))
            }
            Waiting::History { before, limit, .. } => {
                Message::text(encode_get_messages_before(*before, *limit, Some(reference)))
            }
        })
    }
}

fn publish(draft: &Draft, reference: i64, idempotent: bool) -> Message {
    let json = encode_publish(&Publish {
        kind: draft.kind.as_str().into(),
        payload: &draft.payload,
        persist: draft.persist,
        reference: Some(reference),
        client_message_id: (idempotent && draft.persist)
            .then(|| draft.client_message_id.as_str().into()),
        attachments: draft.attachments.iter().map(crate::Attachment::meta).collect(),
    });
    match &draft.attachments[..] {
        [] => Message::text(json),
        [one] => Message::binary(binary::join(&json, &one.data)),
        several => {
            let bytes: Vec<_> = several.iter().map(|attachment| &attachment.data[..]).collect();
            Message::binary(binary::join(&json, &bytes.concat()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(outbox: &mut Outbox, persist: bool) -> oneshot::Receiver<Result<Option<u64>, Error>> {
        let (done, answer) = oneshot::channel();
        let draft =
            Draft { subject: Some("m".into()), ..Draft::new("message", "{}".into(), persist) };
        assert!(outbox.take(Command::Publish { draft, done }, true).is_some());
        answer
    }

    #[test]
    fn what_was_not_answered_is_sent_again_under_the_same_id() {
        let mut outbox = Outbox::default();
        let mut stored = take(&mut outbox, true);
        let mut passing = take(&mut outbox, false);
        outbox.lost(true);
        assert_eq!(passing.try_recv().unwrap().unwrap_err().code(), "connection-error");
        let id = |message: &Message| {
            let text = message.to_text().unwrap();
            serde_json::from_str::<Value>(text).unwrap()["clientMessageId"]
                .as_str()
                .unwrap()
                .to_owned()
        };
        let (first, second) = (outbox.all(true), outbox.all(true));
        assert_eq!((first.len(), id(&first[0])), (1, id(&second[0])));
        outbox.acknowledged(1, Some(7));
        assert_eq!(stored.try_recv().unwrap(), Ok(Some(7)));
        assert!(outbox.all(true).is_empty() && outbox.bytes == 0);
    }

    #[test]
    fn a_server_that_would_store_it_twice_is_not_sent_it_twice() {
        let mut outbox = Outbox::default();
        let mut stored = take(&mut outbox, true);
        outbox.lost(false);
        assert_eq!(stored.try_recv().unwrap().unwrap_err().code(), "connection-error");
        assert!(outbox.all(false).is_empty());
    }

    #[test]
    fn what_is_replayed_has_arrived() {
        let mut outbox = Outbox::default();
        let mut stored = take(&mut outbox, true);
        outbox.lost(true);
        outbox.replayed("message", "another", Some(3));
        outbox.replayed("message", "m", Some(4));
        assert_eq!(stored.try_recv().unwrap(), Ok(Some(4)));
    }

    #[test]
    fn a_message_that_is_too_large_is_not_sent_for_ever() {
        let mut outbox = Outbox::default();
        let mut small = take(&mut outbox, true);
        let mut send = |len: usize| {
            let (done, answer) = oneshot::channel();
            let draft = Draft::new("note", format!("\"{}\"", "x".repeat(len)), true);
            outbox.take(Command::Publish { draft, done }, true);
            answer
        };
        let (mut large, mut lost) = (send(3 << 20), send(2 << 20));
        outbox.too_large();
        assert_eq!(large.try_recv().unwrap().unwrap_err().code(), "validation-error");
        for _ in 1..MAX_CONNECTIONS {
            outbox.lost(true);
            assert!(lost.try_recv().is_err());
            outbox.all(true);
        }
        outbox.lost(true);
        assert_eq!(lost.try_recv().unwrap().unwrap_err().code(), "connection-error");
        assert!(small.try_recv().is_err(), "a small one is not given up");
    }

    #[tokio::test(start_paused = true)]
    async fn what_came_too_fast_is_sent_again_later() {
        let mut outbox = Outbox::default();
        let mut answer = take(&mut outbox, true);
        assert!(outbox.refused(1, Some("rate-limited"), "slower"));
        assert!(outbox.due(true).is_empty());
        tokio::time::sleep_until(outbox.next_retry().unwrap()).await;
        assert_eq!(outbox.due(true).len(), 1);
        assert!(outbox.next_retry().is_none());
        assert!(outbox.refused(1, Some("not-allowed"), "no"));
        assert_eq!(answer.try_recv().unwrap().unwrap_err().code(), "not-allowed");
        assert!(!outbox.refused(1, None, "no"));
    }
}
