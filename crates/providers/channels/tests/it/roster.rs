//! A roster that is too large for one frame is sent participant by participant. It follows the
//! reader's speed and is correct in the end.

use std::collections::BTreeSet;

use sa_testkit::messaging::client;
use sa_testkit::{Gateway, Participant, Setup, eventually, soon};
use serde_json::{Value, json};

const QUEUE: usize = 256 << 10;
const TALKATIVE: usize = 40;

/// Joins participants with more metadata than any queue can hold.
async fn crowd(gateway: &Gateway) -> Vec<Participant> {
    let mut crowd = Vec::new();
    for number in 0..TALKATIVE {
        crowd.push(talkative(gateway, &format!("p{number:02}")).await);
    }
    crowd
}

/// Joins a participant without the right to read, so it receives no messages of others.
async fn talkative(gateway: &Gateway, name: &str) -> Participant {
    let token = json!({ "name": name, "role": "participant", "channel_rights": ["publish"] });
    let token = gateway.token(token).await.1;
    let mut participant =
        Participant::connect(gateway, &format!("/v1/channels/ws?token={token}&channel=room")).await;
    participant.until(|frame| frame["kind"] == "ready").await;
    participant.update(json!({ "about": "x".repeat(60_000) })).await;
    participant
}

fn setup() -> Setup {
    Setup::new().config(&format!("[channels]\nmax_queue_bytes = {QUEUE}"))
}

/// Returns the participants that a newcomer is sent before its own join, the ready frame, and the
/// number of history messages between them.
async fn told(newcomer: &mut Participant, name: &str) -> (BTreeSet<String>, Value, usize) {
    let (mut here, mut ready, mut said) = (BTreeSet::new(), Value::Null, 0);
    loop {
        let frame = newcomer.recv().await;
        if frame["kind"] == "ready" {
            ready = frame;
            continue;
        }
        if frame["type"] != "presence" {
            said += 1;
            continue;
        }
        let sender = frame["senderId"].as_str().unwrap().to_owned();
        if frame["payload"]["action"] == "leave" {
            here.remove(&sender);
        } else {
            here.insert(sender.clone());
        }
        if !ready.is_null() && sender == name && frame["payload"]["action"] == "join" {
            return (here, ready, said);
        }
        assert!(!ready.is_null() || frame["kind"] == "replay", "{frame}");
    }
}

async fn listed(gateway: &Gateway, limit: usize) -> BTreeSet<String> {
    let (mut here, mut cursor) = (BTreeSet::new(), String::new());
    loop {
        let page =
            gateway.operator().get(&format!("/v1/channels/room?limit={limit}{cursor}")).await.body;
        let participants = page["participants"].as_array().unwrap();
        assert!((1..=limit).contains(&participants.len()), "{}", participants.len());
        here.extend(
            participants.iter().map(|participant| participant["id"].as_str().unwrap().to_owned()),
        );
        let Some(next) = page["next_cursor"].as_str() else { return here };
        cursor = format!("&cursor={next}");
    }
}

#[tokio::test]
async fn a_large_roster_is_told_at_the_readers_pace() {
    let gateway = setup().start().await;
    let mut crowd = crowd(&gateway).await;
    crowd[0].say("note", json!("said before")).await;
    for (name, more, history) in
        [("ann", "", 0), ("bob", "&roster=snapshot", 0), ("cid", "&roster=snapshot&sinceId=0", 1)]
    {
        let before = listed(&gateway, 1_000).await.len();
        let token = Participant::token(&gateway, name).await;
        let path = format!("/v1/channels/ws?token={token}&channel=room{more}");
        let mut slow = Participant::connect_narrowly(&gateway, &path).await;
        // The reader has received at most the first participants, and none of the changes that
        // follow.
        drop(crowd.remove(0));
        let late = format!("late-{name}");
        crowd.push(talkative(&gateway, &late).await);
        eventually("somebody's leaving", || async {
            (listed(&gateway, 1_000).await.len() == before).then_some(())
        })
        .await;
        let (here, ready, said) = told(&mut slow, name).await;
        assert_eq!(ready.get("roster"), None, "it does not fit");
        assert_eq!(said, history, "{name}");
        assert!(here.contains(&late) && here.contains("p39") && here.contains(name));
        assert_eq!(here, listed(&gateway, 7).await);
        drop(slow);
        eventually("its leaving", || async {
            (listed(&gateway, 1_000).await.len() == before).then_some(())
        })
        .await;
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_client_has_all_of_a_large_roster() {
    let gateway = setup().start().await;
    let _crowd = crowd(&gateway).await;
    let ann = soon(client(&gateway, "ann").await.connect()).await.unwrap();
    let roster = ann.roster();
    assert_eq!(roster.len(), TALKATIVE + 1);
    assert_eq!(roster["p07"].metadata["about"].as_str().map(str::len), Some(60_000));
    gateway.operator().get("/v1/channels/room?limit=x").await.assert_problem(400, "bad_request");
    gateway.stop().await;
}
