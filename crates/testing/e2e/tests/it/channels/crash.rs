//! After `kill -9` of the gateway under load, no acknowledged message is lost or duplicated, and
//! all readers see one order.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use futures_util::{SinkExt as _, StreamExt as _};
use sa_gateway_kit::{Gateway, Message, Participant, Setup, count, soon};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};

use crate::SWITCHBOARD;
use crate::channels::reader::{OPEN, Reader};

const WRITERS: usize = 4;
const READERS: usize = 2;
const FOREVER: Duration = Duration::from_secs(86_400);

fn setup() -> Setup {
    // The archive is filled as fast as possible.
    Setup::new().config("[channels]\nmax_messages_per_second = 1_000_000")
}

/// Stores this number of messages in a separate channel. After each start they must be available at
/// once.
async fn fill(gateway: &Gateway, messages: usize) {
    const AT_ONCE: usize = 1_000;
    let mut archivist = Participant::join(gateway, "archive", "archivist").await;
    let frame = r#"{"action":"publish","type":"note","payload":{"n":0},"persist":true,"ref":1}"#;
    for start in (0..messages).step_by(AT_ONCE) {
        let share = AT_ONCE.min(messages - start);
        for _ in 0..share {
            archivist.socket.feed(Message::text(frame)).await.unwrap();
        }
        archivist.socket.flush().await.unwrap();
        let mut stored = 0;
        while stored < share {
            let message = soon(archivist.socket.next()).await.unwrap().unwrap();
            stored += usize::from(message.to_text().is_ok_and(|text| text.contains("\"ref\":1")));
        }
    }
}

/// Publishes until the connection breaks, and reports each acknowledgement. The next call sends the
/// unacknowledged messages again.
async fn write(
    mut socket: Participant,
    name: String,
    mut next: u64,
    news: mpsc::Sender<(String, u64, u64)>,
) -> u64 {
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
        let page = gateway
            .operator()
            .get(&format!("/v1/channels/room/messages?limit=500&before={before}"))
            .await
            .body;
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
    let (kills, archive) =
        (count("SWITCHBOARD_CHANNEL_KILLS", 5), count("SWITCHBOARD_CHANNEL_STORED", 1_000));
    let mut gateway = setup().spawn(SWITCHBOARD).await;
    let address = gateway.address().to_owned();
    fill(&gateway, archive).await;
    let (end, ended) = watch::channel(OPEN);
    let mut readers = Vec::new();
    for n in 0..READERS {
        let token = Participant::token(&gateway, &format!("r{n}")).await;
        readers.push(tokio::spawn(Reader::new(&address, &token).follow(ended.clone(), || FOREVER)));
    }
    let mut slowest = Duration::ZERO;
    let mut tokens = Vec::new();
    for n in 0..WRITERS {
        tokens.push((format!("w{n}"), Participant::token(&gateway, &format!("w{n}")).await));
    }
    let (news, mut acknowledged) = mpsc::channel(64);
    let mut acks: BTreeMap<(String, u64), u64> = BTreeMap::new();
    let mut next = [0; WRITERS];
    for kill in 0..kills {
        let mut writers = Vec::new();
        for (at, (name, token)) in tokens.iter().enumerate() {
            let mut socket = Participant::connect(
                &gateway,
                &format!("/v1/channels/ws?token={token}&channel=room"),
            )
            .await;
            socket.here(name).await;
            writers.push(tokio::spawn(write(socket, name.clone(), next[at], news.clone())));
        }
        // The kill happens at a different moment each time.
        for _ in 0..100 + 37 * (kill % 10) {
            let (name, n, id) = acknowledged.recv().await.unwrap();
            assert_eq!(
                *acks.entry((name, n)).or_insert(id),
                id,
                "a duplicate has the first one's id"
            );
        }
        gateway.kill().await;
        for (at, writer) in writers.into_iter().enumerate() {
            tokio::pin!(writer);
            // Acknowledgements that arrive meanwhile count too.
            next[at] = loop {
                tokio::select! {
                    ended = &mut writer => break ended.unwrap(),
                    Some((name, n, id)) = acknowledged.recv() => {
                        assert_eq!(*acks.entry((name, n)).or_insert(id), id);
                    }
                }
            };
        }
        let start = Instant::now();
        gateway = setup().on(&gateway).at(&address).spawn(SWITCHBOARD).await;
        slowest = slowest.max(start.elapsed());
    }
    while let Ok((name, n, id)) = acknowledged.try_recv() {
        acks.insert((name, n), id);
    }
    let stored = stored(&gateway).await;
    let ids: Vec<u64> = stored.iter().map(|message| message["id"].as_u64().unwrap()).collect();
    assert!(ids.windows(2).all(|pair| pair[0] < pair[1]));
    let mut found: BTreeMap<(String, u64), u64> = BTreeMap::new();
    for message in stored.iter().filter(|message| message["type"] == "note") {
        let key = (
            message["senderId"].as_str().unwrap().to_owned(),
            message["payload"]["n"].as_u64().unwrap(),
        );
        let double = found.insert(key.clone(), message["id"].as_u64().unwrap());
        assert_eq!(double, None, "{key:?} is there twice");
    }
    for (key, id) in &acks {
        assert_eq!(found.get(key), Some(id), "{key:?} was acknowledged");
    }
    assert!(acks.len() > 100 * kills, "{}", acks.len());
    eprintln!(
        "{} messages acknowledged over {kills} kills; with {archive} more stored, ready after at most {slowest:?}",
        acks.len()
    );

    // All readers received exactly these messages in this order.
    let mut order: Vec<_> =
        found.iter().map(|((writer, n), id)| (*id, writer.clone(), *n)).collect();
    order.sort();
    end.send_replace(order.last().unwrap().0);
    for reader in readers {
        let reader = soon(reader).await.unwrap();
        assert!(reader.seen == order, "a reader saw {} of {}", reader.seen.len(), order.len());
        assert!(reader.visits > 1, "it was never cut off");
    }
    // A message that is sent again was stored only once, even several kills ago.
    for (name, token) in &tokens {
        let mut writer =
            Participant::connect(&gateway, &format!("/v1/channels/ws?token={token}&channel=room"))
                .await;
        let own: Vec<_> = acks.iter().filter(|((writer, _), _)| writer == name).collect();
        for ((_, n), id) in own.iter().step_by(own.len().div_ceil(50)) {
            let frame = json!({ "type": "note", "payload": { "n": n }, "persist": true, "clientMessageId": format!("n{n}") });
            let reference = writer.publish_as(frame).await;
            let answer = writer.answer(reference).await;
            assert_eq!(
                (answer["id"].as_u64(), &answer["duplicate"]),
                (Some(**id), &json!(true)),
                "the first one's id"
            );
        }
    }
    gateway.kill().await;
    let gateway = setup().on(&gateway).spawn(SWITCHBOARD).await;
    let stored = self::stored(&gateway).await;
    assert_eq!(stored.iter().filter(|message| message["type"] == "note").count(), order.len());
    let mut here = BTreeMap::new();
    for message in stored.iter().filter(|message| message["type"] == "presence") {
        let change = if message["payload"]["action"] == "leave" { -1 } else { 1 };
        *here.entry(message["senderId"].as_str().unwrap()).or_insert(0) += change;
    }
    assert!(here.values().all(|count| *count == 0), "stale_presence: {here:?}");
    gateway.stop().await;
}
