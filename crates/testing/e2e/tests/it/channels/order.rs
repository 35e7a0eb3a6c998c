//! Many participants that come and go see one order, and an acknowledged message survives a kill.

use std::collections::BTreeMap;
use std::time::Duration;

use sa_gateway_kit::{Dice, Participant, Setup, count, soon};
use serde_json::json;
use tokio::sync::watch;

use crate::SWITCHBOARD;
use crate::channels::reader::{OPEN, Reader};

/// Publishes this number of notes with repeated disconnects, and sends unacknowledged notes again.
/// Returns the ids under which they were stored.
async fn write(address: String, token: String, notes: u64, mut dice: Dice) -> Vec<u64> {
    let path = format!("/v1/channels/ws?token={token}&channel=room&roster=snapshot");
    let mut ids = Vec::new();
    while (ids.len() as u64) < notes {
        let mut socket = soon(Participant::try_connect(&address, &path)).await.unwrap();
        let (first, burst) = (ids.len() as u64, 1 + dice.roll(20));
        let last = notes.min(first + burst);
        for n in first..last {
            let id = format!("n{n}");
            socket
                .publish_as(json!({ "type": "note", "payload": { "n": n }, "persist": true, "clientMessageId": id }))
                .await;
        }
        // The writer does not wait for all answers. Answers for messages that were already stored
        // may arrive after the others.
        let wanted = last - dice.roll(last - first);
        let mut answers = BTreeMap::new();
        while (first..wanted).any(|n| !answers.contains_key(&n)) {
            let answer = socket.until(|frame| frame["ref"].is_i64()).await;
            answers
                .insert(answer["payload"]["n"].as_u64().unwrap(), answer["id"].as_u64().unwrap());
        }
        ids.extend((first..wanted).map(|n| answers[&n]));
    }
    ids
}

#[tokio::test(flavor = "multi_thread")]
async fn writers_and_readers_that_come_and_go_agree_on_one_order() {
    const EACH: usize = 8;
    let notes = count("SWITCHBOARD_CHANNEL_NOTES", 150) as u64;
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let (end, ended) = watch::channel(OPEN);
    let (mut writers, mut readers) = (Vec::new(), Vec::new());
    for n in 0..EACH {
        let token = Participant::token(&gateway, &format!("r{n}")).await;
        let mut dice = Dice(n as u64);
        let stay = move || Duration::from_millis(20 + dice.roll(200));
        readers
            .push(tokio::spawn(Reader::new(gateway.address(), &token).follow(ended.clone(), stay)));
    }
    for n in 0..EACH {
        let token = Participant::token(&gateway, &format!("w{n}")).await;
        writers.push(tokio::spawn(write(
            gateway.address().into(),
            token,
            notes,
            Dice(100 + n as u64),
        )));
    }
    let mut written = Vec::new();
    for (writer, task) in writers.into_iter().enumerate() {
        // No overall timeout here, because each step has its own.
        let ids = task.await.unwrap();
        assert!(ids.is_sorted(), "a sender's own order is kept: {ids:?}");
        written.extend((0..).zip(ids).map(|(n, id)| (id, format!("w{writer}"), n)));
    }
    written.sort();
    end.send_replace(written.last().unwrap().0);
    for (n, reader) in readers.into_iter().enumerate() {
        let reader = reader.await.unwrap();
        assert!(
            reader.seen == written,
            "reader {n} saw {} notes and not the same",
            reader.seen.len()
        );
        assert!(reader.visits > 1, "it was never cut off");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn what_was_acknowledged_survives_a_kill_and_what_is_resent_is_stored_once() {
    let mut gateway = Setup::new().spawn(SWITCHBOARD).await;
    let token = Participant::token(&gateway, "ann").await;
    let path = format!("/v1/channels/ws?token={token}&channel=room");
    let mut ann = Participant::connect(&gateway, &path).await;
    ann.here("ann").await;
    let frame = |n: usize| json!({ "type": "note", "payload": { "n": n }, "persist": true, "clientMessageId": format!("k{n}") });
    let mut ids = Vec::new();
    for n in 0..20 {
        let reference = ann.publish_as(frame(n)).await;
        ids.push(ann.answer(reference).await["id"].as_u64().unwrap());
    }
    gateway.kill().await;

    let gateway = Setup::new().on(&gateway).spawn(SWITCHBOARD).await;
    let mut ann = Participant::connect(&gateway, &format!("{path}&sinceId=0")).await;
    let mut replayed = Vec::new();
    while replayed.len() < 20 {
        let frame = ann.message("note").await;
        assert_eq!(frame["kind"], "replay");
        replayed.push(frame["id"].as_u64().unwrap());
    }
    assert_eq!(replayed, ids);
    ann.here("ann").await;
    for (n, id) in ids.iter().enumerate() {
        let reference = ann.publish_as(frame(n)).await;
        let answer = ann.answer(reference).await;
        assert_eq!(
            (answer["id"].as_u64(), &answer["duplicate"]),
            (Some(*id), &json!(true)),
            "the first one's id"
        );
    }
    let history = gateway.operator().get("/v1/channels/room/messages?limit=500").await.body;
    let notes = history["messages"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|message| message["type"] == "note")
        .count();
    assert_eq!(notes, 20);
    gateway.stop().await;
}
