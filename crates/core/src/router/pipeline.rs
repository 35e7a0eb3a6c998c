//! The life of a call, from its request to its outcome, in the order of [`STAGES`].
//!
//! The stages from [`Stage::Resolve`] to [`Stage::Dispatch`] run again if the provider disconnects
//! before it receives the call.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::FutureExt as _;
use sa_limits::budget::Permit;
use sa_limits::offload;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::open::{Missing, Target};
use super::wait::CancelOnDrop;
use super::{Router, RunningCall};
use crate::call::{Call, CancelReason, Updates};
use crate::directory::{Absence, Route, Unresolved, did_you_mean};
use crate::outcome::{CallError, CallErrorKind, Outcome};

/// A stage in the life of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    Admit,
    Deduplicate,
    Resolve,
    Authorise,
    Validate,
    Limit,
    Dispatch,
    Record,
}

/// The stages of a call in their order. The documentation is generated from this list.
pub const STAGES: [Stage; 8] = [
    Stage::Admit,
    Stage::Deduplicate,
    Stage::Resolve,
    Stage::Authorise,
    Stage::Validate,
    Stage::Limit,
    Stage::Dispatch,
    Stage::Record,
];

impl Stage {
    pub fn name(self) -> &'static str {
        match self {
            Self::Admit => "admit",
            Self::Deduplicate => "deduplicate",
            Self::Resolve => "resolve",
            Self::Authorise => "authorise",
            Self::Validate => "validate",
            Self::Limit => "limit",
            Self::Dispatch => "dispatch",
            Self::Record => "record",
        }
    }

    /// Describes the stage in one sentence.
    pub fn about(self) -> &'static str {
        match self {
            Self::Admit => {
                "The call acquires its part of the budgets for running calls and argument bytes."
            }
            Self::Deduplicate => {
                "A call with an idempotency key that was used before gets the first call's outcome."
            }
            Self::Resolve => {
                "The directory finds the provider; a provider that is offline is waited for."
            }
            Self::Authorise => "The token and the policy must include the tool.",
            Self::Validate => "The arguments must match the tool's schema.",
            Self::Limit => {
                "The tool's own timeout starts to count, and the call waits for a free slot of the provider."
            }
            Self::Dispatch => {
                "The provider gets the call, and its answer, the deadline or a cancellation ends it."
            }
            Self::Record => "The journal records the outcome, once.",
        }
    }
}

impl Router {
    /// Runs a call without an idempotency key up to its outcome.
    pub(super) async fn run(&self, call: &RunningCall) -> Outcome {
        self.check_open()?;
        let _permits = self.admit(call)?;
        self.run_admitted(call).await
    }

    /// Stage [`Stage::Admit`]. Small arguments are free: the number of calls bounds them, and
    /// counting them would slow down every call.
    pub(super) fn admit(&self, call: &RunningCall) -> Result<CallPermits, CallError> {
        let holder = call.request.view.principal.holder();
        let slot = self.calls.acquire(&holder, 1)?;
        let bytes = call.request.args.len().min(self.arguments.largest());
        let arguments = if bytes < offload::LARGE {
            None
        } else {
            Some(self.arguments.acquire(&holder, bytes)?)
        };
        Ok(CallPermits { slot, arguments })
    }

    /// Returns an error if the gateway is shutting down.
    pub(super) fn check_open(&self) -> Result<(), CallError> {
        if self.draining.load(Ordering::Acquire) {
            return Err(CallError::undelivered("the gateway is shutting down")
                .hint("retry when it is running again"));
        }
        Ok(())
    }

    /// Runs the stages after [`Stage::Deduplicate`]. The deadline and a cancellation can end the
    /// call wherever it waits.
    pub(super) async fn run_admitted(&self, call: &RunningCall) -> Outcome {
        let outcome = match (self.deliver(call).await, call.state.cancel.reason()) {
            // The answer is discarded, because an update before it was lost.
            (_, Some(reason @ CancelReason::ReaderTooSlow)) => {
                Err(cancelled(reason, Dispatched::of(call)))
            }
            (outcome, _) => outcome,
        };
        outcome.map_err(|error| {
            let retryable =
                error.retryable && !(error.kind == CallErrorKind::Timeout && self.had_effect(call));
            self.with_similar_names(call, error.retryable(retryable))
        })
    }

    /// Runs the stages from [`Stage::Resolve`] to [`Stage::Dispatch`] until a provider has received
    /// the call.
    async fn deliver(&self, call: &RunningCall) -> Outcome {
        // The deadline covers this, too, so that a blocked journal cannot delay a call forever.
        if let Some(backpressure) = self.journal.backpressure() {
            call.wait_for(backpressure, || call.timed_out(SLOT)).await?;
        }
        self.policy().authorise_role(&call.request.view.principal)?;
        loop {
            let revision = self.directory.revision();
            let target = self.resolve_online(call).await?;
            self.authorise(call, &target.route)?;
            self.validate(call, &target).await?;
            let outcome = match self.limit(call, &target.route).await {
                Ok(slot) => self.dispatch(call, target, slot).await,
                Err(error) => Err(error),
            };
            match outcome {
                Err(error) if error.is_undelivered() => {
                    // The provider has disconnected, and the directory will be updated shortly.
                    let change = Box::pin(self.directory.changed_since(revision));
                    call.wait_for(change, || error).await?;
                }
                outcome => return outcome,
            }
        }
    }

    /// Stage [`Stage::Resolve`].
    async fn resolve_online(&self, call: &RunningCall) -> Result<Target, CallError> {
        match self.find(call)? {
            Found::Online(target) => Ok(target),
            // Boxed, because it is rare. A call's future is as large as its largest path.
            Found::Offline(absence, timeout) => {
                let seconds = timeout.as_millis().div_ceil(1_000);
                let provider = &absence.provider;
                call.report(&format!("waiting for the {provider} to reconnect, up to {seconds} s"));
                Box::pin(self.wait_for_provider(call)).await
            }
        }
    }

    /// Waits for the return of a provider that is offline.
    async fn wait_for_provider(&self, call: &RunningCall) -> Result<Target, CallError> {
        loop {
            // Subscribed before the lookup, so that a change in between is not missed.
            let change = self.directory.changed();
            let (absence, timeout) = match self.find(call)? {
                Found::Online(target) => return Ok(target),
                Found::Offline(absence, timeout) => (absence, timeout),
            };
            let since = Instant::now();
            let offline = || absence.after(since.elapsed()).into_error(&call.request.tool);
            let change = tokio::time::timeout(timeout, change);
            call.wait_for(change, offline).await?.map_err(|_| offline())?;
        }
    }

    /// Finds the tool of a call. Returns an error if there is none, or if its provider has been
    /// offline for too long.
    fn find(&self, call: &RunningCall) -> Result<Found, CallError> {
        let Missing { name, unresolved } = match self.target(&call.request) {
            Ok(target) => return Ok(Found::Online(target)),
            Err(missing) => missing,
        };
        let Unresolved::Offline { absence, scope, listed_name, leading, all_names, .. } =
            unresolved
        else {
            return Err(self.unresolved(&name, &call.request.view, unresolved));
        };
        // A principal that may not call a tool learns nothing about it, and does not wait for it.
        let principal = &call.request.view.principal;
        self.policy().authorise(principal, &scope, &listed_name, &leading, || all_names)?;
        let timeout = absence.timeout(self.options.reconnect_timeout);
        if timeout.is_zero() {
            return Err(absence.into_error(&call.request.tool));
        }
        Ok(Found::Offline(absence, timeout))
    }

    /// Stage [`Stage::Authorise`].
    fn authorise(&self, call: &RunningCall, route: &Route) -> Result<(), CallError> {
        if let Some(exposed) = route.exposed.as_ref().filter(|exposed| ***exposed != *call.tool) {
            let _ = call.state.exposed.set(Arc::clone(exposed));
        }
        let name = route.exposed.as_deref().unwrap_or(&route.tool.name);
        let all_names = || route.tool.all_names(&route.id);
        let principal = &call.request.view.principal;
        self.policy().authorise(principal, &route.scope, name, &route.leading, all_names)?;
        if route.tool.held {
            return Err(held(name));
        }
        Ok(())
    }

    /// Stage [`Stage::Validate`].
    async fn validate(&self, call: &RunningCall, target: &Target) -> Result<(), CallError> {
        let Target { route, args } = target;
        let Some(schema) = route.tool.validated_by() else { return Ok(()) };
        let cost = schema.validation_cost(args);
        let _turn = if cost < offload::LARGE {
            None
        } else {
            // Boxed, because it is rare.
            call.wait_for(Box::pin(offload::turn(cost)), || call.timed_out(SLOT)).await?
        };
        Ok(schema.validate(args)?)
    }

    /// Stage [`Stage::Limit`].
    async fn limit(
        &self,
        call: &RunningCall,
        route: &Route,
    ) -> Result<OwnedSemaphorePermit, CallError> {
        if call.request.timeout.or(call.request.idle_timeout).is_none() {
            // Also without a timeout of the tool: a provider that did not receive the call may have
            // had one.
            let (limit, hard) = match route.tool.timeout {
                Some(limit) => (limit, route.tool.hard_timeout),
                None => (self.options.default_timeout, false),
            };
            call.state.deadline.set_limit(limit, hard);
        }
        let slot = route.slots.acquire(&route.id, self.options.queue_timeout);
        let slot = call.wait_for(slot, || call.timed_out(SLOT)).await??;
        // A call that has ended must not be dispatched, even if it got its slot at the same moment.
        if let Some(reason) = call.state.cancel.reason() {
            return Err(cancelled(reason, Dispatched::No));
        }
        if call.state.deadline.is_expired() {
            return Err(call.timed_out(SLOT));
        }
        Ok(slot)
    }

    /// Stage [`Stage::Dispatch`].
    async fn dispatch(
        &self,
        running: &RunningCall,
        Target { route, args }: Target,
        _slot: OwnedSemaphorePermit,
    ) -> Outcome {
        let call = Arc::new(Call {
            id: running.id(),
            tool: Arc::clone(&route.tool.name),
            args,
            principal: Arc::clone(&running.request.view.principal),
            session_key: running.request.session_key.clone(),
            trace: running.request.trace,
            state: Arc::clone(&running.state),
        });
        let updates = Updates::new(Arc::clone(&running.state));
        let state = Arc::clone(&running.state);
        let answer = async {
            CancelOnDrop { state, answer: route.provider.call(call, updates), unfinished: true }
                .await
        };
        let answer = AssertUnwindSafe(answer).catch_unwind();
        running.dispatched(&route.id);
        let timed_out = || match route.provider.name() {
            Some(name) => running.timed_out(&format!("{name} answered")),
            None => running.timed_out(&format!("the {} answered", route.id)),
        };
        let outcome = running.wait_for(answer, timed_out).await?.unwrap_or_else(|_| {
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

    /// Returns whether a timed-out call may have had an effect that must not be repeated. It
    /// reached its provider, and the tool declares that repeating it is not harmless.
    fn had_effect(&self, call: &RunningCall) -> bool {
        let route = self.directory.resolve(&call.request.tool, &call.request.view);
        call.provider().is_some() && route.is_ok_and(|route| !route.tool.repeatable)
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
}

/// The event that a call waits for until it is dispatched, for the error at its deadline.
const SLOT: &str = "it got a slot";

/// The tool of a call that exists.
enum Found {
    Online(Target),
    /// With the remaining time to wait for the provider.
    Offline(Absence, Duration),
}

/// The amounts that a call has acquired from the budgets, returned on drop.
pub(super) struct CallPermits {
    pub(super) slot: Permit,
    /// For its arguments, if they are large.
    pub(super) arguments: Option<Permit>,
}

/// Whether a call that ends before its outcome was dispatched to a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dispatched {
    No,
    Yes,
}

impl Dispatched {
    pub(super) fn of(call: &RunningCall) -> Self {
        if call.provider().is_some() { Self::Yes } else { Self::No }
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

pub(super) fn cancelled(reason: CancelReason, dispatched: Dispatched) -> CallError {
    let (kind, message) = match reason {
        CancelReason::Requested => (CallErrorKind::Cancelled, "the call was cancelled"),
        CancelReason::Disconnected => (CallErrorKind::Cancelled, "the caller disconnected"),
        CancelReason::Deadline => (CallErrorKind::Timeout, "the call timed out"),
        CancelReason::Revoked => {
            (CallErrorKind::Cancelled, "the caller's token is no longer valid")
        }
        CancelReason::Shutdown => return cut_off(dispatched),
        CancelReason::ReaderTooSlow => {
            (CallErrorKind::Overloaded, "the caller did not read the call's updates fast enough")
        }
    };
    CallError::new(kind, message)
}

/// Returns the error of a call that ends because the gateway shuts down. It is not a cancellation,
/// and the result of a dispatched call is unknown.
fn cut_off(dispatched: Dispatched) -> CallError {
    match dispatched {
        Dispatched::No => {
            CallError::undelivered("the gateway shut down before the call reached its tool")
                .hint("retry when the gateway is running again")
        }
        Dispatched::Yes => CallError::new(
            CallErrorKind::Offline,
            "the gateway shut down before the call ended; it may have had an effect",
        )
        .hint("check what it did before you call it again")
        .retryable(false),
    }
}
