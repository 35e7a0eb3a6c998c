//! Running this participant's methods for those who call them.

use std::collections::{HashMap, HashSet, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt as _;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::context::{MethodContext, MethodOutput};
use crate::payload::{MethodCallRequest, MethodResult, Payload as _};
use crate::shared::{Draft, Shared};
use crate::{Error, Method};

/// The most methods that run at once.
const MAX_RUNNING: usize = 1_000;
/// How many calls are remembered, so that none is run twice.
const REMEMBERED: usize = 10_000;

/// The calls that this participant was asked for.
#[derive(Debug, Default)]
pub(crate) struct Executions(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    running: HashMap<String, Running>,
    started: HashSet<String>,
    order: VecDeque<String>,
}

#[derive(Debug)]
struct Running {
    caller: String,
    signal: CancellationToken,
}

impl Executions {
    /// Enters a call. `false` if it was entered before.
    fn begin(&self, call: &str, caller: &str, signal: &CancellationToken) -> Result<bool, Error> {
        let mut state = self.lock();
        if !state.started.insert(call.to_owned()) {
            return Ok(false);
        }
        state.order.push_back(call.to_owned());
        if state.order.len() > REMEMBERED {
            let oldest = state.order.pop_front();
            oldest.map(|oldest| state.started.remove(&oldest));
        }
        if state.running.len() >= MAX_RUNNING {
            let busy = format!("this participant runs {MAX_RUNNING} calls already; try again when some have ended");
            return Err(Error::Execution(busy));
        }
        state.running.insert(call.to_owned(), Running { caller: caller.to_owned(), signal: signal.clone() });
        Ok(true)
    }

    /// The caller does not want the result any more. A cancel from anybody else does not count.
    pub(crate) fn cancel(&self, call: &str, sender: &str) {
        if let Some(running) = self.lock().running.get(call).filter(|running| running.caller == sender) {
            running.signal.cancel();
        }
    }

    /// The call has its last result. If the method still runs, that result is not its own.
    pub(crate) fn ended(&self, call: &str) {
        if let Some(running) = self.lock().running.get(call) {
            running.signal.cancel();
        }
    }

    fn end(&self, call: &str) {
        self.lock().running.remove(call);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs a call, on a task of its own. What was run before is not run again.
pub(crate) fn start(shared: &Arc<Shared>, call: MethodCallRequest, caller: &str, persist: bool) {
    let method = shared.config.methods.get(&call.method_name).cloned();
    // Another connection of this participant has declared the method, and answers.
    if method.is_none() && is_elsewhere(shared, &call.method_name) {
        return;
    }
    let signal = shared.closed.child_token();
    let begun = shared.executions.begin(&call.call_id, caller, &signal);
    let refusal = match (begun, &method) {
        (Ok(false), _) => return,
        (Err(busy), _) => Some(busy),
        (Ok(true), None) => Some(Error::MethodNotFound(format!("there is no method \"{}\" here", call.method_name))),
        (Ok(true), Some(_)) => None,
    };
    let context = MethodContext {
        call_id: call.call_id.clone(),
        caller_id: caller.to_owned(),
        signal,
        shared: Arc::clone(shared),
    };
    tokio::spawn(async move {
        let shared = Arc::clone(&context.shared);
        let outcome = match (refusal, method) {
            (None, Some(method)) => run(&method, call.args, context).await,
            (refusal, _) => Err(refusal.unwrap_or_else(Error::closed)),
        };
        // Taken out first: the result that is sent now is the method's own.
        shared.executions.end(&call.call_id);
        answer(&shared, &call.call_id, outcome, persist).await;
    });
}

/// Whether the roster lists the method for this participant.
fn is_elsewhere(shared: &Shared, method: &str) -> bool {
    let own = shared.identity().participant.clone();
    let roster = shared.roster().now();
    roster.get(&own).is_some_and(|own| own.methods().iter().any(|listed| listed.name == method))
}

async fn run(method: &Method, args: serde_json::Value, context: MethodContext) -> Result<MethodOutput, Error> {
    let (signal, grace) = (context.signal.clone(), context.shared.config.cancel_grace);
    let work = async move { method.run(args, context)?.await };
    let dropped = async {
        signal.cancelled().await;
        tokio::time::sleep(grace).await;
    };
    tokio::select! {
        outcome = AssertUnwindSafe(work).catch_unwind() => match outcome {
            // What a method says after a cancel is its own affair; a failure then is the cancel's.
            Ok(Err(Error::Execution(why))) if signal.is_cancelled() => Err(Error::Cancelled(why)),
            Ok(outcome) => outcome,
            Err(_) => Err(Error::Execution("the method panicked; see its participant's log".into())),
        },
        () = dropped => Err(Error::Cancelled("the call was cancelled, and the method did not end by itself".into())),
    }
}

async fn answer(shared: &Arc<Shared>, call: &str, outcome: Result<MethodOutput, Error>, persist: bool) {
    let refused = match outcome {
        Ok(output) => {
            let result = MethodResult {
                call_id: call.into(),
                content: Some(output.content),
                content_type: output.content_type,
                complete: true,
                ..MethodResult::default()
            };
            match send(shared, &result, output.attachments, persist).await {
                Ok(()) => return,
                Err(refused) => refused,
            }
        }
        Err(error) => error,
    };
    // The call may have ended meanwhile, and without a connection nobody can be told.
    if matches!(&refused, Error::Connection(_)) || refused.code() == "conflict" {
        return;
    }
    let failure = MethodResult {
        call_id: call.into(),
        content: Some(json!({ "error": refused.to_string(), "code": refused.code() })),
        complete: true,
        is_error: true,
        ..MethodResult::default()
    };
    match send(shared, &failure, Vec::new(), persist).await {
        Ok(()) | Err(Error::Connection(_)) => {}
        Err(error) if error.code() == "conflict" => {}
        Err(error) => shared.report(&error),
    }
}

async fn send(
    shared: &Arc<Shared>,
    result: &MethodResult,
    attachments: Vec<crate::Attachment>,
    persist: bool,
) -> Result<(), Error> {
    let draft = Draft { attachments, ..Draft::new(MethodResult::KIND, result.write()?, persist) };
    shared.publish(draft).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_run_once_and_cancelled_by_its_caller_alone() {
        let (executions, signal) = (Executions::default(), CancellationToken::new());
        assert_eq!(executions.begin("c", "ann", &signal), Ok(true));
        assert_eq!(executions.begin("c", "ann", &signal), Ok(false));
        executions.cancel("c", "eve");
        assert!(!signal.is_cancelled());
        executions.cancel("c", "ann");
        assert!(signal.is_cancelled());
        executions.end("c");
        assert_eq!(executions.begin("c", "ann", &signal), Ok(false), "not even when it has ended");
    }

    #[test]
    fn there_is_a_limit() {
        let (executions, signal) = (Executions::default(), CancellationToken::new());
        for call in 0..MAX_RUNNING {
            assert_eq!(executions.begin(&call.to_string(), "ann", &signal), Ok(true));
        }
        assert!(executions.begin("one more", "ann", &signal).is_err());
    }
}
