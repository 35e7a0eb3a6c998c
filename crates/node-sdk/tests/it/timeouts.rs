//! A tool that exceeds its own time limit or the gateway's deadline is cancelled and ends as
//! `timeout`. A gateway that can cancel measures the time itself, because only it knows by how much
//! progress has extended the deadline.

use std::time::Duration;

use sa_node_sdk::*;
use serde_json::{Value, json};

use crate::support::*;

struct Slow;

#[async_trait::async_trait]
impl NodeTool for Slow {
    async fn call(&self, ctx: ToolContext, args: Value) -> ToolResult {
        ctx.cancel.cancelled().await;
        if args == json!("polite") {
            return Ok(json!("what I have so far"));
        }
        std::future::pending().await
    }
    fn timeout(&self) -> Option<Duration> {
        Some(Duration::from_millis(5))
    }
}

#[tokio::test]
async fn by_the_tools_own_limit() {
    let gateway = Gateway::start().await;
    let mut registry = ToolRegistry::new();
    registry.register("t.slow", Slow);
    let node = Node::start(gateway.builder().cancel_grace(Duration::from_millis(50)), registry);
    let mut peer = gateway.welcome(&[]).await;
    peer.request("a", "t.slow", json!("rude")).await;
    assert_eq!(peer.recv().await["error"]["kind"], "timeout");
    peer.request("b", "t.slow", json!("polite")).await;
    assert_eq!(peer.recv().await["result"], "what I have so far");
    node.shut_down().await;
}

#[tokio::test]
async fn by_the_gateways_deadline() {
    let gateway = Gateway::start().await;
    let gate = gate();
    let node = Node::start(gateway.builder(), gate.registry);
    let mut peer = gateway.welcome(&[]).await;
    peer.send(json!({"type":"tool_request","request_id":"a","tool":"t.gate","deadline_ms":5}))
        .await;
    // The tool's own result counts, because it comes in time.
    assert_eq!(peer.recv().await["error"], json!({"kind":"cancelled","message":"stopped"}));
    node.shut_down().await;
}

#[tokio::test]
async fn a_gateway_that_can_cancel_keeps_the_time() {
    let gateway = Gateway::start().await;
    let mut gate = gate();
    let node = Node::start(gateway.builder(), std::mem::take(&mut gate.registry));
    let mut peer = gateway.welcome(&["tool_cancel"]).await;
    peer.send(json!({"type":"tool_request","request_id":"a","tool":"t.gate","deadline_ms":1}))
        .await;
    // Only waiting can show that nothing happens: after a hundred times the deadline the tool still
    // runs.
    let early = tokio::time::timeout(Duration::from_millis(100), gate.cancelled.recv()).await;
    assert!(early.is_err(), "cancelled by the node itself");
    peer.send(json!({"type":"tool_cancel","request_id":"a"})).await;
    assert_eq!(peer.recv().await["error"], json!({"kind":"cancelled","message":"stopped"}));
    node.shut_down().await;
}
