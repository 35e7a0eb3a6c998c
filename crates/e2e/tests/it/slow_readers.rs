//! Whoever reads too slowly loses its own connection, with a reason, and costs no more memory than its queue.

use sa_testkit::{Hello, Setup, Traffic, eventually};
use serde_json::json;

use crate::SWITCHBOARD;

/// Resident memory of a process, in bytes.
fn memory(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1_024
}

const LIMITS: &str = "[limits]\nmax_outbox_bytes = 2_000_000";

#[tokio::test]
async fn an_agent_that_does_not_read_is_closed_with_4429() {
    let gateway = Setup::new().config(LIMITS).spawn(SWITCHBOARD).await;
    let traffic = Traffic::start(&gateway).await;
    let _node = Hello::new("n").capability("a").connect(&gateway).await.echo();
    let mut socket = gateway.operator().socket().await;
    let before = memory(gateway.pid());
    // Answers of 100 MB in all, none of which is read.
    let large = json!("x".repeat(250_000));
    for number in 0..400 {
        let call = json!({ "type": "call", "id": number.to_string(), "tool": "a.b", "args": large });
        use futures_util::SinkExt as _;
        if socket.socket.send(sa_testkit::Message::text(call.to_string())).await.is_err() {
            break;
        }
    }
    eventually("its calls gone", || async { (gateway.running_calls().await <= 1).then_some(()) }).await;
    let grown = memory(gateway.pid()).saturating_sub(before);
    assert!(grown < 60_000_000, "{grown} bytes more");
    assert_eq!(socket.closed().await.0, 4429);
    eventually("it counted", || async { (gateway.refused("calls_ws", "too_slow").await == 1).then_some(()) }).await;
    traffic.end().await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_node_that_does_not_read_is_closed_with_4429() {
    let gateway = Setup::new().config(LIMITS).config("[nodes]\nping_interval_ms = 5_000").start().await;
    let traffic = Traffic::start(&gateway).await;
    let mut node = Hello::new("n").capability("a").connect(&gateway).await;
    let operator = gateway.operator();
    let body = json!({ "args": "x".repeat(1_000_000), "timeout_ms": 60_000 });
    let calls: Vec<_> = (0..40).map(|_| operator.call_later("a.b", body.clone())).collect();
    let mut kinds = Vec::new();
    for call in calls {
        let reply = call.await.unwrap();
        kinds.push(reply.body["kind"].as_str().unwrap().to_owned());
    }
    assert!(kinds.iter().all(|kind| kind == "overloaded" || kind == "offline"), "{kinds:?}");
    assert!(kinds.iter().any(|kind| kind == "overloaded"), "{kinds:?}");
    assert_eq!(node.closed().await.0, 4429);
    eventually("it counted", || async { (gateway.refused("node", "too_slow").await == 1).then_some(()) }).await;
    traffic.end().await;
}

#[tokio::test]
async fn a_reader_of_events_that_is_too_far_behind_loses_its_call() {
    let gateway = Setup::new().start().await;
    let traffic = Traffic::start(&gateway).await;
    let mut node = Hello::new("n").capability("a").connect(&gateway).await;
    let mut events = gateway.operator().stream("a.b", json!({})).await;
    let request = node.request().await;
    let large = "x".repeat(20_000);
    for _ in 0..2_000 {
        node.chunk(&request.id, json!(large)).await;
    }
    assert_eq!(node.cancelled(&request).await, "reader_too_slow");
    assert_eq!(events.wait_for("error").await["kind"], "overloaded");
    traffic.end().await;
}
