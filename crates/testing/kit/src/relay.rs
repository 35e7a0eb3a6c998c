//! An agent on a session's socket, line by line.

use std::path::Path;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use crate::soon;

/// A connection on which a test can write any lines.
#[derive(Debug)]
pub struct RelaySocket {
    reader: BufReader<OwnedReadHalf>,
    writer: OwnedWriteHalf,
    /// The last `caller_tools_config`.
    pub config: Value,
}

impl RelaySocket {
    /// Connects and reads the gateway's first line.
    pub async fn connect(socket: &Value) -> Self {
        let path = Path::new(socket.as_str().expect("the session has a socket"));
        let (reader, writer) = soon(UnixStream::connect(path)).await.unwrap().into_split();
        let mut this = Self { reader: BufReader::new(reader), writer, config: Value::Null };
        let first = this.recv().await;
        assert_eq!(
            (&first["type"], &first["jsonrpc"]),
            (&json!("caller_tools_config"), &json!("2.0")),
            "{first}"
        );
        this.config = first["params"].clone();
        this
    }

    pub async fn write(&mut self, line: &str) {
        self.writer.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    }

    pub async fn request(&mut self, id: i64, method: &str, params: Value) {
        self.write(
            &json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string(),
        )
        .await;
    }

    pub async fn caller_tool(&mut self, id: i64, tool: &str, arguments: Value) {
        self.request(id, "caller_tool", json!({ "tool": tool, "arguments": arguments })).await;
    }

    /// Returns the next line.
    pub async fn recv(&mut self) -> Value {
        self.next().await.expect("the gateway hung up")
    }

    /// Returns the next line, or `None` when the gateway has closed the connection.
    pub async fn next(&mut self) -> Option<Value> {
        let mut line = String::new();
        match soon(self.reader.read_line(&mut line)).await {
            Ok(1..) => Some(serde_json::from_str(&line).unwrap()),
            _ => None,
        }
    }
}
