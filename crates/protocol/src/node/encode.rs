use super::*;
use crate::json::{add_attachments, begin};

/// Appends a `tool_request`.
pub fn encode_request(out: &mut String, frame: &ToolRequest<'_>) {
    let args = frame.args.unwrap_or("null");
    out.reserve(192 + frame.request_id.len() + frame.tool.len() + args.len());
    begin(out, "tool_request")
        .text("request_id", &frame.request_id)
        .text("tool", &frame.tool)
        .raw_text("args", args)
        .opt_text("session_key", frame.session_key.as_deref())
        .opt_text("traceparent", frame.traceparent.as_deref())
        .opt_plain("deadline_ms", frame.deadline_ms)
        .opt_text("principal_id", frame.principal_id.as_deref())
        .opt_text("principal_role", frame.principal_role.as_deref())
        .end();
}

/// Appends a `tool_response`.
pub fn encode_response(out: &mut String, frame: &ToolResponse<'_>) {
    let result = frame.outcome.as_ref().map_or(None, |result| *result);
    out.reserve(64 + frame.request_id.len() + result.map_or(0, str::len));
    let writer = begin(out, "tool_response")
        .text("request_id", &frame.request_id)
        .plain("ok", frame.outcome.is_ok());
    let writer = match &frame.outcome {
        Ok(result) => writer.opt_raw_text("result", result.filter(|text| *text != "null")),
        Err(failure) => writer.value("error", failure),
    };
    add_attachments(writer, &frame.attachments).end();
}

/// Appends a `tool_cancel`. Send it only to a node that listed the feature.
pub fn encode_cancel(out: &mut String, frame: &ToolCancel<'_>) {
    begin(out, "tool_cancel")
        .text("request_id", &frame.request_id)
        .opt_text("reason", frame.reason.as_deref())
        .end();
}

/// Appends a `tool_progress`. Send it only to a gateway that listed the feature.
pub fn encode_progress(out: &mut String, frame: &ToolProgress<'_>) {
    // The field is required, and JSON cannot represent NaN or infinity.
    let progress = if frame.progress.is_finite() { frame.progress } else { 0.0 };
    begin(out, "tool_progress")
        .text("request_id", &frame.request_id)
        .float("progress", progress)
        .maybe(frame.total, |writer, total| writer.float("total", total))
        .opt_text("message", frame.message.as_deref())
        .end();
}

/// Appends a `tool_chunk`. Send it only to a gateway that listed the feature.
pub fn encode_chunk(out: &mut String, frame: &ToolChunk<'_>) {
    let writer = begin(out, "tool_chunk")
        .text("request_id", &frame.request_id)
        .raw_text("content", frame.content);
    add_attachments(writer, &frame.attachments).end();
}

/// Appends a `ping` with the given time, in milliseconds since 1970.
pub fn encode_ping(out: &mut String, timestamp_ms: i64) {
    begin(out, "ping").plain("timestamp", timestamp_ms).end();
}

/// Appends a `pong`. `timestamp` is the text of the [`Incoming::Ping`].
pub fn encode_pong(out: &mut String, timestamp: &str) {
    begin(out, "pong").raw_text("timestamp", timestamp).end();
}

/// Appends a `node_hello`.
pub fn encode_hello(out: &mut String, frame: &Hello<'_>) {
    begin(out, "node_hello")
        .plain("protocol_version", frame.protocol_version)
        .value("node", &frame.node)
        .value("capabilities", &frame.capabilities)
        .list("tools", &frame.tools)
        .list("features", &frame.features.names())
        .opt_raw_text("host", frame.host)
        .opt_plain("max_request_bytes", frame.max_request_bytes)
        .end();
}

/// Appends a `gateway_welcome`.
pub fn encode_welcome(out: &mut String, frame: &Welcome<'_>) {
    begin(out, "gateway_welcome")
        .plain("protocol_version", frame.protocol_version)
        .text("gateway_version", &frame.gateway_version)
        .list("features", &frame.features.names())
        .opt_plain("max_frame_bytes", frame.max_frame_bytes)
        .opt_text("notice", frame.notice.as_deref())
        .end();
}

/// Appends a `bin_probe`. Send it only to a node that listed the feature.
pub fn encode_bin_probe(out: &mut String, frame: &BinProbe<'_>) {
    begin(out, "bin_probe").text("probe_id", &frame.probe_id).value("bins", &frame.bins).end();
}

/// Appends a `bin_probe_result`.
pub fn encode_bin_probe_result(out: &mut String, frame: &BinProbeResult<'_>) {
    begin(out, "bin_probe_result")
        .text("probe_id", &frame.probe_id)
        .value("bins", &frame.bins)
        .end();
}

/// Appends a `node_event`. Send it only to a gateway that listed the feature `events`.
pub fn encode_event(out: &mut String, frame: &NodeEvent<'_>) {
    out.reserve(64 + frame.event.len() + frame.data.map_or(0, str::len));
    begin(out, "node_event")
        .text("event", &frame.event)
        .opt_raw_text("data", frame.data)
        .opt_plain("at_ms", frame.at_ms)
        .end();
}

impl Incoming<'_> {
    /// Appends this frame. A frame of an unknown type appends nothing, because its other fields
    /// were not stored.
    pub fn encode(&self, out: &mut String) {
        match self {
            Self::Hello(frame) => encode_hello(out, frame),
            Self::Welcome(frame) => encode_welcome(out, frame),
            Self::Request(frame) => encode_request(out, frame),
            Self::Response(frame) => encode_response(out, frame),
            Self::Cancel(frame) => encode_cancel(out, frame),
            Self::Progress(frame) => encode_progress(out, frame),
            Self::Chunk(frame) => encode_chunk(out, frame),
            Self::Ping(timestamp) => {
                begin(out, "ping").raw_text("timestamp", timestamp).end();
            }
            Self::Pong(timestamp) => encode_pong(out, timestamp),
            Self::BinProbe(frame) => encode_bin_probe(out, frame),
            Self::BinProbeResult(frame) => encode_bin_probe_result(out, frame),
            Self::Event(frame) => encode_event(out, frame),
            Self::Unknown(_) => {}
        }
    }
}
