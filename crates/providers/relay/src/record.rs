//! What is remembered of a session, and shown of it.

use serde::{Deserialize, Serialize};

/// Where the store has them.
pub(crate) const BUCKET: &str = "sessions";

/// A session as its owner and operators see it, and as it is stored.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SessionView {
    pub session_id: String,
    /// `idle` (no agent is here), `running` or `ended`.
    pub state: String,
    /// Why it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    pub owner: Owner,
    pub caller_id: String,
    /// `listening`, `working` (on what it was given), `left`, `gone`, or `unknown`: never seen to listen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<String>,
    /// The tools that the caller lends, by the names under which they are called.
    #[serde(default)]
    pub caller_tools: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The session whose agent started this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Where an agent that comes by itself connects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<String>,
    /// Requests that the caller has not answered.
    #[serde(default)]
    pub pending: usize,
    pub timeout_ms: u64,
    pub created_ms: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ms: Option<i64>,
}

/// Whose token started it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    pub id: String,
    pub name: String,
}
