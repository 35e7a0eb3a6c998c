//! MCP's messages line by line, as they come on a program's stdin or stdout.
//!
//! rmcp's own reader passes over lines that are too long or have the wrong shape, and whoever waits for an answer waits on.
//! This one tells them, at either end: an answer that cannot be taken is an error for whoever has asked, and a request that
//! cannot be taken is refused to whoever has sent it.

mod heard;
mod outline;
mod thinned;

use std::borrow::Cow;

use rmcp::model::{ErrorData, JsonRpcMessage, RequestId};
use rmcp::service::{RoleClient, RoleServer, RxJsonRpcMessage, ServiceRole, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::async_rw::{AsyncRwTransport, DEFAULT_MAX_LINE_LENGTH};
use sa_core::aside;
use sa_core::json::{self, is_deeper_than};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, BufReader, Empty};
use tokio::task::JoinHandle;
use tracing::{debug, warn};

use crate::heard::{Heard, Line};
pub use crate::thinned::{LEFT_OUT, TASK_REQUIRED};

/// How long one message may be.
pub const MAX_MESSAGE: usize = DEFAULT_MAX_LINE_LENGTH;
/// How many values one message may hold. Read, each of them takes a hundred bytes and more, however short it is written.
const MAX_VALUES: usize = 1_000_000;
/// How deeply one message may be nested. Nobody reads what is deeper than 128 levels, and an answer that cannot be read would be
/// taken for none.
const MAX_LEVELS: usize = 120;

/// The messages of one peer.
pub struct Lines<Role: ServiceRole, R, W: AsyncWrite> {
    reader: BufReader<R>,
    heard: Heard,
    /// Who is at the other end, in words.
    who: String,
    /// Whether lines that are not even JSON are refused. A server's are words for people, which belong on its stderr.
    refuses_noise: bool,
    /// Writes only.
    writer: AsyncRwTransport<Role, Empty, W>,
    /// A refusal on its way. Nothing more is read before it has left, so that nobody can make us pile them up. It goes by
    /// itself: left alone while it holds the writer, it would hold up all others.
    refusing: Option<JoinHandle<std::io::Result<()>>>,
}

impl<R: AsyncRead + Unpin + Send, W: AsyncWrite + Unpin + Send + 'static> Lines<RoleClient, R, W> {
    /// What a server says, who is called this.
    pub fn of_server(who: String, read: R, write: W) -> Self {
        Self::new(who, false, read, write)
    }
}

impl<R: AsyncRead + Unpin + Send, W: AsyncWrite + Unpin + Send + 'static> Lines<RoleServer, R, W> {
    /// What a client says.
    pub fn of_client(read: R, write: W) -> Self {
        Self::new("the client".into(), true, read, write)
    }
}

impl<Role: ServiceRole, R: AsyncRead + Unpin + Send, W: AsyncWrite + Unpin + Send + 'static> Lines<Role, R, W> {
    fn new(who: String, refuses_noise: bool, read: R, write: W) -> Self {
        let writer = AsyncRwTransport::new(tokio::io::empty(), write);
        Self { reader: BufReader::new(read), heard: Heard::default(), who, refuses_noise, writer, refusing: None }
    }

    /// The next line, as far as it has come. `None` when there will be no more.
    async fn line(&mut self) -> Option<Line<RxJsonRpcMessage<Role>>> {
        loop {
            if let Some(bytes) = self.heard.whole() {
                let line = aside::in_turn(bytes, || self.heard.read()).await;
                if line.is_some() {
                    return line;
                }
            }
            let available = self.reader.fill_buf().await.ok()?;
            if available.is_empty() {
                // Some leave out the last line's end.
                self.heard.end();
                self.heard.whole()?;
                continue;
            }
            let end = available.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(available.len(), |at| at + 1);
            let line = self.heard.hear(&available[..taken], end.is_some());
            self.reader.consume(taken);
            if line.is_some() {
                return line;
            }
        }
    }

    fn refuse(&mut self, error: ErrorData, id: Option<RequestId>) {
        self.refusing = Some(tokio::spawn(self.writer.send(JsonRpcMessage::error(error, id))));
    }
}

impl<Role, R, W> Transport<Role> for Lines<Role, R, W>
where
    Role: ServiceRole,
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send + 'static,
{
    type Error = std::io::Error;

    fn send(&mut self, item: TxJsonRpcMessage<Role>) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.writer.send(item)
    }

    /// May be dropped at any time: what was heard so far is kept.
    async fn receive(&mut self) -> Option<RxJsonRpcMessage<Role>> {
        loop {
            if let Some(refusing) = &mut self.refusing {
                let refused = refusing.await;
                self.refusing = None;
                refused.ok()?.ok()?;
            }
            match self.line().await? {
                Line::Message(message) => return Some(*message),
                Line::Answer(id) => return Some(JsonRpcMessage::Error(no_answer(&self.who, id))),
                Line::LongAnswer(id) => return Some(JsonRpcMessage::Error(too_long(&self.who, id))),
                Line::Request(id) => self.refuse(ErrorData::invalid_request("not a message that MCP has", None), id),
                Line::LongRequest(id) => self.refuse(ErrorData::invalid_request(too_much(), None), id),
                Line::Noise if self.refuses_noise => self.refuse(ErrorData::parse_error("not JSON", None), None),
                Line::Noise | Line::News => debug!("a line of {} is passed over", self.who),
                Line::Endless => {
                    warn!("{} writes a line that does not end, and is listened to no longer", self.who);
                    return None;
                }
            }
        }
    }

    fn close(&mut self) -> impl Future<Output = Result<(), Self::Error>> + Send {
        self.writer.close()
    }
}

/// Stands for an answer that is longer than it may be.
pub fn too_long(who: &str, request: RequestId) -> rmcp::model::JsonRpcError {
    let most = MAX_MESSAGE >> 20;
    let said = format!(
        "{who} answered with more than {most} MiB, a million values or {MAX_LEVELS} levels, the most that is taken; ask for less at once"
    );
    rmcp::model::JsonRpcError::new(Some(request), ErrorData::internal_error(said, None))
}

/// Stands for something that came in place of an answer.
pub fn no_answer(who: &str, request: RequestId) -> rmcp::model::JsonRpcError {
    let said = format!("{who} answered with something that is no answer in MCP; look at its own log");
    rmcp::model::JsonRpcError::new(Some(request), ErrorData::internal_error(said, None))
}

fn too_much() -> String {
    format!("a message may have {} MiB, a million values and {MAX_LEVELS} levels; send less at once", MAX_MESSAGE >> 20)
}

/// A message as it can be read; `None` if it would take too much room once it is read, or too much stack to read it. Where it
/// lists tools, only those are left out that are too deep, and the list says so ([`LEFT_OUT`]). Those that only run as tasks
/// are marked ([`TASK_REQUIRED`]).
pub fn bearable(message: &[u8]) -> Option<Cow<'_, [u8]>> {
    if has_more_values(message, MAX_VALUES) {
        return None;
    }
    let message = if is_deeper_than(MAX_LEVELS, message) {
        Cow::Owned(thinned::thinned(message).filter(|thin| !is_deeper_than(MAX_LEVELS, thin))?)
    } else {
        Cow::Borrowed(message)
    };
    Some(thinned::with_tasks(&message).map_or(message, Cow::Owned))
}

/// Whether this is an answer to a request that nobody can read, though it is JSON by its grammar; see
/// [`check`](sa_core::json::check).
pub fn is_unreadable_answer(message: &str, request: &RequestId) -> bool {
    json::check_within(MAX_LEVELS, message).is_err()
        && heard::Rough::read(message.as_bytes()).is_ok_and(|rough| rough.id.as_ref() == Some(request) && !rough.method)
}

/// Whether a JSON text holds more values than this.
pub fn has_more_values(text: &[u8], most: usize) -> bool {
    // No value is shorter than what stands between two of them.
    if text.len() <= most {
        return false;
    }
    values(text) > most
}

/// About how many values a JSON text holds: as many as there are places where one begins.
pub fn values(text: &[u8]) -> usize {
    let (mut values, mut in_text, mut is_escape) = (0, false, false);
    for byte in text {
        match byte {
            _ if is_escape => is_escape = false,
            b'\\' => is_escape = in_text,
            b'"' => in_text = !in_text,
            b',' | b'[' | b'{' if !in_text => values += 1,
            _ => {}
        }
    }
    values
}

impl<Role: ServiceRole, R, W: AsyncWrite> std::fmt::Debug for Lines<Role, R, W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lines").field("who", &self.who).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
