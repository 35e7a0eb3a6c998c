//! Waiting on behalf of a call, until its deadline or its cancellation.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use super::pipeline::{Dispatched, cancelled};
use super::running::RunningCall;
use crate::call::{CallState, CancelReason};
use crate::outcome::{CallError, CallErrorKind, Outcome};

impl RunningCall {
    /// Waits for `work`. The deadline of the call ends the wait with the error `timed_out`, and a
    /// cancellation with that of its reason.
    pub(super) async fn wait_for<T>(
        &self,
        work: impl Future<Output = T>,
        timed_out: impl FnOnce() -> CallError,
    ) -> Result<T, CallError> {
        let state = &self.state;
        // The reason is set before the work is dropped, so that the provider can read it.
        let expiry = async {
            state.deadline.expired().await;
            state.cancel.fire(CancelReason::Deadline);
        };
        tokio::select! {
            biased;
            done = work => Ok(done),
            reason = state.cancel.fired() => Err(cancelled(reason, Dispatched::of(self))),
            () = expiry => Err(timed_out()),
        }
    }

    /// Returns the error for a deadline that passed before `event`.
    pub(super) fn timed_out(&self, event: &str) -> CallError {
        let deadline = &self.state.deadline;
        let cap = deadline.cap().as_millis();
        let limit = deadline.limit().as_millis();
        let (message, hint) = match (deadline.is_at_cap(), self.request.timeout.is_some()) {
            (true, false) => (
                format!("the call reached the maximum of {cap} ms before {event}"),
                "split the work into shorter calls",
            ),
            (true, true) => {
                (format!("the call timed out after {cap} ms before {event}"), "raise timeout_ms")
            }
            (false, true) => (
                format!("the call timed out after {limit} ms before {event}"),
                "raise timeout_ms, or set idle_timeout_ms, which progress extends",
            ),
            (false, false) => (
                format!("the call timed out after {limit} ms before {event}"),
                if deadline.is_hard() {
                    "set timeout_ms"
                } else {
                    "set timeout_ms, or have the tool report progress, which extends the time"
                },
            ),
        };
        CallError::new(CallErrorKind::Timeout, message).hint(hint)
    }
}

/// A provider's pending answer. If it is dropped early, it sets the call's cancel reason before the
/// provider's own destructors read it.
pub(super) struct CancelOnDrop {
    pub(super) state: Arc<CallState>,
    pub(super) answer: BoxFuture<'static, Outcome>,
    pub(super) unfinished: bool,
}

impl Future for CancelOnDrop {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome> {
        // After a panic there is no answer left to cancel.
        self.unfinished = false;
        let answer = self.answer.poll_unpin(cx);
        self.unfinished = answer.is_pending();
        answer
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if self.unfinished {
            // Has no effect if there is already another reason.
            self.state.cancel.fire(CancelReason::Disconnected);
        }
    }
}
