//! Calls between participants. A result is accepted only from the called participant, and a
//! cancel only from the caller. If a provider leaves, its calls fail.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use sa_core::{CallId, clock};
use sa_protocol::channel::{Envelope, encode_body};
use sa_text::json::ObjectWriter;
use tokio::time::Instant;

use crate::pipeline::Item;
use crate::{CALL_MEMORY, GATEWAY};

/// The maximum number of running calls of a channel and of one participant. The latter ensures
/// that no participant blocks the others.
const MAX_RUNNING: usize = 10_000;
const MAX_OF_CALLER: usize = 1_000;
/// The maximum number of remembered ended calls, to distinguish a late result from an invalid
/// one.
const REMEMBERED: usize = 1_000;

/// The sender metadata of messages that the gateway sends for a participant.
pub(crate) const GATEWAY_METADATA: &str = r#"{"name":"Switchboard","type":"gateway"}"#;

pub(crate) const MADE_BEFORE: &str =
    "a call with this callId already exists; use a new callId for each call";

#[derive(Debug, Default)]
pub(crate) struct Calls {
    running: HashMap<String, Running>,
    /// The number of running calls of each participant.
    callers: HashMap<Arc<str>, usize>,
    ended: VecDeque<String>,
}

#[derive(Debug, Clone)]
pub(crate) struct Running {
    pub(crate) id: String,
    pub(crate) caller: Arc<str>,
    pub(crate) provider: Arc<str>,
    /// Whether its messages are stored.
    pub(crate) persist: bool,
    pub(crate) since: Instant,
    /// The router's id of a call to a tool of the gateway.
    pub(crate) routed: Option<CallId>,
}

/// The state of a call in the log.
#[derive(Debug)]
pub(crate) enum Stored {
    Open(Running),
    Ended,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Standing {
    /// The participant may send this.
    Right,
    /// The call belongs to another participant.
    Foreign,
    Ended,
    Unknown,
}

impl Calls {
    /// Adds a call, or returns why it is rejected.
    pub(crate) fn begin(&mut self, call: Running) -> Result<(), &'static str> {
        if self.is_known(&call.id) {
            return Err(MADE_BEFORE);
        }
        if self.running.len() >= MAX_RUNNING || self.of_caller(&call.caller) >= MAX_OF_CALLER {
            self.take_where(|call| call.since.elapsed() >= CALL_MEMORY);
        }
        if self.of_caller(&call.caller) >= MAX_OF_CALLER {
            return Err(
                "this participant has too many running calls; try again when some have ended",
            );
        }
        if self.running.len() >= MAX_RUNNING {
            return Err(
                "too many calls are running in this channel; try again when some have ended",
            );
        }
        *self.callers.entry(Arc::clone(&call.caller)).or_default() += 1;
        self.running.insert(call.id.clone(), call);
        Ok(())
    }

    /// Returns whether a call with this id is running or among the remembered ended ones.
    pub(crate) fn is_known(&self, id: &str) -> bool {
        self.running.contains_key(id) || self.has_ended(id)
    }

    /// Corrects a call with the state in the log: its caller, or that it has ended.
    pub(crate) fn correct(&mut self, id: &str, stored: Stored) {
        match stored {
            Stored::Open(call) => {
                if self.running.get(id).is_none_or(|known| known.caller != call.caller)
                    && !self.has_ended(id)
                {
                    self.take(id);
                    let _ = self.begin(call);
                }
            }
            Stored::Ended => {
                self.take(id);
                self.remember(id);
            }
        }
    }

    /// Returns the deduplication key of a running call's last result, so that only one is stored.
    pub(crate) fn end_key(&self, id: &str) -> Option<Arc<str>> {
        self.running.get(id).and_then(Running::end_key)
    }

    /// Returns whether this participant has made the call before, as far as that is remembered.
    /// For an ended call, only the log has the caller.
    pub(crate) fn was_made(&self, id: &str, caller: &str) -> bool {
        match self.running.get(id) {
            Some(call) => *call.caller == *caller,
            None => self.has_ended(id),
        }
    }

    /// Returns whether this participant may send a result. The last result ends the call.
    pub(crate) fn result(&mut self, id: &str, sender: &str, last: bool) -> Standing {
        let standing = self.standing(id, |call| *call.provider == *sender);
        if standing == Standing::Right && last {
            self.end(id);
        }
        standing
    }

    /// Returns whether this participant may send a cancel, and the call.
    pub(crate) fn cancel(&self, id: &str, sender: &str) -> (Standing, Option<Running>) {
        (self.standing(id, |call| *call.caller == *sender), self.running.get(id).cloned())
    }

    /// Ends the call. Returns `None` if it has already ended.
    pub(crate) fn end(&mut self, id: &str) -> Option<Running> {
        let call = self.take(id)?;
        self.remember(id);
        Some(call)
    }

    fn take(&mut self, id: &str) -> Option<Running> {
        let call = self.running.remove(id)?;
        if let Some(count) = self.callers.get_mut(&call.caller) {
            *count -= 1;
            if *count == 0 {
                self.callers.remove(&call.caller);
            }
        }
        Some(call)
    }

    fn take_where(&mut self, which: impl Fn(&Running) -> bool) -> Vec<Running> {
        let ids: Vec<String> =
            self.running.values().filter(|call| which(call)).map(|call| call.id.clone()).collect();
        ids.iter().filter_map(|id| self.take(id)).collect()
    }

    fn remember(&mut self, id: &str) {
        if self.has_ended(id) {
            return;
        }
        self.ended.push_back(id.to_owned());
        if self.ended.len() > REMEMBERED {
            self.ended.pop_front();
        }
    }

    fn has_ended(&self, id: &str) -> bool {
        self.ended.iter().any(|ended| ended == id)
    }

    fn of_caller(&self, caller: &str) -> usize {
        self.callers.get(caller).copied().unwrap_or_default()
    }

    /// Ends and returns the calls to a participant that has left.
    pub(crate) fn provider_left(&mut self, provider: &str) -> Vec<Running> {
        self.end_where(|call| *call.provider == *provider)
    }

    /// Ends and returns the calls to the gateway by a participant that has left.
    pub(crate) fn caller_left(&mut self, caller: &str) -> Vec<Running> {
        self.end_where(|call| call.routed.is_some() && *call.caller == *caller)
    }

    fn end_where(&mut self, which: impl Fn(&Running) -> bool) -> Vec<Running> {
        let ended = self.take_where(which);
        for call in &ended {
            self.remember(&call.id);
        }
        ended
    }

    fn standing(&self, id: &str, right: impl Fn(&Running) -> bool) -> Standing {
        match self.running.get(id) {
            Some(call) if right(call) => Standing::Right,
            Some(_) => Standing::Foreign,
            None if self.has_ended(id) => Standing::Ended,
            None => Standing::Unknown,
        }
    }
}

impl Running {
    /// Returns an error result that ends the call on behalf of its provider.
    pub(crate) fn failure(&self, code: &str, message: &str) -> Item {
        let fields = ObjectWriter::with_capacity(message.len() + 80)
            .object("content", |content| content.text("error", message).text("code", code))
            .plain("complete", true)
            .plain("isError", true)
            .end();
        self.last(self.result(&fields))
    }

    /// Returns a result with these fields, which the gateway sends for the provider.
    pub(crate) fn result(&self, fields: &str) -> Item {
        Item {
            owner: Some(Arc::clone(&self.caller)),
            ..Item::new(self.body(fields, &[]), self.persist)
        }
    }

    /// Sets the key of a last result, so that it is stored only once, even after a restart.
    pub(crate) fn last(&self, item: Item) -> Item {
        Item { key: self.end_key(), ..item }
    }

    /// Returns the deduplication key of the last result. The id of a call that is not stored may
    /// be used again.
    pub(crate) fn end_key(&self) -> Option<Arc<str>> {
        self.persist.then(|| format!("end:{}:{}", self.caller, self.id).into())
    }

    pub(crate) fn body(
        &self,
        fields: &str,
        attachments: &[sa_protocol::channel::AttachmentMeta],
    ) -> String {
        let payload = ObjectWriter::with_capacity(fields.len() + 60)
            .text("callId", &self.id)
            .fields_of(fields)
            .end();
        encode_body(&Envelope {
            kind: "method-result",
            payload: &payload,
            sender: if self.routed.is_some() { GATEWAY } else { &self.provider },
            at_ms: clock::now_ms(),
            sender_metadata: GATEWAY_METADATA,
            attachments,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(id: &str) -> Running {
        let (caller, provider) = ("ann".into(), "bob".into());
        Running {
            id: id.into(),
            caller,
            provider,
            persist: true,
            since: Instant::now(),
            routed: None,
        }
    }

    #[test]
    fn only_who_was_asked_answers_and_only_once() {
        let mut calls = Calls::default();
        calls.begin(call("1")).unwrap();
        assert!(calls.begin(call("1")).is_err());
        assert!(
            calls.was_made("1", "ann")
                && !calls.was_made("1", "eve")
                && !calls.was_made("2", "ann")
        );
        assert_eq!(calls.result("1", "eve", true), Standing::Foreign);
        assert_eq!(calls.result("1", "bob", false), Standing::Right);
        assert_eq!(calls.result("1", "bob", true), Standing::Right);
        assert_eq!(calls.result("1", "bob", true), Standing::Ended);
        assert_eq!(calls.result("2", "bob", true), Standing::Unknown);
        assert!(calls.begin(call("1")).is_err());
    }

    #[test]
    fn one_caller_does_not_keep_the_others_from_calling() {
        let mut calls = Calls::default();
        for n in 0..MAX_OF_CALLER {
            calls.begin(call(&n.to_string())).unwrap();
        }
        assert!(calls.begin(call("more")).is_err());
        calls.begin(Running { caller: "eve".into(), ..call("other") }).unwrap();
        calls.end("0");
        calls.begin(call("more")).unwrap();
    }

    #[test]
    fn the_log_knows_better() {
        let mut calls = Calls::default();
        calls.begin(Running { caller: "eve".into(), ..call("1") }).unwrap();
        calls.correct("1", Stored::Open(call("1")));
        assert_eq!(calls.cancel("1", "eve").0, Standing::Foreign);
        calls.correct("1", Stored::Ended);
        calls.correct("1", Stored::Open(call("1")));
        assert_eq!(calls.cancel("1", "ann").0, Standing::Ended);
        assert!(calls.provider_left("bob").is_empty() && calls.callers.is_empty());
    }

    #[test]
    fn only_who_asked_cancels() {
        let mut calls = Calls::default();
        calls.begin(call("1")).unwrap();
        assert_eq!(calls.cancel("1", "eve").0, Standing::Foreign);
        assert_eq!(calls.cancel("1", "ann").0, Standing::Right);
        assert_eq!(calls.provider_left("bob").len(), 1);
        assert_eq!(calls.cancel("1", "ann").0, Standing::Ended);
    }
}
