//! Rule: a channel belongs to one context, and keeps the configuration that it was created with.

use serde_json::{Value, json};

use crate::kit::{Participant, Server};

const CONFIG: &str = "channelConfig=%7B%22title%22%3A%22A%22%7D";

async fn ready(participant: &mut Participant) -> Value {
    participant.until(|frame| frame["kind"] == "ready").await
}

#[tokio::test]
async fn the_creators_configuration_and_the_first_context_hold() {
    let server = Server::start().await;
    let mut ann = server.connect(&format!("token=ann&contextId=ctx-1&{CONFIG}")).await;
    let first = ready(&mut ann).await;
    assert_eq!(
        (&first["contextId"], &first["channelConfig"]),
        (&json!("ctx-1"), &json!({ "title": "A" }))
    );
    let other = "channelConfig=%7B%22title%22%3A%22B%22%7D";
    for query in ["token=bob", "token=bob&contextId=ctx-1", &format!("token=bob&{other}")] {
        let again = ready(&mut server.connect(query).await).await;
        assert_eq!(
            (&again["contextId"], &again["channelConfig"]),
            (&first["contextId"], &first["channelConfig"])
        );
    }
    let (code, reason) = server.connect("token=bob&contextId=ctx-2").await.closed().await;
    assert!(code == 4006 && reason.contains("context mismatch"), "{code} {reason}");

    // A channel that was created without a context takes the first one named.
    let plain = ready(&mut server.connect_to("plain", "token=ann").await).await;
    assert_eq!((plain.get("contextId"), plain.get("channelConfig")), (None, None));
    let named = ready(
        &mut server.connect_to("plain", &format!("token=ann&contextId=ctx-3&{CONFIG}")).await,
    )
    .await;
    assert_eq!((&named["contextId"], named.get("channelConfig")), (&json!("ctx-3"), None));
    assert_eq!(
        server.connect_to("plain", "token=ann&contextId=ctx-1").await.closed().await.0,
        4006
    );
}

#[tokio::test]
async fn what_cannot_be_a_context_or_a_configuration_is_refused() {
    let server = Server::start().await;
    let long = "x".repeat(17_000);
    for query in ["contextId=%20a", &format!("contextId={}", "x".repeat(201))] {
        let (code, reason) = server.connect(&format!("token=ann&{query}")).await.closed().await;
        assert!(code == 4005 && reason.contains("invalid context"), "{code} {reason}");
    }
    for config in ["%7B", "7", "%5B%5D", &format!("%7B%22a%22%3A%22{long}%22%7D")] {
        let (code, reason) =
            server.connect(&format!("token=ann&channelConfig={config}")).await.closed().await;
        assert!(code == 4005 && reason.contains("invalid channelConfig"), "{code} {reason}");
    }
    assert!(
        server.channels.existing("room").await.unwrap().is_none(),
        "and no channel is created for it"
    );
}

#[tokio::test]
async fn a_reader_sets_neither_a_context_nor_a_configuration() {
    let server = Server::start().await;
    let mut reader = server.connect(&format!("token=bob&readonly=1&contextId=mine&{CONFIG}")).await;
    let entered = ready(&mut reader).await;
    assert_eq!((entered.get("contextId"), entered.get("channelConfig")), (None, None));
    let writer = ready(&mut server.connect("token=ann&contextId=ctx-1").await).await;
    assert_eq!(writer["contextId"], "ctx-1");
    assert_eq!(server.connect("token=bob&readonly=1&contextId=mine").await.closed().await.0, 4006);
}
