//! `[limits]`: the limits that apply to all providers and surfaces.

use serde::{Deserialize, Serialize};

use crate::{Budget, Key, LEAST_MESSAGE, MAX_BYTES, MAX_COUNT, MAX_MESSAGE, MAX_MS, Section};

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    pub pending_per_node: usize,
    pub pending_total: usize,
    pub pending_bytes: usize,
    pub request_bytes: usize,
    pub argument_bytes: usize,
    pub answer_bytes: usize,
    pub provider_answer_bytes: usize,
    pub idempotency_bytes: usize,
    pub default_timeout_ms: u64,
    pub max_call_ms: u64,
    pub queue_wait_ms: u64,
    pub reconnect_wait_ms: u64,
    pub max_frame_bytes: usize,
    pub max_body_bytes: usize,
    pub max_outbox_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            pending_per_node: 50,
            pending_total: 1_000,
            pending_bytes: 0,
            request_bytes: 0,
            argument_bytes: 0,
            answer_bytes: 0,
            provider_answer_bytes: 0,
            idempotency_bytes: 0,
            default_timeout_ms: 60_000,
            max_call_ms: 3_600_000,
            queue_wait_ms: 2_000,
            reconnect_wait_ms: 10_000,
            max_frame_bytes: 16 * 1024 * 1024,
            max_body_bytes: 4 * 1024 * 1024,
            max_outbox_bytes: 16 * 1024 * 1024,
        }
    }
}

impl Section for Limits {
    fn keys(&self) -> &'static [Key] {
        KEYS
    }

    fn budgets(&mut self) -> Vec<Budget<'_>> {
        vec![
            Budget::in_memory(&mut self.request_bytes, 3),
            Budget::in_memory(&mut self.argument_bytes, 2),
            Budget::in_memory(&mut self.answer_bytes, 3),
            Budget::in_memory(&mut self.provider_answer_bytes, 2),
            Budget::on_disk(&mut self.idempotency_bytes, 4),
        ]
    }
}

const KEYS: &[Key] = &[
    Key::number(
        "pending_per_node",
        1..=MAX_COUNT,
        "Maximum number of concurrent calls of one node. More calls wait for up to queue_wait_ms.",
    ),
    Key::number(
        "pending_total",
        1..=MAX_COUNT,
        "Maximum number of concurrent calls. When more than three quarters are in use, a token that holds more than an eighth gets no more. A sixteenth is reserved for operators. The same rule applies to the other totals.",
    ),
    Key::number(
        "pending_bytes",
        0..=MAX_BYTES,
        "Total of all byte budgets in memory. 0: half of the memory limit (of the control group, or else of the machine), at most 2 GiB. See docs/configuration.md for the budgets.",
    ),
    Key::number(
        "request_bytes",
        0..=MAX_BYTES,
        "Budget for large bodies and messages of callers, from their first byte until they are handled. 0: 3/18 of pending_bytes.",
    ),
    Key::number(
        "argument_bytes",
        0..=MAX_BYTES,
        "Budget for large arguments of running and waiting calls. 0: 2/18 of pending_bytes.",
    ),
    Key::number(
        "answer_bytes",
        0..=MAX_BYTES,
        "Budget for large answers that clients have not read yet. 0: 3/18 of pending_bytes.",
    ),
    Key::number(
        "provider_answer_bytes",
        0..=MAX_BYTES,
        "Budget for large answers of upstream servers, plugins and models, from their first byte until they are passed on. 0: 2/18 of pending_bytes.",
    ),
    Key::number(
        "idempotency_bytes",
        0..=MAX_BYTES,
        "Disk budget for outcomes of calls with an idempotency key, which are kept for a day. 0: the same amount as 4/18 of pending_bytes.",
    ),
    Key::number(
        "default_timeout_ms",
        1..=MAX_MS,
        "Timeout of a call if its tool and its caller set none. Progress reports extend it.",
    ),
    Key::number(
        "max_call_ms",
        1..=MAX_MS,
        "Maximum duration of a call, regardless of progress reports.",
    ),
    Key::number(
        "queue_wait_ms",
        0..=MAX_MS,
        "Maximum time that a call waits for a free slot on a busy node.",
    ),
    Key::number(
        "reconnect_wait_ms",
        0..=MAX_MS,
        "How long calls still wait for a node to reconnect after its connection was lost. A quarter of this time if the node announced that it disconnects.",
    ),
    Key::number(
        "max_frame_bytes",
        LEAST_MESSAGE..=MAX_MESSAGE,
        "Maximum size of a WebSocket message.",
    ),
    Key::number(
        "max_body_bytes",
        LEAST_MESSAGE..=MAX_MESSAGE,
        "Maximum size of an HTTP request body.",
    ),
    Key::number(
        "max_outbox_bytes",
        LEAST_MESSAGE..=MAX_BYTES,
        "Maximum size of the output buffer of one connection; a client that reads too slowly is disconnected. Also the maximum size of the unread events of one call; the call then ends. A call that does not fit into a node's buffer is refused instead.",
    ),
];
