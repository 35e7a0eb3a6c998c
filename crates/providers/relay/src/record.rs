//! The stored and displayed state of a session.

use serde::{Deserialize, Serialize};

use crate::turn;

/// A session as it is stored.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Record {
    #[serde(flatten)]
    pub(crate) view: SessionView,
    #[serde(default)]
    pub(crate) turn: turn::State,
    /// The number of the stream with its events.
    pub(crate) stream: u32,
    /// The size of its events. It is not known before its end.
    #[serde(default)]
    pub(crate) event_bytes: u64,
    /// Whether its owner was an operator, whose events may also use the operators' reserve.
    #[serde(default)]
    pub(crate) by_operator: bool,
}

/// A session as its owner and operators see it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SessionView {
    pub session_id: String,
    /// `idle` (no agent is connected), `running` or `ended`.
    pub state: String,
    /// The reason why it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    pub owner: Owner,
    pub caller_id: String,
    /// The caller's presence: `listening`, `working` (on its requests), `left`, `gone`, or
    /// `unknown` (never seen listening).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<String>,
    /// The exposed names of the tools that the caller lends.
    #[serde(default)]
    pub caller_tools: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The session from which an agent started this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// The socket path for an agent that connects by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<String>,
    /// The number of requests that the caller has not answered.
    #[serde(default)]
    pub pending: usize,
    pub timeout_ms: u64,
    pub created_ms: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ms: Option<i64>,
}

/// The principal that started the session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    pub id: String,
    pub name: String,
}
