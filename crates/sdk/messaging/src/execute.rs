//! Runs this participant's methods for their callers.

use std::collections::{HashMap, HashSet, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt as _;
use parking_lot::{Mutex, MutexGuard};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::context::{MethodContext, MethodOutput};
use crate::payload::{MethodCallRequest, MethodResult, Payload as _};
use crate::shared::{Draft, Shared};
use crate::{Error, Method};

/// The maximum number of methods that run concurrently.
const MAX_RUNNING: usize = 1_000;
/// The number of calls that are remembered, so that no call runs twice.
const REMEMBERED: usize = 10_000;

/// The calls that this participant has received.
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
    /// Registers a call. Returns `false` if it was registered before.
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
            let busy = format!(
                "this participant is already running {MAX_RUNNING} calls; try again when some have ended"
            );
            return Err(Error::Execution(busy));
        }
        state
            .running
            .insert(call.to_owned(), Running { caller: caller.to_owned(), signal: signal.clone() });
        Ok(true)
    }

    /// Cancels a call on request of its caller. A cancel from any other participant is ignored.
    pub(crate) fn cancel(&self, call: &str, sender: &str) {
        if let Some(running) =
            self.lock().running.get(call).filter(|running| running.caller == sender)
        {
            running.signal.cancel();
        }
    }

    /// Handles the last result of a call. If the method still runs, another connection sent that
    /// result.
    pub(crate) fn ended(&self, call: &str) {
        if let Some(running) = self.lock().running.get(call) {
            running.signal.cancel();
        }
    }

    fn end(&self, call: &str) {
        self.lock().running.remove(call);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }
}

/// Runs a call on a new task, unless it ran before.
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
        (Ok(true), None) => Some(Error::MethodNotFound(format!(
            "this participant has no method \"{}\"",
            call.method_name
        ))),
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
        // The call is removed first, because the result that is sent now is the method's own.
        shared.executions.end(&call.call_id);
        answer(&shared, &call.call_id, outcome, persist).await;
    });
}

/// Returns whether the roster lists the method for this participant.
fn is_elsewhere(shared: &Shared, method: &str) -> bool {
    let own = shared.identity().participant.clone();
    let roster = shared.roster().now();
    roster.get(&own).is_some_and(|own| own.methods().iter().any(|listed| listed.name == method))
}

async fn run(
    method: &Method,
    args: serde_json::Value,
    context: MethodContext,
) -> Result<MethodOutput, Error> {
    let (signal, grace) = (context.signal.clone(), context.shared.config.cancel_grace);
    let work = async move { method.run(args, context)?.await };
    let dropped = async {
        signal.cancelled().await;
        tokio::time::sleep(grace).await;
    };
    tokio::select! {
        outcome = AssertUnwindSafe(work).catch_unwind() => match outcome {
            // A method may still return a result after a cancel. An error after a cancel counts as
            // the cancel.
            Ok(Err(Error::Execution(why))) if signal.is_cancelled() => Err(Error::Cancelled(why)),
            Ok(outcome) => outcome,
            Err(_) => Err(Error::Execution("the method panicked; see the log of its participant".into())),
        },
        () = dropped => Err(Error::Cancelled("the call was cancelled, and the method did not end in time".into())),
    }
}

async fn answer(
    shared: &Arc<Shared>,
    call: &str,
    outcome: Result<MethodOutput, Error>,
    persist: bool,
) {
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
    // The call may have ended meanwhile, and without a connection no error can be sent.
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
