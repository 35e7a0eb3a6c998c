//! Limits hold: a node gets a limited number of calls at once, and further calls wait in a queue.
//! Calls beyond the queue get a retry hint.

use sa_testkit::{Hello, Setup, eventually};
use serde_json::json;

#[tokio::test]
async fn a_node_gets_fifty_calls_and_the_next_one_waits_for_a_place() {
    let gateway = Setup::new().config("[limits]\nqueue_wait_ms = 15_000").start().await;
    let mut node = Hello::new("n").capability("a").connect(&gateway).await;
    let operator = gateway.operator();
    let calls: Vec<_> = (0..50).map(|_| operator.call_later("a.b", json!({}))).collect();
    let mut requests = Vec::new();
    for _ in 0..50 {
        requests.push(node.request().await);
    }
    let waiting = operator.call_later("a.b", json!({}));
    eventually("it waiting", || async { (gateway.running_calls().await == 51).then_some(()) })
        .await;
    node.settle().await;
    node.answer(&requests[0].id, json!(0)).await;
    let last = node.request().await;
    requests.push(last);
    for request in &requests[1..] {
        node.answer(&request.id, json!(0)).await;
    }
    for call in calls {
        call.await.unwrap().result();
    }
    waiting.await.unwrap().result();
}

#[tokio::test]
async fn a_call_that_finds_no_place_is_told_to_come_back() {
    let gateway =
        Setup::new().config("[limits]\npending_per_node = 2\nqueue_wait_ms = 50").start().await;
    let mut node = Hello::new("n").capability("a").connect(&gateway).await;
    let _other = Hello::new("o").capability("o").connect(&gateway).await.echo();
    let operator = gateway.operator();
    let calls: Vec<_> = (0..2).map(|_| operator.call_later("a.b", json!({}))).collect();
    let requests = [node.request().await, node.request().await];
    let reply = operator.call("a.b", json!({})).await;
    reply.assert_problem(429, "overloaded");
    assert_eq!(reply.body["retryable"], true);
    assert!(reply.headers.contains_key("retry-after"));
    assert!(reply.detail().contains("\"n\"") || reply.detail().contains(" n "), "{}", reply.text);
    assert_eq!(
        operator.call("o.b", json!({})).await.status,
        200,
        "others have places of their own"
    );
    for request in requests {
        node.answer(&request.id, json!(0)).await;
    }
    for call in calls {
        call.await.unwrap().result();
    }
    node.settle().await;
}

#[tokio::test]
async fn a_place_whose_call_was_cancelled_is_free_again() {
    let gateway =
        Setup::new().config("[limits]\npending_per_node = 1\nqueue_wait_ms = 50").start().await;
    let mut node = Hello::new("n").capability("a").connect(&gateway).await;
    for _ in 0..3 {
        let call = gateway.operator().call_later("a.b", json!({}));
        let request = node.request().await;
        call.abort();
        node.cancelled(&request).await;
    }
    let call = gateway.operator().call_later("a.b", json!({}));
    let request = node.request().await;
    node.answer(&request.id, json!(1)).await;
    assert_eq!(call.await.unwrap().result(), 1);
}

#[tokio::test]
async fn who_calls_a_lot_keeps_nobody_else_from_calling() {
    let gateway = Setup::new().config("[limits]\npending_total = 32").start().await;
    let mut node = Hello::new("n").capability("a").connect(&gateway).await;
    let (busy, other) = (gateway.new_agent("busy").await, gateway.new_agent("other").await);
    // Three quarters of the capacity are for all principals.
    let calls: Vec<_> = (0..24).map(|_| busy.call_later("a.b", json!({}))).collect();
    for _ in 0..24 {
        node.request().await;
    }
    busy.call("a.b", json!({})).await.assert_problem(429, "overloaded");
    // Of the rest, each token gets an eighth, plus the call that exceeds it.
    let few: Vec<_> = (0..5).map(|_| other.call_later("a.b", json!({}))).collect();
    let mut requests = Vec::new();
    for _ in 0..5 {
        requests.push(node.request().await);
    }
    other.call("a.b", json!({})).await.assert_problem(429, "overloaded");
    busy.call("a.b", json!({})).await.assert_problem(429, "overloaded");
    for request in &requests {
        node.answer(&request.id, json!(1)).await;
    }
    for call in few {
        assert_eq!(call.await.unwrap().result(), 1);
    }
    drop(calls);
}

#[tokio::test]
async fn the_gateway_as_a_whole_has_a_limit() {
    let gateway = Setup::new().config("[limits]\npending_total = 3").start().await;
    let mut node = Hello::new("n").capability("a").connect(&gateway).await;
    let mut socket = gateway.operator().socket().await;
    for number in 0..3 {
        socket.call(&number.to_string(), "a.b", json!({})).await;
    }
    let first = node.request().await;
    node.request().await;
    node.request().await;
    let reply = gateway.operator().call("a.b", json!({})).await;
    reply.assert_problem(429, "overloaded");
    assert!(reply.body["hint"].as_str().unwrap().contains("pending_total"), "{}", reply.text);
    node.answer(&first.id, json!(1)).await;
    socket.wait_for("done", "0").await;
    let call = gateway.operator().call_later("a.b", json!({}));
    let request = node.request().await;
    node.answer(&request.id, json!(2)).await;
    assert_eq!(call.await.unwrap().result(), 2);
}
