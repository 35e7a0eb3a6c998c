//! The bytes of attachments survive a kill of the gateway.

use futures_util::SinkExt as _;
use sa_gateway_kit::{Message, Participant, Setup};
use sa_protocol::channel::binary;
use serde_json::{Value, json};

use crate::SWITCHBOARD;

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
async fn bytes_arrive_as_they_were_sent() {
    let mut gateway = Setup::new().spawn(SWITCHBOARD).await;
    let mut ann = Participant::join(&gateway, "room", "ann").await;
    let mut bob = Participant::join(&gateway, "room", "bob").await;
    let large: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
    let meta = json!([
        { "mimeType": "image/png", "name": "a.png", "size": 4 },
        { "mimeType": "application/octet-stream", "size": large.len() - 4, "id": "mine" },
    ]);
    let sent = attach(&mut ann, meta, &large).await;
    assert_eq!(sent["kind"], "persisted", "{}", sent["error"]);
    let expected = json!([
        { "id": "img_1", "mimeType": "image/png", "name": "a.png", "size": 4 },
        { "id": "mine", "mimeType": "application/octet-stream", "size": large.len() - 4 },
    ]);
    assert_eq!(sent["attachmentMeta"], expected);
    let got = bob.message("message").await;
    assert_eq!(got["attachmentMeta"], expected);
    assert!(got["bytes"] == json!(large), "live");
    let again = attach(&mut ann, json!([{ "mimeType": "a/b", "size": 1 }]), &[7]).await;
    assert_eq!(again["attachmentMeta"][0]["id"], "img_2");
    gateway.kill().await;

    let gateway = Setup::new().on(&gateway).spawn(SWITCHBOARD).await;
    let token = Participant::token(&gateway, "cid").await;
    let mut cid = Participant::connect(
        &gateway,
        &format!("/v1/channels/ws?token={token}&channel=room&sinceId=0"),
    )
    .await;
    let replayed = cid.message("message").await;
    assert_eq!((&replayed["kind"], &replayed["attachmentMeta"]), (&json!("replay"), &expected));
    assert!(replayed["bytes"] == json!(large), "after a restart");
    cid.here("cid").await;
    let third = attach(&mut cid, json!([{ "mimeType": "a/b", "size": 0 }]), &[]).await;
    assert_eq!(third["attachmentMeta"][0]["id"], "img_3", "numbers go on");

    let id = replayed["id"].as_u64().unwrap();
    let path = format!("/v1/channels/room/messages/{id}/attachments");
    let response = gateway
        .operator()
        .request(reqwest::Method::GET, &format!("{path}/mine"))
        .send()
        .await
        .unwrap();
    assert_eq!(response.headers()["content-type"], "application/octet-stream");
    assert!(response.bytes().await.unwrap() == large[4..]);
    gateway.operator().get(&format!("{path}/nope")).await.assert_problem(404, "not_found");
    gateway.stop().await;
}
