//! What a command tells somebody to try works, and is about what they did.

use sa_testkit::{Cli, Setup};
use serde_json::json;

use crate::SWITCHBOARD;
use crate::relay_callers::{id, session};

#[tokio::test]
async fn a_sessions_tools_are_shown_where_its_calls_point() {
    let gateway = Setup::new().config("[sessions]\ncaller_grace_ms = 100").spawn(SWITCHBOARD).await;
    let session = session(&gateway.operator()).await;
    let id = id(&session);
    let bad = gateway.cli(&["call", "ant_send", "--session", id, "--args-json", "{}"]).run().await;
    bad.assert_code(6);
    let hint = format!("switchboard tools ant_send --session {id}");
    assert!(bad.stderr.contains(&hint), "{}", bad.stderr);
    let words: Vec<&str> = hint.split(' ').skip(1).collect();
    let shown = gateway.cli(&words).run().await;
    shown.assert_code(0);
    let example = format!("switchboard call --session {id} ant_send text=TEXT");
    assert!(shown.stdout.contains("Sends it") && shown.stdout.contains(&example), "{}", shown.stdout);
    gateway.cli(&["tools", "ant_send"]).run().await.assert_code(5);
    assert!(gateway.cli(&["tools", "--session", id]).run().await.stdout.contains("ant_recall"));
}

#[tokio::test]
async fn a_channels_methods_are_shown_where_its_calls_point() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let mut worker = sa_testkit::Participant::join(&gateway, "room", "worker").await;
    let parameters = json!({ "type": "object", "properties": { "name": { "type": "string" } }, "required": ["name"] });
    worker.update(json!({ "handle": "w", "methods": [{ "name": "greet", "parameters": parameters }] })).await;
    let bad = gateway.cli(&["channel", "call", "room", "greet"]).run().await;
    bad.assert_code(6);
    assert!(bad.stderr.contains("switchboard tools pubsub_worker_greet --channel room"), "{}", bad.stderr);
    let shown = gateway.cli(&["tools", "pubsub_worker_greet", "--channel", "room"]).run().await;
    shown.assert_code(0);
    let example = "switchboard channel call room pubsub_worker_greet name=NAME";
    assert!(shown.stdout.contains(example), "{}", shown.stdout);
}

#[tokio::test]
async fn hints_name_commands_that_show_what_they_say() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let unknown = gateway.cli(&["sessions", "nope"]).run().await;
    unknown.assert_code(5);
    assert!(unknown.stderr.contains("switchboard sessions lists"), "{}", unknown.stderr);
    assert!(!unknown.stderr.contains("session_list"), "{}", unknown.stderr);
    let nowhere = Cli::new(SWITCHBOARD).args(&["relay", "/nope"]).run().await;
    nowhere.assert_code(8);
    assert!(nowhere.stderr.contains("switchboard sessions ID shows the socket"), "{}", nowhere.stderr);
    let unnamed = Cli::new(SWITCHBOARD).args(&["relay"]).run().await;
    unnamed.assert_code(2);
    assert!(unnamed.stderr.contains("SWITCHBOARD_RELAY_SOCKET"), "{}", unnamed.stderr);
}
