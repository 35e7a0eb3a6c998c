//! A peer that does not read costs the process no more memory than its queue.

use futures_util::StreamExt as _;
use sa_gateway_kit::{Hello, Message, Setup, Traffic, eventually, resident};
use serde_json::{Value, json};

use crate::SWITCHBOARD;

const LIMITS: &str = "[limits]\nmax_outbox_bytes = 2_000_000";

#[tokio::test]
async fn an_agent_that_does_not_read_is_closed_with_4429() {
    let gateway = Setup::new().config(LIMITS).spawn(SWITCHBOARD).await;
    let traffic = Traffic::start(&gateway).await;
    let mut node = Hello::new("n").capability("a").connect(&gateway).await;
    let mut socket = gateway.operator().socket().await;
    let before = resident(gateway.pid());
    // Answers of 40 MB in all, which are not read.
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
    eventually("its calls gone", || async { (gateway.running_calls().await <= 1).then_some(()) })
        .await;
    let grown = resident(gateway.pid()).saturating_sub(before);
    assert!(grown < 40_000_000, "{grown} bytes more");
    let closed = socket.closed().await;
    assert_eq!(closed.0, 4429, "{}", closed.1);
    eventually("it counted", || async {
        (gateway.refused("calls_ws", "too_slow").await == 1).then_some(())
    })
    .await;
    answers.abort();
    traffic.end().await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_node_that_does_not_read_costs_no_more_than_its_queue() {
    let gateway = Setup::new().config(LIMITS).spawn(SWITCHBOARD).await;
    let traffic = Traffic::start(&gateway).await;
    let mut node = Hello::new("n").capability("a").connect(&gateway).await;
    let before = resident(gateway.pid());
    let mut socket = gateway.operator().socket().await;
    for number in 0..40 {
        socket.call(&number.to_string(), "a.b", json!("x".repeat(1_000_000))).await;
    }
    // All calls that do not fit are refused at once, while the others still run.
    let mut refused = 0;
    while refused < 28 {
        let frame = socket.recv().await;
        assert_eq!(frame["kind"], "overloaded", "{frame}");
        refused += 1;
    }
    let grown = resident(gateway.pid()).saturating_sub(before);
    assert!(grown < 40_000_000, "{grown} bytes more");
    // When the node reads again, it answers the calls that it received on the same connection.
    let answers = tokio::spawn(async move {
        while let Some(Ok(message)) = node.socket.next().await {
            let Message::Text(text) = message else { continue };
            let frame: Value = serde_json::from_str(&text).unwrap();
            node.answer(frame["request_id"].as_str().unwrap(), json!(1)).await;
        }
    });
    let mut done = 0;
    for _ in refused..40 {
        let frame = socket.recv().await;
        match frame["type"].as_str().unwrap() {
            "done" => done += 1,
            _ => assert_eq!(frame["kind"], "overloaded", "{frame}"),
        }
    }
    assert!(done > 0, "nothing fitted");
    answers.abort();
    traffic.end().await;
    gateway.stop().await;
}
