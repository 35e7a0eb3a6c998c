//! The pipeline of a call: resolve → authorise → validate → limit → deadline → dispatch → record.
//!
//! [`Router::start`] creates a call, and [`RunningCall::outcome`] runs it. An answer, a
//! cancellation, the deadline, or the disconnect of a provider or caller may end the call. It
//! always ends in exactly one outcome, which is recorded once, and leaves no state behind.

mod keyed;
mod open;
mod running;
mod stage;
mod visible;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;
use tokio::time::Instant;

use self::open::{Missing, Target};
pub use self::running::{Finished, LiveCall, OWN, RunningCall};
use self::stage::{Attended, Stage, Waiting};
use crate::audit::Journal;
use crate::call::{
    ByCallId, Call, CallId, CallRequest, CancelReason, Deadline, UpdateSink, Updates,
};
use crate::clock;
use crate::directory::{Directory, Route, Unresolved, did_you_mean};
use crate::idempotency::Ledger;
use crate::outcome::{CallError, CallErrorKind, Outcome};
use crate::policy::Policy;
use crate::provider::ProviderId;
use crate::shown::Digests;
use crate::tool::Tool;
use sa_limits::budget::{Limit, Permit, SharedBudget};
use sa_limits::offload;
use sa_text::json::RawJson;

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

    /// Runs all steps between a request and its outcome.
    async fn run(&self, call: &RunningCall) -> Outcome {
        self.still_open()?;
        let _share = self.admit(call)?;
        self.run_admitted(call).await
    }

    fn still_open(&self) -> Result<(), CallError> {
        if self.draining.load(Ordering::Acquire) {
            return Err(CallError::undelivered("the gateway is shutting down")
                .hint("retry when it is running again"));
        }
        Ok(())
    }

    /// Acquires the call's part of the budgets. Small arguments are free: the number of calls
    /// bounds them, and counting them would slow down every call.
    fn admit(&self, call: &RunningCall) -> Result<Share, CallError> {
        let holder = call.request.view.principal.holder();
        let place = self.calls.acquire(&holder, 1)?;
        let bytes = call.request.args.len().min(self.arguments.largest());
        let room = if bytes < offload::LARGE {
            None
        } else {
            Some(self.arguments.acquire(&holder, bytes)?)
        };
        Ok(Share { place, room })
    }

    /// Returns the budgets that limit calls: their number, and the bytes of their arguments.
    pub fn budgets(&self) -> [&Arc<SharedBudget>; 2] {
        [&self.calls, &self.arguments]
    }

    /// Runs a call that has already acquired its budgets.
    async fn run_admitted(&self, call: &RunningCall) -> Outcome {
        let stage = Stage::default();
        let attempt = async {
            // The deadline also covers this, so that a blocked journal cannot delay a call forever.
            if let Some(pace) = self.journal.keep_pace() {
                pace.await;
            }
            self.attempt(call, &stage).await
        };
        // The reason is set before the attempt is dropped, so that the provider can read it.
        let expiry = async {
            call.life.deadline.expired().await;
            call.life.cancel.fire(CancelReason::Deadline);
        };
        let outcome = tokio::select! {
            biased;
            outcome = attempt => match call.life.cancel.reason() {
                // The answer is discarded, because an update before it was lost.
                Some(reason @ CancelReason::ReaderTooSlow) => Err(cancelled(reason, Asked::of(call))),
                _ => outcome,
            },
            reason = call.life.cancel.fired() => Err(cancelled(reason, Asked::of(call))),
            () = expiry => Err(stage.out_of_time(call)),
        };
        outcome.map_err(|error| {
            let again =
                error.retryable && !(error.kind == CallErrorKind::Timeout && self.had_effect(call));
            self.with_similar_names(call, error.retryable(again))
        })
    }

    /// Adds the names of similar tools to the error of a provider that has no such tool. A provider
    /// with an open prefix receives misspelt names, too.
    fn with_similar_names(&self, call: &RunningCall, error: CallError) -> CallError {
        if error.kind != CallErrorKind::NotFound || error.hint.is_some() {
            return error;
        }
        let similar = self.directory.similar(&call.tool, &call.request.view);
        if similar.is_empty() { error } else { error.hint(did_you_mean(&similar)) }
    }

    /// Returns whether a timed-out call may have had an effect that must not be repeated. It
    /// reached its provider, and the tool declares that repeating it is not harmless.
    fn had_effect(&self, call: &RunningCall) -> bool {
        let route = self.directory.resolve(&call.request.tool, &call.request.view);
        call.provider().is_some() && route.is_ok_and(|route| route.tool.is_unrepeatable())
    }

    /// Resolves the provider until the call was delivered to one, and returns its outcome.
    async fn attempt(&self, call: &RunningCall, stage: &Stage) -> Outcome {
        let request = &call.request;
        self.policy().authorise_role(&request.view.principal)?;
        // Nearly every call finds its provider at once, and needs no notification of changes.
        let mut waits = false;
        let mut told = false;
        let mut checked: Option<(ProviderId, Arc<Tool>)> = None;
        loop {
            // Subscribed before the lookup, so that a change in between is not missed.
            let change = waits.then(|| Box::pin(self.directory.changed()));
            let error = match self.target(request) {
                Ok(Target { route, args }) => {
                    stage.waits_for_nobody();
                    // A provider that is back may describe the tool differently.
                    let same = |(id, tool): &(ProviderId, Arc<Tool>)| {
                        *id == route.id && Arc::ptr_eq(tool, &route.tool)
                    };
                    if !checked.as_ref().is_some_and(same) {
                        // Boxed, because it is rare.
                        let validation_cost = route
                            .tool
                            .validated_by()
                            .map_or(0, |schema| schema.validation_cost(&args));
                        let _turn = if validation_cost < offload::LARGE {
                            None
                        } else {
                            Box::pin(offload::turn(validation_cost)).await
                        };
                        self.check(call, &route, &args)?;
                        checked = Some((route.id.clone(), Arc::clone(&route.tool)));
                    }
                    match self.dispatch(call, route, args, stage).await {
                        Err(error) if error.is_undelivered() => error,
                        outcome => return outcome,
                    }
                }
                Err(Missing {
                    unresolved:
                        Unresolved::Offline { absence, scope, shown, leading, all_names, .. },
                    ..
                }) => {
                    // Authorization comes first: a principal that may not call a tool learns
                    // nothing about it, and does not wait for it.
                    self.policy().authorise(
                        &request.view.principal,
                        &scope,
                        &shown,
                        &leading,
                        || all_names,
                    )?;
                    let left = absence.timeout(self.options.reconnect_timeout);
                    if left.is_zero() {
                        return Err(absence.into_error(&request.tool));
                    }
                    let Some(change) = change else {
                        waits = true;
                        continue;
                    };
                    if !std::mem::replace(&mut told, true) {
                        let seconds = left.as_millis().div_ceil(1_000);
                        let provider = &absence.provider;
                        call.tell(&format!(
                            "waiting for the {provider} to reconnect, up to {seconds} s"
                        ));
                    }
                    stage.waits_for(Waiting::Absent { absence, seen: Instant::now() });
                    if Box::pin(tokio::time::timeout(left, change)).await.is_err()
                        && let Some(absence) = stage.absence(&request.tool)
                    {
                        return Err(absence);
                    }
                    continue;
                }
                Err(Missing { name, unresolved }) => {
                    return Err(self.unresolved(&name, &request.view, unresolved));
                }
            };
            // The provider disconnected before it received the call. The directory will be updated
            // shortly.
            stage.waits_for(Waiting::Undelivered(error));
            match change {
                Some(change) => change.await,
                None => waits = true,
            }
        }
    }

    fn check(&self, call: &RunningCall, route: &Route, args: &RawJson) -> Result<(), CallError> {
        if let Some(exposed) = route.exposed.as_ref().filter(|exposed| ***exposed != *call.tool) {
            let _ = call.life.exposed.set(Arc::clone(exposed));
        }
        let shown = route.exposed.as_deref().unwrap_or(&route.tool.name);
        self.policy().authorise(
            &call.request.view.principal,
            &route.scope,
            shown,
            &route.leading,
            || route.tool.all_names(&route.id),
        )?;
        if route.tool.held {
            return Err(held(shown));
        }
        if let Some(schema) = route.tool.validated_by() {
            schema.validate(args)?;
        }
        if call.request.timeout.or(call.request.idle_timeout).is_none()
            && let Some(limit) = route.tool.timeout
        {
            call.life.deadline.set_limit(limit, route.tool.hard_timeout);
        }
        Ok(())
    }

    async fn dispatch(
        &self,
        running: &RunningCall,
        route: Route,
        args: RawJson,
        stage: &Stage,
    ) -> Outcome {
        let _slot = route.slots.enter(&route.id, self.options.queue_timeout).await?;
        // A call that has ended must not be dispatched, even if it got its slot at the same moment.
        if let Some(reason) = running.life.cancel.reason() {
            return Err(cancelled(reason, Asked::Nobody));
        }
        if running.life.deadline.is_over() {
            return Err(stage.out_of_time(running));
        }
        let call = Arc::new(Call {
            id: running.id(),
            tool: Arc::clone(&route.tool.name),
            args,
            principal: Arc::clone(&running.request.view.principal),
            session_key: running.request.session_key.clone(),
            trace: running.request.trace,
            life: Arc::clone(&running.life),
        });
        let updates = Updates::new(Arc::clone(&running.life));
        let life = Arc::clone(&running.life);
        let answer = async {
            Attended { life, answer: route.provider.call(call, updates), unfinished: true }.await
        };
        let answer = AssertUnwindSafe(answer).catch_unwind();
        stage.is_with(route.provider.name());
        running.dispatched(&route.id);
        let outcome = answer.await.unwrap_or_else(|_| {
            self.journal.count("provider", "panic");
            Err(CallError::new(
                CallErrorKind::Failed,
                format!("the {} failed inside the gateway", route.id),
            ))
        });
        if outcome.as_ref().is_err_and(CallError::is_undelivered) {
            running.not_dispatched();
        }
        outcome
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
    pub fn asked(&self, id: CallId) -> Option<ProviderId> {
        self.live(|live| live.get(&id)?.asked())
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

/// The amounts that a call has acquired from the budgets, returned on drop.
struct Share {
    place: Permit,
    /// For its arguments, if they are large.
    room: Option<Permit>,
}

/// Whether a call that ends before its outcome was dispatched to a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    Nobody,
    Somebody,
}

impl Asked {
    fn of(call: &RunningCall) -> Self {
        if call.provider().is_some() { Self::Somebody } else { Self::Nobody }
    }
}

fn held(tool: &str) -> CallError {
    let message = format!(
        "the definition of the tool \"{tool}\" has changed, and an operator has not accepted the change"
    );
    CallError::new(CallErrorKind::NotAllowed, message).hint(format!(
        "an operator can review it with `switchboard tool-changes`; an operator can accept it with \
         `switchboard tool-changes accept {tool}`"
    ))
}

fn cancelled(reason: CancelReason, asked: Asked) -> CallError {
    let (kind, message) = match reason {
        CancelReason::Requested => (CallErrorKind::Cancelled, "the call was cancelled"),
        CancelReason::Disconnected => (CallErrorKind::Cancelled, "the caller disconnected"),
        CancelReason::Deadline => (CallErrorKind::Timeout, "the call timed out"),
        CancelReason::Revoked => {
            (CallErrorKind::Cancelled, "the caller's token is no longer valid")
        }
        CancelReason::Shutdown => return cut_off(asked),
        CancelReason::ReaderTooSlow => {
            (CallErrorKind::Overloaded, "the caller did not read the call's updates fast enough")
        }
    };
    CallError::new(kind, message)
}

/// Returns the error of a call that ends because the gateway shuts down. It is not a cancellation,
/// and the result of a dispatched call is unknown.
fn cut_off(asked: Asked) -> CallError {
    match asked {
        Asked::Nobody => {
            CallError::undelivered("the gateway shut down before the call reached its tool")
                .hint("retry when the gateway is running again")
        }
        Asked::Somebody => CallError::new(
            CallErrorKind::Offline,
            "the gateway shut down before the call ended; it may have had an effect",
        )
        .hint("check what it did before you call it again")
        .retryable(false),
    }
}

/// Reads the wall clock and tokio's clock, once per call.
fn now() -> (i64, Instant) {
    (clock::now_ms(), Instant::now())
}
