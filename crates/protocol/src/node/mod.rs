//! The frames of `/v1/nodes/ws` as gateway and SDK read and write them: in one pass, borrowed, with
//! arguments and results as JSON text.
//!
//! [`Incoming::decode`] reads any frame. Each `encode_…` function appends one frame to a `String`;
//! raw parts are copied unchanged. A frame is the same struct in both directions, so one side
//! decodes exactly what the other encodes.
//!
//! serde's internally tagged enums buffer their content and so cannot borrow raw parts.
//! [`NodeFrame`] therefore is flat: it has every field of every frame, all optional. The frame's
//! type then decides which fields count.
//!
//! # Extensions
//!
//! Beyond the six frames of [`WsMessage`](crate::WsMessage) there are fields and frames that an old
//! peer ignores or never receives:
//!
//! * `node_hello` may list `tools`, `features` and `host`, and set `max_request_bytes`.
//! * `gateway_welcome` may list `features` and set `max_frame_bytes`.
//! * `tool_request` may carry `traceparent`, `deadline_ms`, `principal_id` and `principal_role`.
//! * `tool_response` may carry `attachments`.
//! * `tool_cancel`, `tool_progress`, `tool_chunk`, `bin_probe`, `bin_probe_result` and `node_event`
//!   are sent only to a peer that listed the feature (see [`Features`]).

mod encode;
mod features;
mod frame;
mod view;

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

pub use encode::{
    encode_bin_probe, encode_bin_probe_result, encode_cancel, encode_chunk, encode_event,
    encode_hello, encode_ping, encode_pong, encode_progress, encode_request, encode_response,
    encode_welcome,
};
pub use features::Features;
pub use frame::NodeFrame;

use crate::{Attachment, ErrorKind, NodeInfo, json};

/// A frame of a node or of a gateway, parsed according to its type.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Incoming<'a> {
    /// `node_hello`
    Hello(Box<Hello<'a>>),
    /// `gateway_welcome`
    Welcome(Welcome<'a>),
    /// `tool_request`
    Request(ToolRequest<'a>),
    /// `tool_response`
    Response(ToolResponse<'a>),
    /// `tool_cancel`
    Cancel(ToolCancel<'a>),
    /// `tool_progress`
    Progress(ToolProgress<'a>),
    /// `tool_chunk`
    Chunk(ToolChunk<'a>),
    /// `ping`, with the text of its timestamp
    Ping(&'a str),
    /// `pong`, with the text of its timestamp
    Pong(&'a str),
    /// `bin_probe`
    BinProbe(BinProbe<'a>),
    /// `bin_probe_result`
    BinProbeResult(BinProbeResult<'a>),
    /// `node_event`
    Event(NodeEvent<'a>),
    /// A type that this version does not know. Ignore it.
    Unknown(Cow<'a, str>),
}

/// The type and request id of a frame of which only the beginning was received. They are enough to
/// fail the one call that the frame belongs to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Beginning<'a> {
    /// The frame's `type`, if the text contains it.
    pub kind: Option<Cow<'a, str>>,
    /// The request that the frame belongs to, if the text contains it.
    pub request_id: Option<Cow<'a, str>>,
}

impl<'a> Beginning<'a> {
    /// Reads the text as far as it goes.
    pub fn read(text: &'a str) -> Self {
        let (kind, request_id) = json::beginning(text);
        Self { kind, request_id }
    }

    /// Returns whether the frame may belong to a call.
    pub fn concerns_a_call(&self) -> bool {
        let calls = ["tool_response", "tool_progress", "tool_chunk"];
        self.kind.as_ref().is_none_or(|kind| calls.contains(&&**kind))
    }
}

/// `node_hello`: the identity of a node and the tools that it provides.
#[derive(Debug, Clone)]
pub struct Hello<'a> {
    /// The protocol version of the node.
    pub protocol_version: u32,
    /// The node's identity.
    pub node: NodeInfo,
    /// The prefixes of the tools that the node provides.
    pub capabilities: Vec<String>,
    /// The individual tools; old nodes send none.
    pub tools: Vec<ToolSpec>,
    /// The extensions that the node supports.
    pub features: Features,
    /// A description of the node's machine: a JSON object.
    pub host: Option<&'a str>,
    /// The largest `tool_request` that the node accepts, as a whole frame. Without this field there
    /// is no limit.
    pub max_request_bytes: Option<u64>,
}

/// `gateway_welcome`: the node is registered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Welcome<'a> {
    /// The protocol version of the gateway.
    pub protocol_version: u32,
    /// The gateway's own version.
    pub gateway_version: Cow<'a, str>,
    /// The extensions that the gateway supports.
    pub features: Features,
    /// The largest frame that the gateway accepts. Without this field the limit is
    /// [`MAX_TOOL_RESPONSE_BYTES`](crate::MAX_TOOL_RESPONSE_BYTES).
    pub max_frame_bytes: Option<u64>,
    /// A message for the operator of the node, for example that it replaced another connection.
    pub notice: Option<Cow<'a, str>>,
}

/// `tool_request`: run a tool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolRequest<'a> {
    /// The id that links the response to this request.
    pub request_id: Cow<'a, str>,
    /// The tool's full name.
    pub tool: Cow<'a, str>,
    /// The arguments as JSON text. Absent and `null` both read as `None`. `None` is written as
    /// `null`, because some old nodes require the field.
    pub args: Option<&'a str>,
    /// The session the call belongs to.
    pub session_key: Option<Cow<'a, str>>,
    /// The trace the call belongs to, as W3C Trace Context writes it.
    pub traceparent: Option<Cow<'a, str>>,
    /// Milliseconds until the caller stops waiting for the response.
    pub deadline_ms: Option<u64>,
    /// The id of the principal that makes the call: stable, and never a token.
    pub principal_id: Option<Cow<'a, str>>,
    /// The role of that principal, such as `operator` or `agent`.
    pub principal_role: Option<Cow<'a, str>>,
}

/// `tool_response`: the only response to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolResponse<'a> {
    /// The id of the request.
    pub request_id: Cow<'a, str>,
    /// The result as JSON text (`None` when the tool returned nothing or `null`), or the error.
    pub outcome: Result<Option<&'a str>, Failure<'a>>,
    /// Files sent with the result.
    pub attachments: Vec<Attachment<'a>>,
}

/// The error in a `tool_response`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure<'a> {
    /// The kind of error.
    pub kind: ErrorKind,
    /// The error message.
    #[serde(borrow, default, deserialize_with = "json::cow_or_empty")]
    pub message: Cow<'a, str>,
}

/// `tool_cancel`: the caller no longer waits for this request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCancel<'a> {
    /// The id of the request.
    pub request_id: Cow<'a, str>,
    /// The reason, if there is one.
    pub reason: Option<Cow<'a, str>>,
}

/// `tool_progress`: how far a tool has advanced.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolProgress<'a> {
    /// The id of the request.
    pub request_id: Cow<'a, str>,
    /// The amount of work done so far; it only grows.
    pub progress: f64,
    /// The total amount of work, when it is known.
    pub total: Option<f64>,
    /// A description of the current step.
    pub message: Option<Cow<'a, str>>,
}

/// `tool_chunk`: a part of the result, sent before the rest is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolChunk<'a> {
    /// The id of the request.
    pub request_id: Cow<'a, str>,
    /// The part, as JSON text.
    pub content: &'a str,
    /// Files sent with the chunk.
    pub attachments: Vec<Attachment<'a>>,
}

/// `bin_probe`: asks which of these programs are installed on the node's machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BinProbe<'a> {
    /// The id that links the answer to this probe.
    pub probe_id: Cow<'a, str>,
    /// The names of the programs.
    pub bins: Vec<String>,
}

/// `bin_probe_result`: the answer to a probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BinProbeResult<'a> {
    /// The id of the probe.
    pub probe_id: Cow<'a, str>,
    /// Whether each program is installed.
    pub bins: BTreeMap<String, bool>,
}

/// `node_event`: an event that a node reports outside of any call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeEvent<'a> {
    /// The name of the event: lowercase words separated by dots, such as `process.finished`.
    pub event: Cow<'a, str>,
    /// The event's data, as JSON text.
    pub data: Option<&'a str>,
    /// The time of the event in milliseconds since 1970, by the node's clock.
    pub at_ms: Option<i64>,
}

/// A tool as a node describes it in its hello.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ToolSpec {
    /// The tool's full name.
    pub name: String,
    /// A name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// A description of the tool, for models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The JSON Schema of its arguments, unchanged, so that the order of properties is preserved.
    #[serde(default, alias = "inputSchema", skip_serializing_if = "Option::is_none")]
    pub input_schema: Option<Box<RawValue>>,
    /// The JSON Schema of its results.
    #[serde(default, alias = "outputSchema", skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Box<RawValue>>,
    /// Hints, in the form that MCP defines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Box<RawValue>>,
    /// The resources that the tool needs or affects, in the node's own terms.
    #[serde(
        default,
        deserialize_with = "json::null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub capabilities: Vec<String>,
    /// The time limit of a call of this tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, kind: Option<&str>, request_id: Option<&str>) {
        let expected =
            Beginning { kind: kind.map(Into::into), request_id: request_id.map(Into::into) };
        assert_eq!(Beginning::read(text), expected, "{text}");
    }

    #[test]
    fn a_beginning_says_what_it_is_as_far_as_it_goes() {
        let whole = r#"{"type":"tool_response","request_id":"r\n1","ok":true,"result":"xx"#;
        check(whole, Some("tool_response"), Some("r\n1"));
        check(&whole[..40], Some("tool_response"), None);
        check(&whole[..10], None, None);
        check(r#"{"ok":true,"request_id":"r","result":[[[{"type":"no"#, None, Some("r"));
        check(r#"{"result":"#, None, None);
        for text in ["", "[1", "7", r#"{"type":7,"request_id":"r""#] {
            check(text, None, None);
        }
        check(&format!("{{\"a\":{}", "[".repeat(100_000)), None, None);
    }

    #[test]
    fn what_is_not_about_a_call_is_told_from_what_may_be() {
        for (text, expected) in [
            (r#"{"type":"node_event","data":"#, false),
            (r#"{"type":"tool_chunk","content":"#, true),
            (r#"{"result":"#, true),
            (r#"{"request_id":"r","#, true),
        ] {
            assert_eq!(Beginning::read(text).concerns_a_call(), expected, "{text}");
        }
    }
}
