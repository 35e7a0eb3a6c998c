//! A crash of a client or of the gateway leaves no stale presence.

use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use sa_gateway_kit::{Gateway, Participant, Setup, count, eventually, soon};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::SWITCHBOARD;

async fn roster(gateway: &Gateway) -> Vec<String> {
    let reply = gateway.operator().get("/v1/channels/room").await;
    let participants = reply.body["participants"].as_array().unwrap();
    participants.iter().map(|participant| participant["id"].as_str().unwrap().to_owned()).collect()
}

fn presence(frame: &Value) -> (String, String, Option<String>) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let reason = frame["payload"]["leaveReason"].as_str().map(Into::into);
    (text(&frame["senderId"]), text(&frame["payload"]["action"]), reason)
}

/// Starts a client in a separate process, and returns when it has joined.
async fn client(gateway: &Gateway, name: &str) -> Child {
    let token = Participant::token(gateway, name).await;
    let url = format!("ws://{}/v1/channels/ws?token={token}&channel=room", gateway.address());
    let mut command = Command::new(env!("CARGO_BIN_EXE_e2e-channel-client"));
    let mut child = command.arg(url).stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(soon(lines.next_line()).await.unwrap().as_deref(), Some("ready"));
    child
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_raw(child.id().unwrap().cast_signed()).unwrap(), signal).unwrap();
}

#[tokio::test]
async fn a_client_that_dies_leaves_no_stale_presence() {
    let gateway = Setup::new()
        .config("[nodes]\nping_interval_ms = 500\ndead_after_ms = 2500")
        .spawn(SWITCHBOARD)
        .await;
    let mut watcher = Participant::join(&gateway, "room", "watcher").await;
    for round in 0..count("SWITCHBOARD_CHANNEL_CLIENT_KILLS", 3) {
        // A killed client is detected by its closed connection, a stopped one by its missing pong.
        for (name, what) in [("dead", Signal::KILL), ("mute", Signal::STOP)] {
            let name = format!("{name}{round}");
            let mut process = watcher.while_reading(client(&gateway, &name)).await;
            assert!(roster(&gateway).await.contains(&name));
            signal(&process, what);
            let left = watcher.until(|frame| frame["payload"]["action"] == "leave").await;
            assert_eq!(presence(&left), (name, "leave".into(), Some("disconnect".into())));
            assert_eq!(roster(&gateway).await, ["watcher"]);
            process.kill().await.unwrap();
        }
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_gateway_that_dies_leaves_no_stale_presence() {
    let mut gateway = Setup::new().spawn(SWITCHBOARD).await;
    let mut ann = client(&gateway, "ann").await;
    let mut watcher = Participant::join(&gateway, "room", "watcher").await;
    let mut bob = client(&gateway, "bob").await;
    bob.kill().await.unwrap();
    watcher.until(|frame| frame["payload"]["action"] == "leave").await;
    gateway.kill().await;
    let gateway = Setup::new().on(&gateway).spawn(SWITCHBOARD).await;
    assert_eq!(roster(&gateway).await, Vec::<String>::new());
    ann.kill().await.unwrap();
    let history = gateway.operator().get("/v1/channels/room/messages").await.body;
    let events: Vec<_> = history["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(presence)
        .map(|(who, what, _)| format!("{who} {what}"))
        .collect();
    let (before, mut departures) = (&events[..4], events[4..].to_vec());
    departures.sort();
    assert_eq!(before, ["ann join", "watcher join", "bob join", "bob leave"]);
    assert_eq!(departures, ["ann leave", "watcher leave"]);
    let cid = Participant::join(&gateway, "room", "cid").await;
    drop(cid);
    eventually("an empty room", || async { roster(&gateway).await.is_empty().then_some(()) }).await;
    gateway.stop().await;
}
