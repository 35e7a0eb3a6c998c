//! The client of a session's socket, which the agent's side uses.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};
use sa_text::json::object;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

/// One connection. Requests on it run concurrently; dropping a request cancels it.
#[derive(Debug)]
pub struct Client {
    lines: mpsc::UnboundedSender<String>,
    waiting: Mutex<HashMap<u64, oneshot::Sender<Answer>>>,
    numbers: AtomicU64,
    config: watch::Sender<Option<Arc<Config>>>,
    closed: CancellationToken,
}

/// The caller's tools, as the gateway sends them.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Config {
    #[serde(default)]
    pub caller_id: String,
    #[serde(default)]
    pub tools: Vec<LentTool>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct LentTool {
    pub name: String,
    /// The name of the tool in the gateway.
    #[serde(default)]
    pub exposed_name: String,
    pub title: Option<String>,
    pub description: Option<String>,
    #[serde(rename = "inputSchema")]
    pub input_schema: Option<Value>,
    pub annotations: Option<Value>,
}

/// Why a request failed, as the gateway reports it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Failure {
    pub code: i64,
    pub message: String,
    pub data: Option<Value>,
}

type Answer = Result<Box<RawValue>, Failure>;

#[derive(Deserialize)]
struct Incoming {
    #[serde(rename = "type")]
    kind: Option<String>,
    params: Option<Config>,
    id: Option<Value>,
    result: Option<Box<RawValue>>,
    error: Option<Failure>,
}

impl Client {
    pub async fn connect(socket: &Path) -> std::io::Result<Arc<Self>> {
        let (reading, writing) = UnixStream::connect(socket).await?.into_split();
        let (lines, queue) = mpsc::unbounded_channel();
        let client = Arc::new(Self {
            lines,
            waiting: Mutex::default(),
            numbers: AtomicU64::new(0),
            config: watch::Sender::new(None),
            closed: CancellationToken::new(),
        });
        let closed = client.closed.clone();
        tokio::spawn(async move {
            tokio::select! { () = write(writing, queue) => {}, () = closed.cancelled() => {} }
        });
        let reader = Arc::clone(&client);
        tokio::spawn(async move {
            reader.read(reading).await;
            reader.closed.cancel();
            for (_, waiting) in reader.waiting().drain() {
                let _ = waiting.send(Err(gone()));
            }
        });
        Ok(client)
    }

    /// Returns a receiver of the caller's tools; `None` until the gateway has sent them.
    pub fn config(&self) -> watch::Receiver<Option<Arc<Config>>> {
        self.config.subscribe()
    }

    /// Returns a token that is cancelled when the connection has ended.
    pub fn closed(&self) -> CancellationToken {
        self.closed.clone()
    }

    /// Sends a request to the gateway, and waits for its answer.
    pub async fn request(&self, method: &str, params: Value) -> Answer {
        let id = self.numbers.fetch_add(1, Ordering::Relaxed);
        let (answer, waiting) = oneshot::channel();
        self.waiting().insert(id, answer);
        let guard = Guard { client: self, id };
        if self.closed.is_cancelled() {
            return Err(gone());
        }
        let line = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        let _ = self.lines.send(format!("{line}\n"));
        let answer = waiting.await.unwrap_or_else(|_| Err(gone()));
        drop(guard);
        answer
    }

    async fn read(&self, stream: OwnedReadHalf) {
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        while matches!(reader.read_line(&mut line).await, Ok(1..)) {
            if let Ok(incoming) = object::<Incoming>(line.as_bytes()) {
                self.take(incoming);
            }
            line.clear();
        }
    }

    fn take(&self, incoming: Incoming) {
        if incoming.kind.as_deref() == Some("caller_tools_config") {
            self.config.send_replace(Some(Arc::new(incoming.params.unwrap_or_default())));
            return;
        }
        let waiting =
            incoming.id.as_ref().and_then(Value::as_u64).and_then(|id| self.waiting().remove(&id));
        let null = || RawValue::NULL.to_owned();
        if let Some(waiting) = waiting {
            let _ = waiting
                .send(incoming.error.map_or_else(|| Ok(incoming.result.unwrap_or_else(null)), Err));
        }
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<u64, oneshot::Sender<Answer>>> {
        self.waiting.lock()
    }
}

/// Cancels the request at the gateway if it is dropped before its answer.
struct Guard<'a> {
    client: &'a Client,
    id: u64,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if self.client.waiting().remove(&self.id).is_some() {
            let cancel =
                json!({ "jsonrpc": "2.0", "method": "cancel", "params": { "id": self.id } });
            let _ = self.client.lines.send(format!("{cancel}\n"));
        }
    }
}

async fn write(mut stream: OwnedWriteHalf, mut lines: mpsc::UnboundedReceiver<String>) {
    while let Some(line) = lines.recv().await {
        if stream.write_all(line.as_bytes()).await.is_err() {
            return;
        }
    }
}

fn gone() -> Failure {
    let data = json!({ "kind": "offline", "retryable": true });
    Failure {
        code: -32001,
        message: "the connection to the gateway was lost".into(),
        data: Some(data),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    proptest! {
        #[test]
        fn a_line_of_the_gateway_is_read_or_ignored(text in sa_hostile::nearly(json!({
            "type": "caller_tools_config", "params": { "caller_id": "c", "tools": [{ "name": "t", "exposed_name": "c_t" }] },
        })), answer in sa_hostile::nearly(json!({ "jsonrpc": "2.0", "id": 3, "error": { "code": -32_000, "message": "m", "data": {} } })),
            list in sa_hostile::list(&["caller_tools_config"])) {
            prop_assert!(object::<Incoming>(list.as_bytes()).is_err());
            for line in [text, answer] {
                if let Ok(incoming) = object::<Incoming>(line.as_bytes()) {
                    prop_assert!(incoming.error.is_none() || line.contains("error"));
                    prop_assert!(incoming.params.is_none_or(|config| config.tools.iter().all(|tool| line.contains(&tool.name) || line.contains('\\'))));
                }
            }
        }
    }
}
