//! `[sessions]`: the settings of sessions and their agents.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sa_core::Trimmer;
use sa_settings::{
    Key, LEAST_MESSAGE, Limits, MAX_BYTES, MAX_COUNT, MAX_MS, MAX_STORED, Section, key_of, millis,
};
use serde::{Deserialize, Serialize};

use crate::{AgentCommand, Budgets, Options, sandbox, socket_dir};

/// How long a message waits for an agent that connects by itself, before it counts as failed.
const AGENT_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    pub enabled: bool,
    pub caller_timeout_ms: u64,
    pub caller_grace_ms: u64,
    pub idle_ms: u64,
    pub max_open: usize,
    pub max_pending: usize,
    pub keep_events: u64,
    pub keep_event_bytes: u64,
    pub max_stored_bytes: usize,
    pub default_agent: String,
    pub agents: BTreeMap<String, AgentCommand>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            enabled: true,
            caller_timeout_ms: 60_000,
            caller_grace_ms: 0,
            idle_ms: 86_400_000,
            max_open: 256,
            max_pending: 64,
            keep_events: 10_000,
            keep_event_bytes: 16 * 1024 * 1024,
            max_stored_bytes: 4 * 1024 * 1024 * 1024,
            default_agent: String::new(),
            agents: BTreeMap::new(),
        }
    }
}

/// The parts of the gateway that sessions use.
#[derive(Debug)]
pub struct Shared<'a> {
    pub limits: &'a Limits,
    pub data_dir: &'a Path,
    /// The secret files outside of the data directory.
    pub secret_files: Vec<PathBuf>,
    pub budgets: Budgets,
    /// How long events and ended sessions are kept.
    pub keep: Duration,
    pub trimmer: &'a Arc<Trimmer>,
}

impl Settings {
    /// Checks the sandboxes and returns the options of the sessions.
    pub async fn options(&self, shared: Shared<'_>) -> Result<Options, String> {
        let Shared { limits, data_dir, secret_files, budgets, keep, trimmer } = shared;
        let program = std::env::current_exe()
            .map_err(|error| format!("cannot find the path of this program: {error}"))?;
        self.check_sandboxes(&program, data_dir, &secret_files).await?;
        Ok(Options {
            socket_dir: socket_dir(data_dir).map_err(|error| {
                format!("cannot create the directory for session sockets: {error}")
            })?,
            data_dir: std::path::absolute(data_dir).map_err(|error| error.to_string())?,
            hidden: secret_files,
            program,
            timeout: millis(self.caller_timeout_ms),
            caller_grace: millis(self.caller_grace_ms),
            idle: millis(self.idle_ms),
            agent_timeout: AGENT_TIMEOUT,
            max_sessions: self.max_open,
            max_pending: self.max_pending,
            max_line_bytes: limits.max_frame_bytes,
            budgets,
            keep_events: self.keep_events,
            keep_event_bytes: self.keep_event_bytes,
            max_stored_bytes: self.max_stored_bytes,
            keep,
            trimmer: Arc::clone(trimmer),
            agents: self.agents.clone(),
            default_agent: self.default_agent.clone(),
        })
    }

    /// Checks whether the sandboxed agents can run. The error names the agent and the missing
    /// part.
    pub(crate) async fn check_sandboxes(
        &self,
        program: &Path,
        data_dir: &Path,
        secret_files: &[PathBuf],
    ) -> Result<(), String> {
        let (program, agents) = (program.to_owned(), self.agents.clone());
        let secrets: Vec<PathBuf> =
            [data_dir.to_owned()].into_iter().chain(secret_files.iter().cloned()).collect();
        let check = move || sandbox::check(&program, &secrets, &agents);
        let checked = tokio::task::spawn_blocking(check).await;
        checked.unwrap_or_else(|error| Err(error.to_string()))
    }
}

impl Section for Settings {
    fn keys(&self) -> &'static [Key] {
        KEYS
    }

    fn check(&self, report: &mut dyn FnMut(&str, String)) {
        if !self.default_agent.is_empty() && !self.agents.contains_key(&self.default_agent) {
            let message = format!("there is no [sessions.agents.{}]", self.default_agent);
            report("default_agent", message);
        }
        for (name, agent) in &self.agents {
            agent.check().unwrap_or_else(|why| report(&key_of(KEYS, "agents.", name, &why), why));
        }
    }

    fn secrets(&self) -> &'static [&'static str] {
        &["env"]
    }

    fn open_directories(&self, data_dir: &Path) -> Vec<PathBuf> {
        sandbox::agent_directories(data_dir, &self.agents)
    }
}

const KEYS: &[Key] = &[
    Key::new(
        "enabled",
        "Allow agents to work in sessions of this gateway, with tools that their callers provide.",
    ),
    Key::number(
        "caller_timeout_ms",
        1..=MAX_MS,
        "Timeout of a tool that a caller provides, if the session sets none.",
    ),
    Key::number(
        "caller_grace_ms",
        0..=MAX_MS,
        "How long to wait for a caller to reconnect after its last stream has closed. 0: its pending requests fail immediately.",
    ),
    Key::number("idle_ms", 1..=MAX_MS, "Idle timeout of a session without an agent."),
    Key::number("max_open", 1..=MAX_COUNT, "Maximum number of open sessions."),
    Key::number(
        "max_pending",
        1..=MAX_COUNT,
        "Maximum number of concurrent calls to the tools of one caller.",
    ),
    Key::number("keep_events", 1..=u64::MAX >> 1, "Number of events that each session keeps."),
    Key::number(
        "keep_event_bytes",
        1..=MAX_BYTES,
        "Maximum size of the events that each session keeps. The oldest events are removed first; the newest event is always kept.",
    ),
    Key::number(
        "max_stored_bytes",
        LEAST_MESSAGE..=MAX_STORED,
        "Maximum total size of the stored events of all sessions, on disk. A principal with more than its share loses its oldest ended sessions first.",
    ),
    Key::new(
        "default_agent",
        "Agent of a session that names none. Empty: the only configured agent, or else an agent that connects by itself.",
    ),
    Key::table(
        "agents",
        "Agents by name, each a table [sessions.agents.NAME] with command = [\"…\"]; see docs/sessions.md. Can only be set in the file.",
    ),
    Key::named("agents.NAME.command", "", "Program and arguments of an agent for sessions."),
    Key::named(
        "agents.NAME.sandbox",
        "false",
        "Run the agent in a sandbox that only contains the system's programs, its directory and the relay.",
    ),
    Key::named("agents.NAME.network", "true", "Allow network access in the sandbox."),
    Key::named(
        "agents.NAME.input",
        "\"json\"",
        "How the agent gets messages: \"json\" sends each message as one line of JSON on its stdin, \"text\" sends one message as plain text and closes stdin.",
    ),
    Key::named("agents.NAME.env", "{}", "Environment variables to set for the agent."),
    Key::named(
        "agents.NAME.pass_env",
        "[]",
        "Environment variables of the gateway to pass to the agent, in addition to the usual ones.",
    ),
    Key::named(
        "agents.NAME.dir",
        "\"\"",
        "Working directory of the agent. Empty: a directory of the session, which is deleted with it.",
    ),
    Key::named(
        "agents.NAME.read",
        "[]",
        "Paths that the agent may read in a sandbox, in addition to the system's programs.",
    ),
];
