//! An agent that uses the WebSocket for calls.

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::{WebSocketStream, client_async};

use crate::soon;

/// A connection to `/v1/calls/ws`, frame by frame.
#[derive(Debug)]
pub struct CallSocket {
    pub socket: WebSocketStream<TcpStream>,
}

impl CallSocket {
    /// Connects and reads the gateway's first frame.
    pub async fn connect(base: &str, token: &str) -> Self {
        let address = base.split_once("//").unwrap().1;
        let mut request = format!("ws://{address}/v1/calls/ws").into_client_request().unwrap();
        request.headers_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
        let stream = TcpStream::connect(address).await.unwrap();
        let (socket, _) = soon(client_async(request, stream)).await.unwrap();
        let mut this = Self { socket };
        assert_eq!(this.recv().await["type"], "ready");
        this
    }

    pub async fn send(&mut self, frame: Value) {
        self.socket.send(Message::text(frame.to_string())).await.unwrap();
    }

    pub async fn send_raw(&mut self, message: Message) {
        self.socket.send(message).await.unwrap();
    }

    pub async fn call(&mut self, id: &str, tool: &str, args: Value) {
        self.send(json!({ "type": "call", "id": id, "tool": tool, "args": args })).await;
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

    /// Returns the next frame with this type and id, and skips all others.
    pub async fn wait_for(&mut self, kind: &str, id: &str) -> Value {
        loop {
            let frame = self.recv().await;
            if frame["type"] == kind && frame["id"] == id {
                return frame;
            }
        }
    }

    /// Reads until the gateway closes, and returns code and reason. The code is 1006 when the
    /// gateway just drops the connection.
    pub async fn closed(&mut self) -> (u16, String) {
        crate::node::closed(&mut self.socket).await
    }
}
