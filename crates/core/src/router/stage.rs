//! How far a call has come, and a provider's answer in the making.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::time::Instant;

use super::running::RunningCall;
use crate::call::{CancelReason, Life};
use crate::directory::Absence;
use crate::outcome::{CallError, CallErrorKind, Outcome};

/// How far a call has come, for the sentence that its end is explained with.
#[derive(Default)]
pub(super) struct Stage {
    waiting: Mutex<Option<Waiting>>,
}

pub(super) enum Waiting {
    /// Nobody was there to be asked.
    Absent { absence: Absence, seen: Instant },
    /// The one that was there left before it was asked.
    Undelivered(CallError),
}

impl Stage {
    pub(super) fn waits_for(&self, waiting: Waiting) {
        *self.waiting.lock().unwrap_or_else(PoisonError::into_inner) = Some(waiting);
    }

    pub(super) fn waits_for_nobody(&self) {
        *self.waiting.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// What the call waits for, in the words of this moment; `None` when it waits for nobody.
    pub(super) fn absence(&self, tool: &str) -> Option<CallError> {
        match &*self.waiting.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(Waiting::Absent { absence, seen }) => Some(absence.after(seen.elapsed()).into_error(tool)),
            Some(Waiting::Undelivered(error)) => Some(error.clone()),
            None => None,
        }
    }

    pub(super) fn out_of_time(&self, call: &RunningCall) -> CallError {
        let provider = call.provider();
        if provider.is_none()
            && let Some(absence) = self.absence(&call.tool)
        {
            return absence;
        }
        let deadline = &call.life.deadline;
        let whom = provider.map_or_else(|| "it got a place".to_owned(), |id| format!("the {id} answered"));
        let cap = deadline.cap().as_millis();
        let (message, hint) = match (deadline.is_at_cap(), call.request.timeout.is_some()) {
            (true, false) => (
                format!("the call took {cap} ms, the longest that any call may, before {whom}"),
                "split the work into shorter calls",
            ),
            (true, true) => (format!("the call ran out of its {cap} ms before {whom}"), "raise timeout_ms"),
            (false, true) => (
                format!("the call ran out of its {} ms before {whom}", deadline.limit().as_millis()),
                "raise timeout_ms, or set idle_timeout_ms, which progress extends",
            ),
            (false, false) => (
                format!("the call ran out of its {} ms before {whom}", deadline.limit().as_millis()),
                "set timeout_ms, or have the tool report progress, which extends the time",
            ),
        };
        CallError::new(CallErrorKind::Timeout, message).hint(hint)
    }
}

/// A provider's answer in the making. When it is dropped before its end, the call says why before the provider's
/// own destructors ask.
pub(super) struct Attended {
    pub(super) life: Arc<Life>,
    pub(super) answer: BoxFuture<'static, Outcome>,
    pub(super) unfinished: bool,
}

impl Future for Attended {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome> {
        // A panic counts as an end: there is nobody left to tell.
        self.unfinished = false;
        let answer = self.answer.poll_unpin(cx);
        self.unfinished = answer.is_pending();
        answer
    }
}

impl Drop for Attended {
    fn drop(&mut self) {
        if self.unfinished {
            // Changes nothing when there is another reason already.
            self.life.cancel.fire(CancelReason::Disconnected);
        }
    }
}
