//! Calls with an idempotency key: at most one run for each key, and the same answer for every
//! retry.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::Router;
use super::pipeline::{self, Asked, Share};
use super::running::{Finished, RunningCall};
use crate::call::{CallId, CallRequest, Life};
use crate::directory::Unresolved;
use crate::idempotency::{Claim, KeyedCall, Ledger};
use crate::outcome::{CallError, CallErrorKind};
use crate::principal::Scope;
use sa_limits::budget::Permit;
use sa_text::json::RawJson;

/// The running calls with a key. A retry joins the first call instead of querying the ledger.
#[derive(Default)]
pub(super) struct InFlight(Mutex<HashMap<Place, Running>>);

/// A principal, a tool and a key.
type Place = (Arc<str>, Which, Arc<str>);

#[derive(Clone, PartialEq, Eq, Hash)]
enum Which {
    Named(Arc<str>),
    At(Arc<str>),
}

#[derive(Clone)]
struct Running {
    id: CallId,
    args: RawJson,
    done: watch::Receiver<Option<Finished>>,
}

enum Entry {
    First,
    Retry(Running),
}

pub(super) async fn run(mut call: RunningCall) -> Finished {
    let router = Arc::clone(call.router());
    let Some(ledger) = router.ledger.clone() else {
        let error =
            CallError::new(CallErrorKind::Failed, "this gateway does not store idempotency keys");
        return call.finish(Err(error));
    };
    // Acquired before any state is stored. A retry uses the same budgets as every call.
    let share = match router.admit(&call) {
        Ok(share) => share,
        Err(error) => return call.finish(Err(error)),
    };
    let (leads, unknown) = match leads(&router, &call.request) {
        Ok(leads) => (leads, None),
        // It may have been called when the tool existed. Otherwise it is not called now either: a
        // new tool must not receive a call by its name alone.
        Err(unknown) => (Vec::new(), Some(unknown)),
    };
    let keyed = KeyedCall {
        principal: Arc::clone(&call.request.view.principal.id),
        tool: Arc::clone(&call.tool),
        leads,
        key: call.request.idempotency_key.clone().unwrap_or_default(),
        args: call.request.args.clone(),
    };
    let (done, waiting) = watch::channel(None);
    let places = places(&keyed);
    let own = Running { id: call.id(), args: keyed.args.clone(), done: waiting.clone() };
    match router.keyed.enter(&places, own) {
        Entry::First => {}
        // Compared here, outside of the lock.
        Entry::Retry(first) if first.args != keyed.args => {
            return call.finish(Err(different(first.id)));
        }
        Entry::Retry(Running { args, done, .. }) => {
            drop(keyed);
            call.share_args(&args);
            let Share { slot, arguments } = share;
            drop(arguments);
            return join(call, slot, done).await;
        }
    }
    let id = call.id();
    let _caller = Caller(Arc::clone(&call.life));
    // From here on the call runs in its own task, and continues if the caller disconnects.
    let task = tokio::spawn(async move {
        let _share = share;
        let _vacate = Vacate { router: Arc::clone(&router), places };
        let ran = AssertUnwindSafe(claim_and_run(&mut call, &*ledger, &keyed, unknown))
            .catch_unwind()
            .await;
        let finished = ran.unwrap_or_else(|_| call.finish(Err(broken())));
        done.send_replace(Some(finished));
    });
    drop(task);
    wait(waiting).await.unwrap_or_else(|| Finished {
        id,
        outcome: Err(broken()),
        duration: Duration::ZERO,
    })
}

impl InFlight {
    /// Adds a call, unless one of its keys is in use.
    fn enter(&self, places: &[Place], call: Running) -> Entry {
        let mut running = self.0.lock();
        if let Some(first) = places.iter().find_map(|place| running.get(place)) {
            return Entry::Retry(first.clone());
        }
        running.extend(places.iter().map(|place| (place.clone(), call.clone())));
        Entry::First
    }
}

/// Returns the keys of a call: by the name that its caller used, and by the tool's identifiers.
fn places(call: &KeyedCall) -> Vec<Place> {
    let named = Some(Which::Named(Arc::clone(&call.tool)));
    let at = call.leads.iter().cloned().map(Which::At);
    let place = |which| (Arc::clone(&call.principal), which, Arc::clone(&call.key));
    named.into_iter().chain(at).map(place).collect()
}

/// Returns further identifiers of a call besides the name that its caller used.
fn leads(router: &Router, request: &CallRequest) -> Result<Vec<Arc<str>>, Unresolved> {
    let (address, provider, scope, preferred_name) =
        match router.resolve(&request.tool, &request.view) {
            Ok(route) => (
                route.tool.address(&route.id),
                route.id,
                route.scope,
                route.tool.preferred_name.clone(),
            ),
            Err(Unresolved::Offline { absence, scope, address, preferred_name, .. }) => {
                (address, absence.provider, scope, preferred_name)
            }
            Err(unknown) => return Err(unknown),
        };
    let mut leads = vec![address.into()];
    // Providers with the same grant replace each other if their tools have the same preferred name.
    // The one that receives the call depends on which of them are online.
    if let Some(grant) = router.directory.grant(&provider) {
        let place = match &scope {
            Scope::Everyone => "",
            Scope::Session(id) | Scope::Channel(id) | Scope::User(id) => id,
        };
        leads.push(
            format!("{} {} {place} {}", provider.kind, grant.id, preferred_name.to_lowercase())
                .into(),
        );
    }
    Ok(leads)
}

/// Removes the reader when the caller stops waiting. Otherwise its unread update queue would fill
/// up and end the call.
struct Caller(Arc<Life>);

impl Drop for Caller {
    fn drop(&mut self) {
        self.0.reader.leave();
    }
}

async fn claim_and_run(
    call: &mut RunningCall,
    ledger: &dyn Ledger,
    keyed: &KeyedCall,
    unknown_tool: Option<Unresolved>,
) -> Finished {
    let id = call.id();
    match ledger.claim(keyed, id).await {
        Ok(Claim::Ours) => call.announce(),
        Ok(Claim::Ended { id, outcome }) => {
            call.leave();
            return Finished { id, outcome, duration: Duration::ZERO };
        }
        Ok(Claim::Unknown { id }) => return call.finish(Err(unknown(id))),
        Ok(Claim::Different { id }) => return call.finish(Err(different(id))),
        Err(error) => return call.finish(Err(error)),
    }
    let router = Arc::clone(call.router());
    let allowed = || router.policy().authorise_role(&call.request.view.principal);
    let outcome = match (router.check_open(), unknown_tool) {
        (Ok(()), None) => router.run_admitted(call).await,
        (Ok(()), Some(unknown)) => {
            allowed().and(Err(router.unresolved(&call.request.tool, &call.request.view, unknown)))
        }
        (Err(closed), _) => Err(closed),
    };
    // Only a call that certainly reached no provider may be retried with the same key.
    let kept = if call.provider().is_some() {
        ledger.settle(keyed, id, &outcome).await
    } else {
        ledger.release(keyed, id).await
    };
    // An outcome that could not be stored is not returned, because the caller would rely on the
    // record.
    let outcome = kept.and(outcome);
    call.finish(outcome)
}

/// Waits for the first call's outcome on behalf of a retry, which is not a separate call. If its
/// caller disconnects, only the retry ends.
async fn join(
    mut call: RunningCall,
    _slot: Permit,
    first: watch::Receiver<Option<Finished>>,
) -> Finished {
    let life = Arc::clone(&call.life);
    // The first call ends at its own deadline. This timeout limits the wait of the retry's caller.
    let timeout = async {
        match call.request.timeout {
            Some(_) => life.deadline.capped().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        finished = wait(first) => {
            if let Some(finished) = finished {
                call.leave();
                return finished;
            }
        }
        // It is not known here whether the first call reached a provider.
        reason = life.cancel.fired() => return call.finish(Err(pipeline::cancelled(reason, Asked::Somebody))),
        () = timeout => {
            let limit = life.deadline.cap().as_millis();
            let error = CallError::new(
                CallErrorKind::Timeout,
                format!("the first call with this key was still running after {limit} ms, the timeout of this one"),
            );
            return call.finish(Err(error.hint("retry with the same key and a longer timeout")));
        }
    }
    call.finish(Err(broken()))
}

async fn wait(mut done: watch::Receiver<Option<Finished>>) -> Option<Finished> {
    done.wait_for(Option::is_some).await.ok()?.clone()
}

struct Vacate {
    router: Arc<Router>,
    places: Vec<Place>,
}

impl Drop for Vacate {
    fn drop(&mut self) {
        let mut running = self.router.keyed.0.lock();
        for place in &self.places {
            running.remove(place);
        }
    }
}

fn broken() -> CallError {
    CallError::new(CallErrorKind::Failed, "the call failed inside the gateway")
}

fn different(first: CallId) -> CallError {
    CallError::new(
        CallErrorKind::Conflict,
        format!("this idempotency key was used with other arguments, by the call {first}"),
    )
    .hint("use a new key for a new call")
}

fn unknown(first: CallId) -> CallError {
    CallError::new(
        CallErrorKind::Conflict,
        format!(
            "the outcome of the call {first} with this key is unknown: the gateway stopped while it was running, or \
             could not store its outcome; it may have had an effect"
        ),
    )
    .hint("check what the tool did, then use a new key")
}
