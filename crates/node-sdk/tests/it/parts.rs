//! Progress, chunks and attachments are sent in order to a gateway that listed the feature, and to
//! no other.

use sa_node_sdk::protocol::Attachment;
use sa_node_sdk::{ToolContext, ToolRegistry};
use serde_json::{Value, json};

use crate::support::*;

fn talkative() -> ToolRegistry {
    registry("t.talk", |ctx: ToolContext, _| async move {
        ctx.progress(1.0, Some(2.0), Some("half"));
        ctx.chunk(json!("first")).await?;
        ctx.chunk_with(
            json!("second"),
            vec![Attachment::from_bytes("image/png", Some("a.png"), b"png")],
        )
        .await?;
        ctx.attach("text/plain", None, b"hi")?;
        Ok(json!("done"))
    })
}

async fn frames(features: &[&str], count: usize) -> Vec<Value> {
    let gateway = Gateway::start().await;
    let node = Node::start(gateway.builder(), talkative());
    let mut peer = gateway.welcome(features).await;
    peer.request("r", "t.talk", Value::Null).await;
    let mut frames = Vec::new();
    for _ in 0..count {
        frames.push(peer.recv().await);
    }
    node.shut_down().await;
    frames
}

#[tokio::test]
async fn a_gateway_that_wants_everything_gets_it_in_order() {
    let expected = json!([
        {"type":"tool_progress","request_id":"r","progress":1,"total":2,"message":"half"},
        {"type":"tool_chunk","request_id":"r","content":"first"},
        {"type":"tool_chunk","request_id":"r","content":"second",
         "attachments":[{"mime_type":"image/png","name":"a.png","data":"cG5n"}]},
        {"type":"tool_response","request_id":"r","ok":true,"result":"done",
         "attachments":[{"mime_type":"text/plain","data":"aGk="}]},
    ]);
    let all = ["tool_progress", "tool_chunk", "attachments"];
    assert_eq!(Value::from(frames(&all, 4).await), expected);
    // The short spelling is equivalent.
    assert_eq!(Value::from(frames(&["progress", "chunk", "attachments"], 4).await), expected);
}

#[tokio::test]
async fn an_old_gateway_gets_the_response_alone() {
    let response = json!({"type":"tool_response","request_id":"r","ok":true,"result":"done"});
    assert_eq!(frames(&[], 1).await, [response]);
}

#[tokio::test]
async fn a_gateway_without_attachments_gets_chunks_without_them() {
    let frames = frames(&["tool_chunk"], 3).await;
    assert!(frames.iter().all(|frame| frame.get("attachments").is_none()), "{frames:?}");
}

#[tokio::test]
async fn parts_that_do_not_fit_are_an_error_for_the_tool() {
    let gateway = Gateway::start().await;
    let registry = registry("t.big", |ctx: ToolContext, _| async move {
        ctx.chunk(json!("é".repeat(1999))).await?;
        let chunk = ctx.chunk(json!("x".repeat(3999))).await.is_err();
        let attachment = ctx.attach("text/plain", None, &[0; 5000]).is_err();
        Ok(json!([chunk, attachment]))
    });
    let node = Node::start(gateway.builder().max_response_bytes(4000), registry);
    let mut peer = gateway.welcome(&["tool_chunk", "attachments"]).await;
    peer.request("r", "t.big", Value::Null).await;
    assert_eq!(peer.recv().await["content"].to_string().len(), 4000);
    assert_eq!(peer.recv().await["result"], json!([true, true]));
    node.shut_down().await;
}

#[tokio::test]
async fn a_tool_can_be_tested_without_a_gateway() {
    let tool = talkative().get("t.talk").unwrap();
    assert_eq!(tool.call(ToolContext::for_test("t.talk"), Value::Null).await, Ok(json!("done")));
}
