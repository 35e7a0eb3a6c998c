//! When the connection is lost, its running tools are cancelled, and the next connection starts
//! without them.

use serde_json::{Value, json};

use crate::support::*;

#[tokio::test]
async fn a_lost_connection_cancels_its_tools() {
    let gateway = Gateway::start().await;
    let mut gate = gate();
    let node = Node::start(gateway.builder(), gate.registry);
    let mut peer = gateway.welcome(&[]).await;
    peer.request("a", "t.gate", Value::Null).await;
    soon(gate.started.recv()).await;
    drop(peer);
    assert_eq!(soon(gate.cancelled.recv()).await.unwrap(), "a");

    let mut peer = gateway.welcome(&[]).await;
    peer.request("b", "t.gate", Value::Null).await;
    soon(gate.started.recv()).await;
    gate.go.add_permits(1);
    // The answer to the old request must not appear here.
    assert_eq!(
        peer.recv().await,
        json!({"type":"tool_response","request_id":"b","ok":true,"result":"let go"})
    );
    node.shut_down().await;
}

#[tokio::test]
async fn dropping_the_node_cancels_its_tools() {
    let gateway = Gateway::start().await;
    let mut gate = gate();
    let node = Node::start(gateway.builder(), gate.registry);
    let mut peer = gateway.welcome(&[]).await;
    peer.request("a", "t.gate", Value::Null).await;
    soon(gate.started.recv()).await;
    node.handle.abort();
    assert_eq!(soon(gate.cancelled.recv()).await.unwrap(), "a");
}
