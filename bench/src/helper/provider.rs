//! A participant with one method, which returns its arguments.

use std::net::SocketAddr;

use anyhow::Context as _;
use futures_util::{FutureExt as _, SinkExt as _, StreamExt as _};
use serde_json::Value;
use tokio_tungstenite::tungstenite::Message;

use crate::load::channel;

pub(super) async fn run(gateway: SocketAddr, token: &str, room: &str) -> anyhow::Result<()> {
    let mut socket = channel::connect(gateway, token, room, "").await?;
    let hello = r#"{"action":"update-metadata","payload":{"methods":[{"name":"echo"}]},"ref":1}"#;
    socket.send(Message::text(hello)).await?;
    loop {
        let mut next = Some(socket.next().await);
        while let Some(message) = next {
            if let Message::Text(text) = message.context("the gateway closed the connection")?? {
                if text.contains("\"type\":\"method-call\"") {
                    let call: Value = serde_json::from_str(&text)?;
                    let (payload, persist) = (&call["payload"], call["kind"] == "persisted");
                    let result = format!(
                        r#"{{"callId":{},"content":{},"complete":true}}"#,
                        payload["callId"], payload["args"]
                    );
                    socket.feed(channel::publish("method-result", &result, persist, 0)).await?;
                } else if text.contains("\"ref\":1,") || text.ends_with("\"ref\":1}") {
                    println!("ready");
                }
            }
            next = socket.next().now_or_never();
        }
        // The results of calls that arrived together leave in one write.
        socket.flush().await?;
    }
}
