//! A nearly valid frame gets a short answer or is ignored; its connection stays open, and no other
//! connection is affected.

use futures_util::SinkExt as _;
use sa_gateway_kit::{Hello, Message, Participant, Setup, Traffic};
use serde_json::{Value, json};

use crate::mutated::{nearly, some_readable, some_text};

/// The number of frames of each kind.
const EACH: usize = 120;
/// The longest answer to such a frame, apart from values that are returned on purpose.
const MAX_ANSWER: usize = 4_000;

#[tokio::test]
async fn of_agents() {
    let gateway = Setup::new().start().await;
    let traffic = Traffic::start(&gateway).await;
    let _node = Hello::new("n").capability("a").connect(&gateway).await.echo();
    let mut socket = gateway.operator().socket().await;
    let mut refused = 0;
    for right in [
        json!({ "type": "call", "id": "1", "tool": "a.b", "args": { "x": [1] }, "session_key": "s", "timeout_ms": 1_000,
            "idempotency_key": "k", "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01" }),
        json!({ "type": "cancel", "id": "1" }),
        json!({ "type": "listen", "events": [] }),
        json!({ "type": "ping", "timestamp": 5 }),
        json!({ "type": "pong", "timestamp": 5 }),
    ] {
        for (number, frame) in some_text(EACH, nearly(right)).into_iter().enumerate() {
            socket.send_raw(Message::text(frame.clone())).await;
            let mark = 1_000_000 + number;
            socket.send(json!({ "type": "ping", "timestamp": mark })).await;
            loop {
                let answer = socket.recv().await;
                if answer["type"] == "pong" && answer["timestamp"] == mark {
                    break;
                }
                assert!(answer["type"].is_string(), "{answer}");
                if answer["type"] == "error" {
                    refused += 1;
                    let length = answer.to_string().len();
                    let shown: String = frame.chars().take(300).collect();
                    assert!(length <= MAX_ANSWER, "{length} bytes for {shown}");
                    assert!(
                        answer["kind"].is_string() && answer["message"].is_string(),
                        "{answer} for {shown}"
                    );
                    assert_ne!(answer["kind"], "internal", "{answer} for {shown}");
                }
            }
        }
    }
    assert!(refused > EACH, "{refused} were refused: are they wrong at all?");
    traffic.end().await;
}

#[tokio::test]
async fn of_participants() {
    let config = "[channels]\nmax_messages_per_second = 1_000_000\nmax_message_bytes = 20_000\n";
    let gateway = Setup::new().config(config).start().await;
    let mut other = Participant::join(&gateway, "room", "other").await;
    let mut ann = Participant::join(&gateway, "room", "ann").await;
    let mut refused = 0;
    let published = |kind: &str, payload: Value| json!({ "action": "publish", "type": kind, "payload": payload, "ref": 7 });
    let with = |mut frame: Value, key: &str, value: Value| {
        frame[key] = value;
        frame
    };
    let methods = json!([{ "name": "f", "parameters": { "type": "object" } }]);
    let bytes = json!([{ "id": "i", "mimeType": "a/b", "name": "n", "size": 3 }]);
    for right in [
        with(published("note", json!({ "a": [1] })), "clientMessageId", json!("c")),
        published(
            "message",
            json!({ "id": "00000000-0000-4000-8000-000000000001", "content": "x", "at": ["other"] }),
        ),
        published(
            "method-call",
            json!({ "callId": "1", "methodName": "f", "providerId": "other", "args": {} }),
        ),
        published("method-result", json!({ "callId": "1", "content": 1, "complete": true })),
        json!({ "action": "update-metadata", "payload": { "name": "Ann", "methods": methods }, "ref": 7 }),
        json!({ "action": "get-messages-before", "before": 5, "limit": 2, "ref": 7 }),
        with(published("note", json!(1)), "attachmentMeta", bytes),
    ] {
        let attached = right.get("attachmentMeta").map(|_| [1, 2, 3]);
        for text in some_readable(EACH, nearly(right)) {
            let message = match attached {
                Some(bytes) => Message::binary(sa_protocol::channel::binary::join(&text, &bytes)),
                None => Message::text(text.clone()),
            };
            ann.socket.send(message).await.unwrap();
            // The next frame is answered, and no other answer arrives before it.
            let reference =
                ann.publish_as(json!({ "type": "mark", "payload": 1, "persist": false })).await;
            loop {
                let answer = ann.recv().await;
                if answer["ref"] == reference && answer["type"] == "mark" {
                    break;
                }
                if answer["kind"] == "error" {
                    refused += 1;
                    let length = answer.to_string().len();
                    let shown: String = text.chars().take(300).collect();
                    assert!(length <= MAX_ANSWER, "{length} bytes for {shown}");
                    assert!(
                        answer["error"].is_string() && answer["code"].is_string(),
                        "{answer} for {shown}"
                    );
                }
            }
        }
    }
    assert!(refused > EACH, "{refused} were refused: are they wrong at all?");
    let reference = other
        .publish_as(json!({ "type": "mark", "payload": "still here", "persist": false }))
        .await;
    let own = |frame: &Value| frame["ref"] == reference && frame["payload"] == "still here";
    other.until(own).await;
    gateway.stop().await;
}
