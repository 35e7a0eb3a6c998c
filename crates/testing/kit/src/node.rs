//! A node that sends exactly the frames that a test wants.

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use tokio_tungstenite::tungstenite::http::Request as HttpRequest;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

use crate::{Server, soon};

/// Builds a hello frame. By default the node is new and supports every extension.
#[derive(Debug, Clone)]
pub struct Hello {
    frame: Value,
    query: Option<String>,
}

/// The gateway's response to an upgrade that it refused.
#[derive(Debug)]
pub struct Refused {
    pub status: u16,
    pub body: Value,
}

impl Hello {
    pub fn new(id: &str) -> Self {
        let features = ["tool_cancel", "tool_progress", "tool_chunk", "attachments"];
        Self {
            frame: json!({
                "type": "node_hello",
                "protocol_version": 1,
                "node": { "id": id, "name": id, "node_type": "test", "version": "0.0.0" },
                "capabilities": [],
                "features": features,
                "tools": [],
            }),
            query: None,
        }
    }

    /// A node from before the extensions: six plain frames, and capabilities only.
    pub fn old(id: &str) -> Self {
        let mut hello = Self::new(id);
        let frame = hello.frame.as_object_mut().unwrap();
        frame.remove("features");
        frame.remove("tools");
        hello
    }

    #[must_use]
    pub fn capability(mut self, prefix: &str) -> Self {
        self.frame["capabilities"].as_array_mut().unwrap().push(json!(prefix));
        self
    }

    #[must_use]
    pub fn tool(self, name: &str) -> Self {
        self.describe(json!({ "name": name }))
    }

    /// Adds a tool with its full description.
    #[must_use]
    pub fn describe(mut self, tool: Value) -> Self {
        self.frame["tools"].as_array_mut().unwrap().push(tool);
        self
    }

    /// Sets any other field.
    #[must_use]
    pub fn with(mut self, field: &str, value: Value) -> Self {
        self.frame[field] = value;
        self
    }

    #[must_use]
    pub fn token(self, token: &str) -> Self {
        let query = format!("token={token}&node_id={}", self.frame["node"]["id"].as_str().unwrap());
        self.query(&query)
    }

    /// Sets the query string, without encoding it.
    #[must_use]
    pub fn query(mut self, query: &str) -> Self {
        self.query = Some(query.into());
        self
    }

    pub fn frame(&self) -> Value {
        self.frame.clone()
    }

    /// Connects, sends the hello and reads the welcome.
    pub async fn connect(self, gateway: &Server) -> FakeNode {
        let mut node = self.greet(gateway).await.expect("the upgrade was refused");
        let welcome = node.recv().await;
        assert_eq!(welcome["type"], "gateway_welcome", "{welcome}");
        node
    }

    /// Connects and sends the hello. The test reads the response.
    pub async fn greet(self, gateway: &Server) -> Result<FakeNode, Refused> {
        let mut node =
            FakeNode::upgrade(gateway, self.query.as_deref().unwrap_or_default()).await?;
        node.send(self.frame).await;
        Ok(node)
    }
}

/// A node's connection, frame by frame.
#[derive(Debug)]
pub struct FakeNode {
    pub socket: WebSocketStream<TcpStream>,
}

/// A tool request, as the gateway sent it.
#[derive(Debug, Clone)]
pub struct Request {
    pub id: String,
    pub tool: String,
    pub args: Value,
    pub frame: Value,
}

impl FakeNode {
    /// Upgrades the connection and sends nothing.
    pub async fn upgrade(gateway: &Server, query: &str) -> Result<Self, Refused> {
        Self::upgrade_with(gateway, query, &[]).await
    }

    pub async fn upgrade_with(
        gateway: &Server,
        query: &str,
        headers: &[(&str, &str)],
    ) -> Result<Self, Refused> {
        let separator = if query.is_empty() { "" } else { "?" };
        let mut request = HttpRequest::builder()
            .uri(format!("ws://{}/v1/nodes/ws{separator}{query}", gateway.address()))
            .header("connection", "upgrade")
            .header("upgrade", "websocket")
            .header("sec-websocket-version", "13")
            .header("sec-websocket-key", generate_key());
        if headers.iter().all(|(name, _)| *name != "host") {
            request = request.header("host", gateway.address());
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let stream = TcpStream::connect(gateway.address()).await.unwrap();
        match soon(client_async(request.body(()).unwrap(), stream)).await {
            Ok((socket, _)) => Ok(Self { socket }),
            Err(Error::Http(response)) => {
                let body = response.body().as_deref().unwrap_or_default();
                Err(Refused {
                    status: response.status().as_u16(),
                    body: serde_json::from_slice(body).unwrap_or_default(),
                })
            }
            Err(error) => panic!("the upgrade failed: {error}"),
        }
    }

    pub async fn send(&mut self, frame: Value) {
        self.send_raw(Message::text(frame.to_string())).await;
    }

    pub async fn send_raw(&mut self, message: Message) {
        self.socket.send(message).await.unwrap();
    }

    /// Sends a message and returns whether that succeeded. The gateway may close the connection
    /// meanwhile.
    pub async fn try_send(&mut self, message: Message) -> bool {
        self.socket.send(message).await.is_ok()
    }

    /// Returns the next frame.
    pub async fn recv(&mut self) -> Value {
        let frame = async {
            loop {
                match self.socket.next().await {
                    Some(Ok(Message::Text(text))) => return serde_json::from_str(&text).unwrap(),
                    Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                    other => panic!("expected a frame, got {other:?}"),
                }
            }
        };
        soon(frame).await
    }

    /// Returns the next tool request.
    pub async fn request(&mut self) -> Request {
        let frame = self.recv().await;
        assert_eq!(frame["type"], "tool_request", "{frame}");
        let text = |name: &str| frame[name].as_str().unwrap().to_owned();
        Request { id: text("request_id"), tool: text("tool"), args: frame["args"].clone(), frame }
    }

    /// Waits until a call is cancelled and returns the reason.
    pub async fn cancelled(&mut self, request: &Request) -> String {
        let frame = self.recv().await;
        assert_eq!(
            (&frame["type"], &frame["request_id"]),
            (&json!("tool_cancel"), &json!(request.id)),
            "{frame}"
        );
        frame["reason"].as_str().unwrap_or_default().to_owned()
    }

    pub async fn answer(&mut self, id: &str, result: Value) {
        self.send(
            json!({ "type": "tool_response", "request_id": id, "ok": true, "result": result }),
        )
        .await;
    }

    pub async fn fail(&mut self, id: &str, kind: &str, message: &str) {
        let error = json!({ "kind": kind, "message": message });
        self.send(
            json!({ "type": "tool_response", "request_id": id, "ok": false, "error": error }),
        )
        .await;
    }

    pub async fn progress(&mut self, id: &str, progress: f64) {
        self.send(json!({ "type": "tool_progress", "request_id": id, "progress": progress })).await;
    }

    pub async fn chunk(&mut self, id: &str, content: Value) {
        self.send(json!({ "type": "tool_chunk", "request_id": id, "content": content })).await;
    }

    /// Sends a ping and waits for its pong. After that the gateway has processed all earlier
    /// frames.
    pub async fn settle(&mut self) {
        self.send(json!({ "type": "ping", "timestamp": 77 })).await;
        assert_eq!(self.recv().await, json!({ "type": "pong", "timestamp": 77 }));
    }

    /// Reads until the gateway closes, and returns code and reason. The code is 1006 when the
    /// gateway just drops the connection.
    pub async fn closed(&mut self) -> (u16, String) {
        closed(&mut self.socket).await
    }

    /// Closes the sending half of the connection, and can still read.
    pub async fn half_close(&mut self) {
        self.socket.get_mut().shutdown().await.unwrap();
    }

    /// Answers every request with its own arguments until the gateway closes the connection.
    pub fn echo(mut self) -> tokio::task::JoinHandle<()> {
        tokio::spawn(async move {
            while let Some(Ok(message)) = self.socket.next().await {
                let Message::Text(text) = message else { continue };
                let frame: Value = serde_json::from_str(&text).unwrap();
                if frame["type"] == "tool_request" {
                    let id = frame["request_id"].as_str().unwrap().to_owned();
                    self.answer(&id, frame["args"].clone()).await;
                }
            }
        })
    }
}

pub(crate) async fn closed(socket: &mut WebSocketStream<TcpStream>) -> (u16, String) {
    let close = async {
        loop {
            match socket.next().await {
                Some(Ok(Message::Close(Some(frame)))) => {
                    // Completes the closing handshake, so that the other side need not wait.
                    let _ = socket.flush().await;
                    return (frame.code.into(), frame.reason.to_string());
                }
                Some(Ok(_)) => {}
                other => return (1006, format!("{other:?}")),
            }
        }
    };
    soon(close).await
}
