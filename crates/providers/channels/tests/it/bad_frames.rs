//! Unusable frames from a participant are reported only to that participant, and nothing is stored.

use futures_util::SinkExt as _;
use sa_testkit::{Message, Participant, Setup};
use serde_json::{Value, json};

#[tokio::test]
async fn bad_frames_are_answered_and_harm_nobody() {
    let gateway = Setup::new()
        .config("[channels]\nmax_message_bytes = 20000\nmax_attachment_bytes = 10000")
        .start()
        .await;
    let mut other = Participant::join(&gateway, "room", "other").await;
    let mut ann = Participant::join(&gateway, "room", "ann").await;
    other.message("presence").await;
    let check = async |ann: &mut Participant, message: Message, code: &str| {
        ann.socket.send(message.clone()).await.unwrap();
        let answer = ann.recv().await;
        assert_eq!(
            (&answer["kind"], &answer["code"]),
            (&json!("error"), &json!(code)),
            "{message:?}: {answer}"
        );
    };
    let publish = |kind: &str, payload: Value| {
        Message::text(
            json!({ "action": "publish", "type": kind, "payload": payload, "ref": 5 }).to_string(),
        )
    };
    let long = "x".repeat(20_001);
    let deep = format!("{}{}", "[".repeat(110), "]".repeat(110));
    let deep =
        Message::text(format!("{{\"action\":\"publish\",\"type\":\"a\",\"payload\":{deep}}}"));
    let invalid = "validation-error";
    for (message, code) in [
        (Message::text("{"), invalid),
        (Message::text("[]"), invalid),
        (Message::text("null"), invalid),
        (Message::text("{\"action\":\"publish\"}"), invalid),
        (Message::text("{\"action\":\"fly\"}"), invalid),
        (publish("", json!(1)), invalid),
        (publish("message", json!({ "content": "no id" })), invalid),
        (publish("message", json!({ "id": 5 })), invalid),
        (publish("method-call", json!({ "callId": "1" })), invalid),
        (publish("note", json!(long)), invalid),
        (deep, invalid),
        (publish("presence", json!({ "action": "leave" })), "not-allowed"),
        (publish("method-result", json!({ "callId": "unknown", "complete": true })), "not-allowed"),
        (Message::binary(Vec::new()), invalid),
        (Message::binary(vec![0, 1, 0]), invalid),
        (Message::binary(vec![1, 0, 0, 0, 0]), invalid),
        (Message::binary(vec![0, 255, 255, 255, 255, b'{']), invalid),
        (attached(5, &[1, 2, 3]), invalid),
        (attached(2, &[1, 2, 3]), invalid),
        (attached(10_001, &[0; 10_001]), invalid),
    ] {
        check(&mut ann, message, code).await;
    }
    assert_eq!(ann.say("note", json!("still here")).await["kind"], "persisted");
    assert_eq!(other.recv().await["payload"], "still here", "nobody else was disturbed");
    let history = gateway.operator().get("/v1/channels/room/messages").await.body;
    let kinds: Vec<_> = history["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|message| message["type"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["presence", "presence", "note"], "and nothing was stored");
    gateway.stop().await;
}

fn attached(size: usize, bytes: &[u8]) -> Message {
    let meta = json!([{ "mimeType": "a/b", "size": size }]);
    let json =
        json!({ "action": "publish", "type": "note", "payload": 1, "ref": 1, "attachmentMeta": meta }).to_string();
    Message::binary(sa_protocol::channel::binary::join(&json, bytes))
}

#[tokio::test]
async fn a_frame_larger_than_any_message_ends_that_connection_alone() {
    let gateway = Setup::new()
        .config("[channels]\nmax_message_bytes = 1000\nmax_attachment_bytes = 1000")
        .start()
        .await;
    let mut other = Participant::join(&gateway, "room", "other").await;
    let mut ann = Participant::join(&gateway, "room", "ann").await;
    ann.socket.send(Message::text("x".repeat(5_000))).await.unwrap();
    assert_eq!(ann.closed().await.0, 1009);
    other.until(|frame| frame["payload"]["action"] == "leave").await;
    assert_eq!(other.say("note", json!(1)).await["kind"], "persisted");
    gateway.stop().await;
}

#[tokio::test]
async fn one_that_sends_too_much_is_told_to_slow_down() {
    let gateway = Setup::new().config("[channels]\nmax_messages_per_second = 5").start().await;
    let mut ann = Participant::join(&gateway, "room", "ann").await;
    for n in 0..50 {
        ann.publish("note", json!(n)).await;
    }
    let refused = ann.until(|frame| frame["kind"] == "error").await;
    assert_eq!(refused["code"], "rate-limited");
    gateway.stop().await;
}

const FIRST: &str = "00000000-0000-4000-8000-000000000001";
const SECOND: &str = "00000000-0000-4000-8000-000000000002";

#[tokio::test]
async fn a_message_is_its_authors() {
    let gateway = Setup::new().start().await;
    let mut ann = Participant::join(&gateway, "room", "ann").await;
    let mut eve = Participant::join(&gateway, "room", "eve").await;
    ann.say("message", json!({ "id": FIRST, "content": "a" })).await;
    let ephemeral = ann
        .publish_as(json!({ "type": "message", "payload": { "id": SECOND }, "persist": false }))
        .await;
    ann.answer(ephemeral).await;
    for id in [FIRST, SECOND] {
        for kind in ["update-message", "error"] {
            let refused = eve.say(kind, json!({ "id": id, "content": "b", "error": "b" })).await;
            assert_eq!(refused["code"], "not-allowed", "{kind} {id}");
        }
        assert_eq!(
            ann.say("update-message", json!({ "id": id, "content": "b" })).await["kind"],
            "persisted"
        );
        assert_eq!(
            eve.say("message", json!({ "id": id, "content": "mine" })).await["code"],
            "conflict"
        );
    }
    gateway.stop().await;
}
