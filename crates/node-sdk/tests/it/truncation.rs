//! A result above the limit is truncated between characters, is marked as such, and then fits.
//!
//! The limit applies exactly to the result and its attachments. The rest of the response counts
//! only if the gateway announces a frame limit.

use sa_node_sdk::{MAX_TOOL_RESPONSE_BYTES, ToolContext, ToolError};
use serde_json::{Value, json};

use crate::support::*;

async fn answer(limit: usize, result: Value) -> Value {
    let gateway = Gateway::start().await;
    let registry = registry("t.big", move |_, _| std::future::ready(Ok(result.clone())));
    let node = Node::start(gateway.builder().max_response_bytes(limit), registry);
    let mut peer = gateway.welcome(&[]).await;
    peer.request("r", "t.big", Value::Null).await;
    let mut frame = peer.recv().await;
    node.shut_down().await;
    assert_eq!(frame["ok"], true);
    frame["result"].take()
}

/// Checks a truncated result.
#[track_caller]
fn check_cut(cut: &Value, whole: &Value, limit: usize) {
    let (whole, size) = (whole.to_string(), cut.to_string().len());
    // One more character would not have fitted: the longest one takes 7 bytes here.
    assert!(size <= limit && size > limit - 7, "{size} of {limit}");
    assert_eq!((&cut["_truncated"], &cut["_original_bytes"]), (&json!(true), &json!(whole.len())));
    assert!(whole.starts_with(cut["partial"].as_str().unwrap()));
    assert_eq!(cut.as_object().unwrap().len(), 3);
}

/// Characters of one to four bytes, and characters that JSON escapes to two or six bytes.
const CHARACTERS: [&str; 7] = ["x", "é", "€", "🦀", "\"", "\n", "\u{1}"];

#[tokio::test]
async fn exactly_at_the_limit_it_is_whole_and_one_byte_above_it_is_cut() {
    for character in CHARACTERS {
        let text = json!({ "text": character.repeat(300) });
        let size = text.to_string().len();
        assert_eq!(answer(size, text.clone()).await, text, "{character:?}");
        check_cut(&answer(size - 1, text.clone()).await, &text, size - 1);
    }
}

#[tokio::test]
async fn wherever_the_limit_falls_no_character_is_halved() {
    let result = json!({ "text": CHARACTERS.concat().repeat(100) });
    for limit in 1000..1020 {
        check_cut(&answer(limit, result.clone()).await, &result, limit);
    }
}

#[tokio::test]
async fn the_protocols_limit_holds_whatever_the_node_allows() {
    for (size, cut) in [(MAX_TOOL_RESPONSE_BYTES, false), (MAX_TOOL_RESPONSE_BYTES + 1, true)] {
        let result = json!("x".repeat(size - 2));
        let answer = answer(usize::MAX, result.clone()).await;
        if cut {
            check_cut(&answer, &result, MAX_TOOL_RESPONSE_BYTES);
        } else {
            assert!(answer == result, "it was cut");
        }
    }
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
        // The id is part of the frame, and its escapes make it longer there.
        let id = "\u{1}\"".repeat(500);
        peer.request(&id, "t.big", Value::Null).await;
        let text = peer.recv_text().await;
        let frame: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(frame["request_id"], id);
        assert_eq!((frame["result"] == result, text.len() <= limit), (!cut, true));
        node.shut_down().await;
    }
}

#[tokio::test]
async fn what_is_attached_counts_and_a_tool_can_ask_what_is_left() {
    let gateway = Gateway::start().await;
    let registry = registry("t.fill", |ctx: ToolContext, args: Value| async move {
        ctx.attach("text/plain", Some("a.txt"), &[0; 3000])?;
        let left = ctx.max_response_bytes() + usize::try_from(args.as_u64().unwrap()).unwrap();
        Ok(json!("é".repeat((left - 2) / 2) + &"x".repeat(left % 2)))
    });
    let node = Node::start(gateway.builder().max_response_bytes(10_000), registry);
    let mut peer = gateway.welcome(&["attachments"]).await;
    for (more, cut) in [(0, false), (1, true)] {
        peer.request("r", "t.fill", json!(more)).await;
        let response = peer.recv().await;
        assert_eq!(response["result"]["_truncated"] == true, cut, "{more}");
        let size =
            response["result"].to_string().len() + response["attachments"][0].to_string().len();
        assert!(size <= 10_000 && size > 10_000 - 40, "{size}");
    }
    node.shut_down().await;
}

#[tokio::test]
async fn an_error_is_cut_as_well() {
    let gateway = Gateway::start().await;
    let registry = registry("t.fail", |_, args: Value| async move {
        Err::<Value, _>(ToolError::InvalidArgs(
            "\"é\u{1}".repeat(usize::try_from(args.as_u64().unwrap()).unwrap()),
        ))
    });
    let node = Node::start(gateway.builder().max_response_bytes(1036), registry);
    let mut peer = gateway.welcome(&[]).await;
    // Each round is ten bytes of JSON, and the rest of the error is 36 bytes.
    for (rounds, expected) in [(100, 1036), (101, 1036), (5000, 1036), (99, 1026)] {
        peer.request("r", "t.fail", json!(rounds)).await;
        let error = peer.recv().await["error"].take();
        assert_eq!(error.to_string().len(), expected, "{rounds}");
        assert!("\"é\u{1}".repeat(5000).starts_with(error["message"].as_str().unwrap()));
    }
    node.shut_down().await;
}
