//! A tool that panics fails its own call and nothing else.

use sa_node_sdk::ToolContext;
use serde_json::{Value, json};

use crate::support::*;

#[tokio::test]
async fn a_panic_is_a_failed_call() {
    let gateway = Gateway::start().await;
    let registry = registry("t.fragile", |_: ToolContext, args: Value| async move {
        assert!(!args.is_null(), "nothing to work on");
        Ok(args)
    });
    let node = Node::start(gateway.builder(), registry);
    let mut peer = gateway.welcome(&[]).await;
    peer.request("a", "t.fragile", Value::Null).await;
    assert_eq!(
        peer.recv().await,
        json!({"type":"tool_response","request_id":"a","ok":false,
               "error":{"kind":"failed","message":"the tool panicked: nothing to work on"}})
    );
    peer.request("b", "t.fragile", json!(1)).await;
    assert_eq!(peer.recv().await["result"], 1);
    node.shut_down().await;
}

#[tokio::test]
async fn a_panic_before_the_future_exists_is_one_too() {
    let gateway = Gateway::start().await;
    let registry = registry("t.worse", |_, args: Value| {
        assert!(!args.is_null(), "at once");
        std::future::ready(Ok(args))
    });
    let node = Node::start(gateway.builder().max_concurrent_tools(1), registry);
    let mut peer = gateway.welcome(&[]).await;
    for id in ["a", "b"] {
        peer.request(id, "t.worse", Value::Null).await;
        assert_eq!(peer.recv().await["error"]["kind"], "failed");
    }
    node.shut_down().await;
}
