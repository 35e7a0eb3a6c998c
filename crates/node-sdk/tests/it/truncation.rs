//! A result that is too large is cut between characters, says so, and its whole frame fits the limit.

use sa_node_sdk::MAX_TOOL_RESPONSE_BYTES;
use serde_json::{Value, json};

use crate::support::*;

async fn cut(limit: usize, result: Value) -> (String, Value) {
    let gateway = Gateway::start().await;
    let registry = registry("t.big", move |_, _| std::future::ready(Ok(result.clone())));
    let node = Node::start(gateway.builder().max_response_bytes(limit), registry);
    let mut peer = gateway.welcome(&[]).await;
    peer.request("r", "t.big", Value::Null).await;
    let text = peer.recv_text().await;
    node.shut_down().await;
    let frame = serde_json::from_str(&text).unwrap();
    (text, frame)
}

#[tokio::test]
async fn a_large_result_is_cut() {
    for limit in 1000..1010 {
        let result = json!({ "text": "\"é🦀\n".repeat(1000) });
        let (text, frame) = cut(limit, result.clone()).await;
        assert!(text.len() <= limit && text.len() > limit - 20, "{} of {limit}", text.len());
        assert_eq!((&frame["ok"], &frame["result"]["_truncated"]), (&json!(true), &json!(true)));
        assert_eq!(frame["result"]["_original_bytes"], result.to_string().len());
        assert!(result.to_string().starts_with(frame["result"]["partial"].as_str().unwrap()));
    }
}

#[tokio::test]
async fn the_protocols_limit_holds_whatever_the_node_allows() {
    let (text, frame) = cut(usize::MAX, json!("x".repeat(MAX_TOOL_RESPONSE_BYTES + 5))).await;
    assert!(text.len() <= MAX_TOOL_RESPONSE_BYTES);
    assert_eq!(frame["result"]["_original_bytes"], MAX_TOOL_RESPONSE_BYTES + 7);
}

#[tokio::test]
async fn a_gateway_says_how_much_it_takes() {
    let result = json!("x".repeat(MAX_TOOL_RESPONSE_BYTES + 5));
    for (limit, cut) in [(MAX_TOOL_RESPONSE_BYTES * 2, false), (100_000, true)] {
        let gateway = Gateway::start().await;
        let answer = result.clone();
        let registry = registry("t.big", move |_, _| std::future::ready(Ok(answer.clone())));
        let node = Node::start(gateway.builder().max_response_bytes(usize::MAX), registry);
        let mut peer = gateway.upgrade().await;
        assert_eq!(peer.recv().await["type"], "node_hello");
        peer.send(json!({ "type": "gateway_welcome", "max_frame_bytes": limit })).await;
        peer.request("r", "t.big", Value::Null).await;
        let text = peer.recv_text().await;
        let frame: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((frame["result"] == result, text.len() <= limit), (!cut, true));
        node.shut_down().await;
    }
}

#[tokio::test]
async fn a_result_that_fits_is_left_alone() {
    let (_, frame) = cut(1000, json!("é".repeat(400))).await;
    assert_eq!(frame["result"], "é".repeat(400));
}
