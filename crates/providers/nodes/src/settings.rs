//! `[nodes]` and `[skills]`: the settings of nodes, and of the skills that the gateway gives them.

use std::path::{Path, PathBuf};

use sa_settings::{
    Budget, Key, Limits, MAX_BYTES, MAX_COUNT, MAX_MS, Section, Variables, from_home, millis,
};
use sa_socket::Liveness;
use serde::{Deserialize, Serialize};

use crate::{NodeOptions, NodeTokens, check_id};

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    pub hello_timeout_ms: u64,
    pub ping_interval_ms: u64,
    pub dead_after_ms: u64,
    pub offline_memory_ms: u64,
    pub max_tools: usize,
    pub message_bytes: usize,
    pub request_bytes: usize,
    pub hello_bytes: usize,
    pub primary: String,
    /// From environment variables.
    #[serde(skip)]
    pub tokens: NodeTokens,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            hello_timeout_ms: 10_000,
            ping_interval_ms: 15_000,
            dead_after_ms: 35_000,
            offline_memory_ms: 600_000,
            max_tools: 2_000,
            message_bytes: 0,
            request_bytes: 0,
            hello_bytes: 0,
            primary: String::new(),
            tokens: NodeTokens::default(),
        }
    }
}

impl Settings {
    pub fn options(&self, limits: &Limits, gateway_version: &'static str) -> NodeOptions {
        NodeOptions {
            hello_timeout: millis(self.hello_timeout_ms),
            liveness: self.liveness(),
            max_pending: limits.pending_per_node,
            max_frame_bytes: limits.max_frame_bytes,
            max_outbox_bytes: limits.max_outbox_bytes,
            outboxes_bytes: self.request_bytes,
            max_tools: self.max_tools,
            hello_bytes: self.hello_bytes,
            message_bytes: self.message_bytes,
            primary: Some(self.primary.clone()).filter(|id| !id.is_empty()),
            gateway_version,
        }
    }

    /// Returns the ping interval of a silent connection, and the time after which it counts as
    /// dead. Other connections of the gateway use the same times.
    pub fn liveness(&self) -> Liveness {
        Liveness {
            ping_every: millis(self.ping_interval_ms),
            dead_after: millis(self.dead_after_ms),
        }
    }
}

impl Section for Settings {
    fn keys(&self) -> &'static [Key] {
        KEYS
    }

    fn check(&self, report: &mut dyn FnMut(&str, String)) {
        if self.dead_after_ms <= self.ping_interval_ms {
            report("dead_after_ms", "must be more than nodes.ping_interval_ms".into());
        }
        if !self.primary.is_empty() && check_id(&self.primary).is_err() {
            report(
                "primary",
                "must be the id of a node; run `switchboard nodes` to list the ids".into(),
            );
        }
    }

    fn budgets(&mut self) -> Vec<Budget<'_>> {
        vec![
            Budget::in_memory(&mut self.message_bytes, 2),
            Budget::in_memory(&mut self.request_bytes, 2),
            Budget::in_memory(&mut self.hello_bytes, 2),
        ]
    }

    fn variables(&self) -> &'static [&'static str] {
        &NodeTokens::VARIABLES
    }

    fn read_variables(&mut self, variable: Variables<'_>) -> Result<(), (&'static str, String)> {
        self.tokens = NodeTokens::read(variable)?;
        Ok(())
    }
}

const KEYS: &[Key] = &[
    Key::number(
        "hello_timeout_ms",
        1..=MAX_MS,
        "Timeout for the hello message of a new node connection.",
    ),
    Key::number(
        "ping_interval_ms",
        1..=MAX_MS,
        "Idle time after which a connection is checked with a ping.",
    ),
    Key::number(
        "dead_after_ms",
        1..=MAX_MS,
        "Time after which a connection counts as lost if it sends nothing, or accepts none of the data written to it.",
    ),
    Key::number(
        "offline_memory_ms",
        0..=MAX_MS,
        "How long a disconnected node keeps its names and is listed as offline, also after a restart of the gateway.",
    ),
    Key::number(
        "max_tools",
        1..=MAX_COUNT,
        "Maximum number of tools and capabilities of one node.",
    ),
    Key::number(
        "message_bytes",
        0..=MAX_BYTES,
        "Budget for large messages of nodes that are not completely received yet. 0: 2/18 of limits.pending_bytes.",
    ),
    Key::number(
        "request_bytes",
        0..=MAX_BYTES,
        "Budget for large requests that nodes have not read yet. 0: 2/18 of limits.pending_bytes.",
    ),
    Key::number(
        "hello_bytes",
        0..=MAX_BYTES,
        "Budget for the stored hello messages of all nodes. A disconnected node counts until it is forgotten. 0: 2/18 of limits.pending_bytes.",
    ),
    Key::new(
        "primary",
        "Id of the node on which bare tool names (Bash) run while it is connected. Empty: the execution host that has been connected longest.",
    ),
];

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SkillSettings {
    pub dirs: Vec<String>,
}

impl SkillSettings {
    /// Returns the directories with skills.
    pub fn directories(&self, data_dir: &Path) -> Vec<PathBuf> {
        if self.dirs.is_empty() {
            return vec![data_dir.join("skills")];
        }
        self.dirs.iter().map(|dir| from_home(dir)).collect()
    }
}

impl Section for SkillSettings {
    fn keys(&self) -> &'static [Key] {
        SKILL_KEYS
    }

    fn check(&self, report: &mut dyn FnMut(&str, String)) {
        for _ in self.dirs.iter().filter(|dir| dir.trim().is_empty()) {
            report("dirs", "\"\" is not a directory; leave it out, or write its path".into());
        }
    }
}

const SKILL_KEYS: &[Key] = &[Key::new(
    "dirs",
    "Directories with one folder for each skill; ~ is your home directory. Empty: the directory skills in the data directory.",
)];
