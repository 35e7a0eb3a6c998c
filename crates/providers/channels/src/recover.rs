//! Calls that are only in the log: the gateway was restarted, or they are old.

use std::collections::HashSet;
use std::sync::Arc;

use sa_core::store::{Entry, StoreError};
use serde::Deserialize;
use tokio::time::Instant;

use crate::GATEWAY;
use crate::calls::{Running, Standing, Stored};
use crate::channel::Channel;
use crate::publish::Refusal;

/// The maximum number of messages to search for calls that were running when the gateway ended.
const LOOK_BACK: usize = 4_096;
const PAGE: usize = 512;

/// The fields of a stored message about a call.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct About {
    #[serde(rename = "type")]
    kind: String,
    sender_id: String,
    payload: Payload,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Payload {
    call_id: String,
    provider_id: Option<String>,
    complete: Option<bool>,
    is_error: Option<bool>,
}

impl Payload {
    fn is_last(&self) -> bool {
        self.complete == Some(true) || self.is_error == Some(true)
    }
}

impl About {
    fn of(entry: &Entry) -> Option<Self> {
        Self::read(&crate::Stored::of(entry)?)
    }

    fn read(stored: &crate::Stored) -> Option<Self> {
        serde_json::from_slice(&stored.body).ok()
    }

    fn call(self) -> Option<Running> {
        let provider = self.payload.provider_id?;
        Some(Running {
            id: self.payload.call_id,
            caller: self.sender_id.into(),
            provider: provider.into(),
            persist: true,
            since: Instant::now(),
            routed: None,
        })
    }
}

impl Channel {
    /// Returns the state of a call between participants in the log.
    pub(crate) async fn stored_call(&self, id: &str) -> Result<Option<Stored>, StoreError> {
        let found = self.hub.log.find(&self.stream, &format!("call:{id}")).await?;
        let call = found.as_ref().and_then(About::of).and_then(About::call);
        let Some(call) = call.filter(|call| *call.provider != *GATEWAY) else { return Ok(None) };
        let Some(key) = call.end_key() else { return Ok(None) };
        let ended = self.hub.log.find(&self.stream, &key).await?.is_some();
        Ok(Some(if ended { Stored::Ended } else { Stored::Open(call) }))
    }

    /// Returns whether a stored message is a call to this participant that another of its
    /// programs handles.
    pub(crate) fn runs_elsewhere(
        &self,
        stored: &crate::Stored,
        participant: &str,
        instance: Option<&str>,
    ) -> bool {
        let Some(own) = instance else { return false };
        self.serving(participant).is_some_and(|serving| *serving != *own)
            && About::read(stored).is_some_and(|about| {
                about.kind == "method-call"
                    && about.payload.provider_id.as_deref() == Some(participant)
            })
    }

    /// Loads a call from the log, unless it is already known.
    pub(crate) async fn remember_call(&self, id: &str) -> Result<(), Refusal> {
        let known = {
            let mut state = self.state();
            state.calls.result(id, "", false) != Standing::Unknown
                || state.offers().any(|link| link.caller(id).is_some())
        };
        if known {
            return Ok(());
        }
        let stored = self
            .stored_call(id)
            .await
            .map_err(|error| Refusal::new("store-error", error.message))?;
        if let Some(stored) = stored {
            self.state().calls.correct(id, stored);
        }
        Ok(())
    }

    /// Restores the calls that were running when the gateway ended. A provider may reconnect and
    /// answer, and a caller may repeat its call. Calls that are still open after the timeout for
    /// dead connections fail.
    pub(crate) async fn take_up_calls(self: &Arc<Self>) -> Result<(), StoreError> {
        let open = self.open_calls().await?;
        if open.is_empty() {
            return Ok(());
        }
        let (tools, calls): (Vec<_>, Vec<_>) =
            open.into_iter().partition(|call| *call.provider == *GATEWAY);
        let providers: HashSet<Arc<str>> =
            calls.iter().map(|call| Arc::clone(&call.provider)).collect();
        for call in calls {
            let _ = self.state().calls.begin(call);
        }
        let (channel, timeout) = (Arc::downgrade(self), self.hub.options.liveness.dead_after);
        tokio::spawn(async move {
            tokio::time::sleep(timeout).await;
            let Some(channel) = channel.upgrade() else { return };
            channel.give_up(&providers);
            for call in tools {
                channel.enqueue(call.failure("execution-error", RESTARTED));
            }
        });
        Ok(())
    }

    /// Ends the calls to providers that have not reconnected.
    fn give_up(&self, providers: &HashSet<Arc<str>>) {
        let mut state = self.state();
        for provider in providers {
            if state.roster.contains_key(provider) {
                continue;
            }
            for call in state.calls.provider_left(provider) {
                let why = format!(
                    "the participant \"{provider}\" did not reconnect after the gateway restarted"
                );
                self.enqueue(call.failure("provider-offline", &why));
            }
        }
    }

    /// Returns the latest calls without a last result or a cancel, oldest first.
    async fn open_calls(&self) -> Result<Vec<Running>, StoreError> {
        let (mut over, mut open) = (HashSet::new(), Vec::new());
        let (mut before, mut seen) = (u64::MAX, 0);
        while seen < LOOK_BACK {
            let page = self.hub.log.read_back(&self.stream, before, PAGE).await?;
            let Some(oldest) = page.last() else { break };
            (before, seen) = (oldest.seq, seen + page.len());
            for about in page.iter().filter_map(About::of) {
                match about.kind.as_str() {
                    "method-cancel" => drop(over.insert(about.payload.call_id)),
                    "method-result" if about.payload.is_last() => {
                        over.insert(about.payload.call_id);
                    }
                    "method-call" if !over.contains(&about.payload.call_id) => {
                        open.extend(about.call());
                    }
                    _ => {}
                }
            }
        }
        open.reverse();
        Ok(open)
    }
}

/// The error of a tool's call that was running when the gateway ended.
pub(crate) const RESTARTED: &str =
    "the gateway restarted during the call, which may or may not have been executed";
