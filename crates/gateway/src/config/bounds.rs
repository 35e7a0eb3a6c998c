//! The allowed range of each numeric key. Larger values would overflow sums of times or allocate
//! impossible tables.

use std::ops::RangeInclusive;

use super::settings::Settings;

/// The maximum of all time values: 30 days.
const MAX_MS: u64 = 30 * 24 * 3_600 * 1_000;
/// The maximum of message sizes. A message or body is held in memory as a whole.
const MAX_MESSAGE: u64 = 1 << 30;
const MAX_BYTES: u64 = 1 << 40;
const MAX_STORED: u64 = 1 << 50;
/// The minimum of message sizes. With less, no node could register and no call could be made.
const LEAST_MESSAGE: u64 = 256;
const MAX_COUNT: u64 = 1_000_000;

/// Returns the keys with a value out of range, each with the reason.
pub(super) fn violations(settings: &Settings) -> impl Iterator<Item = (&'static str, String)> {
    let outside = bounds(settings).into_iter().filter(|(_, value, bounds)| !bounds.contains(value));
    outside.map(|(key, value, bounds)| {
        let unit = if key.ends_with("_ms") { " (milliseconds)" } else { "" };
        let message = if value < *bounds.start() {
            format!("must be at least {}{unit}", bounds.start())
        } else {
            format!("must be at most {}{unit}", bounds.end())
        };
        (key, message)
    })
}

/// Returns the allowed range of a key, if it has one.
pub(super) fn of(key: &str) -> Option<RangeInclusive<u64>> {
    let known = bounds(&Settings::default()).into_iter().find(|(known, _, _)| *known == key);
    known.map(|(_, _, bounds)| bounds)
}

fn bounds(settings: &Settings) -> [(&'static str, u64, RangeInclusive<u64>); 59] {
    let Settings {
        server, limits, nodes, mcp, sessions, channels, plugins, journal, audit, ..
    } = settings;
    [
        ("server.max_connections", server.max_connections as u64, 1..=MAX_COUNT),
        ("server.workers", server.workers as u64, 0..=1_024),
        ("server.drain_ms", server.drain_ms, 0..=MAX_MS),
        ("limits.pending_per_node", limits.pending_per_node as u64, 1..=MAX_COUNT),
        ("limits.pending_total", limits.pending_total as u64, 1..=MAX_COUNT),
        ("limits.pending_bytes", limits.pending_bytes as u64, 0..=MAX_BYTES),
        ("limits.request_bytes", limits.request_bytes as u64, 0..=MAX_BYTES),
        ("limits.argument_bytes", limits.argument_bytes as u64, 0..=MAX_BYTES),
        ("limits.answer_bytes", limits.answer_bytes as u64, 0..=MAX_BYTES),
        ("limits.provider_answer_bytes", limits.provider_answer_bytes as u64, 0..=MAX_BYTES),
        ("limits.idempotency_bytes", limits.idempotency_bytes as u64, 0..=MAX_BYTES),
        ("limits.default_timeout_ms", limits.default_timeout_ms, 1..=MAX_MS),
        ("limits.max_call_ms", limits.max_call_ms, 1..=MAX_MS),
        ("limits.queue_wait_ms", limits.queue_wait_ms, 0..=MAX_MS),
        ("limits.reconnect_wait_ms", limits.reconnect_wait_ms, 0..=MAX_MS),
        ("limits.max_frame_bytes", limits.max_frame_bytes as u64, LEAST_MESSAGE..=MAX_MESSAGE),
        ("limits.max_body_bytes", limits.max_body_bytes as u64, LEAST_MESSAGE..=MAX_MESSAGE),
        ("limits.max_outbox_bytes", limits.max_outbox_bytes as u64, LEAST_MESSAGE..=MAX_BYTES),
        ("nodes.hello_timeout_ms", nodes.hello_timeout_ms, 1..=MAX_MS),
        ("nodes.ping_interval_ms", nodes.ping_interval_ms, 1..=MAX_MS),
        ("nodes.dead_after_ms", nodes.dead_after_ms, 1..=MAX_MS),
        ("nodes.offline_memory_ms", nodes.offline_memory_ms, 0..=MAX_MS),
        ("nodes.max_tools", nodes.max_tools as u64, 1..=MAX_COUNT),
        ("nodes.message_bytes", nodes.message_bytes as u64, 0..=MAX_BYTES),
        ("nodes.request_bytes", nodes.request_bytes as u64, 0..=MAX_BYTES),
        ("nodes.hello_bytes", nodes.hello_bytes as u64, 0..=MAX_BYTES),
        ("mcp.session_idle_ms", mcp.session_idle_ms, 1..=MAX_MS),
        ("mcp.max_sessions", mcp.max_sessions as u64, 1..=MAX_COUNT),
        ("mcp.resume_ms", mcp.resume_ms, 0..=MAX_MS),
        ("mcp.task_after_ms", mcp.task_after_ms, 0..=MAX_MS),
        ("mcp.task_result_bytes", mcp.task_result_bytes as u64, 0..=MAX_BYTES),
        ("sessions.caller_timeout_ms", sessions.caller_timeout_ms, 1..=MAX_MS),
        ("sessions.caller_grace_ms", sessions.caller_grace_ms, 0..=MAX_MS),
        ("sessions.idle_ms", sessions.idle_ms, 1..=MAX_MS),
        ("sessions.max_open", sessions.max_open as u64, 1..=MAX_COUNT),
        ("sessions.max_pending", sessions.max_pending as u64, 1..=MAX_COUNT),
        ("sessions.keep_events", sessions.keep_events, 1..=u64::MAX >> 1),
        ("sessions.keep_event_bytes", sessions.keep_event_bytes, 1..=MAX_BYTES),
        ("sessions.max_stored_bytes", sessions.max_stored_bytes as u64, LEAST_MESSAGE..=MAX_STORED),
        ("channels.max_message_bytes", channels.max_message_bytes as u64, LEAST_MESSAGE..=16 << 20),
        ("channels.max_attachment_bytes", channels.max_attachment_bytes as u64, 0..=MAX_MESSAGE),
        ("channels.max_queue_bytes", channels.max_queue_bytes as u64, LEAST_MESSAGE..=MAX_BYTES),
        (
            "channels.max_messages_per_second",
            channels.max_messages_per_second.into(),
            1..=MAX_COUNT,
        ),
        ("channels.max_channels", channels.max_channels as u64, 1..=MAX_COUNT),
        ("channels.pending_bytes", channels.pending_bytes as u64, 0..=MAX_BYTES),
        ("channels.max_stored_bytes", channels.max_stored_bytes as u64, LEAST_MESSAGE..=MAX_STORED),
        (
            "channels.max_bytes_per_channel",
            channels.max_bytes_per_channel as u64,
            LEAST_MESSAGE..=MAX_STORED,
        ),
        (
            "channels.max_bytes_per_principal",
            channels.max_bytes_per_principal as u64,
            LEAST_MESSAGE..=MAX_STORED,
        ),
        ("channels.keep_messages", channels.keep_messages, 1..=u64::MAX >> 1),
        ("channels.keep_days", channels.keep_days, 1..=36_500),
        ("plugins.timeout_ms", plugins.timeout_ms, 1..=MAX_MS),
        ("plugins.max_response_bytes", plugins.max_response_bytes as u64, 1..=MAX_MESSAGE),
        ("plugins.calls_per_second", plugins.calls_per_second.into(), 1..=MAX_COUNT),
        ("plugins.max_running", plugins.max_running as u64, 1..=MAX_COUNT),
        ("plugins.refresh_ms", plugins.refresh_ms, 1_000..=MAX_MS),
        ("journal.keep_calls", journal.keep_calls, 1..=u64::MAX >> 1),
        ("journal.keep_days", journal.keep_days, 1..=36_500),
        ("audit.keep_days", audit.keep_days, 1..=36_500),
        ("journal.payload_bytes", journal.payload_bytes as u64, 0..=MAX_MESSAGE),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::layers::defaults;

    #[test]
    fn every_number_has_bounds_and_its_default_is_within_them() {
        for (section, values) in &defaults() {
            for (name, value) in values.as_table().unwrap() {
                let (key, Some(number)) = (format!("{section}.{name}"), value.as_integer()) else {
                    continue;
                };
                let bounds = of(&key).unwrap_or_else(|| panic!("{key} has no bounds"));
                assert!(bounds.contains(&u64::try_from(number).unwrap()), "{key} = {number}");
            }
        }
    }
}
