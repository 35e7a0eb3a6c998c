//! Callers: tasks next to the router, each with one call that it waits for, cancels or abandons.

use std::sync::Arc;
use std::time::Duration;

use sa_core::{CallRequest, CancelReason, Principal, RawJson, Role, Router, TraceContext, View};

use crate::plan::{CallPlan, Plan, Then};
use crate::world::{World, told};
use crate::{NODES, SETTLE};

/// Starts the callers that are still due, and the final probes.
pub(crate) fn start(world: &World, router: &Arc<Router>, plan: &Plan, gateway: u32) {
    let now = turmoil::sim_elapsed().unwrap_or_default();
    for call in plan.calls.iter().filter(|call| call.at >= now) {
        let (world, router, call) = (world.clone(), Arc::clone(router), *call);
        tokio::spawn(async move {
            tokio::time::sleep(call.at.saturating_sub(now)).await;
            make(world, router, call, gateway).await;
        });
    }
    let (world, router, first) = (world.clone(), Arc::clone(router), plan.calls.len() as u64);
    tokio::spawn(async move {
        world.settled().await;
        let probes = probes(first)
            .into_iter()
            .map(|call| make(world.clone(), Arc::clone(&router), call, gateway));
        futures_util::future::join_all(probes).await;
        // Leaves time for the last cancels to arrive, even when a message is slow.
        tokio::time::sleep(Duration::from_secs(5)).await;
        let mut state = world.state();
        state.probed = true;
        state.open_sockets = turmoil::established_tcp_stream_count();
    });
}

/// The final probe calls. Each node gets as many concurrent calls as it can run, and all must
/// succeed. One more per node must be cancelled.
fn probes(first: u64) -> Vec<CallPlan> {
    let mut calls = Vec::new();
    for node in NODES {
        for then in [Then::Wait, Then::Wait, Then::Wait, Then::Cancel(Duration::from_secs(3))] {
            let forever = matches!(then, Then::Cancel(_));
            calls.push(CallPlan {
                number: first + calls.len() as u64,
                at: SETTLE,
                node,
                work: (!forever).then_some(Duration::from_millis(100)),
                stubborn: false,
                progress: None,
                timeout: Duration::from_secs(10),
                then,
            });
        }
        let late = CallPlan {
            number: first + calls.len() as u64,
            work: None,
            timeout: Duration::from_secs(3),
            then: Then::Wait,
            ..calls[calls.len() - 1]
        };
        calls.push(late);
    }
    calls
}

async fn make(world: World, router: Arc<Router>, plan: CallPlan, gateway: u32) {
    world.call_begins(plan, gateway);
    let running = router.start(request(plan), None);
    let id = running.id();
    let outcome = running.outcome();
    let finished = match plan.then {
        Then::Wait => outcome.await,
        Then::Leave(after) => match tokio::time::timeout(after, outcome).await {
            Ok(finished) => finished,
            Err(_) => return world.caller_left(plan.number),
        },
        Then::Cancel(after) => {
            let mut outcome = std::pin::pin!(outcome);
            if let Ok(finished) = tokio::time::timeout(after, outcome.as_mut()).await {
                finished
            } else {
                world.note("caller", &format!("cancels call {}", plan.number));
                router.cancel(id, CancelReason::Requested, |_| true);
                outcome.await
            }
        }
    };
    world.call_told(plan.number, told(&finished.outcome));
}

fn request(plan: CallPlan) -> CallRequest {
    let ms = |time: Option<Duration>| time.map(|time| time.as_millis() as u64);
    let args = serde_json::json!({
        "number": plan.number,
        "work_ms": ms(plan.work),
        "stubborn": plan.stubborn,
        "progress_ms": ms(plan.progress),
    });
    let principal = Principal::new("caller", "caller", Role::Agent);
    CallRequest {
        tool: format!("{}.work", plan.node),
        args: RawJson::parse(&args.to_string()).expect("it was JSON a moment ago"),
        view: View::of(Arc::new(principal)),
        surface: "simulated",
        session_key: None,
        timeout: None,
        idle_timeout: Some(plan.timeout),
        idempotency_key: None,
        trace: TraceContext::root(),
    }
}
