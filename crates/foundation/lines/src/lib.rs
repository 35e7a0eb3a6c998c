//! MCP messages as lines on the stdin or stdout of a program.
//!
//! rmcp's own reader skips lines that are too long or have the wrong shape, so the caller waits for
//! its answer until the timeout. This reader reports such lines on both sides. An unreadable answer
//! becomes an error for the caller. An unreadable request is refused to its sender.

mod heard;
mod outline;
mod thinned;

use std::borrow::Cow;

use rmcp::model::{ErrorData, JsonRpcMessage, RequestId};
use rmcp::service::{RoleClient, RoleServer, RxJsonRpcMessage, ServiceRole, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::async_rw::{AsyncRwTransport, DEFAULT_MAX_LINE_LENGTH};
use sa_limits::offload;
use sa_text::json::{self, is_deeper_than};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, BufReader, Empty};
use tokio::task::JoinHandle;
use tracing::{debug, warn};

use crate::heard::{Heard, Line};
pub use crate::thinned::{LEFT_OUT, TASK_REQUIRED};

/// The maximum length of one message in bytes.
pub const MAX_MESSAGE: usize = DEFAULT_MAX_LINE_LENGTH;
/// The maximum number of values in one message.
///
/// Each parsed value takes a hundred bytes or more, however short its text is.
const MAX_VALUES: usize = 1_000_000;
/// The maximum nesting depth of one message.
///
/// Common JSON readers accept at most 128 levels. An answer that cannot be read would look like a
/// missing answer.
const MAX_LEVELS: usize = 120;

/// The messages of one peer.
pub struct Lines<Role: ServiceRole, R, W: AsyncWrite> {
    reader: BufReader<R>,
    heard: Heard,
    /// A description of the peer for messages to people.
    who: String,
    /// Whether lines that are not JSON are refused. A server may print text for people, although
    /// that belongs on its stderr.
    refuses_noise: bool,
    /// The transport, used for writing only.
    writer: AsyncRwTransport<Role, Empty, W>,
    /// The refusal that is being sent. Nothing more is read before it is sent, so that refusals
    /// cannot pile up.
    ///
    /// A separate task sends it. A dropped send could hold the writer and block all other messages.
    refusing: Option<JoinHandle<std::io::Result<()>>>,
}

impl<R: AsyncRead + Unpin + Send, W: AsyncWrite + Unpin + Send + 'static> Lines<RoleClient, R, W> {
    /// Reads the messages of a server with this description.
    pub fn of_server(who: String, read: R, write: W) -> Self {
        Self::new(who, false, read, write)
    }
}

impl<R: AsyncRead + Unpin + Send, W: AsyncWrite + Unpin + Send + 'static> Lines<RoleServer, R, W> {
    /// Reads the messages of a client.
    pub fn of_client(read: R, write: W) -> Self {
        Self::new("the client".into(), true, read, write)
    }
}

impl<Role: ServiceRole, R: AsyncRead + Unpin + Send, W: AsyncWrite + Unpin + Send + 'static>
    Lines<Role, R, W>
{
    fn new(who: String, refuses_noise: bool, read: R, write: W) -> Self {
        let writer = AsyncRwTransport::new(tokio::io::empty(), write);
        Self {
            reader: BufReader::new(read),
            heard: Heard::default(),
            who,
            refuses_noise,
            writer,
            refusing: None,
        }
    }

    /// Returns the next line, or `None` when there are no more lines.
    async fn line(&mut self) -> Option<Line<RxJsonRpcMessage<Role>>> {
        loop {
            if let Some(bytes) = self.heard.whole() {
                let line = offload::run_queued(bytes, || self.heard.read()).await;
                if line.is_some() {
                    return line;
                }
            }
            let available = self.reader.fill_buf().await.ok()?;
            if available.is_empty() {
                // Some programs omit the newline at the end of the last line.
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

    fn send(
        &mut self,
        item: TxJsonRpcMessage<Role>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.writer.send(item)
    }

    /// This future is cancel safe. The part of a line that was already read is kept.
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
                Line::LongAnswer(id) => {
                    return Some(JsonRpcMessage::Error(too_long(&self.who, id)));
                }
                Line::Request(id) => {
                    self.refuse(ErrorData::invalid_request("not a valid MCP message", None), id);
                }
                Line::LongRequest(id) => {
                    self.refuse(ErrorData::invalid_request(too_much(), None), id);
                }
                Line::Noise if self.refuses_noise => {
                    self.refuse(ErrorData::parse_error("not JSON", None), None);
                }
                Line::Noise | Line::News => debug!("ignored a line of {}", self.who),
                Line::Endless => {
                    warn!(
                        "{} sent a line that does not end; its output is no longer read",
                        self.who
                    );
                    return None;
                }
            }
        }
    }

    fn close(&mut self) -> impl Future<Output = Result<(), Self::Error>> + Send {
        self.writer.close()
    }
}

/// Returns the error for an answer that exceeds the limits.
pub fn too_long(who: &str, request: RequestId) -> rmcp::model::JsonRpcError {
    let most = MAX_MESSAGE >> 20;
    let said = format!(
        "{who} returned more than {most} MiB, a million values or {MAX_LEVELS} levels, which is the limit; request \
         less at once"
    );
    rmcp::model::JsonRpcError::new(Some(request), ErrorData::internal_error(said, None))
}

/// Returns the error for a message that is not a valid answer.
pub fn no_answer(who: &str, request: RequestId) -> rmcp::model::JsonRpcError {
    let said = format!("{who} returned an invalid MCP response; see its own log");
    rmcp::model::JsonRpcError::new(Some(request), ErrorData::internal_error(said, None))
}

fn too_much() -> String {
    format!(
        "a message may have at most {} MiB, a million values and {MAX_LEVELS} levels; send less at once",
        MAX_MESSAGE >> 20
    )
}

/// Returns the message in a form that can be read safely.
///
/// Returns `None` if the parsed message would take too much memory, or if parsing it would take too
/// much stack. In a list of tools, only the tools that are nested too deeply are replaced, and the
/// list reports this ([`LEFT_OUT`]). Tools that only run as tasks are marked ([`TASK_REQUIRED`]).
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

/// Whether this is an answer to `request` that is valid JSON by its grammar but cannot be read; see
/// [`check`](sa_text::json::check).
pub fn is_unreadable_answer(message: &str, request: &RequestId) -> bool {
    json::check_within(MAX_LEVELS, message).is_err()
        && heard::Rough::read(message.as_bytes())
            .is_ok_and(|rough| rough.id.as_ref() == Some(request) && !rough.method)
}

/// Whether a JSON text holds more values than `most`, or its parsed values would take too much
/// memory.
pub fn has_more_values(text: &[u8], most: usize) -> bool {
    // Each value takes at least one byte.
    (text.len() > most && json::values(text) > most) || json::check_parsed_bytes(text).is_err()
}

impl<Role: ServiceRole, R, W: AsyncWrite> std::fmt::Debug for Lines<Role, R, W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lines").field("who", &self.who).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
