//! The frames of `/v1/nodes/ws` as gateway and SDK read and write them: one pass, borrowed, arguments and results
//! left as JSON text.
//!
//! [`Incoming::decode`] reads any frame. Each `encode_…` function appends one frame to a `String`; raw parts are
//! spliced in as they are. A frame is the same struct in both directions, so what one side encodes is what the other
//! decodes.
//!
//! serde's internally tagged enums buffer their content and so cannot borrow raw parts. [`NodeFrame`] therefore is flat:
//! every field of every frame, all optional, with the frame's type deciding afterwards which ones count.
//!
//! # Extensions
//!
//! Beyond the six frames of [`WsMessage`](crate::WsMessage) there are fields and frames that an old peer ignores or never
//! gets: `node_hello` may list `tools`, `features` and `host`, and say its `max_request_bytes`; `gateway_welcome` may list
//! `features`, and say its `max_frame_bytes`; `tool_request` may carry `traceparent`, `deadline_ms`,
//! `principal_id` and `principal_role`; `tool_response` may carry `attachments`; and the frames `tool_cancel`, `tool_progress`, `tool_chunk`, `bin_probe`, `bin_probe_result` and
//! `node_event` go only to a peer that listed the feature (see [`Features`]).

mod encode;
mod features;
mod frame;
mod view;

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

pub use encode::{
    encode_bin_probe, encode_bin_probe_result, encode_cancel, encode_chunk, encode_event, encode_hello, encode_ping,
    encode_pong, encode_progress, encode_request, encode_response, encode_welcome,
};
pub use features::Features;
pub use frame::NodeFrame;

use crate::{Attachment, ErrorKind, NodeInfo, json};

/// A frame of a node or of a gateway, as its type says.
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

/// What can be told of a frame of which only the beginning is there: enough to fail the one call that it is about.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Beginning<'a> {
    /// The frame's `type`, if it stands there.
    pub kind: Option<Cow<'a, str>>,
    /// The request that it is about, if it stands there.
    pub request_id: Option<Cow<'a, str>>,
}

impl<'a> Beginning<'a> {
    /// Reads as far as the text goes.
    pub fn read(text: &'a str) -> Self {
        let (kind, request_id) = json::beginning(text);
        Self { kind, request_id }
    }

    /// Whether it may be about a call.
    pub fn concerns_a_call(&self) -> bool {
        let calls = ["tool_response", "tool_progress", "tool_chunk"];
        self.kind.as_ref().is_none_or(|kind| calls.contains(&&**kind))
    }
}

/// `node_hello`: who a node is and what it offers.
#[derive(Debug, Clone)]
pub struct Hello<'a> {
    /// The protocol the node speaks.
    pub protocol_version: u32,
    /// Who it is.
    pub node: NodeInfo,
    /// The prefixes of the tools it answers for.
    pub capabilities: Vec<String>,
    /// The tools one by one; old nodes send none.
    pub tools: Vec<ToolSpec>,
    /// The extensions it understands.
    pub features: Features,
    /// What it says about its machine: a JSON object.
    pub host: Option<&'a str>,
    /// The largest `tool_request` it takes, as a whole frame. One that does not say takes any.
    pub max_request_bytes: Option<u64>,
}

/// `gateway_welcome`: the node is registered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Welcome<'a> {
    /// The protocol the gateway speaks.
    pub protocol_version: u32,
    /// The gateway's own version.
    pub gateway_version: Cow<'a, str>,
    /// The extensions it understands.
    pub features: Features,
    /// The largest frame it takes. One that does not say takes what
    /// [`MAX_TOOL_RESPONSE_BYTES`](crate::MAX_TOOL_RESPONSE_BYTES) says.
    pub max_frame_bytes: Option<u64>,
    /// Something for whoever runs the node, such as that it took another connection's place.
    pub notice: Option<Cow<'a, str>>,
}

/// `tool_request`: run a tool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolRequest<'a> {
    /// Ties the answer to this request.
    pub request_id: Cow<'a, str>,
    /// The tool's full name.
    pub tool: Cow<'a, str>,
    /// The arguments as JSON text. Absent and `null` both read as `None`; `None` is written as `null`, because the
    /// field is not optional for every old node.
    pub args: Option<&'a str>,
    /// The session the call belongs to.
    pub session_key: Option<Cow<'a, str>>,
    /// The trace the call belongs to, as W3C Trace Context writes it.
    pub traceparent: Option<Cow<'a, str>>,
    /// Milliseconds until nobody waits for the answer any more.
    pub deadline_ms: Option<u64>,
    /// The id of the principal that makes the call: stable, and never a token.
    pub principal_id: Option<Cow<'a, str>>,
    /// The role of that principal, such as `operator` or `agent`.
    pub principal_role: Option<Cow<'a, str>>,
}

/// `tool_response`: the one answer to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolResponse<'a> {
    /// The request it answers.
    pub request_id: Cow<'a, str>,
    /// The result as JSON text (`None` when the tool returned nothing or `null`), or the failure.
    pub outcome: Result<Option<&'a str>, Failure<'a>>,
    /// Files beside the result.
    pub attachments: Vec<Attachment<'a>>,
}

/// The failure in a `tool_response`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure<'a> {
    /// The sort of failure.
    pub kind: ErrorKind,
    /// The failure in words.
    #[serde(borrow, default, deserialize_with = "json::cow_or_empty")]
    pub message: Cow<'a, str>,
}

/// `tool_cancel`: nobody waits for this request any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCancel<'a> {
    /// The request.
    pub request_id: Cow<'a, str>,
    /// Why.
    pub reason: Option<Cow<'a, str>>,
}

/// `tool_progress`: how far a tool has come.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolProgress<'a> {
    /// The request.
    pub request_id: Cow<'a, str>,
    /// How much is done; grows.
    pub progress: f64,
    /// How much there is, when that is known.
    pub total: Option<f64>,
    /// What is going on.
    pub message: Option<Cow<'a, str>>,
}

/// `tool_chunk`: a part of the result, before the rest of it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolChunk<'a> {
    /// The request.
    pub request_id: Cow<'a, str>,
    /// The part, as JSON text.
    pub content: &'a str,
    /// Files beside it.
    pub attachments: Vec<Attachment<'a>>,
}

/// `bin_probe`: which of these programs does the node's machine have?
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BinProbe<'a> {
    /// Ties the answer to this question.
    pub probe_id: Cow<'a, str>,
    /// The names of the programs.
    pub bins: Vec<String>,
}

/// `bin_probe_result`: the answer to a probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BinProbeResult<'a> {
    /// The question it answers.
    pub probe_id: Cow<'a, str>,
    /// Whether each program is there.
    pub bins: BTreeMap<String, bool>,
}

/// `node_event`: what a node has to say outside of any call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeEvent<'a> {
    /// What happened: lowercase words with dots between them, such as `process.finished`.
    pub event: Cow<'a, str>,
    /// More about it, as JSON text.
    pub data: Option<&'a str>,
    /// When, in milliseconds since 1970, by the node's clock.
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
    /// What it does, for models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The JSON Schema of its arguments, as the node wrote it: the order of properties is kept.
    #[serde(default, alias = "inputSchema", skip_serializing_if = "Option::is_none")]
    pub input_schema: Option<Box<RawValue>>,
    /// The JSON Schema of its results.
    #[serde(default, alias = "outputSchema", skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Box<RawValue>>,
    /// Hints, in the form MCP has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Box<RawValue>>,
    /// What the tool needs or touches, in the node's words.
    #[serde(default, deserialize_with = "json::null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub capabilities: Vec<String>,
    /// How long it may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, kind: Option<&str>, request_id: Option<&str>) {
        let expected = Beginning { kind: kind.map(Into::into), request_id: request_id.map(Into::into) };
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
