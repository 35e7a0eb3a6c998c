//! Participants that use the client library.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::StreamExt as _;
use sa_messaging::{Client, ClientBuilder, Event, Events, ReconnectBackoff, SendOptions};
use serde_json::{Value, json};

use crate::{Participant, Server, soon};

/// Reconnects quickly, because the test waits for it.
pub fn backoff() -> ReconnectBackoff {
    ReconnectBackoff {
        initial_delay: Duration::from_millis(10),
        max_delay: Duration::from_millis(200),
        ..ReconnectBackoff::default()
    }
}

/// Returns a client with a token of this name, in the channel `room`.
pub async fn client(gateway: &Server, name: &str) -> ClientBuilder {
    let token = Participant::token(gateway, name).await;
    Client::builder()
        .server(&gateway.url)
        .token(token)
        .channel("room")
        .handle(name)
        .reconnect(backoff())
}

/// Connects a client like that of [`client`].
pub async fn join(gateway: &Server, name: &str) -> Client {
    client(gateway, name).await.connect().await.unwrap()
}

/// Returns the first value that `pick` returns for an event.
pub async fn find<T>(events: &mut Events, mut pick: impl FnMut(Event) -> Option<T>) -> T {
    soon(async {
        loop {
            let event = events.next().await.expect("the stream ended");
            assert!(!matches!(event, Event::Lagged(_)), "{event:?}");
            if let Some(picked) = pick(event) {
                return picked;
            }
        }
    })
    .await
}

/// Returns the content of the next message.
pub async fn said(events: &mut Events) -> String {
    find(events, |event| match event {
        Event::Message(message) => Some(message.payload.content),
        _ => None,
    })
    .await
}

/// A call of the method `work` of the participant `worker`.
pub fn call(id: &str) -> Value {
    json!({ "callId": id, "methodName": "work", "providerId": "worker", "args": {} })
}

/// The whole result of a call.
pub fn result(id: &str, content: &str) -> Value {
    json!({ "callId": id, "content": content, "complete": true })
}

/// Sends numbered messages, several at a time, and returns the acknowledged id of each.
pub async fn write(client: Client, count: usize) -> BTreeMap<String, u64> {
    let says = (0..count).map(|n| {
        let client = client.clone();
        async move {
            let text = format!("{}:{n}", client.client_id());
            let sent = client.send(text.clone(), SendOptions::default()).await.unwrap();
            (text, sent.pubsub_id.unwrap())
        }
    });
    futures_util::stream::iter(says).buffer_unordered(8).collect().await
}

/// Reads messages until this number has arrived, and checks that each comes once and in the
/// channel's order.
pub async fn read(mut events: Events, count: usize) -> BTreeMap<String, u64> {
    let (mut seen, mut last) = (BTreeMap::new(), 0);
    while seen.len() < count {
        let event = tokio::time::timeout(Duration::from_secs(120), events.next())
            .await
            .expect("messages are missing");
        let Event::Message(message) = event.unwrap() else { continue };
        let id = message.envelope.pubsub_id.unwrap();
        assert!(id > last, "{id} came after {last}");
        last = id;
        let double = seen.insert(message.payload.content.clone(), id);
        assert_eq!(double, None, "{} came twice", message.content);
    }
    seen
}

/// Returns the stored messages with their ids, and checks that each is stored once.
pub async fn stored(gateway: &Server) -> BTreeMap<String, u64> {
    let (mut before, mut all) = (u64::MAX >> 1, BTreeMap::new());
    loop {
        let page = gateway
            .operator()
            .get(&format!("/v1/channels/room/messages?limit=500&before={before}"))
            .await
            .body;
        let messages = page["messages"].as_array().unwrap();
        before = messages.first().map_or(0, |first| first["id"].as_u64().unwrap());
        for message in messages.iter().filter(|message| message["type"] == "message") {
            let text = message["payload"]["content"].as_str().unwrap().to_owned();
            assert_eq!(all.insert(text, message["id"].as_u64().unwrap()), None, "stored twice");
        }
        if page["has_more"] == false {
            return all;
        }
    }
}
