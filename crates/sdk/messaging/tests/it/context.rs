//! Rule: a client names the context and the configuration of its channel on every connection, and
//! knows those that the channel has.

use serde_json::{Value, json};

use crate::kit::{Connection, server, soon};

fn config(title: &str) -> serde_json::Map<String, Value> {
    json!({ "title": title }).as_object().unwrap().clone()
}

#[tokio::test]
async fn a_channel_has_a_context_and_a_configuration() {
    let (listener, builder) = server().await;
    let builder = builder.context_id("ctx 1").channel_config(config("A"));
    let connecting = tokio::spawn(builder.connect());
    let mut first = Connection::accept(&listener).await;
    let query = "contextId=ctx%201&channelConfig=%7B%22title%22%3A%22A%22%7D";
    assert!(first.query.contains(query), "{}", first.query);
    // Another participant has created the channel.
    let ready = json!({ "contextId": "ctx 1", "channelConfig": config("B") });
    first.ready_with(1, ready).await;
    let client = soon(connecting).await.unwrap().unwrap();
    assert_eq!(client.context_id().as_deref(), Some("ctx 1"));
    assert_eq!(client.channel_config(), Some(config("B")));

    drop(first);
    let second = Connection::accept(&listener).await;
    assert!(second.query.contains(query), "{}", second.query);
}

#[tokio::test]
async fn a_channel_without_them_has_none() {
    let (listener, builder) = server().await;
    let connecting = tokio::spawn(builder.connect());
    let mut connection = Connection::accept(&listener).await;
    assert!(!connection.query.contains("contextId"), "{}", connection.query);
    assert!(!connection.query.contains("channelConfig"), "{}", connection.query);
    connection.ready(1).await;
    let client = soon(connecting).await.unwrap().unwrap();
    assert_eq!((client.context_id(), client.channel_config()), (None, None));
}
