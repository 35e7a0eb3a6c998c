//! `kill -9` of the gateway under load: nothing that was acknowledged is lost or doubled, and the order is one.

use std::collections::BTreeMap;

use futures_util::{SinkExt as _, StreamExt as _};
use sa_testkit::{Gateway, Message, Participant, Setup};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::SWITCHBOARD;

const WRITERS: usize = 4;
const KILLS: usize = 6;

/// Publishes until the connection breaks, and says what was acknowledged. What was not, is sent again by the next one.
async fn write(mut socket: Participant, name: String, mut next: u64, news: mpsc::Sender<(String, u64, u64)>) -> u64 {
    let mut sent = next;
    loop {
        while sent < next + 16 {
            let frame = json!({ "action": "publish", "type": "note", "payload": { "n": sent }, "persist": true,
                "ref": sent, "clientMessageId": format!("n{sent}") });
            if socket.socket.send(Message::text(frame.to_string())).await.is_err() {
                return next;
            }
            sent += 1;
        }
        let Some(Ok(message)) = socket.socket.next().await else { return next };
        let Message::Text(text) = message else { continue };
        let frame: Value = serde_json::from_str(&text).unwrap();
        if let Some(n) = frame["ref"].as_u64() {
            assert_eq!(frame["kind"], "persisted", "{frame}");
            let id = frame["id"].as_u64().unwrap();
            next = next.max(n + 1);
            if news.send((name.clone(), n, id)).await.is_err() {
                return next;
            }
        }
    }
}

async fn stored(gateway: &Gateway) -> Vec<Value> {
    let (mut before, mut all) = (u64::MAX >> 1, Vec::new());
    loop {
        let page = gateway.operator().get(&format!("/v1/channels/room/messages?limit=500&before={before}")).await.body;
        let messages = page["messages"].as_array().unwrap();
        if let Some(first) = messages.first() {
            before = first["id"].as_u64().unwrap();
        }
        all.splice(0..0, messages.iter().cloned());
        if page["has_more"] == false {
            return all;
        }
    }
}

#[tokio::test]
async fn no_acknowledged_message_is_lost_or_doubled() {
    let mut gateway = Setup::new().spawn(SWITCHBOARD).await;
    let mut tokens = Vec::new();
    for n in 0..WRITERS {
        tokens.push((format!("w{n}"), Participant::token(&gateway, &format!("w{n}")).await));
    }
    let (news, mut acknowledged) = mpsc::channel(64);
    let mut acks: BTreeMap<(String, u64), u64> = BTreeMap::new();
    let mut next = [0; WRITERS];
    for kill in 0..KILLS {
        let mut writers = Vec::new();
        for (at, (name, token)) in tokens.iter().enumerate() {
            let mut socket =
                Participant::connect(&gateway, &format!("/v1/channels/ws?token={token}&channel=room")).await;
            socket.here(name).await;
            writers.push(tokio::spawn(write(socket, name.clone(), next[at], news.clone())));
        }
        // Another moment each time.
        for _ in 0..100 + 37 * kill {
            let (name, n, id) = acknowledged.recv().await.unwrap();
            assert_eq!(*acks.entry((name, n)).or_insert(id), id, "a duplicate has the first one's id");
        }
        gateway.kill().await;
        for (at, writer) in writers.into_iter().enumerate() {
            tokio::pin!(writer);
            // Those that are told meanwhile count, too.
            next[at] = loop {
                tokio::select! {
                    ended = &mut writer => break ended.unwrap(),
                    Some((name, n, id)) = acknowledged.recv() => {
                        assert_eq!(*acks.entry((name, n)).or_insert(id), id);
                    }
                }
            };
        }
        gateway = Setup::new().on(&gateway).spawn(SWITCHBOARD).await;
    }
    while let Ok((name, n, id)) = acknowledged.try_recv() {
        acks.insert((name, n), id);
    }
    let stored = stored(&gateway).await;
    let ids: Vec<u64> = stored.iter().map(|message| message["id"].as_u64().unwrap()).collect();
    assert!(ids.windows(2).all(|pair| pair[0] < pair[1]));
    let mut found: BTreeMap<(String, u64), u64> = BTreeMap::new();
    for message in stored.iter().filter(|message| message["type"] == "note") {
        let key = (message["senderId"].as_str().unwrap().to_owned(), message["payload"]["n"].as_u64().unwrap());
        let double = found.insert(key.clone(), message["id"].as_u64().unwrap());
        assert_eq!(double, None, "{key:?} is there twice");
    }
    for (key, id) in &acks {
        assert_eq!(found.get(key), Some(id), "{key:?} was acknowledged");
    }
    assert!(acks.len() > 500, "{}", acks.len());
    let mut here = BTreeMap::new();
    for message in stored.iter().filter(|message| message["type"] == "presence") {
        let change = if message["payload"]["action"] == "leave" { -1 } else { 1 };
        *here.entry(message["senderId"].as_str().unwrap()).or_insert(0) += change;
    }
    assert!(here.values().all(|count| *count == 0), "ghosts: {here:?}");
    gateway.stop().await;
}
