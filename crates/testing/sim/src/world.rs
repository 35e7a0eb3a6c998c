//! The state that hosts, plan and rules share: the time, the trace, and the outcome of each call.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use sa_core::{AuditEvent, CallErrorKind, CallRecord, Router};
use sa_nodes::Nodes;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::Report;
use crate::plan::CallPlan;

/// Cheap to clone. All of its content outlives the hosts.
#[derive(Clone, Default)]
pub(crate) struct World {
    state: Arc<Mutex<State>>,
    haunting: Arc<Notify>,
    settled: CancellationToken,
}

#[derive(Default)]
pub(crate) struct State {
    now: Duration,
    trace: Vec<String>,
    broken: Vec<String>,
    pub(crate) calls: BTreeMap<u64, CallState>,
    pub(crate) connections: Vec<Connection>,
    pub(crate) gateway: Option<Gateway>,
    pub(crate) gateways: u32,
    /// Whether the last calls were made and have ended.
    pub(crate) probed: bool,
    /// Open connections at the gateway, after the last calls.
    pub(crate) open_sockets: usize,
    haunts: VecDeque<&'static str>,
    stops: HashMap<&'static str, CancellationToken>,
}

#[derive(Clone)]
pub(crate) struct Gateway {
    pub(crate) router: Arc<Router>,
    pub(crate) nodes: Arc<Nodes>,
}

/// One call, as all sides saw it.
pub(crate) struct CallState {
    pub(crate) plan: CallPlan,
    /// The gateway start on which the call was made.
    pub(crate) gateway: u32,
    pub(crate) began: Duration,
    /// The outcomes that the caller received.
    pub(crate) told: Vec<Told>,
    pub(crate) left: bool,
    /// The outcomes that the journal recorded.
    pub(crate) recorded: Vec<Recorded>,
    pub(crate) runs: Vec<Run>,
}

/// An outcome: the answer, or the kind of error.
pub(crate) type Told = Result<String, CallErrorKind>;

pub(crate) struct Recorded {
    pub(crate) outcome: Told,
    pub(crate) at: Duration,
    /// The time when the call was sent to its node, if it was.
    pub(crate) dispatched: Option<Duration>,
}

/// One run of the call on a node.
pub(crate) struct Run {
    pub(crate) by: String,
    pub(crate) request_id: String,
    pub(crate) told_to_stop: Option<Duration>,
    pub(crate) end: Option<RunEnd>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunEnd {
    Answered,
    Obeyed,
    /// The host crashed, or the SDK's grace time was over.
    Dropped,
    /// The call reached a connection that never answers.
    Swallowed,
}

/// One connection of a node, as the gateway records it.
pub(crate) struct Connection {
    pub(crate) node: String,
    pub(crate) who: String,
    pub(crate) gateway: u32,
    pub(crate) opened: Duration,
    pub(crate) closed: Option<Duration>,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    pub(crate) fn at(&self, now: Duration) {
        self.state().now = now;
    }

    pub(crate) fn note(&self, who: &str, what: &str) {
        self.state().note(who, what);
    }

    pub(crate) fn broken(&self, rule: String) {
        let mut state = self.state();
        state.note("RULE", &rule);
        state.broken.push(rule);
    }

    pub(crate) fn report(&self) -> Report {
        let state = self.state();
        Report { trace: state.trace.clone(), broken: state.broken.clone() }
    }

    pub(crate) fn gateway_up(&self, gateway: Gateway) -> u32 {
        // A gateway that starts while another one is recorded was killed without notice.
        self.gateway_down();
        let mut state = self.state();
        state.gateways += 1;
        state.gateway = Some(gateway);
        state.note("gateway", "starts");
        state.gateways
    }

    /// Closes the gateway's connections in the record before it is killed.
    pub(crate) fn gateway_down(&self) {
        let mut state = self.state();
        let now = state.now;
        for connection in &mut state.connections {
            connection.closed.get_or_insert(now);
        }
    }

    /// Returns a token that is cancelled when the node should shut down.
    pub(crate) fn stopping(&self, node: &'static str) -> CancellationToken {
        let token = CancellationToken::new();
        self.state().stops.insert(node, token.clone());
        token
    }

    pub(crate) fn stop(&self, node: &'static str) {
        let token = self.state().stops.get(node).cloned();
        token.inspect(CancellationToken::cancel);
    }

    pub(crate) fn haunt(&self, node: &'static str) {
        self.state().haunts.push_back(node);
        self.haunting.notify_one();
    }

    /// Returns the next node that the impostor connection claims to be.
    pub(crate) async fn next_haunt(&self) -> &'static str {
        loop {
            if let Some(node) = self.state().haunts.pop_front() {
                return node;
            }
            self.haunting.notified().await;
        }
    }

    pub(crate) fn settle(&self) {
        self.settled.cancel();
    }

    pub(crate) async fn settled(&self) {
        self.settled.cancelled().await;
    }

    pub(crate) fn call_begins(&self, plan: CallPlan, gateway: u32) {
        let mut state = self.state();
        let began = state.now;
        state.note(
            "caller",
            &format!("makes call {} to {}, {:?}", plan.number, plan.node, plan.then),
        );
        let call = CallState {
            plan,
            gateway,
            began,
            told: vec![],
            left: false,
            recorded: vec![],
            runs: vec![],
        };
        state.calls.insert(plan.number, call);
    }

    pub(crate) fn call_told(&self, number: u64, outcome: Told) {
        let mut state = self.state();
        state.note("caller", &format!("is told of call {number}: {outcome:?}"));
        state.call(number).told.push(outcome);
    }

    pub(crate) fn caller_left(&self, number: u64) {
        let mut state = self.state();
        state.note("caller", &format!("leaves call {number}"));
        state.call(number).left = true;
    }

    pub(crate) fn recorded(&self, record: &CallRecord) {
        let number = number_in(record.args.as_str());
        let outcome = told(&record.outcome);
        let mut state = self.state();
        let at = state.now;
        state.note("journal", &format!("call {number} ended: {outcome:?}, {:?}", record.provider));
        let call = state.call(number);
        let dispatched = record.waited.map(|waited| call.began + waited);
        call.recorded.push(Recorded { outcome, at, dispatched });
    }

    pub(crate) fn audited(&self, event: &AuditEvent, gateway: u32) {
        let mut state = self.state();
        let now = state.now;
        state.note("audit", &format!("{} {} {}", event.name, event.actor, event.detail));
        let (node, who) = (event.subject.clone(), event.actor.clone());
        match event.name {
            "node.connected" => {
                state.connections.push(Connection {
                    node,
                    who,
                    gateway,
                    opened: now,
                    closed: None,
                });
            }
            "node.disconnected" => {
                let open = |connection: &&mut Connection| {
                    connection.who == who && connection.gateway == gateway
                };
                if let Some(connection) = state.connections.iter_mut().find(open) {
                    connection.closed.get_or_insert(now);
                }
            }
            _ => {}
        }
    }

    /// Records that a call has reached a node or the impostor, which works on it until the guard is
    /// dropped.
    pub(crate) fn run_begins(&self, by: &str, number: u64, request_id: &str) -> RunGuard {
        let mut state = self.state();
        state.note(by, &format!("runs call {number}"));
        let runs = &mut state.call(number).runs;
        let run = Run {
            by: by.to_owned(),
            request_id: request_id.to_owned(),
            told_to_stop: None,
            end: None,
        };
        runs.push(run);
        RunGuard { world: self.clone(), number, index: runs.len() - 1 }
    }

    /// Returns the calls that a node is running now. Their answers could be forged.
    pub(crate) fn running_now(&self) -> Vec<String> {
        let state = self.state();
        let runs = state.calls.values().flat_map(|call| &call.runs);
        runs.filter(|run| run.end.is_none()).map(|run| run.request_id.clone()).collect()
    }
}

impl State {
    pub(crate) fn note(&mut self, who: &str, what: &str) {
        let line = format!("{:>7} {who}: {what}", self.now.as_millis());
        self.trace.push(line);
    }

    fn call(&mut self, number: u64) -> &mut CallState {
        self.calls.get_mut(&number).expect("nobody knows of a call that was not made")
    }
}

pub(crate) struct RunGuard {
    world: World,
    number: u64,
    index: usize,
}

impl RunGuard {
    pub(crate) fn told_to_stop(&self) {
        let mut state = self.world.state();
        let now = state.now;
        let run = &mut state.call(self.number).runs[self.index];
        run.told_to_stop.get_or_insert(now);
        let by = run.by.clone();
        state.note(&by, &format!("is told to stop call {}", self.number));
    }

    pub(crate) fn ends(&self, end: RunEnd) {
        let mut state = self.world.state();
        let run = &mut state.call(self.number).runs[self.index];
        if run.end.is_none() {
            run.end = Some(end);
            let by = run.by.clone();
            state.note(&by, &format!("{end:?} call {}", self.number));
        }
    }
}

impl Drop for RunGuard {
    fn drop(&mut self) {
        self.ends(RunEnd::Dropped);
    }
}

pub(crate) fn told(outcome: &sa_core::Outcome) -> Told {
    match outcome {
        Ok(output) => Ok(output.content.as_str().to_owned()),
        Err(error) => Err(error.kind),
    }
}

/// Returns the number of a call, from its arguments.
pub(crate) fn number_in(args: &str) -> u64 {
    let args: serde_json::Value = serde_json::from_str(args).unwrap_or_default();
    args["number"].as_u64().expect("every call of the simulation has a number")
}
