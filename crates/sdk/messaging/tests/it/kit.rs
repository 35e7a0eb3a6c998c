//! A server that sends exactly the frames of a test.

use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use sa_messaging::{Client, ClientBuilder, ReconnectBackoff};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::server::{Request, Response};

/// Waits for a future that must complete.
pub(crate) async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), what).await.expect("this never happened")
}

pub(crate) struct Connection {
    pub(crate) socket: WebSocketStream<TcpStream>,
    pub(crate) query: String,
}

impl Connection {
    #[expect(clippy::result_large_err, reason = "the library's own signature")]
    pub(crate) async fn accept(listener: &TcpListener) -> Self {
        let (stream, _) = soon(listener.accept()).await.unwrap();
        let mut query = String::new();
        let note = |request: &Request, response: Response| {
            request.uri().query().unwrap_or_default().clone_into(&mut query);
            Ok(response)
        };
        let socket = soon(tokio_tungstenite::accept_hdr_async(stream, note)).await.unwrap();
        Self { socket, query }
    }

    pub(crate) async fn send(&mut self, frame: Value) {
        self.socket.send(Message::text(frame.to_string())).await.unwrap();
    }

    pub(crate) async fn recv(&mut self) -> Value {
        loop {
            if let Message::Text(text) = soon(self.socket.next()).await.unwrap().unwrap() {
                return serde_json::from_str(&text).unwrap();
            }
        }
    }

    /// Sends `ready`, and acknowledges the participant's metadata.
    pub(crate) async fn ready(&mut self, id: u64) {
        self.ready_with(id, json!({})).await;
    }

    /// Sends `ready` with these fields, and acknowledges the participant's metadata.
    pub(crate) async fn ready_with(&mut self, id: u64, mut ready: Value) {
        ready["kind"] = json!("ready");
        self.send(ready).await;
        let update = self.recv().await;
        assert_eq!(update["action"], "update-metadata");
        self.send(presence("persisted", Some(id), "me", "update", update["ref"].as_i64())).await;
    }
}

pub(crate) fn message(kind: &str, id: u64, message_type: &str, payload: Value) -> Value {
    json!({ "kind": kind, "id": id, "type": message_type, "payload": payload, "senderId": "ann", "ts": 1.5 })
}

pub(crate) fn presence(
    kind: &str,
    id: Option<u64>,
    who: &str,
    action: &str,
    reference: Option<i64>,
) -> Value {
    let method = json!({ "name": "search" });
    let mut frame = json!({ "kind": kind, "type": "presence", "senderId": who, "ts": 1,
        "payload": { "action": action, "metadata": { "name": who, "methods": [method] } } });
    if let Some(id) = id {
        frame["id"] = json!(id);
    }
    if let Some(reference) = reference {
        frame["ref"] = json!(reference);
    }
    frame
}

pub(crate) async fn server() -> (TcpListener, ClientBuilder) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ws://{}", listener.local_addr().unwrap());
    let backoff =
        ReconnectBackoff { initial_delay: Duration::from_millis(1), ..ReconnectBackoff::default() };
    (
        listener,
        Client::builder().server(url).token("t").channel("room").handle("me").reconnect(backoff),
    )
}
