use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{FrameError, json};

/// Every field that a frame between node and gateway can have.
///
/// The fields of requests and responses are typed; all others are raw. A raw field is parsed when
/// the frame's type requires it, so that the `message` of one frame cannot conflict with that of
/// another.
#[derive(Debug, Clone, Default, Deserialize)]
#[non_exhaustive]
pub struct NodeFrame<'a> {
    /// The frame's type.
    #[serde(rename = "type", borrow, deserialize_with = "json::cow")]
    pub kind: Cow<'a, str>,
    /// Used by all `tool_` frames.
    #[serde(borrow, default, deserialize_with = "json::opt_cow")]
    pub request_id: Option<Cow<'a, str>>,
    /// Used by `tool_request`.
    #[serde(borrow, default, deserialize_with = "json::opt_cow")]
    pub tool: Option<Cow<'a, str>>,
    /// Used by `tool_request`.
    #[serde(borrow, default)]
    pub args: Option<&'a RawValue>,
    /// Used by `tool_request`.
    #[serde(borrow, default, deserialize_with = "json::opt_cow")]
    pub session_key: Option<Cow<'a, str>>,
    /// Used by `tool_request`.
    #[serde(borrow, default, deserialize_with = "json::opt_cow")]
    pub traceparent: Option<Cow<'a, str>>,
    /// Used by `tool_request`.
    #[serde(borrow, default)]
    pub deadline_ms: Option<&'a RawValue>,
    /// Used by `tool_request`.
    #[serde(borrow, default, deserialize_with = "json::opt_cow")]
    pub principal_id: Option<Cow<'a, str>>,
    /// Used by `tool_request`.
    #[serde(borrow, default, deserialize_with = "json::opt_cow")]
    pub principal_role: Option<Cow<'a, str>>,
    /// Used by `tool_response`.
    #[serde(default)]
    pub ok: Option<bool>,
    /// Used by `tool_response`.
    #[serde(borrow, default)]
    pub result: Option<&'a RawValue>,
    /// Used by `tool_response`.
    #[serde(borrow, default)]
    pub error: Option<&'a RawValue>,
    /// Used by `tool_response` and `tool_chunk`.
    #[serde(borrow, default)]
    pub attachments: Option<&'a RawValue>,
    /// Used by `tool_chunk`.
    #[serde(borrow, default)]
    pub content: Option<&'a RawValue>,
    /// Used by `tool_progress`.
    #[serde(borrow, default)]
    pub progress: Option<&'a RawValue>,
    /// Used by `tool_progress`.
    #[serde(borrow, default)]
    pub total: Option<&'a RawValue>,
    /// Used by `tool_progress`.
    #[serde(borrow, default)]
    pub message: Option<&'a RawValue>,
    /// Used by `tool_cancel`.
    #[serde(borrow, default)]
    pub reason: Option<&'a RawValue>,
    /// Used by `ping` and `pong`.
    #[serde(borrow, default)]
    pub timestamp: Option<&'a RawValue>,
    /// Used by `node_hello` and `gateway_welcome`.
    #[serde(borrow, default)]
    pub protocol_version: Option<&'a RawValue>,
    /// Used by `gateway_welcome`.
    #[serde(borrow, default)]
    pub gateway_version: Option<&'a RawValue>,
    /// Used by `node_hello`.
    #[serde(borrow, default)]
    pub node: Option<&'a RawValue>,
    /// Used by `node_hello`.
    #[serde(borrow, default)]
    pub capabilities: Option<&'a RawValue>,
    /// Used by `node_hello`.
    #[serde(borrow, default)]
    pub tools: Option<&'a RawValue>,
    /// Used by `node_hello` and `gateway_welcome`.
    #[serde(borrow, default)]
    pub features: Option<&'a RawValue>,
    /// Used by `gateway_welcome`.
    #[serde(borrow, default)]
    pub max_frame_bytes: Option<&'a RawValue>,
    /// Used by `gateway_welcome`.
    #[serde(borrow, default)]
    pub notice: Option<&'a RawValue>,
    /// Used by `node_hello`.
    #[serde(borrow, default)]
    pub host: Option<&'a RawValue>,
    /// Used by `node_hello`.
    #[serde(borrow, default)]
    pub max_request_bytes: Option<&'a RawValue>,
    /// Used by `bin_probe` and `bin_probe_result`.
    #[serde(borrow, default)]
    pub probe_id: Option<&'a RawValue>,
    /// Used by `bin_probe` and `bin_probe_result`.
    #[serde(borrow, default)]
    pub bins: Option<&'a RawValue>,
    /// Used by `node_event`.
    #[serde(borrow, default)]
    pub event: Option<&'a RawValue>,
    /// Used by `node_event`.
    #[serde(borrow, default)]
    pub data: Option<&'a RawValue>,
    /// Used by `node_event`.
    #[serde(borrow, default)]
    pub at_ms: Option<&'a RawValue>,
}

impl<'a> NodeFrame<'a> {
    /// Reads a frame of any type in one pass, without parsing its raw parts.
    pub fn decode(text: &'a str) -> Result<Self, FrameError> {
        json::decode_flat(text, &KNOWN, |kind| Self { kind, ..Self::default() })
    }
}

/// The frame types that [`Incoming`](super::Incoming) distinguishes.
const KNOWN: [&str; 12] = [
    "node_hello",
    "gateway_welcome",
    "tool_request",
    "tool_response",
    "tool_cancel",
    "tool_progress",
    "tool_chunk",
    "ping",
    "pong",
    "bin_probe",
    "bin_probe_result",
    "node_event",
];
