//! What a program says, line by line.
//!
//! rmcp's own reader passes over lines that are too long, or have the wrong shape, and whoever waits for the answer in
//! them waits on. This one tells them.

use std::sync::Arc;

use rmcp::model::{ErrorData, JsonRpcMessage, RequestId, ServerJsonRpcMessage};
use rmcp::service::{RoleClient, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::async_rw::AsyncRwTransport;
use serde::Deserialize;
use serde::de::IgnoredAny;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, BufReader, Empty};
use tracing::{debug, warn};

use crate::outline::Outline;
use crate::unreadable::{MAX_ANSWER, no_answer, too_long};

/// A line that is longer than this has no end, and nothing that comes after it is ever heard.
const MAX_SKIPPED: usize = 4 * MAX_ANSWER;
/// How much room is kept from one line to the next.
const KEPT: usize = 64 * 1024;

pub(crate) struct Lines<R, W: AsyncWrite> {
    reader: BufReader<R>,
    heard: Heard,
    /// Writes only.
    writer: AsyncRwTransport<RoleClient, Empty, W>,
}

impl<R, W> Lines<R, W>
where
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send + 'static,
{
    pub(crate) fn new(server: Arc<str>, reader: R, writer: W) -> Self {
        let heard = Heard { server, line: Vec::new(), skipped: None };
        Self { reader: BufReader::new(reader), heard, writer: AsyncRwTransport::new(tokio::io::empty(), writer) }
    }
}

impl<R, W> Transport<RoleClient> for Lines<R, W>
where
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send + 'static,
{
    type Error = std::io::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.writer.send(item)
    }

    /// May be dropped at any time: what was heard so far is kept.
    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            let available = self.reader.fill_buf().await.ok()?;
            if available.is_empty() {
                return None;
            }
            let end = available.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(available.len(), |at| at + 1);
            let step = self.heard.hear(&available[..taken], end.is_some());
            self.reader.consume(taken);
            match step {
                Step::More => {}
                Step::Message(message) => return Some(*message),
                Step::Refuse(id) => {
                    let error = ErrorData::invalid_request("not a request that MCP has", None);
                    tokio::spawn(self.writer.send(JsonRpcMessage::error(error, Some(id))));
                }
                Step::End => {
                    warn!(upstream = %self.heard.server, "it writes a line that does not end; it is ended");
                    return None;
                }
            }
        }
    }

    fn close(&mut self) -> impl Future<Output = Result<(), Self::Error>> + Send {
        self.writer.close()
    }
}

enum Step {
    More,
    Message(Box<ServerJsonRpcMessage>),
    /// A request that cannot be read.
    Refuse(RequestId),
    End,
}

struct Heard {
    server: Arc<str>,
    line: Vec<u8>,
    /// A line that is too long, of which no more is kept than what it is about.
    skipped: Option<Skipped>,
}

#[derive(Default)]
struct Skipped {
    outline: Outline,
    length: usize,
    told: bool,
}

/// As much of a message as it takes to know whom it is for.
#[derive(Deserialize)]
struct Rough {
    id: RequestId,
    method: Option<IgnoredAny>,
}

impl Heard {
    fn hear(&mut self, piece: &[u8], is_end: bool) -> Step {
        if self.skipped.is_none() && self.line.len() + piece.len() > MAX_ANSWER {
            self.skipped.get_or_insert_default().pass(&std::mem::take(&mut self.line));
        }
        let Some(skipped) = &mut self.skipped else {
            self.line.extend_from_slice(piece);
            if !is_end {
                return Step::More;
            }
            let step = self.read();
            self.line.clear();
            self.line.shrink_to(KEPT);
            return step;
        };
        skipped.pass(piece);
        let answered = skipped.answered();
        if is_end {
            self.skipped = None;
        } else if skipped.length > MAX_SKIPPED {
            return Step::End;
        }
        answered.map_or(Step::More, |id| Step::Message(Box::new(too_long(&self.server, id, MAX_ANSWER))))
    }

    fn read(&self) -> Step {
        let line = self.line.trim_ascii();
        let line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line);
        let message = serde_json::from_slice(line);
        let rough = if message.is_ok() { None } else { serde_json::from_slice(line).ok() };
        match (message, rough) {
            (Ok(message), _) => Step::Message(Box::new(message)),
            (Err(_), Some(Rough { id, method: None })) => Step::Message(Box::new(no_answer(&self.server, id))),
            (Err(_), Some(Rough { id, .. })) => Step::Refuse(id),
            // Words for people, which belong on stderr, and news that this version of MCP does not have.
            (Err(error), None) => {
                debug!(upstream = %self.server, %error, "a line is passed over");
                Step::More
            }
        }
    }
}

impl Skipped {
    fn pass(&mut self, piece: &[u8]) {
        self.length += piece.len();
        if !self.told {
            self.outline.pass(piece);
        }
    }

    /// The request that the line answers, once, as soon as the line has said it.
    fn answered(&mut self) -> Option<RequestId> {
        if self.told {
            return None;
        }
        let rough: Rough = serde_json::from_slice(&self.outline.so_far()).ok()?;
        self.told = true;
        rough.method.is_none().then_some(rough.id)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    /// What is made of what a program writes.
    async fn heard(written: Vec<u8>) -> Vec<Value> {
        let (mut program, gateway) = tokio::io::duplex(1 << 16);
        let writing = tokio::spawn(async move { program.write_all(&written).await });
        let mut lines = Lines::new("test".into(), gateway, tokio::io::sink());
        let mut heard = Vec::new();
        while let Some(message) = lines.receive().await {
            heard.push(serde_json::to_value(message).unwrap());
        }
        drop(lines);
        let _ = writing.await;
        heard
    }

    #[tokio::test]
    async fn what_cannot_be_taken_is_told_to_whoever_waits_for_it() {
        let good = json!({ "jsonrpc": "2.0", "id": 9, "result": { "content": [] } });
        let long = "x".repeat(MAX_ANSWER);
        let text = format!(
            "hello\n\n{{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":\"boom\"}}\n{{\"id\":2,\"result\":{{}}}}\r\n\
             {{\"jsonrpc\":\"2.0\",\"id\":3,\"result\":{{\"text\":\"{long}\"}}}}\n\
             {{\"result\":{{\"id\":7,\"text\":\"{long}\"}},\"id\":4}}\n{good}\n"
        );
        let heard = heard(text.into_bytes()).await;
        let ids: Vec<&Value> = heard.iter().map(|message| &message["id"]).collect();
        assert_eq!(ids, [1, 2, 3, 4, 9]);
        for (message, words) in heard.iter().zip(["no answer", "no answer", "16 MiB", "16 MiB"]) {
            let said = message["error"]["message"].as_str().unwrap();
            assert!(said.contains(words) && said.contains("\"test\""), "{said}");
        }
        assert_eq!(heard[4], good);
    }

    #[tokio::test]
    async fn a_line_without_end_ends_the_connection() {
        let mut line = br#"{"jsonrpc":"2.0","id":5,"result":""#.to_vec();
        line.resize(MAX_SKIPPED + MAX_ANSWER, b'x');
        let heard = heard(line).await;
        assert_eq!(heard.len(), 1, "told once");
        assert_eq!(heard[0]["id"], 5);
    }
}
