//! The frames of `/v1/calls/ws`: one socket on which an agent runs many calls concurrently.
//!
//! The gateway sends [`GatewayFrame::Ready`] once. From then on the agent sends
//! [`AgentFrame::Call`]s with ids of its own choice. Each call gets any number of progress and
//! chunk frames, and exactly one `done` or `error` with the same id. Results arrive in the order in
//! which the calls end, not in which they were made.
//!
//! Frames are read and written as in [`node`](crate::node): borrowed, with arguments and results as
//! JSON text.

mod encode;
mod frame;

use std::borrow::Cow;

pub use encode::{
    encode_call, encode_cancel, encode_chunk, encode_done, encode_error, encode_listen, encode_log,
    encode_notice, encode_ping, encode_pong, encode_progress, encode_ready,
};
pub use frame::CallFrame;

use crate::Attachment;

/// A frame that an agent sends.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum AgentFrame<'a> {
    /// `call`
    Call(Call<'a>),
    /// `cancel`, with the id of the call
    Cancel(Cow<'a, str>),
    /// `listen`: the agent wants [`GatewayFrame::Notice`]s
    Listen,
    /// `ping`, with the text of its timestamp
    Ping(&'a str),
    /// `pong`, with the text of its timestamp
    Pong(&'a str),
    /// A type that this version does not know. Ignore it, unless it has an id: then the agent waits
    /// for an answer.
    Unknown { kind: Cow<'a, str>, id: Option<Cow<'a, str>> },
}

/// A frame that the gateway sends.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum GatewayFrame<'a> {
    /// `ready`
    Ready(Ready<'a>),
    /// `progress`
    Progress(Progress<'a>),
    /// `chunk`
    Chunk(Chunk<'a>),
    /// `log`
    Log(Log<'a>),
    /// `notice`
    Notice(Notice<'a>),
    /// `done`
    Done(Done<'a>),
    /// `error`
    Error(CallError<'a>),
    /// `ping`, with the text of its timestamp
    Ping(&'a str),
    /// `pong`, with the text of its timestamp
    Pong(&'a str),
    /// A type that this version does not know. Ignore it.
    Unknown(Cow<'a, str>),
}

/// `call`: run a tool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Call<'a> {
    /// The agent's own id of the call, unique among its running calls.
    pub id: Cow<'a, str>,
    /// The tool's full name.
    pub tool: Cow<'a, str>,
    /// The arguments as JSON text; `None` when absent or `null`.
    pub args: Option<&'a str>,
    /// The session the call belongs to.
    pub session_key: Option<Cow<'a, str>>,
    /// The hard time limit of the call.
    pub timeout_ms: Option<u64>,
    /// The time limit that each progress report restarts.
    pub idle_timeout_ms: Option<u64>,
    /// The idempotency key. A call that was already made with this key is not made again.
    pub idempotency_key: Option<Cow<'a, str>>,
    /// The trace the call belongs to, as W3C Trace Context writes it.
    pub traceparent: Option<Cow<'a, str>>,
}

/// `ready`: the first frame on the socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ready<'a> {
    /// The gateway's own version.
    pub gateway_version: Cow<'a, str>,
    /// The version of these frames.
    pub protocol_version: u32,
}

/// `progress`: how far a call has advanced.
#[derive(Debug, Clone, PartialEq)]
pub struct Progress<'a> {
    /// The agent's id of the call.
    pub id: Cow<'a, str>,
    /// The amount of work done so far; it only grows.
    pub progress: f64,
    /// The total amount of work, when it is known.
    pub total: Option<f64>,
    /// A description of the current step.
    pub message: Option<Cow<'a, str>>,
}

/// `chunk`: a part of the result, sent before the rest is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk<'a> {
    /// The agent's id of the call.
    pub id: Cow<'a, str>,
    /// The part, as JSON text.
    pub content: &'a str,
    /// Files sent with the chunk.
    pub attachments: Vec<Attachment<'a>>,
}

/// `log`: a log message of a running tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log<'a> {
    /// The agent's id of the call.
    pub id: Cow<'a, str>,
    /// The level, from `debug` to `emergency`.
    pub level: Cow<'a, str>,
    /// The name of the logger.
    pub logger: Option<Cow<'a, str>>,
    /// The logged data, as JSON text.
    pub data: &'a str,
}

/// `notice`: an event outside of any call, for an agent that sent `listen`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice<'a> {
    /// The kind of event: `tools_changed`, `documents_changed`, `session` or `caller_tool_request`.
    pub event: Cow<'a, str>,
    /// The event's data, as JSON text.
    pub data: &'a str,
}

/// `done`: the call succeeded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Done<'a> {
    /// The agent's id of the call.
    pub id: Cow<'a, str>,
    /// The gateway's id of the call. The call is recorded under this id.
    pub call_id: Cow<'a, str>,
    /// The result as JSON text; `null` when there is none.
    pub result: &'a str,
    /// The result as content blocks, as JSON text, if the tool returned any.
    pub blocks: Option<&'a str>,
    /// Files sent with the result.
    pub attachments: Vec<Attachment<'a>>,
    /// The duration of the call.
    pub duration_ms: u64,
}

/// `error`: the call failed, or a frame could not be used.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CallError<'a> {
    /// The agent's id of the call. Absent when no id could be read from the invalid frame.
    pub id: Option<Cow<'a, str>>,
    /// The gateway's id of the call, if the call was created.
    pub call_id: Option<Cow<'a, str>>,
    /// The kind of error.
    pub kind: Cow<'a, str>,
    /// The error message.
    pub message: Cow<'a, str>,
    /// A hint on how to fix the error.
    pub hint: Option<Cow<'a, str>>,
    /// Whether the same call may succeed later.
    pub retryable: bool,
}
