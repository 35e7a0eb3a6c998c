//! A request that is too large is answered `invalid_args`, never dropped in silence; one beyond all bounds ends the
//! connection, not the node.

use sa_node_sdk::MAX_TOOL_RESPONSE_BYTES;
use serde_json::json;

use crate::support::*;

#[tokio::test]
async fn a_large_request_is_refused() {
    let gateway = Gateway::start().await;
    let node = Node::start(gateway.builder().max_request_bytes(1000), echo());
    let mut peer = gateway.welcome(&[]).await;
    peer.request("big", "t.echo", json!("x".repeat(1000))).await;
    peer.request("small", "t.echo", json!("x".repeat(900))).await;
    let refusal = peer.recv().await;
    assert_eq!((&refusal["request_id"], &refusal["error"]["kind"]), (&json!("big"), &json!("invalid_args")));
    assert_eq!(peer.recv().await["request_id"], "small");
    node.shut_down().await;
}

#[tokio::test]
async fn a_frame_beyond_all_bounds_ends_the_connection() {
    let gateway = Gateway::start().await;
    let node = Node::start(gateway.builder().max_request_bytes(1000), echo());
    let mut peer = gateway.welcome(&[]).await;
    let sending = async {
        // The node hangs up in the middle, so that this may fail.
        let frame = json!({"type":"tool_request","request_id":"r","tool":"t.echo","args":"x".repeat(2 * MAX_TOOL_RESPONSE_BYTES)});
        let _ = peer.try_send(frame).await;
    };
    let (mut next, ()) = tokio::join!(gateway.welcome(&[]), sending);
    next.request("r", "t.echo", json!(1)).await;
    assert_eq!(next.recv().await["result"], 1);
    node.shut_down().await;
}
