//! Participants that use the client library.

use std::time::Duration;

use futures_util::StreamExt as _;
use sa_messaging::{Client, ClientBuilder, Event, Events, ReconnectBackoff};
use sa_testkit::{Gateway, Participant, soon};

/// Reconnects quickly, because the test waits for it.
pub(crate) fn backoff() -> ReconnectBackoff {
    ReconnectBackoff {
        initial_delay: Duration::from_millis(10),
        max_delay: Duration::from_millis(200),
        ..ReconnectBackoff::default()
    }
}

/// Returns a client with a token of this name, in the channel `room`.
pub(crate) async fn client(gateway: &Gateway, name: &str) -> ClientBuilder {
    let token = Participant::token(gateway, name).await;
    Client::builder()
        .server(&gateway.url)
        .token(token)
        .channel("room")
        .handle(name)
        .reconnect(backoff())
}

pub(crate) async fn join(gateway: &Gateway, name: &str) -> Client {
    client(gateway, name).await.connect().await.unwrap()
}

/// Returns the first value that `pick` returns for an event.
pub(crate) async fn find<T>(events: &mut Events, mut pick: impl FnMut(Event) -> Option<T>) -> T {
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
pub(crate) async fn said(events: &mut Events) -> String {
    find(events, |event| match event {
        Event::Message(message) => Some(message.payload.content),
        _ => None,
    })
    .await
}
