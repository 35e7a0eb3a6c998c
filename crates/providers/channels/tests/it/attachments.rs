//! Attachments arrive byte for byte, live and in replays, and survive a restart.

use futures_util::SinkExt as _;
use sa_protocol::channel::binary;
use sa_testkit::{Message, Participant, Setup};
use serde_json::{Value, json};

async fn attach(participant: &mut Participant, meta: Value, bytes: &[u8]) -> Value {
    let frame = json!({ "action": "publish", "type": "message", "payload": { "id": uuid::Uuid::new_v4(), "content": "look" },
        "persist": true, "ref": 77, "attachmentMeta": meta });
    participant
        .socket
        .send(Message::binary(binary::join(&frame.to_string(), bytes)))
        .await
        .unwrap();
    participant.answer(77).await
}

#[tokio::test]
async fn a_large_attachment_does_not_hold_up_small_messages() {
    let gateway = Setup::new().start().await;
    let mut ann = Participant::join(&gateway, "room", "ann").await;
    let mut bob = Participant::join(&gateway, "room", "bob").await;
    let large = vec![5_u8; 25 * 1024 * 1024];
    let sending = tokio::spawn(async move {
        let sent =
            attach(&mut ann, json!([{ "mimeType": "a/b", "size": large.len() }]), &large).await;
        (ann, sent)
    });
    let mut before = 0;
    while !sending.is_finished() {
        assert_eq!(bob.say("note", json!(before)).await["kind"], "persisted");
        before += 1;
    }
    let (_ann, sent) = sending.await.unwrap();
    assert_eq!(sent["kind"], "persisted", "{}", sent["error"]);
    assert!(before > 3, "{before} small ones passed it by");
    gateway.stop().await;
}
