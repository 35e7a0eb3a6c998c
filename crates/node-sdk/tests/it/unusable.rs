//! A node ignores frames that it cannot use, but always answers a request.

use serde_json::json;

use crate::support::*;

#[tokio::test]
async fn an_unknown_tool_is_not_found() {
    let gateway = Gateway::start().await;
    let node = Node::start(gateway.builder(), echo());
    let mut peer = gateway.welcome(&[]).await;
    peer.request("a", "t.other", json!({})).await;
    let response = peer.recv().await;
    assert_eq!(response["error"], json!({"kind":"not_found","message":"unknown tool: t.other"}));
    node.shut_down().await;
}

#[tokio::test]
async fn odd_frames_are_ignored() {
    let gateway = Gateway::start().await;
    let node = Node::start(gateway.builder(), echo());
    let mut peer = gateway.welcome(&[]).await;
    for text in [
        "",
        "nonsense",
        "[]",
        "{}",
        r#"{"type":"dance"}"#,
        r#"{"type":5}"#,
        r#"{"type":"tool_request"}"#,
    ] {
        peer.send_text(text).await;
    }
    peer.send(json!({"type":"gateway_welcome","protocol_version":7})).await;
    peer.request("a", "t.echo", json!("fine")).await;
    assert_eq!(peer.recv().await["result"], "fine");
    node.shut_down().await;
}

#[tokio::test]
async fn a_request_with_unusable_parts_is_answered() {
    let gateway = Gateway::start().await;
    let node = Node::start(gateway.builder(), echo());
    let mut peer = gateway.welcome(&[]).await;
    let deep = format!("{}{}", "[".repeat(5000), "]".repeat(5000));
    for (id, rest) in [("deep", format!(r#""args":{deep}"#)), ("odd", r#""tool":7"#.to_owned())] {
        let tool = if id == "deep" { r#""tool":"t.echo","# } else { "" };
        peer.send_text(&format!(r#"{{"type":"tool_request","request_id":"{id}",{tool}{rest}}}"#))
            .await;
        let response = peer.recv().await;
        assert_eq!(
            (&response["request_id"], &response["error"]["kind"]),
            (&json!(id), &json!("invalid_args"))
        );
    }
    node.shut_down().await;
}
