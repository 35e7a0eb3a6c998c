use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{FrameError, json};

/// Every field that a frame between node and gateway can have.
///
/// The fields of requests and responses are typed, all others raw: they are read when the frame's type asks for them, so
/// that one frame's `message` never gets in the way of another's.
#[derive(Debug, Clone, Default, Deserialize)]
#[non_exhaustive]
pub struct NodeFrame<'a> {
    /// The frame's type.
    #[serde(rename = "type", borrow, deserialize_with = "json::cow")]
    pub kind: Cow<'a, str>,
    /// Of all `tool_` frames.
    #[serde(borrow, default, deserialize_with = "json::opt_cow")]
    pub request_id: Option<Cow<'a, str>>,
    /// Of `tool_request`.
    #[serde(borrow, default, deserialize_with = "json::opt_cow")]
    pub tool: Option<Cow<'a, str>>,
    /// Of `tool_request`.
    #[serde(borrow, default)]
    pub args: Option<&'a RawValue>,
    /// Of `tool_request`.
    #[serde(borrow, default, deserialize_with = "json::opt_cow")]
    pub session_key: Option<Cow<'a, str>>,
    /// Of `tool_request`.
    #[serde(borrow, default, deserialize_with = "json::opt_cow")]
    pub traceparent: Option<Cow<'a, str>>,
    /// Of `tool_request`.
    #[serde(borrow, default)]
    pub deadline_ms: Option<&'a RawValue>,
    /// Of `tool_request`.
    #[serde(borrow, default, deserialize_with = "json::opt_cow")]
    pub principal_id: Option<Cow<'a, str>>,
    /// Of `tool_request`.
    #[serde(borrow, default, deserialize_with = "json::opt_cow")]
    pub principal_role: Option<Cow<'a, str>>,
    /// Of `tool_response`.
    #[serde(default)]
    pub ok: Option<bool>,
    /// Of `tool_response`.
    #[serde(borrow, default)]
    pub result: Option<&'a RawValue>,
    /// Of `tool_response`.
    #[serde(borrow, default)]
    pub error: Option<&'a RawValue>,
    /// Of `tool_response` and `tool_chunk`.
    #[serde(borrow, default)]
    pub attachments: Option<&'a RawValue>,
    /// Of `tool_chunk`.
    #[serde(borrow, default)]
    pub content: Option<&'a RawValue>,
    /// Of `tool_progress`.
    #[serde(borrow, default)]
    pub progress: Option<&'a RawValue>,
    /// Of `tool_progress`.
    #[serde(borrow, default)]
    pub total: Option<&'a RawValue>,
    /// Of `tool_progress`.
    #[serde(borrow, default)]
    pub message: Option<&'a RawValue>,
    /// Of `tool_cancel`.
    #[serde(borrow, default)]
    pub reason: Option<&'a RawValue>,
    /// Of `ping` and `pong`.
    #[serde(borrow, default)]
    pub timestamp: Option<&'a RawValue>,
    /// Of `node_hello` and `gateway_welcome`.
    #[serde(borrow, default)]
    pub protocol_version: Option<&'a RawValue>,
    /// Of `gateway_welcome`.
    #[serde(borrow, default)]
    pub gateway_version: Option<&'a RawValue>,
    /// Of `node_hello`.
    #[serde(borrow, default)]
    pub node: Option<&'a RawValue>,
    /// Of `node_hello`.
    #[serde(borrow, default)]
    pub capabilities: Option<&'a RawValue>,
    /// Of `node_hello`.
    #[serde(borrow, default)]
    pub tools: Option<&'a RawValue>,
    /// Of `node_hello` and `gateway_welcome`.
    #[serde(borrow, default)]
    pub features: Option<&'a RawValue>,
    /// Of `gateway_welcome`.
    #[serde(borrow, default)]
    pub max_frame_bytes: Option<&'a RawValue>,
    /// Of `gateway_welcome`.
    #[serde(borrow, default)]
    pub notice: Option<&'a RawValue>,
    /// Of `node_hello`.
    #[serde(borrow, default)]
    pub host: Option<&'a RawValue>,
    /// Of `node_hello`.
    #[serde(borrow, default)]
    pub max_request_bytes: Option<&'a RawValue>,
    /// Of `bin_probe` and `bin_probe_result`.
    #[serde(borrow, default)]
    pub probe_id: Option<&'a RawValue>,
    /// Of `bin_probe` and `bin_probe_result`.
    #[serde(borrow, default)]
    pub bins: Option<&'a RawValue>,
    /// Of `node_event`.
    #[serde(borrow, default)]
    pub event: Option<&'a RawValue>,
    /// Of `node_event`.
    #[serde(borrow, default)]
    pub data: Option<&'a RawValue>,
    /// Of `node_event`.
    #[serde(borrow, default)]
    pub at_ms: Option<&'a RawValue>,
}

impl<'a> NodeFrame<'a> {
    /// Reads a frame of any type in one pass, without building a value of its raw parts.
    pub fn decode(text: &'a str) -> Result<Self, FrameError> {
        json::decode_flat(text, &KNOWN, |kind| Self { kind, ..Self::default() })
    }
}

/// The frame types that [`Incoming`](super::Incoming) tells apart.
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
