//! A created call, which is guaranteed to be recorded once and to leave no state behind.

use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::pipeline::{Dispatched, cancelled};
use super::{Router, now};
use crate::audit::{CallRecord, CallStarted};
use crate::call::{
    CallId, CallRequest, CallState, CancelReason, CancelSignal, Deadline, Reader, TraceContext,
    Update, UpdateSink,
};
use crate::client_capabilities::LogLevel;
use crate::outcome::{Outcome, held, weight};
use crate::principal::Principal;
use crate::provider::ProviderId;
use sa_limits::offload;
use sa_limits::received::Held;
use sa_text::json::RawJson;

/// The logger name of the gateway's own messages about a call.
pub const OWN: &str = "switchboard";

/// The end of a call.
#[derive(Debug, Clone)]
pub struct Finished {
    pub id: CallId,
    pub outcome: Outcome,
    pub duration: Duration,
}

impl Finished {
    /// Formats the outcome for a surface, offloaded if it is large.
    pub async fn render<T>(&self, format: impl FnOnce(&Self) -> T) -> T {
        offload::run_queued(self.weight(), || format(self)).await
    }

    /// Returns the budget that the outcome holds, for a surface that serializes a copy of it later.
    pub fn held(&self) -> Held {
        held(&self.outcome)
    }

    /// Returns the number of bytes that a surface must serialize.
    pub fn weight(&self) -> usize {
        weight(&self.outcome)
    }
}

/// The public view of a running call.
#[derive(Debug, Clone)]
pub struct LiveCall {
    pub id: CallId,
    pub tool: Arc<str>,
    pub principal: Arc<Principal>,
    pub surface: &'static str,
    pub session_key: Option<Arc<str>>,
    pub trace: TraceContext,
    /// Shared with the call itself, including secrets. Mask them before they are shown.
    pub args: RawJson,
    pub at_ms: i64,
    pub started: Instant,
    state: Arc<CallState>,
}

impl LiveCall {
    /// Returns the provider of the call, and the time that the call had waited before dispatch.
    pub fn dispatched(&self) -> Option<(ProviderId, Duration)> {
        let dispatched = self.state.dispatched.lock();
        dispatched.as_ref().map(|(provider, at)| (provider.clone(), *at - self.started))
    }

    /// Returns the tool's name in lists, if the caller used another one.
    pub fn exposed(&self) -> Option<&str> {
        self.state.exposed.get().map(|name| &**name)
    }

    /// Returns the number of updates so far.
    pub fn updates(&self) -> u32 {
        self.state.updates.load(Ordering::Relaxed)
    }

    pub(super) fn provider(&self) -> Option<ProviderId> {
        self.dispatched().map(|(provider, _)| provider)
    }

    pub(super) fn cancel(&self, reason: CancelReason) -> bool {
        self.state.cancel.fire(reason)
    }
}

/// A created call. Awaiting [`RunningCall::outcome`] runs it. Dropping it means that the caller has
/// disconnected.
pub struct RunningCall {
    id: CallId,
    router: Arc<Router>,
    pub(super) request: CallRequest,
    pub(super) tool: Arc<str>,
    pub(super) state: Arc<CallState>,
    pub(super) at_ms: i64,
    started: Instant,
    announced: bool,
    recorded: bool,
}

impl RunningCall {
    pub(super) fn new(
        router: Arc<Router>,
        request: CallRequest,
        deadline: Deadline,
        sink: Option<Arc<dyn UpdateSink>>,
    ) -> Self {
        let (at_ms, started) = now();
        let state = Arc::new(CallState {
            deadline,
            cancel: CancelSignal::default(),
            updates: 0.into(),
            reader: Reader::new(sink),
            exposed: OnceLock::new(),
            dispatched: Mutex::default(),
        });
        let call = Self {
            id: CallId::new(),
            tool: request.tool.as_str().into(),
            router,
            request,
            state,
            at_ms,
            started,
            announced: false,
            recorded: false,
        };
        let live = LiveCall {
            id: call.id,
            tool: Arc::clone(&call.tool),
            principal: Arc::clone(&call.request.view.principal),
            surface: call.request.surface,
            session_key: call.request.session_key.clone(),
            trace: call.request.trace,
            args: call.request.args.clone(),
            at_ms,
            started,
            state: Arc::clone(&call.state),
        };
        call.router.live(|calls| calls.insert(call.id, live));
        call
    }

    pub fn id(&self) -> CallId {
        self.id
    }

    /// Runs the call to its end.
    ///
    /// A call with an idempotency key continues when its caller disconnects. The caller is expected
    /// to come back with the same key and query the result. A cancellation or its deadline still
    /// ends it.
    pub async fn outcome(mut self) -> Finished {
        if self.request.idempotency_key.is_some() {
            // Boxed, because it is rare. A call's future is copied when it is spawned, and is as
            // large as its largest path.
            return Box::pin(super::keyed::run(self)).await;
        }
        self.run().await
    }

    pub(super) async fn run(&mut self) -> Finished {
        let router = Arc::clone(&self.router);
        let outcome = router.run(self).await;
        self.finish(outcome)
    }

    /// Reports the start of the call to the journal, once.
    pub(super) fn announce(&mut self) {
        if std::mem::replace(&mut self.announced, true) {
            return;
        }
        self.router.journal.started(&CallStarted {
            id: self.id,
            tool: Arc::clone(&self.tool),
            principal: Arc::clone(&self.request.view.principal),
            surface: self.request.surface,
            at_ms: self.at_ms,
        });
    }

    /// Records the outcome, and then removes the call from the table. With this order, a task that
    /// waits for an empty table finds every record in the journal.
    pub(super) fn finish(&mut self, outcome: Outcome) -> Finished {
        self.announce();
        self.recorded = true;
        let record = self.record(outcome.clone());
        let duration = record.duration;
        self.router.journal.finished(record);
        self.remove();
        Finished { id: self.id, outcome, duration }
    }

    /// Replaces the call's arguments by the equal ones of another call. They are then in memory
    /// once, however many calls have them.
    pub(super) fn share_args(&mut self, args: &RawJson) {
        self.request.args = args.clone();
        let own = self.router.live(|calls| {
            Some(std::mem::replace(&mut calls.get_mut(&self.id)?.args, args.clone()))
        });
        drop(own);
    }

    /// Removes the call from the table without its own record, because it is a retry of another
    /// one.
    pub(super) fn remove(&mut self) {
        self.recorded = true;
        self.state.reader.detach();
        let last = self.router.live(|calls| {
            calls.remove(&self.id);
            calls.is_empty()
        });
        if last {
            self.router.idle.notify_waiters();
        }
    }

    /// Sends a message of the gateway itself to the reader of the call. It does not restart the
    /// idle timeout.
    pub(super) fn report(&self, message: &str) {
        let log = || Update::Log {
            level: LogLevel::Info,
            logger: Some(OWN.to_owned()),
            data: RawJson::of(&message.into()),
        };
        let _ = self.state.reader.send(log);
    }

    pub(super) fn router(&self) -> &Arc<Router> {
        &self.router
    }

    pub(super) fn dispatched(&self, provider: &ProviderId) {
        *self.dispatch_slot() = Some((provider.clone(), Instant::now()));
    }

    pub(super) fn not_dispatched(&self) {
        *self.dispatch_slot() = None;
    }

    pub(super) fn provider(&self) -> Option<ProviderId> {
        self.dispatch_slot().as_ref().map(|(provider, _)| provider.clone())
    }

    fn dispatch_slot(&self) -> parking_lot::MutexGuard<'_, Option<(ProviderId, Instant)>> {
        self.state.dispatched.lock()
    }

    fn record(&self, outcome: Outcome) -> CallRecord {
        let dispatched = self.dispatch_slot().clone();
        CallRecord {
            id: self.id,
            tool: Arc::clone(&self.tool),
            exposed: self.state.exposed.get().cloned(),
            waited: dispatched.as_ref().map(|(_, at)| *at - self.started),
            provider: dispatched.map(|(provider, _)| provider),
            principal: Arc::clone(&self.request.view.principal),
            surface: self.request.surface,
            session_key: self.request.session_key.clone(),
            trace: self.request.trace,
            args: self.request.args.clone(),
            outcome,
            at_ms: self.at_ms,
            duration: self.started.elapsed(),
            updates: self.state.updates.load(Ordering::Relaxed),
        }
    }
}

impl Drop for RunningCall {
    fn drop(&mut self) {
        if !self.recorded {
            self.state.cancel.fire(CancelReason::Disconnected);
            let reason = self.state.cancel.reason().unwrap_or(CancelReason::Disconnected);
            self.finish(Err(cancelled(reason, Dispatched::of(self))));
        }
    }
}

impl fmt::Debug for RunningCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunningCall")
            .field("id", &self.id)
            .field("tool", &self.tool)
            .finish_non_exhaustive()
    }
}
