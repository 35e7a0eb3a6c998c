//! Calls with an idempotency key: at most one run for each key, and the same answer for every retry.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::sync::watch;

use super::running::{Finished, RunningCall};
use super::{Router, Share};
use crate::budget::Permit;
use crate::call::{CallId, CallRequest, Life};
use crate::directory::Unresolved;
use crate::idempotency::{Claim, KeyedCall, Ledger};
use crate::json::RawJson;
use crate::outcome::{CallError, CallErrorKind};
use crate::principal::Scope;

/// The keyed calls that run now, so that a retry joins the first instead of asking the ledger about it.
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
        let error = CallError::new(CallErrorKind::Failed, "this gateway keeps no record of idempotency keys");
        return call.finish(Err(error));
    };
    // Before anything is kept of it: whether it is another one's retry or not, it takes what every call takes.
    let share = match router.admit(&call) {
        Ok(share) => share,
        Err(error) => return call.finish(Err(error)),
    };
    let (leads, unknown) = match leads(&router, &call.request) {
        Ok(leads) => (leads, None),
        // It may have been called when there was such a tool. If not, it is not called now either: one that comes in this
        // moment would get a call that nothing but its name leads to.
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
        // Compared here, where nobody waits for a lock meanwhile.
        Entry::Retry(first) if first.args != keyed.args => return call.finish(Err(different(first.id))),
        Entry::Retry(Running { args, done, .. }) => {
            drop(keyed);
            call.share_args(&args);
            let Share { place, room } = share;
            drop(room);
            return join(call, place, done).await;
        }
    }
    let id = call.id();
    let _caller = Caller(Arc::clone(&call.life));
    // On its own from here: the caller may leave, the call goes on.
    let task = tokio::spawn(async move {
        let _share = share;
        let _vacate = Vacate { router: Arc::clone(&router), places };
        let ran = AssertUnwindSafe(claim_and_run(&mut call, &*ledger, &keyed, unknown)).catch_unwind().await;
        let finished = ran.unwrap_or_else(|_| call.finish(Err(broken())));
        done.send_replace(Some(finished));
    });
    drop(task);
    wait(waiting).await.unwrap_or_else(|| Finished { id, outcome: Err(broken()), duration: Duration::ZERO })
}

impl InFlight {
    /// Enters a call, unless one of its places is taken.
    fn enter(&self, places: &[Place], call: Running) -> Entry {
        let mut running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(first) = places.iter().find_map(|place| running.get(place)) {
            return Entry::Retry(first.clone());
        }
        running.extend(places.iter().map(|place| (place.clone(), call.clone())));
        Entry::First
    }
}

/// Where a call is found again: by what its caller said first, then by which tool that is.
fn places(call: &KeyedCall) -> Vec<Place> {
    let named = Some(Which::Named(Arc::clone(&call.tool)));
    let at = call.leads.iter().cloned().map(Which::At);
    let place = |which| (Arc::clone(&call.principal), which, Arc::clone(&call.key));
    named.into_iter().chain(at).map(place).collect()
}

/// What leads to a call beside the name that it was made by.
fn leads(router: &Router, request: &CallRequest) -> Result<Vec<Arc<str>>, Unresolved> {
    let (address, provider, scope, preferred_name) = match router.resolve(&request.tool, &request.view) {
        Ok(route) => (route.tool.address(&route.id), route.id, route.scope, route.tool.preferred_name.clone()),
        Err(Unresolved::Offline { absence, scope, address, preferred_name, .. }) => {
            (address, absence.provider, scope, preferred_name)
        }
        Err(unknown) => return Err(unknown),
    };
    let mut leads = vec![address.into()];
    // Providers with one grant stand in for each other where their tools want the same name, and which of them has the call
    // depends on who is here at the moment.
    if let Some(grant) = router.directory.grant(&provider) {
        let place = match &scope {
            Scope::Everyone => "",
            Scope::Session(id) | Scope::Channel(id) | Scope::User(id) => id,
        };
        leads.push(format!("{} {} {place} {}", provider.kind, grant.id, preferred_name.to_lowercase()).into());
    }
    Ok(leads)
}

/// The caller, for as long as it waits. Once it is gone its queue of updates is read by nobody, and that it fills up
/// must not end the call.
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
    let outcome = match (router.still_open(), unknown_tool) {
        (Ok(()), None) => router.run_admitted(call).await,
        (Ok(()), Some(unknown)) => {
            allowed().and(Err(router.unresolved(&call.request.tool, &call.request.view, unknown)))
        }
        (Err(closed), _) => Err(closed),
    };
    // Only what certainly reached nobody may be tried again under the same key.
    let kept = if call.provider().is_some() {
        ledger.settle(keyed, id, &outcome).await
    } else {
        ledger.release(keyed, id).await
    };
    // An outcome that could not be kept is not reported as if it were: the caller would rely on the record.
    let outcome = kept.and(outcome);
    call.finish(outcome)
}

/// A retry while the first one runs: it gets the first one's outcome, and is no call of its own. Its caller's leaving ends it,
/// and not the first one.
async fn join(mut call: RunningCall, _place: Permit, first: watch::Receiver<Option<Finished>>) -> Finished {
    let life = Arc::clone(&call.life);
    // The first one's own deadline ends it; what counts here is how long this caller wants to wait.
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
        // Whom the first one reached is not known here.
        reason = life.cancel.fired() => return call.finish(Err(super::cancelled(reason, super::Asked::Somebody))),
        () = timeout => {
            let limit = life.deadline.cap().as_millis();
            let error = CallError::new(
                CallErrorKind::Timeout,
                format!("the first call with this key still ran after this one's {limit} ms"),
            );
            return call.finish(Err(error.hint("ask again with the same key, and wait longer")));
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
        let mut running = self.router.keyed.0.lock().unwrap_or_else(PoisonError::into_inner);
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
            "how the call {first} with this key ended is not known: the gateway stopped while it was under way, or could not \
             keep its outcome; it may have had an effect"
        ),
    )
    .hint("check what the tool did, then use a new key")
}
