//! Calls with an idempotency key: at most one run for each key, and the same answer for every
//! retry.

use std::collections::HashMap;
use std::collections::hash_map::Entry as MapEntry;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::Router;
use super::pipeline::{self, CallPermits, Dispatched};
use super::running::{Finished, RunningCall};
use crate::call::{CallId, CallState};
use crate::idempotency::{Claim, KeyedCall, Ledger};
use crate::outcome::{CallError, CallErrorKind};
use sa_limits::budget::Permit;
use sa_text::json::RawJson;

/// The running calls with a key. A retry joins the first call instead of querying the ledger.
#[derive(Default)]
pub(super) struct InFlight(Mutex<HashMap<OwnedKey, Running>>);

/// A principal and its key.
type OwnedKey = (Arc<str>, Arc<str>);

#[derive(Clone)]
struct Running {
    id: CallId,
    tool: Arc<str>,
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
    let permits = match router.admit(&call) {
        Ok(permits) => permits,
        Err(error) => return call.finish(Err(error)),
    };
    let keyed = KeyedCall {
        principal: Arc::clone(&call.request.view.principal.id),
        key: call.request.idempotency_key.clone().unwrap_or_default(),
        tool: call.tool.to_lowercase().into(),
        args: call.request.args.clone(),
    };
    let (done, waiting) = watch::channel(None);
    let (tool, args) = (Arc::clone(&keyed.tool), keyed.args.clone());
    let own = Running { id: call.id(), tool, args, done: waiting.clone() };
    let key = (Arc::clone(&keyed.principal), Arc::clone(&keyed.key));
    match router.keyed.insert(&key, own) {
        Entry::First => {}
        // Compared here, outside of the lock.
        Entry::Retry(first) if first.tool != keyed.tool || first.args != keyed.args => {
            return call.finish(Err(different(first.id)));
        }
        Entry::Retry(Running { args, done, .. }) => {
            drop(keyed);
            call.share_args(&args);
            let CallPermits { slot, arguments } = permits;
            drop(arguments);
            return join(call, slot, done).await;
        }
    }
    let id = call.id();
    let _caller = Caller(Arc::clone(&call.state));
    // From here on the call runs in its own task, and continues if the caller disconnects.
    let task = tokio::spawn(async move {
        let _permits = permits;
        let _remove = RemoveKey { router: Arc::clone(&router), key };
        let ran = AssertUnwindSafe(claim_and_run(&mut call, &*ledger, &keyed)).catch_unwind().await;
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
    /// Adds a call, unless its key is in use.
    fn insert(&self, key: &OwnedKey, call: Running) -> Entry {
        match self.0.lock().entry(key.clone()) {
            MapEntry::Occupied(first) => Entry::Retry(first.get().clone()),
            MapEntry::Vacant(vacant) => {
                vacant.insert(call);
                Entry::First
            }
        }
    }
}

/// Removes the reader when the caller stops waiting. Otherwise its unread update queue would fill
/// up and end the call.
struct Caller(Arc<CallState>);

impl Drop for Caller {
    fn drop(&mut self) {
        self.0.reader.detach();
    }
}

async fn claim_and_run(call: &mut RunningCall, ledger: &dyn Ledger, keyed: &KeyedCall) -> Finished {
    let id = call.id();
    match ledger.claim(keyed, id).await {
        Ok(Claim::Ours) => call.announce(),
        Ok(Claim::Ended { id, outcome }) => {
            call.remove();
            return Finished { id, outcome, duration: Duration::ZERO };
        }
        Ok(Claim::Unknown { id }) => return call.finish(Err(unknown(id))),
        Ok(Claim::Different { id }) => return call.finish(Err(different(id))),
        Err(error) => return call.finish(Err(error)),
    }
    let router = Arc::clone(call.router());
    let outcome = match router.check_open() {
        Ok(()) => router.run_admitted(call).await,
        Err(closed) => Err(closed),
    };
    // Only a call that certainly reached no provider may be retried with the same key.
    let stored = if call.provider().is_some() {
        ledger.settle(keyed, id, &outcome).await
    } else {
        ledger.release(keyed, id).await
    };
    // An outcome that could not be stored is not returned, because the caller would rely on the
    // record.
    let outcome = stored.and(outcome);
    call.finish(outcome)
}

/// Waits for the first call's outcome on behalf of a retry, which is not a separate call. If its
/// caller disconnects, only the retry ends.
async fn join(
    mut call: RunningCall,
    _slot: Permit,
    first: watch::Receiver<Option<Finished>>,
) -> Finished {
    let state = Arc::clone(&call.state);
    // The first call ends at its own deadline. This timeout limits the wait of the retry's caller.
    let timeout = async {
        match call.request.timeout {
            Some(_) => state.deadline.capped().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        finished = wait(first) => {
            if let Some(finished) = finished {
                call.remove();
                return finished;
            }
        }
        // It is not known here whether the first call reached a provider.
        reason = state.cancel.fired() => return call.finish(Err(pipeline::cancelled(reason, Dispatched::Yes))),
        () = timeout => {
            let limit = state.deadline.cap().as_millis();
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

/// Removes a key from the running calls when its call ends.
struct RemoveKey {
    router: Arc<Router>,
    key: OwnedKey,
}

impl Drop for RemoveKey {
    fn drop(&mut self) {
        self.router.keyed.0.lock().remove(&self.key);
    }
}

fn broken() -> CallError {
    CallError::new(CallErrorKind::Failed, "the call failed inside the gateway")
}

fn different(first: CallId) -> CallError {
    CallError::new(
        CallErrorKind::Conflict,
        format!(
            "this idempotency key was used with another tool or other arguments, by the call {first}"
        ),
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
