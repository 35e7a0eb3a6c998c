//! `switchboard channel` shows a channel and can act in it.

use rustix::process::Signal;
use sa_gateway_kit::{Participant, Setup};
use serde_json::json;

use crate::SWITCHBOARD;

#[tokio::test]
async fn a_channel_from_the_command_line() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let mut worker = Participant::join(&gateway, "room", "worker").await;
    let method = json!({ "name": "greet", "parameters": { "type": "object" } });
    worker.update(json!({ "handle": "w", "type": "worker", "methods": [method] })).await;

    let tail = gateway.cli(&["channel", "tail", "room"]).start();
    tail.warns("following").await;
    let sent = gateway.cli(&["channel", "send", "room", "hello there"]).run().await;
    sent.assert_code(0);
    assert!(sent.stdout.starts_with("sent as "), "{}", sent.stdout);
    tail.says("operator: hello there").await;
    assert_eq!(worker.message("message").await["payload"]["content"], "hello there");
    let evil = "\u{1b}[2Jgone";
    worker
        .say("message", json!({ "id": "00000000-0000-4000-8000-000000000001", "content": evil }))
        .await;
    tail.says("gone").await;
    tail.signal(Signal::INT);
    let tail = tail.end().await;
    tail.assert_code(0);
    assert!(
        tail.stdout.contains("* worker joined") && !tail.stdout.contains('\u{1b}'),
        "{}",
        tail.stdout
    );

    let list = gateway.cli(&["channel", "ls"]).run().await.stdout;
    assert!(list.lines().nth(1).unwrap().starts_with("room"), "{list}");
    let roster = gateway.cli(&["channel", "roster", "room"]).run().await.stdout;
    assert!(roster.contains("worker") && roster.contains("greet"), "{roster}");

    let calling =
        gateway.cli(&["channel", "call", "room", "pubsub_worker_greet", "name=ann"]).start();
    let call = worker.message("method-call").await;
    assert_eq!(call["payload"]["args"], json!({ "name": "ann" }));
    worker
        .say(
            "method-result",
            json!({ "callId": call["payload"]["callId"], "content": "hi ann", "complete": true }),
        )
        .await;
    let called = calling.end().await;
    called.assert_code(0);
    assert!(called.stdout.contains("hi ann"), "{}", called.stdout);

    // The short name of a method is enough where it is unique.
    for name in ["greet", "worker.greet"] {
        let calling = gateway.cli(&["channel", "call", "room", name, "name=bob"]).start();
        let call = worker.message("method-call").await;
        assert_eq!(call["payload"]["args"], json!({ "name": "bob" }), "{name}");
        let progress = json!({ "callId": call["payload"]["callId"], "progress": 50 });
        worker.say("method-result", progress).await;
        worker
            .say("method-result", json!({ "callId": call["payload"]["callId"], "content": "hi bob", "complete": true }))
            .await;
        assert!(calling.end().await.assert_code(0).stdout.contains("hi bob"));
    }
    let told = gateway.cli(&["channel", "tail", "room", "--no-follow"]).run().await.stdout;
    assert!(told.contains("worker <- 50%") && told.contains("worker <- hi bob"), "{told}");
    let mut other = Participant::join(&gateway, "room", "other").await;
    let method = json!({ "name": "greet", "parameters": { "type": "object" } });
    other.update(json!({ "handle": "o", "methods": [method] })).await;
    let unclear = gateway.cli(&["channel", "call", "room", "greet"]).run().await;
    unclear.assert_code(9);
    assert!(unclear.stderr.contains("other.greet, worker.greet"), "{}", unclear.stderr);
    gateway.cli(&["channel", "call", "room", "dance"]).run().await.assert_code(5);
    gateway.cli(&["channel", "roster", "nowhere"]).run().await.assert_code(5);
    gateway.stop().await;
}
