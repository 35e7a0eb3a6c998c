//! `[mcp]`: the settings of the MCP surface.

use std::sync::Arc;

use sa_core::Trimmer;
use sa_settings::{Budget, Key, Limits, MAX_BYTES, MAX_COUNT, MAX_MS, Section, millis};
use serde::{Deserialize, Serialize};

use crate::Options;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    pub search: bool,
    pub session_idle_ms: u64,
    pub max_sessions: usize,
    pub resume_ms: u64,
    pub task_after_ms: u64,
    pub task_result_bytes: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            search: false,
            session_idle_ms: 3_600_000,
            max_sessions: 1_000,
            resume_ms: 10_000,
            task_after_ms: 10_000,
            task_result_bytes: 0,
        }
    }
}

impl Settings {
    pub fn options(
        &self,
        limits: &Limits,
        version: &'static str,
        trimmer: &Arc<Trimmer>,
    ) -> Options {
        Options {
            version,
            max_body_bytes: limits.max_body_bytes,
            max_outbox_bytes: limits.max_outbox_bytes,
            session_idle: millis(self.session_idle_ms),
            max_sessions: self.max_sessions,
            resume: millis(self.resume_ms),
            search: self.search,
            task_after: millis(self.task_after_ms),
            task_result_bytes: self.task_result_bytes,
            trimmer: Arc::clone(trimmer),
        }
    }
}

impl Section for Settings {
    fn keys(&self) -> &'static [Key] {
        KEYS
    }

    fn budgets(&mut self) -> Vec<Budget<'_>> {
        vec![Budget::on_disk(&mut self.task_result_bytes, 4)]
    }
}

const KEYS: &[Key] = &[
    Key::new(
        "search",
        "List only the tools find_tools and call_tool to MCP clients, instead of all tools. ?search=1 or ?search=0 in the URL overrides this for one client.",
    ),
    Key::number(
        "session_idle_ms",
        1..=MAX_MS,
        "Idle timeout of the session of an MCP client (of a revision before 2026-07-28) that has no open stream and sends no request.",
    ),
    Key::number(
        "max_sessions",
        1..=MAX_COUNT,
        "Maximum number of sessions of MCP clients, of about 80 KB each. If there are more, an idle session is closed.",
    ),
    Key::number(
        "resume_ms",
        0..=MAX_MS,
        "How long an MCP client with a session may take to reconnect for a call whose stream broke, before the call is cancelled.",
    ),
    Key::number(
        "task_after_ms",
        0..=MAX_MS,
        "Time after which a call becomes a task, if the client supports tasks. The client then asks for the result later.",
    ),
    Key::number(
        "task_result_bytes",
        0..=MAX_BYTES,
        "Disk budget for the results of tasks, which are kept for a day. 0: the same amount as 4/18 of limits.pending_bytes.",
    ),
];
