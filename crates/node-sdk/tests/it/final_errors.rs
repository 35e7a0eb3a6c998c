//! An error that reconnecting cannot fix ends the node at once, and contains the gateway's own
//! reason.

use sa_node_sdk::NodeSdkError;
use serde_json::json;

use crate::support::*;

#[track_caller]
fn assert_same(error: &NodeSdkError, expected: &NodeSdkError) {
    assert_eq!(format!("{error:?}"), format!("{expected:?}"));
}

#[tokio::test]
async fn a_refused_token() {
    for (status, code) in [("401 Unauthorized", 401), ("403 Forbidden", 403)] {
        let gateway = Gateway::start().await;
        let node = Node::start(gateway.builder().token("wrong-token"), echo());
        gateway.refuse(status, "the token wrong-token is not known").await;
        let error = node.end().await;
        let reason = "the token [redacted] is not known".to_owned();
        assert_same(&error, &NodeSdkError::Unauthorized { status: code, reason });
    }
}

#[tokio::test]
async fn a_welcome_of_another_version() {
    let gateway = Gateway::start().await;
    let node = Node::start(gateway.builder(), echo());
    let mut peer = gateway.upgrade().await;
    peer.recv().await;
    peer.send(json!({"type":"gateway_welcome","protocol_version":2,"gateway_version":"9"})).await;
    let error = node.end().await;
    assert_same(&error, &NodeSdkError::ProtocolMismatch { reason: "it uses version 2".into() });
}

#[tokio::test]
async fn a_close_during_the_handshake() {
    let words = || "because".to_owned();
    for (code, expected) in [
        (4400, NodeSdkError::Refused { code: 4400, reason: words() }),
        (4401, NodeSdkError::Unauthorized { status: 4401, reason: words() }),
        (4406, NodeSdkError::ProtocolMismatch { reason: words() }),
        (4409, NodeSdkError::Refused { code: 4409, reason: words() }),
    ] {
        let gateway = Gateway::start().await;
        let node = Node::start(gateway.builder(), echo());
        let mut peer = gateway.upgrade().await;
        peer.recv().await;
        peer.close(code, "because").await;
        assert_same(&node.end().await, &expected);
    }
}

#[test]
fn an_id_that_is_held_says_where_it_comes_from() {
    let words = |code| NodeSdkError::Refused { code, reason: "because".into() }.to_string();
    assert!(
        words(4409).contains("because") && words(4409).contains("SA_NODE_ID"),
        "{}",
        words(4409)
    );
    assert!(!words(4400).contains("SA_NODE_ID"));
}

#[tokio::test]
async fn a_token_that_is_revoked_later() {
    let gateway = Gateway::start().await;
    let node = Node::start(gateway.builder(), echo());
    gateway.welcome(&[]).await.close(4401, "revoked").await;
    assert!(matches!(node.end().await, NodeSdkError::Unauthorized { status: 4401, .. }));
}
