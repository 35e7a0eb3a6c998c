use serde_json::value::RawValue;

use super::*;
use crate::json::{field, object_field, object_list, required, text_field, timestamp};
use crate::{FrameError, FrameErrorKind, ToolResponseError};

impl<'a> Incoming<'a> {
    /// Reads a frame.
    pub fn decode(text: &'a str) -> Result<Self, FrameError> {
        Self::from_frame(NodeFrame::decode(text)?)
    }

    /// Reads the fields that the frame's type requires.
    pub fn from_frame(frame: NodeFrame<'a>) -> Result<Self, FrameError> {
        json::explained(frame.kind.clone(), frame.request_id.clone(), read(frame))
    }
}

fn read(frame: NodeFrame<'_>) -> Result<Incoming<'_>, FrameError> {
    Ok(match &*frame.kind {
        "tool_response" => Incoming::Response(response(frame)?),
        "tool_request" => Incoming::Request(ToolRequest {
            request_id: required(frame.request_id, "request_id")?,
            tool: required(frame.tool, "tool")?,
            args: frame.args.map(RawValue::get),
            session_key: frame.session_key,
            traceparent: frame.traceparent,
            deadline_ms: field(frame.deadline_ms, "deadline_ms")?,
            principal_id: frame.principal_id,
            principal_role: frame.principal_role,
        }),
        "tool_progress" => Incoming::Progress(ToolProgress {
            request_id: required(frame.request_id, "request_id")?,
            progress: required(field(frame.progress, "progress")?, "progress")?,
            total: field(frame.total, "total")?,
            message: text_field(frame.message, "message")?,
        }),
        "tool_chunk" => Incoming::Chunk(ToolChunk {
            request_id: required(frame.request_id, "request_id")?,
            content: frame.content.map_or("null", RawValue::get),
            attachments: object_list(frame.attachments, "attachments")?,
        }),
        "tool_cancel" => Incoming::Cancel(ToolCancel {
            request_id: required(frame.request_id, "request_id")?,
            reason: text_field(frame.reason, "reason")?,
        }),
        "ping" => Incoming::Ping(timestamp(frame.timestamp)?),
        "pong" => Incoming::Pong(timestamp(frame.timestamp)?),
        "node_hello" => Incoming::Hello(Box::new(Hello {
            protocol_version: field(frame.protocol_version, "protocol_version")?.unwrap_or(1),
            node: required(object_field(frame.node, "node")?, "node")?,
            capabilities: field(frame.capabilities, "capabilities")?.unwrap_or_default(),
            tools: object_list(frame.tools, "tools")?,
            features: features(frame.features)?,
            host: object(frame.host, "host")?,
            max_request_bytes: field(frame.max_request_bytes, "max_request_bytes")?,
        })),
        "gateway_welcome" => Incoming::Welcome(Welcome {
            protocol_version: field(frame.protocol_version, "protocol_version")?.unwrap_or(1),
            gateway_version: text_field(frame.gateway_version, "gateway_version")?
                .unwrap_or_default(),
            features: features(frame.features)?,
            max_frame_bytes: field(frame.max_frame_bytes, "max_frame_bytes")?,
            notice: text_field(frame.notice, "notice")?,
        }),
        "bin_probe" => Incoming::BinProbe(BinProbe {
            probe_id: required(text_field(frame.probe_id, "probe_id")?, "probe_id")?,
            bins: required(field(frame.bins, "bins")?, "bins")?,
        }),
        "bin_probe_result" => Incoming::BinProbeResult(BinProbeResult {
            probe_id: required(text_field(frame.probe_id, "probe_id")?, "probe_id")?,
            bins: required(field(frame.bins, "bins")?, "bins")?,
        }),
        "node_event" => Incoming::Event(NodeEvent {
            event: required(text_field(frame.event, "event")?, "event")?,
            data: frame.data.map(RawValue::get).filter(|text| *text != "null"),
            at_ms: field(frame.at_ms, "at_ms")?,
        }),
        _ => Incoming::Unknown(frame.kind),
    })
}

fn response(frame: NodeFrame<'_>) -> Result<ToolResponse<'_>, FrameError> {
    Ok(ToolResponse {
        request_id: required(frame.request_id, "request_id")?,
        outcome: if required(frame.ok, "ok")? {
            Ok(frame.result.map(RawValue::get))
        } else {
            Err(object_field(frame.error, "error")?.unwrap_or_else(Failure::unexplained))
        },
        attachments: object_list(frame.attachments, "attachments")?,
    })
}

fn features(raw: Option<&RawValue>) -> Result<Features, FrameError> {
    Ok(Features::from_names(field::<Vec<String>>(raw, "features")?.unwrap_or_default()))
}

fn object<'a>(
    raw: Option<&'a RawValue>,
    name: &'static str,
) -> Result<Option<&'a str>, FrameError> {
    match raw.map(RawValue::get) {
        Some(text) if !text.starts_with('{') => {
            Err(FrameError::new(FrameErrorKind::InvalidField(name), "expected an object"))
        }
        other => Ok(other),
    }
}

impl Failure<'_> {
    /// Returns the error for a node that sends `ok: false` without an error.
    fn unexplained() -> Self {
        Self {
            kind: ErrorKind::Failed,
            message: Cow::Borrowed("the node reported a failure without a reason"),
        }
    }
}

impl<'a> From<&'a ToolResponseError> for Failure<'a> {
    fn from(error: &'a ToolResponseError) -> Self {
        Self { kind: error.kind, message: Cow::Borrowed(&error.message) }
    }
}

impl From<Failure<'_>> for ToolResponseError {
    fn from(failure: Failure<'_>) -> Self {
        Self { kind: failure.kind, message: failure.message.into_owned() }
    }
}
