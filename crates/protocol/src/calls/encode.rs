use super::*;
use crate::json::{add_attachments, begin};

/// Appends a `call`.
pub fn encode_call(out: &mut String, frame: &Call<'_>) {
    out.reserve(96 + frame.id.len() + frame.tool.len() + frame.args.map_or(0, str::len));
    begin(out, "call")
        .text("id", &frame.id)
        .text("tool", &frame.tool)
        .opt_raw_text("args", frame.args)
        .opt_text("session_key", frame.session_key.as_deref())
        .opt_plain("timeout_ms", frame.timeout_ms)
        .opt_plain("idle_timeout_ms", frame.idle_timeout_ms)
        .opt_text("idempotency_key", frame.idempotency_key.as_deref())
        .opt_text("traceparent", frame.traceparent.as_deref())
        .end();
}

/// Appends a `cancel`.
pub fn encode_cancel(out: &mut String, id: &str) {
    begin(out, "cancel").text("id", id).end();
}

/// Appends a `listen`.
pub fn encode_listen(out: &mut String) {
    begin(out, "listen").end();
}

/// Appends a `ready`.
pub fn encode_ready(out: &mut String, frame: &Ready<'_>) {
    begin(out, "ready")
        .text("gateway_version", &frame.gateway_version)
        .plain("protocol_version", frame.protocol_version)
        .end();
}

/// Appends a `progress`.
pub fn encode_progress(out: &mut String, frame: &Progress<'_>) {
    // The field is required, and JSON cannot represent NaN or infinity.
    let progress = if frame.progress.is_finite() { frame.progress } else { 0.0 };
    begin(out, "progress")
        .text("id", &frame.id)
        .float("progress", progress)
        .maybe(frame.total, |writer, total| writer.float("total", total))
        .opt_text("message", frame.message.as_deref())
        .end();
}

/// Appends a `chunk`.
pub fn encode_chunk(out: &mut String, frame: &Chunk<'_>) {
    let writer = begin(out, "chunk").text("id", &frame.id).raw_text("content", frame.content);
    add_attachments(writer, &frame.attachments).end();
}

/// Appends a `log`.
pub fn encode_log(out: &mut String, frame: &Log<'_>) {
    begin(out, "log")
        .text("id", &frame.id)
        .text("level", &frame.level)
        .opt_text("logger", frame.logger.as_deref())
        .raw_text("data", frame.data)
        .end();
}

/// Appends a `notice`.
pub fn encode_notice(out: &mut String, frame: &Notice<'_>) {
    begin(out, "notice").text("event", &frame.event).raw_text("data", frame.data).end();
}

/// Appends a `done`.
pub fn encode_done(out: &mut String, frame: &Done<'_>) {
    out.reserve(
        112 + frame.id.len()
            + frame.call_id.len()
            + frame.result.len()
            + frame.blocks.map_or(0, str::len),
    );
    let writer = begin(out, "done")
        .text("id", &frame.id)
        .text("call_id", &frame.call_id)
        .raw_text("result", frame.result)
        .opt_raw_text("blocks", frame.blocks);
    add_attachments(writer, &frame.attachments).plain("duration_ms", frame.duration_ms).end();
}

/// Appends an `error`.
pub fn encode_error(out: &mut String, frame: &CallError<'_>) {
    begin(out, "error")
        .opt_text("id", frame.id.as_deref())
        .opt_text("call_id", frame.call_id.as_deref())
        .text("kind", &frame.kind)
        .text("message", &frame.message)
        .opt_text("hint", frame.hint.as_deref())
        .plain("retryable", frame.retryable)
        .end();
}

/// Appends a `ping` with the given time, in milliseconds since 1970.
pub fn encode_ping(out: &mut String, timestamp_ms: i64) {
    crate::node::encode_ping(out, timestamp_ms);
}

/// Appends a `pong`. `timestamp` is the text of the ping's timestamp.
pub fn encode_pong(out: &mut String, timestamp: &str) {
    crate::node::encode_pong(out, timestamp);
}

impl AgentFrame<'_> {
    /// Appends this frame. A frame of an unknown type appends nothing, because its other fields
    /// were not stored.
    pub fn encode(&self, out: &mut String) {
        match self {
            Self::Call(frame) => encode_call(out, frame),
            Self::Cancel(id) => encode_cancel(out, id),
            Self::Listen => encode_listen(out),
            Self::Ping(timestamp) => {
                begin(out, "ping").raw_text("timestamp", timestamp).end();
            }
            Self::Pong(timestamp) => encode_pong(out, timestamp),
            Self::Unknown { .. } => {}
        }
    }
}

impl GatewayFrame<'_> {
    /// Appends this frame. A frame of an unknown type appends nothing, because its other fields
    /// were not stored.
    pub fn encode(&self, out: &mut String) {
        match self {
            Self::Ready(frame) => encode_ready(out, frame),
            Self::Progress(frame) => encode_progress(out, frame),
            Self::Chunk(frame) => encode_chunk(out, frame),
            Self::Log(frame) => encode_log(out, frame),
            Self::Notice(frame) => encode_notice(out, frame),
            Self::Done(frame) => encode_done(out, frame),
            Self::Error(frame) => encode_error(out, frame),
            Self::Ping(timestamp) => {
                begin(out, "ping").raw_text("timestamp", timestamp).end();
            }
            Self::Pong(timestamp) => encode_pong(out, timestamp),
            Self::Unknown(_) => {}
        }
    }
}
