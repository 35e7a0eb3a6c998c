//! The frames of `/v1/calls/ws`: one socket on which an agent has many calls running at once.
//!
//! The gateway sends [`GatewayFrame::Ready`] once. From then on the agent sends [`AgentFrame::Call`]s with ids of its own
//! choice, and each gets any number of progress and chunk frames and exactly one `done` or `error` with the same id. They
//! come in the order in which the calls end, not in which they were made.
//!
//! Frames are read and written as in [`node`](crate::node): borrowed, with arguments and results as JSON text.

mod encode;
mod frame;

use std::borrow::Cow;

pub use encode::{
    encode_call, encode_cancel, encode_chunk, encode_done, encode_error, encode_listen, encode_log, encode_notice,
    encode_ping, encode_pong, encode_progress, encode_ready,
};
pub use frame::CallFrame;

use crate::Attachment;

/// A frame of an agent.
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
    /// A type that this version does not know. Ignore it, unless it has an id: then somebody waits for an answer.
    Unknown { kind: Cow<'a, str>, id: Option<Cow<'a, str>> },
}

/// A frame of the gateway.
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
    /// The agent's own id of the call; unique among its calls that run.
    pub id: Cow<'a, str>,
    /// The tool's full name.
    pub tool: Cow<'a, str>,
    /// The arguments as JSON text; `None` when absent or `null`.
    pub args: Option<&'a str>,
    /// The session the call belongs to.
    pub session_key: Option<Cow<'a, str>>,
    /// Hard time limit of the call.
    pub timeout_ms: Option<u64>,
    /// Time limit that each progress report restarts.
    pub idle_timeout_ms: Option<u64>,
    /// A call that was made with this key before is not made again.
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

/// `progress`: how far a call has come.
#[derive(Debug, Clone, PartialEq)]
pub struct Progress<'a> {
    /// The agent's id of the call.
    pub id: Cow<'a, str>,
    /// How much is done; grows.
    pub progress: f64,
    /// How much there is, when that is known.
    pub total: Option<f64>,
    /// What is going on.
    pub message: Option<Cow<'a, str>>,
}

/// `chunk`: a part of the result, before the rest of it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk<'a> {
    /// The agent's id of the call.
    pub id: Cow<'a, str>,
    /// The part, as JSON text.
    pub content: &'a str,
    /// Files beside it.
    pub attachments: Vec<Attachment<'a>>,
}

/// `log`: what a tool would write into a log while it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log<'a> {
    /// The agent's id of the call.
    pub id: Cow<'a, str>,
    /// From `debug` to `emergency`.
    pub level: Cow<'a, str>,
    /// Who says it.
    pub logger: Option<Cow<'a, str>>,
    /// What it says, as JSON text.
    pub data: &'a str,
}

/// `notice`: something outside of any call, for an agent that listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice<'a> {
    /// What it is about: `tools_changed`, `documents_changed`, `session` or `caller_tool_request`.
    pub event: Cow<'a, str>,
    /// The rest of it, as JSON text.
    pub data: &'a str,
}

/// `done`: the call succeeded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Done<'a> {
    /// The agent's id of the call.
    pub id: Cow<'a, str>,
    /// The gateway's id of the call, under which it is recorded.
    pub call_id: Cow<'a, str>,
    /// The result as JSON text; `null` when there is none.
    pub result: &'a str,
    /// The result as content blocks, as JSON text, when the tool gave any.
    pub blocks: Option<&'a str>,
    /// Files beside the result.
    pub attachments: Vec<Attachment<'a>>,
    /// How long the call took.
    pub duration_ms: u64,
}

/// `error`: the call failed, or a frame could not be used.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CallError<'a> {
    /// The agent's id of the call. Absent when the frame at fault had none that could be read.
    pub id: Option<Cow<'a, str>>,
    /// The gateway's id of the call, when it came to be one.
    pub call_id: Option<Cow<'a, str>>,
    /// The sort of failure.
    pub kind: Cow<'a, str>,
    /// The failure in words.
    pub message: Cow<'a, str>,
    /// What to do about it.
    pub hint: Option<Cow<'a, str>>,
    /// Whether the same call may succeed later.
    pub retryable: bool,
}
