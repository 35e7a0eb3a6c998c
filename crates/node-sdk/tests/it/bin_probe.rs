//! A node with a probe announces it in its hello and answers which programs it has. A node without
//! a probe announces nothing.

use serde_json::json;

use crate::support::*;

#[tokio::test]
async fn programs_are_looked_up() {
    let gateway = Gateway::start().await;
    let node = Node::start(
        gateway.builder().bin_probe(|name| {
            assert_ne!(name, "trap");
            name == "git"
        }),
        echo(),
    );
    let mut peer = gateway.upgrade().await;
    assert!(peer.recv().await["features"].as_array().unwrap().contains(&json!("bin_probe")));
    peer.send(json!({"type":"gateway_welcome","features":["bin_probe"]})).await;
    peer.send(json!({"type":"bin_probe","probe_id":"p","bins":["git","rg","trap"]})).await;
    assert_eq!(
        peer.recv().await,
        json!({"type":"bin_probe_result","probe_id":"p","bins":{"git":true,"rg":false,"trap":false}})
    );
    node.shut_down().await;
}
