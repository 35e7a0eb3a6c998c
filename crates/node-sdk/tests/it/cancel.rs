//! `tool_cancel` fires the token of that call and of no other. A tool that ignores it is dropped
//! after the grace period.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::support::*;

#[tokio::test]
async fn one_call_is_cancelled_the_other_goes_on() {
    let gateway = Gateway::start().await;
    let mut gate = gate();
    let node = Node::start(gateway.builder(), gate.registry);
    let mut peer = gateway.welcome(&["tool_cancel"]).await;
    peer.request("a", "t.gate", Value::Null).await;
    peer.request("b", "t.gate", Value::Null).await;
    soon(gate.started.recv()).await;
    soon(gate.started.recv()).await;
    peer.send(json!({"type":"tool_cancel","request_id":"a","reason":"enough"})).await;
    peer.send(json!({"type":"tool_cancel","request_id":"nobody"})).await;
    assert_eq!(soon(gate.cancelled.recv()).await.unwrap(), "a");
    let response = peer.recv().await;
    assert_eq!(response["request_id"], "a");
    assert_eq!(response["error"], json!({"kind":"cancelled","message":"stopped"}));
    gate.go.add_permits(1);
    assert_eq!(
        peer.recv().await,
        json!({"type":"tool_response","request_id":"b","ok":true,"result":"let go"})
    );
    node.shut_down().await;
}

#[tokio::test]
async fn a_tool_that_does_not_care_is_dropped() {
    let gateway = Gateway::start().await;
    let (started, mut has_started) = mpsc::unbounded_channel();
    let registry = registry("t.stubborn", move |_, _| {
        let started = started.clone();
        async move {
            // It is dropped with the tool, and the receiver detects that.
            let alive = started;
            alive.send(()).unwrap();
            std::future::pending().await
        }
    });
    let node = Node::start(gateway.builder().cancel_grace(Duration::from_millis(10)), registry);
    let mut peer = gateway.welcome(&["tool_cancel"]).await;
    peer.request("a", "t.stubborn", Value::Null).await;
    soon(has_started.recv()).await.unwrap();
    peer.send(json!({"type":"tool_cancel","request_id":"a"})).await;
    assert_eq!(peer.recv().await["error"]["kind"], "cancelled");
    node.shut_down().await;
    assert!(soon(has_started.recv()).await.is_none(), "the tool is still there");
}

#[tokio::test]
async fn a_call_that_waits_for_its_turn_is_cancelled_at_once() {
    let gateway = Gateway::start().await;
    let mut gate = gate();
    let node = Node::start(gateway.builder().max_concurrent_tools(1), gate.registry);
    let mut peer = gateway.welcome(&["tool_cancel"]).await;
    peer.request("a", "t.gate", Value::Null).await;
    soon(gate.started.recv()).await;
    peer.request("b", "t.gate", Value::Null).await;
    peer.send(json!({"type":"tool_cancel","request_id":"b"})).await;
    let response = peer.recv().await;
    assert_eq!(
        (&response["request_id"], &response["error"]["kind"]),
        (&json!("b"), &json!("cancelled"))
    );
    node.shut_down().await;
}
