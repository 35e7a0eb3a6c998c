//! The rules that must hold at the end of every run.

use std::time::Duration;

use sa_core::CallErrorKind;

use crate::NODES;
use crate::gateway::options;
use crate::plan::Then;
use crate::world::{CallState, Connection, RunEnd, State, World};

pub(crate) fn check(world: &World, tick: Duration) {
    let mut broken = Vec::new();
    {
        let state = world.state();
        // Events of one step share one time, and their consequences may happen in the next step.
        let end = End { state: &state, grain: tick * 2 };
        for call in state.calls.values() {
            let rules = [
                one_outcome,
                at_most_one_run,
                nothing_runs_on,
                a_true_answer,
                in_time,
                as_expected,
                ends_with_its_connection,
            ];
            for rule in rules {
                if let Err(why) = rule(call, &end) {
                    broken.push(format!("call {} to {}: {why}", call.plan.number, call.plan.node));
                }
            }
        }
        broken.extend(nothing_is_left(&state).err());
    }
    for rule in broken {
        world.broken(rule);
    }
}

struct End<'a> {
    state: &'a State,
    grain: Duration,
}

type Rule = Result<(), String>;

fn ensure(holds: bool, why: impl FnOnce() -> String) -> Rule {
    if holds { Ok(()) } else { Err(why()) }
}

/// Every call ends once, in the record and for its caller, with the same outcome.
fn one_outcome(call: &CallState, end: &End<'_>) -> Rule {
    let state = end.state;
    let [recorded] = &call.recorded[..] else {
        return Err(format!("it was recorded {} times", call.recorded.len()));
    };
    match &call.told[..] {
        [told] => ensure(!call.left && *told == recorded.outcome, || {
            format!("its caller was told {told:?}, the record has {:?}", recorded.outcome)
        }),
        // No caller received an outcome: it had left, or was killed with the gateway.
        [] => {
            let gone = call.left || call.gateway < state.gateways;
            ensure(gone && recorded.outcome == Err(CallErrorKind::Cancelled), || {
                format!("its caller was told nothing, the record has {:?}", recorded.outcome)
            })
        }
        told => Err(format!("its caller was told {} times", told.len())),
    }
}

/// Without an idempotency key no call runs twice.
fn at_most_one_run(call: &CallState, _: &End<'_>) -> Rule {
    ensure(call.runs.len() <= 1, || {
        let by: Vec<_> = call.runs.iter().map(|run| &*run.by).collect();
        format!("it ran {} times, on {by:?}", call.runs.len())
    })
}

/// Every tool run ends or is cancelled: on cancel, on timeout, when the caller leaves, and when the
/// connection is lost. Some of the tools never end by themselves.
fn nothing_runs_on(call: &CallState, _: &End<'_>) -> Rule {
    ensure(call.runs.iter().all(|run| run.end.is_some()), || {
        let told = call.runs.iter().any(|run| run.told_to_stop.is_some());
        format!("its tool still runs at the end; told to stop: {told}")
    })
}

/// Only the node that received a call answers it, and only with its own answer.
fn a_true_answer(call: &CallState, _: &End<'_>) -> Rule {
    let number = call.plan.number;
    for outcome in call.told.iter().chain(call.recorded.iter().map(|recorded| &recorded.outcome)) {
        let Ok(answer) = outcome else { continue };
        let expected = serde_json::json!({ "number": number, "by": call.plan.node }).to_string();
        ensure(*answer == expected, || format!("it was answered {answer}"))?;
        let answered = call
            .runs
            .iter()
            .any(|run| run.end == Some(RunEnd::Answered) && run.by == call.plan.node);
        ensure(answered, || "it was answered by nobody who ran it".to_owned())?;
    }
    Ok(())
}

/// No call takes longer than its limit.
fn in_time(call: &CallState, end: &End<'_>) -> Rule {
    let limit =
        if call.plan.progress.is_some() { options().max_duration } else { call.plan.timeout };
    let most = match call.plan.then {
        Then::Cancel(after) | Then::Leave(after) => limit.min(after),
        Then::Wait => limit,
    };
    let took = call
        .recorded
        .first()
        .map_or(Duration::ZERO, |recorded| recorded.at.saturating_sub(call.began));
    ensure(took <= most + end.grain, || format!("it took {took:?} of {most:?}"))
}

/// The faults must explain every error. After all faults are repaired, there must be no error.
fn as_expected(call: &CallState, end: &End<'_>) -> Rule {
    let state = end.state;
    let Some(recorded) = call.recorded.first() else { return Ok(()) };
    let is_probe = call.plan.at == crate::SETTLE;
    let fits = match (&recorded.outcome, is_probe) {
        (Ok(_), _) => call.plan.work.is_some(),
        (Err(CallErrorKind::Timeout), true) => {
            call.plan.work.is_none() && matches!(call.plan.then, Then::Wait)
        }
        (Err(CallErrorKind::Cancelled), true) => matches!(call.plan.then, Then::Cancel(_)),
        (Err(_), true) => false,
        (
            Err(
                CallErrorKind::Timeout
                | CallErrorKind::Cancelled
                | CallErrorKind::Offline
                | CallErrorKind::Overloaded,
            ),
            false,
        ) => true,
        // A gateway that has just started does not know the nodes yet.
        (Err(CallErrorKind::NotFound), false) => {
            let known = |c: &Connection| {
                c.node == call.plan.node
                    && c.gateway == call.gateway
                    && c.opened + end.grain < call.began
            };
            !state.connections.iter().any(known)
        }
        (Err(_), false) => false,
    };
    ensure(fits, || format!("it ended with {:?}", recorded.outcome))
}

/// A dispatched call ends when its connection ends, not only at its timeout.
fn ends_with_its_connection(call: &CallState, end: &End<'_>) -> Rule {
    let state = end.state;
    let Some(recorded) = call.recorded.first() else { return Ok(()) };
    let Some(dispatched) = recorded.dispatched else { return Ok(()) };
    let ours = |c: &&Connection| c.node == call.plan.node && c.gateway == call.gateway;
    let connections: Vec<_> = state.connections.iter().filter(ours).collect();
    let Some(index) = connections.iter().rposition(|c| c.opened <= dispatched) else {
        return Ok(());
    };
    // The connection is unknown when another one opened at the same moment.
    if connections.iter().any(|c| c.opened.abs_diff(dispatched) <= end.grain) {
        return Ok(());
    }
    let replaced = connections.get(index + 1).map(|next| next.opened);
    let closed = [connections[index].closed, replaced].into_iter().flatten().min();
    ensure(closed.is_none_or(|closed| recorded.at <= closed + end.grain), || {
        format!(
            "it outlived its connection, which ended at {:?}, until {:?}",
            closed.unwrap_or_default(),
            recorded.at
        )
    })
}

/// The tables are empty, and the connected nodes are exactly the listed ones.
fn nothing_is_left(state: &State) -> Rule {
    ensure(state.probed, || "the last calls did not come to an end".to_owned())?;
    let Some(gateway) = &state.gateway else { return Err("there is no gateway".to_owned()) };
    let running = gateway.router.running();
    ensure(running.is_empty(), || format!("the router still has calls: {running:?}"))?;
    let members = gateway.router.directory().members(sa_nodes::KIND);
    let online: Vec<_> = members.iter().filter(|member| member.gone_for.is_none()).collect();
    let ids: Vec<_> = online.iter().map(|member| &*member.id.id).collect();
    ensure(ids == NODES, || format!("the directory has {ids:?}"))?;
    ensure(online.iter().all(|member| member.running == 0), || {
        "a node's places are not all free".to_owned()
    })?;
    for id in NODES {
        ensure(gateway.nodes.host(id).is_some(), || {
            format!("the node {id} is not in the list of hosts")
        })?;
        let open = state.connections.iter().filter(|c| c.node == id && c.closed.is_none()).count();
        ensure(open == 1, || format!("the node {id} has {open} connections that nobody ended"))?;
    }
    ensure(state.open_sockets == NODES.len(), || {
        format!("{} connections are open", state.open_sockets)
    })
}
