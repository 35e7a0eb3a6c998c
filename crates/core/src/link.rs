//! Providers that are a connection: send a frame, wait for the frame with the same id.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::call::{Call, CallId, CancelReason, Update, Updates};
use crate::outcome::{CallError, CallErrorKind, Outcome};
use crate::pending::Pending;
use crate::provider::Provider;

/// How one kind of connection says things. Both methods only queue a frame; neither waits.
pub trait Link: Send + Sync + 'static {
    /// Queues the request. An error means that it certainly was not and will not be sent.
    fn send_request(&self, call: &Call) -> Result<(), CallError>;

    /// Queues word that nobody waits for this call any more. Best effort.
    fn send_cancel(&self, id: CallId, reason: CancelReason);
}

/// Makes a provider of a [`Link`]: nodes, session callers and channel participants are all this.
#[derive(Debug)]
pub struct LinkProvider<L> {
    shared: Arc<Shared<L>>,
}

#[derive(Debug)]
struct Shared<L> {
    link: L,
    pending: Pending,
}

impl<L: Link> LinkProvider<L> {
    pub fn new(link: L) -> Self {
        Self { shared: Arc::new(Shared { link, pending: Pending::default() }) }
    }

    pub fn link(&self) -> &L {
        &self.shared.link
    }

    /// Whether an answer to this call would be the connection's to give.
    pub fn has(&self, id: CallId) -> bool {
        self.shared.pending.has(id)
    }

    /// The connection's answer to a call; `false` when it was not its to give.
    pub fn complete(&self, id: CallId, outcome: Outcome) -> bool {
        self.shared.pending.complete(id, outcome)
    }

    /// The connection's word on a running call; `false` as above.
    pub fn update(&self, id: CallId, update: Update) -> bool {
        self.shared.pending.update(id, update)
    }

    /// How many calls the connection has been given and not answered.
    pub fn running(&self) -> usize {
        self.shared.pending.len()
    }

    /// The connection is gone, for this reason: every call on it fails at once.
    pub fn close(&self, why: &str) {
        self.shared.pending.close(
            &CallError::new(CallErrorKind::Offline, why)
                .hint("the call had reached the provider and may have had an effect; check before trying again")
                .retryable(false),
        );
    }
}

impl<L: Link> Provider for LinkProvider<L> {
    fn call(&self, call: Arc<Call>, updates: Updates) -> BoxFuture<'static, Outcome> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            let answer = shared.pending.open(call.id, updates)?;
            // From here on the entry goes with this future, whatever ends it.
            let mut guard = Guard { shared: &*shared, call: &call, sent: false };
            shared.link.send_request(&call)?;
            guard.sent = true;
            answer.await.unwrap_or_else(|_| {
                Err(CallError::new(CallErrorKind::Failed, "the connection dropped the call without an answer"))
            })
        })
    }
}

/// Takes the call out of the table, and tells the other side when it still works on it.
struct Guard<'a, L: Link> {
    shared: &'a Shared<L>,
    call: &'a Call,
    sent: bool,
}

impl<L: Link> Drop for Guard<'_, L> {
    fn drop(&mut self) {
        if self.shared.pending.abandon(self.call.id) && self.sent {
            let reason = self.call.cancel_reason().unwrap_or(CancelReason::Disconnected);
            self.shared.link.send_cancel(self.call.id, reason);
        }
    }
}
