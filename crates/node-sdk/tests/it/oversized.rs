//! A request that is too large is answered `invalid_args`, is never dropped silently, and affects
//! no other call. Only a message that no caller can send ends the connection, but not the node.

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
    assert_eq!(
        (&refusal["request_id"], &refusal["error"]["kind"]),
        (&json!("big"), &json!("invalid_args"))
    );
    assert_eq!(peer.recv().await["request_id"], "small");
    node.shut_down().await;
}

#[tokio::test]
async fn the_hello_says_how_much_a_request_may_have() {
    let gateway = Gateway::start().await;
    let node = Node::start(gateway.builder().max_request_bytes(1234), echo());
    assert_eq!(gateway.upgrade().await.recv().await["max_request_bytes"], 1234);
    node.shut_down().await;
}

#[tokio::test]
async fn a_gateway_that_heeds_no_limit_gets_an_answer_and_running_calls_go_on() {
    let gateway = Gateway::start().await;
    let mut gate = gate();
    let node = Node::start(gateway.builder(), gate.registry);
    let mut peer = gateway.welcome(&["tool_cancel"]).await;
    peer.request("bystander", "t.gate", json!(null)).await;
    assert_eq!(soon(gate.started.recv()).await.unwrap(), "bystander");
    // These sizes are up to the default limit of a gateway for agents.
    for size in [6 << 20, 16 << 20] {
        peer.request("big", "t.gate", json!("x".repeat(size))).await;
        let refusal = peer.recv().await;
        assert_eq!(
            (&refusal["request_id"], &refusal["error"]["kind"]),
            (&json!("big"), &json!("invalid_args"))
        );
        let words = refusal["error"]["message"].as_str().unwrap();
        assert!(words.contains("262144") && words.contains("max_request_bytes"), "{words}");
    }
    gate.go.add_permits(1);
    let answer = peer.recv().await;
    assert_eq!((&answer["request_id"], &answer["result"]), (&json!("bystander"), &json!("let go")));
    node.shut_down().await;
}

#[tokio::test]
async fn a_frame_that_no_caller_can_have_sent_ends_the_connection() {
    let gateway = Gateway::start().await;
    let node = Node::start(gateway.builder().max_request_bytes(1000), echo());
    let mut peer = gateway.welcome(&[]).await;
    // This is the head of a text frame of one gigabyte. The frame is refused before its body is
    // sent.
    let mut head = vec![0x81, 127];
    head.extend((1_u64 << 30).to_be_bytes());
    peer.send_bytes(&head).await;
    assert_eq!(u16::from(peer.recv_close().await.unwrap().code), 1009);
    let mut next = gateway.welcome(&[]).await;
    next.request("r", "t.echo", json!(1)).await;
    assert_eq!(next.recv().await["result"], 1);
    node.shut_down().await;
}
