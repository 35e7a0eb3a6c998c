//! The progress of a call, and a provider's pending answer.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::running::RunningCall;
use crate::call::{CancelReason, Life};
use crate::directory::Absence;
use crate::outcome::{CallError, CallErrorKind, Outcome};

/// The progress of a call, for the message that explains its end.
#[derive(Default)]
pub(super) struct Progress {
    waiting: Mutex<Option<Waiting>>,
    /// The name of the provider that has the call, if it has one.
    name: Mutex<Option<String>>,
}

pub(super) enum Waiting {
    /// The provider is offline.
    Absent { absence: Absence, seen: Instant },
    /// The provider disconnected before it received the call.
    Undelivered(CallError),
}

impl Progress {
    pub(super) fn waits_for(&self, waiting: Waiting) {
        *self.waiting.lock() = Some(waiting);
    }

    pub(super) fn is_with(&self, name: Option<String>) {
        *self.name.lock() = name;
    }

    pub(super) fn waits_for_nobody(&self) {
        *self.waiting.lock() = None;
    }

    /// Returns the error for the current wait; `None` if the call does not wait for a provider.
    pub(super) fn absence(&self, tool: &str) -> Option<CallError> {
        match &*self.waiting.lock() {
            Some(Waiting::Absent { absence, seen }) => {
                Some(absence.after(seen.elapsed()).into_error(tool))
            }
            Some(Waiting::Undelivered(error)) => Some(error.clone()),
            None => None,
        }
    }

    pub(super) fn timeout(&self, call: &RunningCall) -> CallError {
        let provider = call.provider();
        if provider.is_none()
            && let Some(absence) = self.absence(&call.tool)
        {
            return absence;
        }
        let deadline = &call.life.deadline;
        let whom = provider.map_or_else(
            || "it got a slot".to_owned(),
            |id| match &*self.name.lock() {
                Some(name) => format!("{name} answered"),
                None => format!("the {id} answered"),
            },
        );
        let cap = deadline.cap().as_millis();
        let (message, hint) = match (deadline.is_at_cap(), call.request.timeout.is_some()) {
            (true, false) => (
                format!("the call reached the maximum of {cap} ms before {whom}"),
                "split the work into shorter calls",
            ),
            (true, true) => {
                (format!("the call timed out after {cap} ms before {whom}"), "raise timeout_ms")
            }
            (false, true) => (
                format!(
                    "the call timed out after {} ms before {whom}",
                    deadline.limit().as_millis()
                ),
                "raise timeout_ms, or set idle_timeout_ms, which progress extends",
            ),
            (false, false) => (
                format!(
                    "the call timed out after {} ms before {whom}",
                    deadline.limit().as_millis()
                ),
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
pub(super) struct Attended {
    pub(super) life: Arc<Life>,
    pub(super) answer: BoxFuture<'static, Outcome>,
    pub(super) unfinished: bool,
}

impl Future for Attended {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome> {
        // After a panic there is no answer left to cancel.
        self.unfinished = false;
        let answer = self.answer.poll_unpin(cx);
        self.unfinished = answer.is_pending();
        answer
    }
}

impl Drop for Attended {
    fn drop(&mut self) {
        if self.unfinished {
            // Has no effect if there is already another reason.
            self.life.cancel.fire(CancelReason::Disconnected);
        }
    }
}
