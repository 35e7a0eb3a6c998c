//! A cancel, a disconnected caller and a timeout each reach the node at once, and the caller gets
//! one outcome.

use futures_util::SinkExt as _;
use sa_testkit::{FakeNode, Gateway, Hello, Message, Setup, eventually};
use serde_json::{Value, json};

async fn start() -> (Gateway, FakeNode) {
    let gateway = Setup::new().start().await;
    let node = Hello::new("n").capability("a").connect(&gateway).await;
    (gateway, node)
}

/// Returns the record of the only call, once it has ended.
async fn record(gateway: &Gateway) -> Value {
    let calls = eventually("the record", || async {
        let body = gateway.operator().get("/v1/calls?state=ended").await.body;
        Some(body["calls"].as_array()?.clone()).filter(|calls| !calls.is_empty())
    })
    .await;
    assert_eq!(calls.len(), 1, "a call is recorded once");
    assert_eq!(gateway.running_calls().await, 0);
    calls[0].clone()
}

#[tokio::test]
async fn a_caller_of_rest_hangs_up() {
    let (gateway, mut node) = start().await;
    let call = gateway.operator().call_later("a.b", json!({}));
    let request = node.request().await;
    call.abort();
    assert_eq!(node.cancelled(&request).await, "disconnected");
    assert_eq!(record(&gateway).await["error"]["kind"], "cancelled");
}

#[tokio::test]
async fn a_reader_of_events_hangs_up() {
    let (gateway, mut node) = start().await;
    let mut events = gateway.operator().stream("a.b", json!({})).await;
    let request = node.request().await;
    node.progress(&request.id, 1.0).await;
    events.wait_for("progress").await;
    drop(events);
    assert_eq!(node.cancelled(&request).await, "disconnected");
    assert_eq!(record(&gateway).await["error"]["kind"], "cancelled");
}

#[tokio::test]
async fn the_socket_for_calls_ends() {
    let (gateway, mut node) = start().await;
    let mut socket = gateway.operator().socket().await;
    socket.call("1", "a.b", json!({})).await;
    let request = node.request().await;
    drop(socket);
    assert_eq!(node.cancelled(&request).await, "disconnected");
    assert_eq!(record(&gateway).await["error"]["kind"], "cancelled");
}

#[tokio::test]
async fn the_socket_for_calls_cancels_one_of_two() {
    let (gateway, mut node) = start().await;
    let mut socket = gateway.operator().socket().await;
    socket.call("1", "a.b", json!({})).await;
    let first = node.request().await;
    socket.call("2", "a.b", json!({})).await;
    let second = node.request().await;
    socket.send(json!({ "type": "cancel", "id": "1" })).await;
    assert_eq!(node.cancelled(&first).await, "requested");
    assert_eq!(socket.recv().await["kind"], "cancelled");
    node.answer(&second.id, json!(2)).await;
    assert_eq!(socket.wait_for("done", "2").await["result"], 2);
}

#[tokio::test]
async fn a_call_with_a_key_goes_on_without_its_caller_and_ends_when_it_is_told_to() {
    let (gateway, mut node) = start().await;
    let mut socket = gateway.operator().socket().await;
    let call = |id: &str| json!({ "type": "call", "id": id, "tool": "a.b", "args": {}, "idempotency_key": id });
    socket.send(call("told")).await;
    let request = node.request().await;
    socket.send(json!({ "type": "cancel", "id": "told" })).await;
    assert_eq!(node.cancelled(&request).await, "requested");
    assert_eq!(socket.wait_for("error", "told").await["kind"], "cancelled");

    socket.send(call("left")).await;
    let request = node.request().await;
    drop(socket);
    node.settle().await;
    node.answer(&request.id, json!("kept")).await;
    let body = json!({ "args": {}, "idempotency_key": "left" });
    assert_eq!(gateway.operator().call_with("a.b", body).await.result(), "kept");
}

/// A socket may close before a call that arrived on it was first polled.
#[tokio::test]
async fn a_call_with_a_key_goes_on_though_its_caller_closes_in_the_same_breath() {
    let (gateway, mut node) = start().await;
    let mut socket = gateway.operator().socket().await;
    let call =
        json!({ "type": "call", "id": "1", "tool": "a.b", "args": {}, "idempotency_key": "k" });
    // Both frames are sent with one flush.
    socket.socket.feed(Message::text(call.to_string())).await.unwrap();
    socket.socket.feed(Message::Close(None)).await.unwrap();
    socket.socket.flush().await.unwrap();
    let request = node.request().await;
    drop(socket);
    // The caller is disconnected, so nothing reads the chunk, but the result must still be stored.
    node.chunk(&request.id, json!("a piece")).await;
    node.answer(&request.id, json!("kept")).await;
    let body = json!({ "args": {}, "idempotency_key": "k" });
    assert_eq!(gateway.operator().call_with("a.b", body).await.result(), "kept");
    assert_eq!(record(&gateway).await["error"], Value::Null);
}

#[tokio::test]
async fn a_retry_ends_with_its_caller_and_the_call_that_it_joined_does_not() {
    let (gateway, mut node) = start().await;
    let operator = gateway.operator();
    let mut socket = operator.socket().await;
    for id in 0..10 {
        let call = json!({ "type": "call", "id": id.to_string(), "tool": "a.b", "args": {}, "idempotency_key": "k",
            "timeout_ms": 3_600_000 });
        socket.send(call).await;
    }
    let request = node.request().await;
    eventually("all of them", async || (gateway.running_calls().await == 10).then_some(())).await;
    let some = operator.get("/v1/calls?state=running&limit=3").await.body;
    assert_eq!(some["calls"].as_array().unwrap().len(), 3);
    assert_eq!(some["more_running"], 7);
    drop(socket);
    eventually("the first one alone", async || (gateway.running_calls().await == 1).then_some(()))
        .await;
    node.answer(&request.id, json!("kept")).await;
    let body = json!({ "args": {}, "idempotency_key": "k" });
    assert_eq!(operator.call_with("a.b", body).await.result(), "kept");
}

#[tokio::test]
async fn the_deadline_passes() {
    let (gateway, mut node) = start().await;
    let call = gateway.operator().call_later("a.b", json!({ "timeout_ms": 100 }));
    let request = node.request().await;
    assert_eq!(node.cancelled(&request).await, "deadline");
    call.await.unwrap().assert_problem(504, "timeout");
    assert_eq!(record(&gateway).await["error"]["kind"], "timeout");
}

#[tokio::test]
async fn the_tools_own_limit_counts_when_the_caller_sets_none() {
    let gateway = Setup::new().start().await;
    let mut node = Hello::new("n")
        .describe(json!({ "name": "a.b", "timeout_ms": 100 }))
        .connect(&gateway)
        .await;
    let reply = gateway.operator().call("a.b", json!({})).await;
    reply.assert_problem(504, "timeout");
    assert!(reply.detail().contains("100 ms"), "{}", reply.text);
    let request = node.request().await;
    assert_eq!(node.cancelled(&request).await, "deadline");
}

#[tokio::test]
async fn progress_extends_the_deadline_up_to_the_longest_that_a_call_may_take() {
    let gateway = Setup::new().config("[limits]\nmax_call_ms = 1_500").start().await;
    let mut node = Hello::new("n").capability("a").connect(&gateway).await;
    let started = tokio::time::Instant::now();
    let call = gateway.operator().call_later("a.b", json!({ "idle_timeout_ms": 400 }));
    let request = node.request().await;
    // Runs for three times the timeout, with regular progress.
    let mut beat = tokio::time::interval(std::time::Duration::from_millis(100));
    while started.elapsed() < std::time::Duration::from_millis(1_200) {
        beat.tick().await;
        node.progress(&request.id, 1.0).await;
    }
    node.settle().await;
    assert!(!call.is_finished(), "progress keeps the call alive");
    let reply = call.await.unwrap();
    reply.assert_problem(504, "timeout");
    assert_eq!(node.cancelled(&request).await, "deadline");
}

#[tokio::test]
async fn a_slow_reader_of_events_does_not_stop_the_clock() {
    let (gateway, mut node) = start().await;
    // The stream is not read, so the buffers of its connection fill up.
    let events = gateway.operator().stream("a.b", json!({ "timeout_ms": 700 })).await;
    let request = node.request().await;
    let large = "x".repeat(500_000);
    for _ in 0..30 {
        node.chunk(&request.id, json!(large)).await;
    }
    assert_eq!(node.cancelled(&request).await, "deadline");
    eventually("the call gone", || async { (gateway.running_calls().await == 0).then_some(()) })
        .await;
    drop(events);
}
