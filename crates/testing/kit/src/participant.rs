//! A participant of a channel that sends exactly the frames that a test wants.

use std::collections::BTreeMap;

use futures_util::{SinkExt as _, StreamExt as _};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};

use crate::{Server, soon};

/// A connection to a channel.
#[derive(Debug)]
pub struct Participant {
    pub socket: WebSocketStream<TcpStream>,
    next_ref: i64,
}

impl Participant {
    /// Creates a token with this name, connects with it, and waits until the participant has
    /// joined.
    pub async fn join(gateway: &Server, channel: &str, name: &str) -> Self {
        let token = Self::token(gateway, name).await;
        let mut this =
            Self::connect(gateway, &format!("/v1/channels/ws?token={token}&channel={channel}"))
                .await;
        this.here(name).await;
        this
    }

    /// Returns the token of the participant with this name. The token is created at first use,
    /// because a name can have only one.
    pub async fn token(gateway: &Server, name: &str) -> String {
        Self::token_with_tools(gateway, name, &[]).await
    }

    /// Returns the token like [`token`](Self::token). If it is created here, it may call these
    /// tools of the gateway in every channel.
    pub async fn token_with_tools(gateway: &Server, name: &str, tools: &[&str]) -> String {
        static MADE: Mutex<BTreeMap<(String, String), String>> = Mutex::new(BTreeMap::new());
        // A gateway that starts again on the same data has another address, and the same operator.
        let key = (gateway.operator.clone(), name.to_owned());
        if let Some(token) = MADE.lock().get(&key) {
            return token.clone();
        }
        let channels: &[&str] = if tools.is_empty() { &[] } else { &["*"] };
        let token =
            json!({ "name": name, "role": "participant", "tools": tools, "channels": channels });
        let token = gateway.token(token).await.1;
        MADE.lock().insert(key, token.clone());
        token
    }

    /// Returns the path of the channel `room` for this token.
    pub fn room(token: &str) -> String {
        format!("/v1/channels/ws?token={token}&channel=room")
    }

    /// Connects a participant with the handle `worker` and the method `work`.
    pub async fn worker(gateway: &Server, path: &str) -> Self {
        let mut worker = Self::connect(gateway, path).await;
        let answer =
            worker.update(json!({ "handle": "worker", "methods": [{ "name": "work" }] })).await;
        assert_ne!(answer["kind"], "error", "{answer}");
        worker
    }

    /// Connects to this path and reads nothing yet.
    pub async fn connect(gateway: &Server, path: &str) -> Self {
        soon(Self::try_connect(gateway.address(), path)).await.unwrap()
    }

    /// Connects to this path. Fails when the gateway is unreachable.
    pub async fn try_connect(address: &str, path: &str) -> Result<Self, Error> {
        Self::over(TcpStream::connect(address).await?, address, path).await
    }

    /// Connects to this path over an existing connection.
    pub async fn over(stream: TcpStream, address: &str, path: &str) -> Result<Self, Error> {
        // The limits are the same as in browsers. The buffer is smaller, for tests with a thousand
        // connections.
        let limits = WebSocketConfig::default()
            .max_frame_size(None)
            .max_message_size(None)
            .read_buffer_size(16 * 1024);
        let (socket, _) =
            client_async_with_config(format!("ws://{address}{path}"), stream, Some(limits)).await?;
        Ok(Self { socket, next_ref: 1 })
    }

    /// Connects with a receive buffer so small that the gateway soon notices unread data.
    pub async fn connect_narrowly(gateway: &Server, path: &str) -> Self {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4_096).unwrap();
        let stream = soon(socket.connect(gateway.address().parse().unwrap())).await.unwrap();
        soon(Self::over(stream, gateway.address(), path)).await.unwrap()
    }

    /// Reads until the participant's own join event.
    pub async fn here(&mut self, name: &str) {
        self.until(|frame| {
            frame["kind"] != "replay"
                && frame["payload"]["action"] == "join"
                && frame["senderId"] == name
        })
        .await;
    }

    pub async fn send(&mut self, frame: Value) {
        self.socket.send(Message::text(frame.to_string())).await.unwrap();
    }

    /// Publishes a message and returns its reference.
    pub async fn publish(&mut self, kind: &str, payload: Value) -> i64 {
        self.publish_as(json!({ "type": kind, "payload": payload, "persist": true })).await
    }

    /// Publishes a message with all of these fields.
    pub async fn publish_as(&mut self, mut frame: Value) -> i64 {
        let reference = self.next_ref;
        self.next_ref += 1;
        frame["action"] = json!("publish");
        frame["ref"] = json!(reference);
        self.send(frame).await;
        reference
    }

    /// Publishes a message and waits for the response.
    pub async fn say(&mut self, kind: &str, payload: Value) -> Value {
        let reference = self.publish(kind, payload).await;
        self.answer(reference).await
    }

    /// Updates the participant's metadata and waits for the response.
    pub async fn update(&mut self, metadata: Value) -> Value {
        let reference = self.next_ref;
        self.next_ref += 1;
        self.send(json!({ "action": "update-metadata", "payload": metadata, "ref": reference }))
            .await;
        self.answer(reference).await
    }

    /// Returns the frame that answers this reference.
    pub async fn answer(&mut self, reference: i64) -> Value {
        self.until(|frame| frame["ref"] == reference).await
    }

    /// Returns the next frame. The attachments of a binary frame are in `bytes`.
    pub async fn recv(&mut self) -> Value {
        let frame = async {
            loop {
                match self.socket.next().await {
                    Some(Ok(Message::Text(text))) => return serde_json::from_str(&text).unwrap(),
                    Some(Ok(Message::Binary(frame))) => {
                        let (json, at) = sa_protocol::channel::binary::split(&frame).unwrap();
                        let mut value: Value = serde_json::from_str(json).unwrap();
                        value["bytes"] = json!(frame[at..].to_vec());
                        return value;
                    }
                    Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                    other => panic!("expected a frame, got {other:?}"),
                }
            }
        };
        soon(frame).await
    }

    /// Returns the next frame that matches, and skips all others.
    pub async fn until(&mut self, wanted: impl Fn(&Value) -> bool) -> Value {
        loop {
            let frame = self.recv().await;
            if wanted(&frame) {
                return frame;
            }
        }
    }

    /// Waits for another future and reads meanwhile, so that pings are answered. The frames that
    /// arrive are discarded.
    pub async fn while_reading<T>(&mut self, other: impl Future<Output = T>) -> T {
        tokio::pin!(other);
        loop {
            tokio::select! {
                done = &mut other => return done,
                frame = self.socket.next() => assert!(matches!(frame, Some(Ok(_))), "expected a frame, got {frame:?}"),
            }
        }
    }

    /// Returns the next message of this type.
    pub async fn message(&mut self, kind: &str) -> Value {
        self.until(|frame| frame["type"] == kind).await
    }

    pub async fn closed(&mut self) -> (u16, String) {
        crate::node::closed(&mut self.socket).await
    }
}
