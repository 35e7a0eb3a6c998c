//! The token appears in the URL on the wire and nowhere else.

use sa_node_sdk::NodeClient;

use crate::support::*;

#[test]
fn debug_does_not_show_it() {
    let builder = NodeClient::builder().token("hunter2").gateway_ws_url("ws://gw/ws?token=hunter2");
    assert!(!format!("{builder:?}").contains("hunter2"));
    assert!(!format!("{:?}", builder.build().unwrap()).contains("hunter2"));
}

#[tokio::test]
async fn errors_do_not_show_it() {
    let gateway = Gateway::start().await;
    let url = gateway.url.clone();
    drop(gateway);
    let backoff = sa_node_sdk::ReconnectBackoff { max_attempts: 1, ..Default::default() };
    let builder =
        NodeClient::builder().token("hunter2").gateway_ws_url(url).reconnect_backoff(backoff);
    let error = Node::start(builder, echo()).end().await;
    assert!(!format!("{error} {error:?}").contains("hunter2"));
    assert!(!error.to_string().contains("token="), "{error}");
}

#[tokio::test]
async fn an_encrypted_address_fails_without_a_panic() {
    let gateway = Gateway::start().await;
    let backoff = sa_node_sdk::ReconnectBackoff { max_attempts: 1, ..Default::default() };
    let url = gateway.url.replace("ws://", "wss://");
    let node =
        Node::start(gateway.builder().gateway_ws_url(url).reconnect_backoff(backoff), echo());
    drop(gateway.tcp().await);
    assert!(matches!(node.end().await, sa_node_sdk::NodeSdkError::ReconnectExhausted(1)));
}
