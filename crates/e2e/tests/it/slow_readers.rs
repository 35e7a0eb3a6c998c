//! Whoever reads too slowly loses its own connection, with a reason, and costs no more memory than its queue.

use sa_testkit::{Hello, Setup, Traffic, eventually, resident};
use serde_json::json;

use crate::SWITCHBOARD;

const LIMITS: &str = "[limits]\nmax_outbox_bytes = 2_000_000";

#[tokio::test]
async fn an_agent_that_does_not_read_is_closed_with_4429() {
    let gateway = Setup::new().config(LIMITS).spawn(SWITCHBOARD).await;
    let traffic = Traffic::start(&gateway).await;
    let mut node = Hello::new("n").capability("a").connect(&gateway).await;
    let mut socket = gateway.operator().socket().await;
    let before = resident(gateway.pid());
    // Answers of 40 MB in all, none of which is read.
    for number in 0..40 {
        socket.call(&number.to_string(), "a.b", json!({})).await;
    }
    let answers = tokio::spawn(async move {
        let large = json!("x".repeat(1_000_000));
        loop {
            let frame = node.recv().await;
            if frame["type"] == "tool_request" {
                node.answer(frame["request_id"].as_str().unwrap(), large.clone()).await;
            }
        }
    });
    eventually("its calls gone", || async { (gateway.running_calls().await <= 1).then_some(()) }).await;
    let grown = resident(gateway.pid()).saturating_sub(before);
    assert!(grown < 40_000_000, "{grown} bytes more");
    let closed = socket.closed().await;
    assert_eq!(closed.0, 4429, "{}", closed.1);
    eventually("it counted", || async { (gateway.refused("calls_ws", "too_slow").await == 1).then_some(()) }).await;
    answers.abort();
    traffic.end().await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_node_that_does_not_read_is_closed_with_4429() {
    let gateway = Setup::new().config(LIMITS).config("reconnect_wait_ms = 100").start().await;
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

#[tokio::test]
async fn a_node_that_reads_nothing_at_all_does_not_keep_its_calls() {
    let gateway = Setup::new().config(LIMITS).config("reconnect_wait_ms = 100").start().await;
    let traffic = Traffic::start(&gateway).await;
    let deaf = Hello::new("n").capability("a").connect(&gateway).await;
    let operator = gateway.operator();
    let body = json!({ "args": "x".repeat(1_000_000), "timeout_ms": 60_000 });
    // One by one, so that each finds the connection as full as those before it left it.
    let mut calls = Vec::new();
    let mut refused = false;
    while !refused {
        assert!(calls.len() < 49, "a connection takes no end of data");
        calls.push(operator.call_later("a.b", body.clone()));
        let over = || calls.iter().any(tokio::task::JoinHandle::is_finished);
        eventually("it dispatched", || async {
            (over() || gateway.running_calls().await >= calls.len()).then_some(())
        })
        .await;
        refused = over();
    }
    // The silence of a peer is borne for 35 s; this end comes sooner.
    for call in calls {
        let reply = call.await.unwrap();
        assert!(matches!(reply.status, 429 | 503), "{}", reply.text);
    }
    eventually("it counted", || async { (gateway.refused("node", "too_slow").await == 1).then_some(()) }).await;
    traffic.end().await;
    drop(deaf);
}
