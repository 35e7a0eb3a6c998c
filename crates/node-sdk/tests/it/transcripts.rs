//! A real node replays the protocol's transcripts. It understands the frames of gateways, and sends
//! the frames of nodes exactly as they are in the files.

use sa_hostile::{Line, transcripts};
use sa_node_sdk::protocol::Attachment;
use sa_node_sdk::{ErrorKind, NodeEvents, ToolContext, ToolError, ToolRegistry, ToolResult};
use serde_json::{Value, json};

use crate::support::*;

const FILES: [&str; 3] = ["node.jsonl", "node-old.jsonl", "node-extended.jsonl"];

/// Checks that the node has handled all earlier frames and has nothing to send.
async fn settle(peer: &mut Peer, place: &str) {
    peer.send(json!({"type":"ping","timestamp":77})).await;
    assert_eq!(peer.recv().await, json!({"type":"pong","timestamp":77}), "{place}");
}

#[tokio::test]
async fn what_gateways_say_is_understood() {
    let gateway = Gateway::start().await;
    let lines = transcripts(&FILES, "gateway->node", 10);
    let mut registry = ToolRegistry::new();
    for line in lines.iter().filter(|line| line.frame["type"] == "tool_request") {
        let tool = Tool(|ctx: ToolContext, args: Value| async move {
            let deadline = ctx.deadline().is_some();
            let principal = ctx.principal().map(|principal| json!([principal.id, principal.role]));
            Ok(json!([
                ctx.request_id,
                ctx.tool_name,
                args,
                ctx.session_key,
                ctx.traceparent(),
                deadline,
                principal
            ]))
        });
        registry.register_host_tool(line.frame["tool"].as_str().unwrap(), tool);
    }
    let node = Node::start(gateway.builder().bin_probe(|bin| bin == "git"), registry);
    let mut peer = gateway.welcome(&[]).await;
    for Line { place, frame, meaning } in lines {
        if frame["type"] == "gateway_welcome" {
            drop(peer);
            peer = gateway.upgrade().await;
            assert_eq!(peer.recv().await["type"], "node_hello", "{place}");
        }
        peer.send(frame).await;
        match meaning["type"].as_str().unwrap() {
            "tool_request" => {
                let [id, tool, args] = ["request_id", "tool", "args"].map(|name| &meaning[name]);
                let (session, trace) = (&meaning["session_key"], &meaning["traceparent"]);
                let principal = meaning
                    .get("principal_id")
                    .map(|principal| json!([principal, meaning["principal_role"]]));
                let deadline = meaning.get("deadline_ms").is_some();
                let seen = json!([id, tool, args, session, trace, deadline, principal]);
                let expected =
                    json!({"type":"tool_response","request_id":id,"ok":true,"result":seen});
                assert_eq!(peer.recv().await, expected, "{place}");
            }
            "ping" => {
                let expected = json!({"type":"pong","timestamp":meaning["timestamp"]});
                assert_eq!(peer.recv().await, expected, "{place}");
            }
            "bin_probe" => {
                let bins = json!({"git":true,"rg":false});
                let expected =
                    json!({"type":"bin_probe_result","probe_id":meaning["probe_id"],"bins":bins});
                assert_eq!(peer.recv().await, expected, "{place}");
            }
            // The node does not answer these.
            "gateway_welcome" | "tool_cancel" | "pong" => {}
            other => panic!("{place}: nobody knows what a node does with {other}"),
        }
        settle(&mut peer, &place).await;
    }
    node.shut_down().await;
}

/// A tool that sends a given response, chunk or progress report.
async fn say(ctx: ToolContext, frame: Value) -> ToolResult {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let files = frame["attachments"].as_array().into_iter().flatten();
    let attachments: Vec<Attachment<'_>> = files
        .map(|file| Attachment {
            mime_type: text(&file["mime_type"]).unwrap().into(),
            name: text(&file["name"]).map(Into::into),
            data: text(&file["data"]).unwrap().into(),
        })
        .collect();
    match frame["type"].as_str().unwrap() {
        "tool_progress" => {
            let message = text(&frame["message"]);
            ctx.progress(
                frame["progress"].as_f64().unwrap(),
                frame["total"].as_f64(),
                message.as_deref(),
            );
            Ok(Value::Null)
        }
        "tool_chunk" => {
            ctx.chunk_with(frame["content"].clone(), attachments).await?;
            Ok(Value::Null)
        }
        _ => {
            for file in attachments {
                ctx.attach(file.mime_type.clone(), file.name.as_deref(), &file.bytes().unwrap())?;
            }
            let Some(error) = frame.get("error") else { return Ok(frame["result"].clone()) };
            let message = text(&error["message"]).unwrap();
            Err(match serde_json::from_value(error["kind"].clone()).unwrap() {
                ErrorKind::InvalidArgs => ToolError::InvalidArgs(message),
                ErrorKind::NotAllowed => ToolError::NotAllowed(message),
                ErrorKind::Timeout => ToolError::Timeout(message),
                ErrorKind::Cancelled => ToolError::Cancelled(message),
                ErrorKind::NotFound => ToolError::NotFound(message),
                ErrorKind::Failed => ToolError::Failed(message),
            })
        }
    }
}

#[tokio::test]
async fn what_nodes_say_is_said_to_the_letter() {
    let gateway = Gateway::start().await;
    let events = NodeEvents::new();
    let node = Node::start(gateway.builder().events(&events), registry("t.say", say));
    let mut peer = gateway.welcome(&["tool_progress", "tool_chunk", "attachments", "events"]).await;
    let mut said = 0;
    for Line { place, meaning, .. } in transcripts(&FILES, "node->gateway", 10) {
        match meaning["type"].as_str().unwrap() {
            "tool_response" | "tool_progress" | "tool_chunk" => {
                peer.request(meaning["request_id"].as_str().unwrap(), "t.say", meaning.clone())
                    .await;
                assert_eq!(peer.recv().await, meaning, "{place}");
                if meaning["type"] != "tool_response" {
                    assert_eq!(peer.recv().await["type"], "tool_response", "{place}");
                }
            }
            "node_event" => {
                events.send(meaning["event"].as_str().unwrap(), meaning["data"].clone());
                let mut event = peer.recv().await;
                // The time is the node's own.
                assert!(
                    event.as_object_mut().unwrap().remove("at_ms").is_some_and(|at| at.is_i64()),
                    "{place}"
                );
                let mut expected = meaning;
                expected.as_object_mut().unwrap().remove("at_ms");
                assert_eq!(event, expected, "{place}");
            }
            // Hellos and heartbeats have their own tests.
            _ => continue,
        }
        said += 1;
    }
    assert!(said >= 15, "only {said} lines were replayed");
    node.shut_down().await;
}
