//! A client works with a server without extensions. It builds the roster from presences, delivers
//! nothing twice after a lost connection, and does not resend messages that might be duplicated.

use futures_util::{SinkExt as _, StreamExt as _};
use sa_messaging::{CallOptions, Delivery, Event, EventFilter, PublishOptions, SendOptions};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use crate::kit::{Connection, message, presence, server, soon};

fn said(kind: &str, id: u64) -> Value {
    message(kind, id, "message", json!({ "id": format!("m{id}"), "content": format!("{id}") }))
}

async fn numbers(events: &mut sa_messaging::Events, count: usize) -> Vec<String> {
    let mut seen = Vec::new();
    while seen.len() < count {
        if let Event::Message(message) = soon(events.next()).await.unwrap() {
            seen.push(message.payload.content);
        }
    }
    seen
}

#[tokio::test]
async fn nothing_is_missed_or_doubled() {
    let (listener, builder) = server().await;
    let connecting = tokio::spawn(builder.connect());
    let mut first = Connection::accept(&listener).await;
    assert!(
        first.query.contains("sinceId=0") && first.query.contains("channel=room"),
        "{}",
        first.query
    );
    // The roster arrives as old presences, one of which is repeated among the stored messages.
    for frame in [
        presence("replay", Some(3), "ann", "join", None),
        presence("replay", Some(4), "bob", "join", None),
        said("replay", 1),
        said("replay", 2),
        presence("replay", Some(3), "ann", "join", None),
        presence("replay", Some(4), "bob", "join", None),
    ] {
        first.send(frame).await;
    }
    first.ready(5).await;
    let client = soon(connecting).await.unwrap().unwrap();
    assert_eq!(client.roster().keys().collect::<Vec<_>>(), ["ann", "bob", "me"]);
    assert_eq!((client.client_id().as_str(), client.extensions().len()), ("me", 0));
    let mut events = client.events(EventFilter { include_replay: true, ..EventFilter::default() });
    first.send(said("persisted", 6)).await;
    assert_eq!(numbers(&mut events, 3).await, ["1", "2", "6"]);

    drop(first);
    let mut second = Connection::accept(&listener).await;
    assert!(second.query.contains("sinceId=6"), "{}", second.query);
    // The connection is cut off while it catches up.
    second.send(presence("replay", Some(9), "ann", "join", None)).await;
    second.send(said("replay", 7)).await;
    assert_eq!(numbers(&mut events, 1).await, ["7"]);
    drop(second);
    let mut third = Connection::accept(&listener).await;
    assert!(
        third.query.contains("sinceId=7"),
        "the roster says nothing about what was read: {}",
        third.query
    );
    third.send(presence("replay", Some(9), "ann", "join", None)).await;
    third.send(said("replay", 7)).await;
    third.send(said("replay", 8)).await;
    third.ready(10).await;
    third.send(said("persisted", 8)).await;
    third.send(said("persisted", 11)).await;
    assert_eq!(numbers(&mut events, 2).await, ["8", "11"]);
    assert_eq!(client.roster().keys().collect::<Vec<_>>(), ["ann", "me"], "bob has left meanwhile");
    let history = client.pubsub().messages_before(None, 5).await;
    assert_eq!(history.unwrap_err().code(), "validation-error", "this server has none");
}

#[tokio::test]
async fn what_might_be_stored_twice_is_not_sent_twice() {
    let (listener, builder) = server().await;
    let connecting = tokio::spawn(builder.connect());
    let mut first = Connection::accept(&listener).await;
    first.ready(1).await;
    let client = soon(connecting).await.unwrap().unwrap();
    let sender = client.clone();
    let sending =
        tokio::spawn(async move { sender.send("in doubt", SendOptions::default()).await });
    let publish = first.recv().await;
    assert_eq!(
        (&publish["payload"]["content"], &publish["clientMessageId"]),
        (&json!("in doubt"), &Value::Null)
    );
    drop(first);
    assert_eq!(soon(sending).await.unwrap().unwrap_err().code(), "connection-error");

    // A message that was never sent waits for the next connection.
    let sender = client.clone();
    let sending =
        tokio::spawn(
            async move { sender.pubsub().publish("note", 1, PublishOptions::default()).await },
        );
    let mut second = Connection::accept(&listener).await;
    second.ready(2).await;
    let publish = second.recv().await;
    assert_eq!(publish["type"], "note");
    second.send(json!({ "kind": "persisted", "id": 3, "type": "note", "payload": 1, "senderId": "me", "ts": 1, "ref": publish["ref"] })).await;
    assert_eq!(soon(sending).await.unwrap().unwrap(), Some(3));
}

#[tokio::test]
async fn a_provider_that_leaves_ends_its_calls_and_a_forged_result_does_not() {
    let (listener, builder) = server().await;
    let connecting = tokio::spawn(builder.connect());
    let mut server = Connection::accept(&listener).await;
    server.send(presence("replay", None, "worker", "join", None)).await;
    server.ready(1).await;
    let client = soon(connecting).await.unwrap().unwrap();
    let mut events =
        client.events(EventFilter { include_ephemeral: true, ..EventFilter::default() });
    let call = client.call_method("worker", "search", json!({}), CallOptions::new());
    let request = server.recv().await;
    let id = request["payload"]["callId"].clone();
    server
        .send(message(
            "persisted",
            2,
            "method-result",
            json!({ "callId": id, "content": "forged", "complete": true }),
        ))
        .await;
    server.send(json!({ "kind": "nonsense" })).await;
    server.socket.send(Message::binary(vec![0, 255, 255, 255, 255])).await.unwrap();
    server.send(json!({ "kind": "ephemeral", "type": "message", "payload": { "id": "m", "content": "x" }, "senderId": "ann", "ts": 1 })).await;
    let seen = loop {
        if let Event::Message(message) = soon(events.next()).await.unwrap() {
            break message;
        }
    };
    assert_eq!((seen.envelope.delivery, seen.envelope.pubsub_id), (Delivery::Ephemeral, None));
    assert!(!call.is_complete());
    server.send(presence("persisted", Some(3), "worker", "leave", None)).await;
    assert_eq!(soon(call.result()).await.unwrap_err().code(), "provider-offline");
}

#[tokio::test]
async fn a_call_is_answered_unless_another_connection_has_the_method() {
    let (listener, builder) = server().await;
    let connecting = tokio::spawn(builder.connect());
    let mut server = Connection::accept(&listener).await;
    server.send(json!({ "kind": "ready", "participantId": "me", "extensions": ["epoch"] })).await;
    let update = server.recv().await;
    // The roster lists `search`, which this program does not have.
    server.send(presence("persisted", Some(1), "me", "update", update["ref"].as_i64())).await;
    let _client = soon(connecting).await.unwrap().unwrap();
    for (id, method) in [(2, "search"), (3, "dance")] {
        let call =
            json!({ "callId": method, "methodName": method, "providerId": "me", "args": {} });
        server.send(message("persisted", id, "method-call", call)).await;
    }
    let answer = server.recv().await;
    assert_eq!(
        (&answer["type"], &answer["payload"]["callId"]),
        (&json!("method-result"), &json!("dance"))
    );
    assert_eq!(answer["payload"]["content"]["code"], "method-not-found");
}

#[tokio::test]
async fn a_provider_that_declares_no_methods_is_asked() {
    let (listener, builder) = server().await;
    let connecting = tokio::spawn(builder.connect());
    let mut server = Connection::accept(&listener).await;
    let quiet = json!({ "action": "join", "metadata": { "name": "Quiet" } });
    server.send(json!({ "kind": "replay", "type": "presence", "senderId": "quiet", "ts": 1, "payload": quiet })).await;
    server.ready(1).await;
    let client = soon(connecting).await.unwrap().unwrap();
    let call = client.call_method("quiet", "anything", json!({}), CallOptions::new());
    assert_eq!(server.recv().await["payload"]["methodName"], "anything");
    drop(call);
}
