//! Runs calls: see [`pipeline`] for the stages.
//!
//! [`Router::start`] creates a call, and [`RunningCall::outcome`] runs it. An answer, a
//! cancellation, the deadline, or the disconnect of a provider or caller may end the call. It
//! always ends in exactly one outcome, which is recorded once, and leaves no state behind.

mod keyed;
mod open;
mod pipeline;
mod running;
mod visible;
mod wait;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;
use tokio::time::Instant;

pub use self::pipeline::{STAGES, Stage};
pub use self::running::{Finished, LiveCall, OWN, RunningCall};
use crate::audit::Journal;
use crate::call::{ByCallId, CallId, CallRequest, CancelReason, Deadline, UpdateSink};
use crate::clock;
use crate::directory::Directory;
use crate::idempotency::Ledger;
use crate::policy::Policy;
use crate::provider::ProviderId;
use crate::visible_tools::Digests;
use sa_limits::budget::{Limit, SharedBudget};

#[derive(Debug, Clone)]
pub struct RouterOptions {
    /// The limit of running calls of all principals.
    pub max_running: usize,
    /// The limit of argument bytes of all running and waiting calls.
    pub max_bytes: usize,
    /// The timeout of a tool that has none of its own.
    pub default_timeout: Duration,
    /// The maximum duration of a call. Updates do not extend it.
    pub max_duration: Duration,
    /// The timeout for a free slot of a provider.
    pub queue_timeout: Duration,
    /// The timeout for the return of a lost provider. It is shorter for a provider that announced
    /// that it stops.
    pub reconnect_timeout: Duration,
}

impl Default for RouterOptions {
    fn default() -> Self {
        Self {
            max_running: 1_000,
            max_bytes: 256 << 20,
            default_timeout: Duration::from_secs(60),
            max_duration: Duration::from_secs(3_600),
            queue_timeout: Duration::from_secs(2),
            reconnect_timeout: Duration::from_secs(10),
        }
    }
}

/// Runs calls: resolves the provider, checks policy and arguments, enforces deadlines and limits,
/// dispatches, and records.
pub struct Router {
    directory: Arc<Directory>,
    journal: Arc<dyn Journal>,
    ledger: Option<Arc<dyn Ledger>>,
    policy: RwLock<Arc<Policy>>,
    options: RouterOptions,
    calls: Arc<SharedBudget>,
    arguments: Arc<SharedBudget>,
    live: Mutex<ByCallId<LiveCall>>,
    keyed: keyed::InFlight,
    pub(crate) digests: Digests,
    draining: AtomicBool,
    idle: Notify,
}

impl Router {
    pub fn new(
        directory: Arc<Directory>,
        journal: Arc<dyn Journal>,
        ledger: Option<Arc<dyn Ledger>>,
        policy: Policy,
        options: RouterOptions,
    ) -> Arc<Self> {
        directory.report_to(&journal);
        Arc::new(Self {
            directory,
            journal,
            ledger,
            policy: RwLock::new(Arc::new(policy)),
            calls: SharedBudget::new(Limit { total: options.max_running, ..CALLS }),
            arguments: SharedBudget::new(Limit { total: options.max_bytes, ..ARGUMENTS }),
            options,
            live: Mutex::default(),
            keyed: keyed::InFlight::default(),
            digests: Digests::default(),
            draining: AtomicBool::new(false),
            idle: Notify::new(),
        })
    }

    /// Creates a call with an id, which can be cancelled and will be recorded. Awaiting
    /// [`RunningCall::outcome`] runs it. Dropping it means that the caller has disconnected.
    pub fn start(
        self: &Arc<Self>,
        request: CallRequest,
        sink: Option<Arc<dyn UpdateSink>>,
    ) -> RunningCall {
        let deadline = self.deadline(&request);
        let mut running = RunningCall::new(Arc::clone(self), request, deadline, sink);
        // A call with a key may be a retry of another one. It is announced once it is known to be
        // the first.
        if running.request.idempotency_key.is_none() {
            running.announce();
        }
        running
    }

    /// Returns the deadline of a call. A caller's `timeout` caps it. Updates extend every other
    /// limit up to that cap.
    fn deadline(&self, request: &CallRequest) -> Deadline {
        let cap = request.timeout.unwrap_or(Duration::MAX).min(self.options.max_duration);
        let limit =
            request.idle_timeout.or(request.timeout).unwrap_or(self.options.default_timeout);
        Deadline::new(limit, cap)
    }

    /// Returns the budgets that limit calls: their number, and the bytes of their arguments.
    pub fn budgets(&self) -> [&Arc<SharedBudget>; 2] {
        [&self.calls, &self.arguments]
    }

    /// Cancels a running call if `allowed` permits it. Returns `None` if there is no such call.
    pub fn cancel(
        &self,
        id: CallId,
        reason: CancelReason,
        allowed: impl FnOnce(&LiveCall) -> bool,
    ) -> Option<bool> {
        self.live(|live| {
            let call = live.get(&id)?;
            Some(allowed(call) && call.cancel(reason))
        })
    }

    /// Cancels every running call that matches `which`.
    pub fn cancel_all(&self, reason: CancelReason, which: impl Fn(&LiveCall) -> bool) {
        self.live(|live| {
            for call in live.values().filter(|call| which(call)) {
                call.cancel(reason);
            }
        });
    }

    /// Returns the running calls, oldest first.
    pub fn running(&self) -> Vec<LiveCall> {
        let mut calls: Vec<_> = self.live(|live| live.values().cloned().collect());
        calls.sort_unstable_by_key(|call| call.id);
        calls
    }

    /// Returns the provider that a running call was dispatched to.
    pub fn provider_of(&self, id: CallId) -> Option<ProviderId> {
        self.live(|live| live.get(&id)?.provider())
    }

    pub fn running_count(&self) -> usize {
        self.live(|live| live.len())
    }

    /// Stops accepting calls, and waits for the running ones. Cancels the rest after the given
    /// timeout, or as soon as `stop_now` resolves.
    pub async fn drain(&self, timeout: Duration, stop_now: impl Future<Output = ()>) {
        self.draining.store(true, Ordering::Release);
        let idle = tokio::select! {
            biased;
            () = self.until_idle() => true,
            () = stop_now => false,
            () = tokio::time::sleep(timeout) => false,
        };
        if !idle {
            self.cancel_all(CancelReason::Shutdown, |_| true);
            // Cancelled calls end by themselves. The timeout bounds the delay of a blocked surface.
            let _ = tokio::time::timeout(Duration::from_secs(1), self.until_idle()).await;
        }
    }

    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    async fn until_idle(&self) {
        loop {
            let idle = self.idle.notified();
            if self.running_count() == 0 {
                return;
            }
            idle.await;
        }
    }

    pub fn policy(&self) -> Arc<Policy> {
        Arc::clone(&self.policy.read())
    }

    pub fn directory(&self) -> &Arc<Directory> {
        &self.directory
    }

    pub fn journal(&self) -> &Arc<dyn Journal> {
        &self.journal
    }

    fn live<T>(&self, work: impl FnOnce(&mut ByCallId<LiveCall>) -> T) -> T {
        work(&mut self.live.lock())
    }
}

impl std::fmt::Debug for Router {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Router").field("running", &self.running_count()).finish_non_exhaustive()
    }
}

const CALLS: Limit = Limit {
    name: "calls",
    what: "running calls",
    key: "limits.pending_total",
    remedy: "wait for calls to end",
    total: 0,
};

const ARGUMENTS: Limit = Limit {
    name: "arguments",
    what: "bytes of call arguments",
    key: "limits.argument_bytes",
    remedy: "wait for calls with large arguments to end",
    total: 0,
};

/// Reads the wall clock and tokio's clock, once per call.
fn now() -> (i64, Instant) {
    (clock::now_ms(), Instant::now())
}
