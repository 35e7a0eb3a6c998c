//! A node sends its identity in the URL and in its hello, and serves calls only after a welcome.

use sa_node_sdk::*;
use serde_json::{Value, json};

use crate::support::*;

struct Described;

#[async_trait::async_trait]
impl NodeTool for Described {
    async fn call(&self, _: ToolContext, _: Value) -> ToolResult {
        Ok(Value::Null)
    }
    fn title(&self) -> Option<String> {
        Some("Title".into())
    }
    fn description(&self) -> Option<String> {
        Some("Does things.".into())
    }
    fn input_schema(&self) -> Option<Value> {
        Some(json!({"type":"object"}))
    }
    fn annotations(&self) -> Option<Value> {
        Some(json!({"readOnlyHint":true}))
    }
    fn timeout(&self) -> Option<std::time::Duration> {
        Some(std::time::Duration::from_secs(3))
    }
}

#[tokio::test]
async fn an_address_without_a_path_leads_to_the_nodes_door() {
    let gateway = Gateway::start().await;
    let root = gateway.url.strip_suffix("/v1/nodes/ws").unwrap().replace("ws://", "http://");
    for address in [root.clone(), format!("{root}/")] {
        let node = Node::start(gateway.builder().gateway_ws_url(address), echo());
        assert_eq!(gateway.upgrade().await.uri, "/v1/nodes/ws?node_id=n1");
        drop(node);
    }
}

#[tokio::test]
async fn url_and_hello() {
    let gateway = Gateway::start().await;
    let mut registry = ToolRegistry::new();
    registry
        .register("t.plain", Tool(|_, args| async { Ok(args) }))
        .register("t.described", Described);
    registry.derive_capabilities_from_tools();
    let builder = gateway
        .builder()
        .gateway_ws_url(format!("{}?zone=a%2Fb", gateway.url))
        .token("s&cret +1")
        .node_id("desk:é")
        .name("Desk")
        .node_type("linux")
        .version("1.2.3")
        .tags(vec![])
        .tags(vec!["office".into()])
        .host(json!({"os":"linux"}));
    let node = Node::start(builder, registry);

    let mut peer = gateway.upgrade().await;
    assert_eq!(peer.uri, "/v1/nodes/ws?zone=a%2Fb&token=s%26cret%20%2B1&node_id=desk%3A%C3%A9");
    assert_eq!(
        peer.recv().await,
        json!({
            "type": "node_hello",
            "protocol_version": 1,
            "node": {"id":"desk:é","name":"Desk","node_type":"linux","version":"1.2.3","tags":["office"]},
            "capabilities": ["t"],
            "tools": [
                {"name":"t.described","title":"Title","description":"Does things.","input_schema":{"type":"object"},
                 "annotations":{"readOnlyHint":true},"timeout_ms":3000},
                {"name":"t.plain"},
            ],
            "features": ["tool_cancel","tool_progress","tool_chunk","attachments"],
            "host": {"os":"linux"},
            "max_request_bytes": 262_144,
        })
    );
    peer.send(json!({"type":"gateway_welcome","gateway_version":"0.1.0"})).await;
    peer.request("r1", "t.plain", json!({"a":[1,null]})).await;
    assert_eq!(
        peer.recv().await,
        json!({"type":"tool_response","request_id":"r1","ok":true,"result":{"a":[1,null]}})
    );
    node.shut_down().await;
}

#[tokio::test]
async fn without_a_token_there_is_only_the_id() {
    let gateway = Gateway::start().await;
    let node = Node::start(gateway.builder().token(""), echo());
    assert_eq!(gateway.upgrade().await.uri, "/v1/nodes/ws?node_id=n1");
    node.shut_down().await;
}

#[tokio::test]
async fn frames_before_the_welcome_do_no_harm() {
    let gateway = Gateway::start().await;
    let node = Node::start(gateway.builder(), echo());
    let mut peer = gateway.upgrade().await;
    peer.recv().await;
    peer.send(json!({"type":"ping","timestamp":3})).await;
    assert_eq!(peer.recv().await, json!({"type":"pong","timestamp":3}));
    peer.send_text("nonsense").await;
    peer.send(json!({"type":"news"})).await;
    peer.send(json!({"type":"gateway_welcome"})).await;
    peer.request("r", "t.echo", json!(1)).await;
    assert_eq!(peer.recv().await["result"], 1);
    node.shut_down().await;
}

#[tokio::test]
async fn the_context_carries_what_the_request_says() {
    let gateway = Gateway::start().await;
    let registry = registry("t.ctx", |ctx: ToolContext, _| async move {
        let time_left = ctx.deadline().is_some();
        Ok(json!([ctx.request_id, ctx.tool_name, ctx.session_key, ctx.traceparent(), time_left]))
    });
    let node = Node::start(gateway.builder(), registry);
    let mut peer = gateway.welcome(&[]).await;
    peer.send(json!({"type":"tool_request","request_id":"r","tool":"T.ctx","session_key":"s","traceparent":"00-a-b-01","deadline_ms":60000}))
        .await;
    assert_eq!(peer.recv().await["result"], json!(["r", "T.ctx", "s", "00-a-b-01", true]));
    node.shut_down().await;
}
