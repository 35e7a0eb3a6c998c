//! Providers behind a connection: they send a frame and wait for the frame with the same id.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::call::{Call, CallId, CancelReason, Update, Updates};
use crate::outcome::{CallError, CallErrorKind, Outcome};
use crate::pending::Pending;
use crate::provider::Provider;

/// The frames of one kind of connection. Both methods only queue a frame and never wait.
pub trait Link: Send + Sync + 'static {
    /// Queues the request. An error means that the request was not sent and will not be.
    fn send_request(&self, call: &Call) -> Result<(), CallError>;

    /// Queues a cancellation, because the caller no longer waits for this call. Best effort.
    fn send_cancel(&self, id: CallId, reason: CancelReason);
}

/// Turns a [`Link`] into a provider. Nodes, session callers and channel participants use it.
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

    /// Returns whether this connection has the call and has not answered it.
    pub fn has(&self, id: CallId) -> bool {
        self.shared.pending.has(id)
    }

    /// Completes a call with the connection's answer. Returns `false` if the connection has no such
    /// call.
    pub fn complete(&self, id: CallId, outcome: Outcome) -> bool {
        self.shared.pending.complete(id, outcome)
    }

    /// Passes on the connection's update of a running call. Returns `false` if it has no such call.
    pub fn update(&self, id: CallId, update: Update) -> bool {
        self.shared.pending.update(id, update)
    }

    /// Returns the number of calls that the connection has not answered yet.
    pub fn running(&self) -> usize {
        self.shared.pending.len()
    }

    /// Closes the connection for this reason: all of its calls fail immediately.
    pub fn close(&self, why: &str) {
        self.shared.pending.close(
            &CallError::new(CallErrorKind::Offline, why)
                .hint("the call had reached the provider and may have had an effect; check before you retry")
                .retryable(false),
        );
    }
}

impl<L: Link> Provider for LinkProvider<L> {
    fn call(&self, call: Arc<Call>, updates: Updates) -> BoxFuture<'static, Outcome> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            let answer = shared.pending.open(call.id, updates)?;
            // From here on, dropping this future removes the entry.
            let mut guard = Guard { shared: &*shared, call: &call, sent: false };
            shared.link.send_request(&call)?;
            guard.sent = true;
            answer.await.unwrap_or_else(|_| {
                Err(CallError::new(
                    CallErrorKind::Failed,
                    "the connection dropped the call without an answer",
                ))
            })
        })
    }
}

/// Removes the call from the table on drop. Sends a cancellation if the other side still works on
/// it.
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
