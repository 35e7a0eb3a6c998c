//! Tools run concurrently up to the limit. Further calls wait, and pings are answered meanwhile.

use serde_json::{Value, json};

use crate::support::*;

#[tokio::test]
async fn the_cap_holds() {
    let gateway = Gateway::start().await;
    let mut gate = gate();
    let node = Node::start(gateway.builder().max_concurrent_tools(2), gate.registry);
    let mut peer = gateway.welcome(&[]).await;
    for id in ["a", "b", "c"] {
        peer.request(id, "t.gate", Value::Null).await;
    }
    soon(gate.started.recv()).await;
    soon(gate.started.recv()).await;
    // The pong arrives after the third request was received. That request must not have started by
    // then.
    peer.send(json!({"type":"ping","timestamp":1})).await;
    assert_eq!(peer.recv().await["type"], "pong");
    assert!(gate.started.try_recv().is_err());
    gate.go.add_permits(1);
    assert_eq!(peer.recv().await["type"], "tool_response");
    soon(gate.started.recv()).await;
    gate.go.add_permits(2);
    peer.recv().await;
    peer.recv().await;
    node.shut_down().await;
}

#[tokio::test]
async fn a_burst_is_answered_completely() {
    let gateway = Gateway::start().await;
    let node = Node::start(gateway.builder(), echo());
    let mut peer = gateway.welcome(&[]).await;
    let mut waiting = std::collections::BTreeSet::new();
    for number in 0..900 {
        let id = number.to_string();
        peer.request(&id, "t.echo", json!(number)).await;
        waiting.insert(id);
    }
    while !waiting.is_empty() {
        let response = peer.recv().await;
        assert!(waiting.remove(response["request_id"].as_str().unwrap()), "{response}");
        assert_eq!(response["result"].to_string(), response["request_id"].as_str().unwrap());
    }
    node.shut_down().await;
}

#[tokio::test]
async fn too_many_waiting_calls_are_refused() {
    let gateway = Gateway::start().await;
    let gate = gate();
    let node = Node::start(gateway.builder().max_concurrent_tools(1), gate.registry);
    let mut peer = gateway.welcome(&[]).await;
    for number in 0..1026 {
        peer.request(&number.to_string(), "t.gate", Value::Null).await;
    }
    let refusal = peer.recv().await;
    assert_eq!(
        (&refusal["request_id"], &refusal["error"]["kind"]),
        (&json!("1025"), &json!("failed"))
    );
    node.shut_down().await;
}

#[tokio::test]
async fn a_gateway_that_reads_late_gets_everything() {
    let gateway = Gateway::start().await;
    let registry = registry("t.large", |_, _| async { Ok(json!("x".repeat(100_000))) });
    let node = Node::start(gateway.builder(), registry);
    let mut peer = gateway.welcome(&[]).await;
    // The results exceed all buffers in between: the node must keep reading while its writes are
    // blocked.
    for number in 0..500 {
        peer.request(&number.to_string(), "t.large", Value::Null).await;
    }
    for _ in 0..500 {
        assert_eq!(peer.recv().await["ok"], true);
    }
    node.shut_down().await;
}
