use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{NodeInfo, PROTOCOL_VERSION, json};

/// The six frames between a node and a gateway, as plain data.
///
/// ```
/// use sa_protocol::WsMessage;
///
/// let frame: WsMessage = serde_json::from_str(r#"{"type":"ping","timestamp":7}"#)?;
/// assert_eq!(frame, WsMessage::Ping { timestamp: 7 });
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum WsMessage {
    /// The node's first frame: who it is and what it can do.
    NodeHello {
        /// The protocol the node speaks; a node that does not say speaks version 1.
        #[serde(default = "first_version", deserialize_with = "version_or_first")]
        protocol_version: u32,
        /// Who the node is.
        node: NodeInfo,
        /// The prefixes of the tools that it answers for.
        #[serde(default, deserialize_with = "json::null_as_default")]
        capabilities: Vec<String>,
    },
    /// The gateway's answer to the hello; calls may follow.
    GatewayWelcome {
        /// The protocol the gateway speaks.
        #[serde(default = "first_version", deserialize_with = "version_or_first")]
        protocol_version: u32,
        /// The gateway's own version, for logs.
        #[serde(default, deserialize_with = "json::null_as_default")]
        gateway_version: String,
    },
    /// The gateway asks the node to run a tool.
    ToolRequest {
        /// Ties the response to this request.
        request_id: String,
        /// The full name of the tool.
        tool: String,
        /// The arguments; null when there are none.
        #[serde(default)]
        args: Value,
        /// The session the call belongs to, when there is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session_key: Option<String>,
    },
    /// The node's one answer to a request.
    ToolResponse {
        /// The request it answers.
        request_id: String,
        /// Whether the tool succeeded.
        ok: bool,
        /// What it returned.
        #[serde(default, skip_serializing_if = "absent_or_null")]
        result: Option<Value>,
        /// What went wrong.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<ToolResponseError>,
    },
    /// Are you there? Either side may ask.
    Ping {
        /// Milliseconds since 1970, by the asker's clock.
        #[serde(default, deserialize_with = "json::null_as_default")]
        timestamp: i64,
    },
    /// Yes. Carries the timestamp of the ping.
    Pong {
        /// The timestamp of the ping.
        #[serde(default, deserialize_with = "json::null_as_default")]
        timestamp: i64,
    },
}

/// Why a tool failed, as a node reports it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolResponseError {
    /// The sort of failure, for programs.
    pub kind: ErrorKind,
    /// The failure in words, for people and models.
    #[serde(default, deserialize_with = "json::null_as_default")]
    pub message: String,
}

/// The sorts of failure a node can report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// The arguments are missing, or of the wrong form.
    InvalidArgs,
    /// The node may not do this.
    NotAllowed,
    /// It took too long.
    Timeout,
    /// Somebody gave up waiting, or the node is going away.
    Cancelled,
    /// There is no such tool, or no such thing.
    NotFound,
    /// Anything else, including kinds that a newer peer may add.
    #[serde(other)]
    Failed,
}

impl ErrorKind {
    /// The name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InvalidArgs => "invalid_args",
            Self::NotAllowed => "not_allowed",
            Self::Timeout => "timeout",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::NotFound => "not_found",
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

const fn first_version() -> u32 {
    1
}

fn version_or_first<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(first_version()))
}

// `serde` hands a reference to the field, whatever type would be nicer.
#[allow(clippy::ref_option)]
fn absent_or_null(value: &Option<Value>) -> bool {
    matches!(value, None | Some(Value::Null))
}

// The version that absent means never changes, the current one may.
const _: () = assert!(PROTOCOL_VERSION >= first_version());
