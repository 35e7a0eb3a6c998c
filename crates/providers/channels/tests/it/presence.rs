//! Presence is correct: one entry per participant for any number of connections, no stale presence
//! after a crash of either side, and unique handles.

use sa_testkit::{Participant, Setup};
use serde_json::{Value, json};

fn presence(frame: &Value) -> (String, String, Option<String>) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let reason = frame["payload"]["leaveReason"].as_str().map(Into::into);
    (text(&frame["senderId"]), text(&frame["payload"]["action"]), reason)
}

#[tokio::test]
async fn whoever_comes_is_told_who_is_there() {
    let gateway = Setup::new().start().await;
    let mut ann = Participant::join(&gateway, "room", "ann").await;
    let answer = ann.update(json!({ "handle": "annie", "name": "Ann", "type": "agent" })).await;
    assert_eq!(answer["payload"]["action"], "update");
    let token = Participant::token(&gateway, "bob").await;
    let mut bob =
        Participant::connect(&gateway, &format!("/v1/channels/ws?token={token}&channel=room"))
            .await;
    let there = bob.recv().await;
    assert_eq!((&there["kind"], &there["senderId"]), (&json!("replay"), &json!("ann")));
    assert_eq!(there["payload"]["metadata"]["handle"], "annie");
    assert_eq!(bob.recv().await["kind"], "ready");
    assert_eq!(presence(&bob.recv().await), ("bob".into(), "join".into(), None));
    assert_eq!(presence(&ann.message("presence").await), ("bob".into(), "join".into(), None));

    let mut cid = Participant::connect(
        &gateway,
        &format!("/v1/channels/ws?token={token}&channel=room&roster=snapshot"),
    )
    .await;
    let ready = cid.recv().await;
    assert_eq!(
        ready["roster"]["ann"]["metadata"]["name"], "Ann",
        "as one document, for who asks for it"
    );
    gateway.stop().await;
}

#[tokio::test]
async fn several_connections_are_one_presence() {
    let gateway = Setup::new().start().await;
    let mut watcher = Participant::join(&gateway, "room", "watcher").await;
    let token = Participant::token(&gateway, "ann").await;
    let path = format!("/v1/channels/ws?token={token}&channel=room");
    let mut first = Participant::connect(&gateway, &path).await;
    first.here("ann").await;
    let mut second = Participant::connect(&gateway, &path).await;
    second.here("ann").await;
    first.send(json!({ "action": "close" })).await;
    assert_eq!(first.closed().await.0, 1000);
    second.say("note", json!(1)).await;
    second.send(json!({ "action": "close", "ref": 1 })).await;
    assert_eq!(second.closed().await.0, 1000);
    let mut seen = Vec::new();
    while seen.len() < 3 {
        let frame = watcher.until(|frame| frame["senderId"] == "ann").await;
        seen.push(if frame["type"] == "note" {
            ("ann".into(), "note".into(), None)
        } else {
            presence(&frame)
        });
    }
    let expected = [("join", None), ("note", None), ("leave", Some("graceful".to_owned()))];
    assert_eq!(
        seen,
        expected.map(|(action, reason)| ("ann".to_owned(), action.to_owned(), reason))
    );
    gateway.stop().await;
}

#[tokio::test]
async fn a_handle_belongs_to_one() {
    let gateway = Setup::new().start().await;
    let mut ann = Participant::join(&gateway, "room", "ann").await;
    let mut bob = Participant::join(&gateway, "room", "bob").await;
    ann.update(json!({ "handle": "helper" })).await;
    let refused = bob.update(json!({ "handle": "helper" })).await;
    assert_eq!((&refused["kind"], &refused["code"]), (&json!("error"), &json!("handle-conflict")));
    assert!(refused["error"].as_str().unwrap().contains("\"ann\""));
    ann.update(json!({ "handle": "other" })).await;
    assert_eq!(bob.update(json!({ "handle": "helper" })).await["kind"], "persisted");
    gateway.stop().await;
}
