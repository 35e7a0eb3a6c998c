//! Calls with an idempotency key: at most one run for each key, and the same answer for every retry.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

use super::running::{Finished, RunningCall};
use crate::call::CallId;
use crate::idempotency::{Claim, KeyedCall, Ledger};
use crate::outcome::{CallError, CallErrorKind};

/// The keyed calls that run now, so that a retry joins the first instead of asking the ledger about it.
#[derive(Default)]
pub(super) struct InFlight(Mutex<HashMap<Place, Running>>);

type Place = (Arc<str>, Arc<str>, Arc<str>);

struct Running {
    call: KeyedCall,
    id: CallId,
    done: watch::Receiver<Option<Finished>>,
}

enum Entry {
    First,
    Retry(watch::Receiver<Option<Finished>>),
    Different(CallId),
}

pub(super) async fn run(mut call: RunningCall) -> Finished {
    let router = Arc::clone(call.router());
    let Some(ledger) = router.ledger.clone() else {
        let error = CallError::new(CallErrorKind::Failed, "this gateway keeps no record of idempotency keys");
        return call.finish(Err(error));
    };
    let keyed = KeyedCall {
        principal: Arc::clone(&call.request.view.principal.id),
        tool: Arc::clone(&call.tool),
        key: call.request.idempotency_key.clone().unwrap_or_default(),
        args: call.request.args.clone(),
    };
    let place: Place = (keyed.principal.clone(), keyed.tool.clone(), keyed.key.clone());
    let (done, waiting) = watch::channel(None);
    let entry = {
        let mut running = router.keyed.0.lock().unwrap_or_else(PoisonError::into_inner);
        match running.get(&place) {
            Some(first) if first.call.args != keyed.args => Entry::Different(first.id),
            Some(first) => Entry::Retry(first.done.clone()),
            None => {
                running.insert(place.clone(), Running { call: keyed.clone(), id: call.id(), done: waiting.clone() });
                Entry::First
            }
        }
    };
    match entry {
        Entry::First => {}
        Entry::Retry(first) => return join(call, first).await,
        Entry::Different(id) => return call.finish(Err(different(id))),
    }
    // On its own from here: the caller may leave, the call goes on.
    let task = tokio::spawn(async move {
        let _vacate = Vacate { router: Arc::clone(&router), place };
        let finished = claim_and_run(&mut call, &*ledger, &keyed).await;
        done.send_replace(Some(finished));
    });
    drop(task);
    wait(waiting).await.unwrap_or_else(|| Finished {
        id: CallId::new(),
        outcome: Err(CallError::new(CallErrorKind::Failed, "the call failed inside the gateway")),
        duration: std::time::Duration::ZERO,
    })
}

async fn claim_and_run(call: &mut RunningCall, ledger: &dyn Ledger, keyed: &KeyedCall) -> Finished {
    let id = call.id();
    match ledger.claim(keyed, id).await {
        Ok(Claim::Ours) => {}
        Ok(Claim::Ended { id, outcome }) => {
            call.leave();
            return Finished { id, outcome, duration: std::time::Duration::ZERO };
        }
        Ok(Claim::Unknown { id }) => return call.finish(Err(unknown(id))),
        Ok(Claim::Different { id }) => return call.finish(Err(different(id))),
        Err(error) => return call.finish(Err(error)),
    }
    let router = Arc::clone(call.router());
    let outcome = router.run(call).await;
    // Only what certainly reached nobody may be tried again under the same key.
    let kept =
        if call.provider().is_some() { ledger.settle(keyed, id, &outcome).await } else { ledger.release(keyed).await };
    // An outcome that could not be kept is not reported as if it were: the caller would rely on the record.
    let outcome = kept.and(outcome);
    call.finish(outcome)
}

/// A retry while the first one runs: it gets the first one's outcome, and is no call of its own.
async fn join(mut call: RunningCall, first: watch::Receiver<Option<Finished>>) -> Finished {
    let cancelled = call.life.clone();
    tokio::select! {
        finished = wait(first) => {
            if let Some(finished) = finished {
                call.leave();
                return finished;
            }
        }
        reason = cancelled.cancel.fired() => return call.finish(Err(super::cancelled(reason))),
    }
    call.finish(Err(CallError::new(CallErrorKind::Failed, "the call failed inside the gateway")))
}

async fn wait(mut done: watch::Receiver<Option<Finished>>) -> Option<Finished> {
    done.wait_for(Option::is_some).await.ok()?.clone()
}

struct Vacate {
    router: Arc<super::Router>,
    place: Place,
}

impl Drop for Vacate {
    fn drop(&mut self) {
        self.router.keyed.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.place);
    }
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
        format!("the call {first} with this key was under way when the gateway stopped; it may have had an effect"),
    )
    .hint("check what the tool did, then use a new key")
}
