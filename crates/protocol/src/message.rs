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
    /// The node's first frame: its identity and its capabilities.
    NodeHello {
        /// The protocol version of the node. Without this field it is version 1.
        #[serde(default = "first_version", deserialize_with = "version_or_first")]
        protocol_version: u32,
        /// The node's identity.
        node: NodeInfo,
        /// The prefixes of the tools that the node provides.
        #[serde(default, deserialize_with = "json::null_as_default")]
        capabilities: Vec<String>,
    },
    /// The gateway's answer to the hello. Calls may follow.
    GatewayWelcome {
        /// The protocol version of the gateway.
        #[serde(default = "first_version", deserialize_with = "version_or_first")]
        protocol_version: u32,
        /// The gateway's own version, for logs.
        #[serde(default, deserialize_with = "json::null_as_default")]
        gateway_version: String,
    },
    /// A request of the gateway to run a tool.
    ToolRequest {
        /// The id that links the response to this request.
        request_id: String,
        /// The full name of the tool.
        tool: String,
        /// The arguments; null when there are none.
        #[serde(default)]
        args: Value,
        /// The session the call belongs to, if any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session_key: Option<String>,
    },
    /// The node's only response to a request.
    ToolResponse {
        /// The id of the request.
        request_id: String,
        /// Whether the tool succeeded.
        ok: bool,
        /// The tool's result.
        #[serde(default, skip_serializing_if = "absent_or_null")]
        result: Option<Value>,
        /// The error, if the tool failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<ToolResponseError>,
    },
    /// A liveness check. Either side may send it.
    Ping {
        /// Milliseconds since 1970, by the sender's clock.
        #[serde(default, deserialize_with = "json::null_as_default")]
        timestamp: i64,
    },
    /// The answer to a ping.
    Pong {
        /// The timestamp of the ping.
        #[serde(default, deserialize_with = "json::null_as_default")]
        timestamp: i64,
    },
}

/// The error of a failed tool, as a node reports it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolResponseError {
    /// The kind of error, for programs.
    pub kind: ErrorKind,
    /// The error message, for people and models.
    #[serde(default, deserialize_with = "json::null_as_default")]
    pub message: String,
}

/// The kinds of errors that a node can report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// The arguments are missing or have the wrong form.
    InvalidArgs,
    /// The node does not allow this operation.
    NotAllowed,
    /// The tool took too long.
    Timeout,
    /// The caller stopped waiting, or the node is shutting down.
    Cancelled,
    /// The tool, or an object that it needs, does not exist.
    NotFound,
    /// Any other error, including kinds that a newer peer may add.
    #[serde(other)]
    Failed,
}

impl ErrorKind {
    /// Returns the name on the wire.
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

// serde passes a reference to the field, so that the signature cannot take an `Option` of a
// reference.
#[allow(clippy::ref_option)]
fn absent_or_null(value: &Option<Value>) -> bool {
    matches!(value, None | Some(Value::Null))
}

// The version that an absent field stands for never changes; the current version may.
const _: () = assert!(PROTOCOL_VERSION >= first_version());
