use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::*;
use crate::json::{self, field, object_list, required, text_field, timestamp};
use crate::{FrameError, FrameErrorKind};

/// Every field that a frame of the call socket can have. See [`NodeFrame`](crate::node::NodeFrame)
/// for why the struct is flat.
#[derive(Debug, Clone, Default, Deserialize)]
#[non_exhaustive]
pub struct CallFrame<'a> {
    /// The frame's type.
    #[serde(rename = "type", borrow, deserialize_with = "json::cow")]
    pub kind: Cow<'a, str>,
    /// Used by everything that belongs to a call.
    #[serde(borrow, default, deserialize_with = "json::opt_cow")]
    pub id: Option<Cow<'a, str>>,
    /// Used by `call`.
    #[serde(borrow, default, deserialize_with = "json::opt_cow")]
    pub tool: Option<Cow<'a, str>>,
    /// Used by `call`.
    #[serde(borrow, default)]
    pub args: Option<&'a RawValue>,
    /// Used by `call`.
    #[serde(borrow, default, deserialize_with = "json::opt_cow")]
    pub session_key: Option<Cow<'a, str>>,
    /// Used by `call`.
    #[serde(borrow, default)]
    pub timeout_ms: Option<&'a RawValue>,
    /// Used by `call`.
    #[serde(borrow, default)]
    pub idle_timeout_ms: Option<&'a RawValue>,
    /// Used by `call`.
    #[serde(borrow, default, deserialize_with = "json::opt_cow")]
    pub idempotency_key: Option<Cow<'a, str>>,
    /// Used by `call`.
    #[serde(borrow, default, deserialize_with = "json::opt_cow")]
    pub traceparent: Option<Cow<'a, str>>,
    /// Used by `done` and `error`.
    #[serde(borrow, default, deserialize_with = "json::opt_cow")]
    pub call_id: Option<Cow<'a, str>>,
    /// Used by `done`.
    #[serde(borrow, default)]
    pub result: Option<&'a RawValue>,
    /// Used by `done`.
    #[serde(borrow, default)]
    pub blocks: Option<&'a RawValue>,
    /// Used by `done` and `chunk`.
    #[serde(borrow, default)]
    pub attachments: Option<&'a RawValue>,
    /// Used by `done`.
    #[serde(borrow, default)]
    pub duration_ms: Option<&'a RawValue>,
    /// Used by `error`.
    #[serde(rename = "kind", borrow, default)]
    pub error_kind: Option<&'a RawValue>,
    /// Used by `error` and `progress`.
    #[serde(borrow, default)]
    pub message: Option<&'a RawValue>,
    /// Used by `error`.
    #[serde(borrow, default)]
    pub hint: Option<&'a RawValue>,
    /// Used by `error`.
    #[serde(borrow, default)]
    pub retryable: Option<&'a RawValue>,
    /// Used by `progress`.
    #[serde(borrow, default)]
    pub progress: Option<&'a RawValue>,
    /// Used by `progress`.
    #[serde(borrow, default)]
    pub total: Option<&'a RawValue>,
    /// Used by `log`.
    #[serde(borrow, default)]
    pub level: Option<&'a RawValue>,
    /// Used by `log`.
    #[serde(borrow, default)]
    pub logger: Option<&'a RawValue>,
    /// Used by `notice`.
    #[serde(borrow, default)]
    pub event: Option<&'a RawValue>,
    /// Used by `log` and `notice`.
    #[serde(borrow, default)]
    pub data: Option<&'a RawValue>,
    /// Used by `chunk`.
    #[serde(borrow, default)]
    pub content: Option<&'a RawValue>,
    /// Used by `ping` and `pong`.
    #[serde(borrow, default)]
    pub timestamp: Option<&'a RawValue>,
    /// Used by `ready`.
    #[serde(borrow, default)]
    pub gateway_version: Option<&'a RawValue>,
    /// Used by `ready`.
    #[serde(borrow, default)]
    pub protocol_version: Option<&'a RawValue>,
}

impl<'a> CallFrame<'a> {
    /// Reads a frame of any type in one pass, without parsing its raw parts.
    pub fn decode(text: &'a str) -> Result<Self, FrameError> {
        json::decode_flat(text, &KNOWN, |kind| Self { kind, ..Self::default() })
    }
}

const KNOWN: [&str; 12] = [
    "call", "cancel", "listen", "ping", "pong", "ready", "progress", "chunk", "log", "notice",
    "done", "error",
];

impl<'a> AgentFrame<'a> {
    /// Reads a frame that an agent sent.
    pub fn decode(text: &'a str) -> Result<Self, FrameError> {
        let frame = CallFrame::decode(text)?;
        json::explained(frame.kind.clone(), frame.id.clone(), read_agent(frame))
    }
}

impl<'a> GatewayFrame<'a> {
    /// Reads a frame that a gateway sent.
    pub fn decode(text: &'a str) -> Result<Self, FrameError> {
        let frame = CallFrame::decode(text)?;
        json::explained(frame.kind.clone(), frame.id.clone(), read_gateway(frame))
    }
}

fn read_agent(frame: CallFrame<'_>) -> Result<AgentFrame<'_>, FrameError> {
    Ok(match &*frame.kind {
        "call" => AgentFrame::Call(Call {
            id: required(frame.id, "id")?,
            tool: required(frame.tool, "tool")?,
            args: frame.args.map(RawValue::get),
            session_key: frame.session_key,
            timeout_ms: field(frame.timeout_ms, "timeout_ms")?,
            idle_timeout_ms: field(frame.idle_timeout_ms, "idle_timeout_ms")?,
            idempotency_key: frame.idempotency_key,
            traceparent: frame.traceparent,
        }),
        "cancel" => AgentFrame::Cancel(required(frame.id, "id")?),
        "listen" => AgentFrame::Listen,
        "ping" => AgentFrame::Ping(timestamp(frame.timestamp)?),
        "pong" => AgentFrame::Pong(timestamp(frame.timestamp)?),
        _ => AgentFrame::Unknown { kind: frame.kind, id: frame.id },
    })
}

fn read_gateway(frame: CallFrame<'_>) -> Result<GatewayFrame<'_>, FrameError> {
    Ok(match &*frame.kind {
        "done" => GatewayFrame::Done(Done {
            id: required(frame.id, "id")?,
            call_id: required(frame.call_id, "call_id")?,
            result: frame.result.map_or("null", RawValue::get),
            blocks: array(frame.blocks, "blocks")?,
            attachments: object_list(frame.attachments, "attachments")?,
            duration_ms: field(frame.duration_ms, "duration_ms")?.unwrap_or_default(),
        }),
        "error" => GatewayFrame::Error(CallError {
            id: frame.id,
            call_id: frame.call_id,
            kind: required(text_field(frame.error_kind, "kind")?, "kind")?,
            message: text_field(frame.message, "message")?.unwrap_or_default(),
            hint: text_field(frame.hint, "hint")?,
            retryable: field(frame.retryable, "retryable")?.unwrap_or_default(),
        }),
        "progress" => GatewayFrame::Progress(Progress {
            id: required(frame.id, "id")?,
            progress: required(field(frame.progress, "progress")?, "progress")?,
            total: field(frame.total, "total")?,
            message: text_field(frame.message, "message")?,
        }),
        "chunk" => GatewayFrame::Chunk(Chunk {
            id: required(frame.id, "id")?,
            content: frame.content.map_or("null", RawValue::get),
            attachments: object_list(frame.attachments, "attachments")?,
        }),
        "log" => GatewayFrame::Log(Log {
            id: required(frame.id, "id")?,
            level: required(text_field(frame.level, "level")?, "level")?,
            logger: text_field(frame.logger, "logger")?,
            data: frame.data.map_or("null", RawValue::get),
        }),
        "notice" => GatewayFrame::Notice(Notice {
            event: required(text_field(frame.event, "event")?, "event")?,
            data: frame.data.map_or("null", RawValue::get),
        }),
        "ready" => GatewayFrame::Ready(Ready {
            gateway_version: text_field(frame.gateway_version, "gateway_version")?
                .unwrap_or_default(),
            protocol_version: field(frame.protocol_version, "protocol_version")?.unwrap_or(1),
        }),
        "ping" => GatewayFrame::Ping(timestamp(frame.timestamp)?),
        "pong" => GatewayFrame::Pong(timestamp(frame.timestamp)?),
        _ => GatewayFrame::Unknown(frame.kind),
    })
}

fn array<'a>(raw: Option<&'a RawValue>, name: &'static str) -> Result<Option<&'a str>, FrameError> {
    match raw.map(RawValue::get) {
        Some(text) if !text.starts_with('[') => {
            Err(FrameError::new(FrameErrorKind::InvalidField(name), "expected an array"))
        }
        other => Ok(other),
    }
}
