//! What can be written in the configuration file, with the default of each key.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    pub server: Server,
    pub data: Data,
    pub limits: Limits,
    pub nodes: Nodes,
    pub channels: Channels,
    pub skills: Skills,
    pub mcp: Mcp,
    /// By name; what each may hold is in `docs/upstream.md`.
    pub upstream: BTreeMap<String, sa_upstream::Spec>,
    /// By name; what each may hold is in `docs/chat.md`.
    pub models: BTreeMap<String, sa_chat::Spec>,
    pub sessions: Sessions,
    pub plugins: Plugins,
    pub journal: Journal,
    pub audit: Audit,
    pub policy: Policy,
    pub trust: Trust,
    pub log: Log,
    pub telemetry: Telemetry,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Server {
    pub listen: String,
    pub insecure: bool,
    pub tls_cert: String,
    pub tls_key: String,
    pub public_url: String,
    pub allowed_hosts: Vec<String>,
    pub allowed_origins: Vec<String>,
    pub max_connections: usize,
    pub workers: usize,
    pub drain_ms: u64,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Data {
    pub dir: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    pub pending_per_node: usize,
    pub pending_total: usize,
    pub pending_bytes: usize,
    pub request_bytes: usize,
    pub argument_bytes: usize,
    pub answer_bytes: usize,
    pub default_timeout_ms: u64,
    pub max_call_ms: u64,
    pub queue_wait_ms: u64,
    pub reconnect_wait_ms: u64,
    pub max_frame_bytes: usize,
    pub max_body_bytes: usize,
    pub max_outbox_bytes: usize,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Nodes {
    pub hello_timeout_ms: u64,
    pub ping_interval_ms: u64,
    pub dead_after_ms: u64,
    pub offline_memory_ms: u64,
    pub max_tools: usize,
    pub message_bytes: usize,
    pub request_bytes: usize,
    pub hello_bytes: usize,
    pub primary: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Channels {
    pub max_message_bytes: usize,
    pub max_attachment_bytes: usize,
    pub max_queue_bytes: usize,
    pub max_messages_per_second: u32,
    pub max_channels: usize,
    pub pending_bytes: usize,
    pub max_stored_bytes: usize,
    pub max_bytes_per_channel: usize,
    pub max_bytes_per_principal: usize,
    pub keep_messages: u64,
    pub keep_days: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Plugins {
    pub allow_inline_manifest: bool,
    pub accept_changes: bool,
    pub allow_private: Vec<String>,
    pub allowed_origins: Vec<String>,
    pub settings_headers: Vec<String>,
    pub timeout_ms: u64,
    pub max_response_bytes: usize,
    pub calls_per_second: u32,
    pub max_running: usize,
    pub refresh_ms: u64,
}

impl Default for Plugins {
    fn default() -> Self {
        Self {
            allow_inline_manifest: false,
            accept_changes: false,
            allow_private: Vec::new(),
            allowed_origins: Vec::new(),
            settings_headers: [
                "X-Sperax-Plugin-Settings",
                "Sperax-Plugin-Settings",
                "SperaxOS-Plugin-Settings",
                "X-Lobe-Plugin-Settings",
            ]
            .map(str::to_owned)
            .into(),
            timeout_ms: 30_000,
            max_response_bytes: 4 * 1024 * 1024,
            calls_per_second: 100,
            max_running: 50,
            refresh_ms: 3_600_000,
        }
    }
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Skills {
    pub dirs: Vec<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Mcp {
    pub search: bool,
    pub session_idle_ms: u64,
    pub max_sessions: usize,
    pub resume_ms: u64,
    pub task_after_ms: u64,
    pub task_result_bytes: usize,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Journal {
    pub keep_calls: u64,
    pub keep_days: u64,
    pub payload_bytes: usize,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Audit {
    pub keep_days: u64,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Policy {
    pub deny: Vec<String>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Trust {
    pub on_change: OnChange,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnChange {
    /// The new definition is listed at once.
    #[default]
    Allow,
    /// The old definition stays listed, and calls fail until an operator accepts the new one.
    Hold,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Log {
    pub filter: String,
    pub format: LogFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Human on a terminal, JSON elsewhere.
    Auto,
    Human,
    Json,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Telemetry {
    pub otlp_endpoint: String,
    pub service_name: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Sessions {
    pub enabled: bool,
    pub caller_timeout_ms: u64,
    pub caller_grace_ms: u64,
    pub idle_ms: u64,
    pub max_open: usize,
    pub max_pending: usize,
    pub keep_events: u64,
    pub default_agent: String,
    pub agents: BTreeMap<String, sa_relay::AgentCommand>,
}

impl Default for Sessions {
    fn default() -> Self {
        Self {
            enabled: true,
            caller_timeout_ms: 60_000,
            caller_grace_ms: 0,
            idle_ms: 86_400_000,
            max_open: 256,
            max_pending: 64,
            keep_events: 10_000,
            default_agent: String::new(),
            agents: BTreeMap::new(),
        }
    }
}

impl Default for Server {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:3210".into(),
            insecure: false,
            tls_cert: String::new(),
            tls_key: String::new(),
            public_url: String::new(),
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            max_connections: 20_000,
            workers: 0,
            drain_ms: 30_000,
        }
    }
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

impl Default for Nodes {
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
        }
    }
}

impl Default for Mcp {
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

impl Default for Channels {
    fn default() -> Self {
        Self {
            max_message_bytes: 1024 * 1024,
            max_attachment_bytes: 25 * 1024 * 1024,
            max_queue_bytes: 64 * 1024 * 1024,
            max_messages_per_second: 20_000,
            max_channels: 10_000,
            pending_bytes: 0,
            max_stored_bytes: 16 * 1024 * 1024 * 1024,
            max_bytes_per_channel: 1024 * 1024 * 1024,
            max_bytes_per_principal: 2 * 1024 * 1024 * 1024,
            keep_messages: 1_000_000,
            keep_days: 365,
        }
    }
}

impl Default for Journal {
    fn default() -> Self {
        Self { keep_calls: 250_000, keep_days: 30, payload_bytes: 4_096 }
    }
}

impl Default for Audit {
    fn default() -> Self {
        Self { keep_days: 365 }
    }
}

impl Default for Log {
    fn default() -> Self {
        Self { filter: "info".into(), format: LogFormat::Auto }
    }
}

impl Default for Telemetry {
    fn default() -> Self {
        Self { otlp_endpoint: String::new(), service_name: "switchboard".into() }
    }
}

/// Those of the keys below that are tables of things with names of their own, which no variable can hold.
pub const FILE_ONLY: [&str; 1] = ["sessions.agents"];

/// What each key means. A test keeps this list and the structs above the same.
pub const KEYS: &[(&str, &str)] = &[
    ("server.listen", "Address and port to listen on. Port 0 takes a free one."),
    ("server.insecure", "Allow an address that other machines reach without TLS."),
    ("server.tls_cert", "PEM file with the certificate chain; turns TLS on."),
    ("server.tls_key", "PEM file with the certificate's private key."),
    (
        "server.public_url",
        "The address by which browsers reach the gateway, such as \"https://gw.example.com\", when something stands in front of it. Empty: the one by which a login at an upstream server was begun.",
    ),
    (
        "server.allowed_hosts",
        "Host names (name or name:port) by which the gateway may be reached, beside its own address.",
    ),
    ("server.allowed_origins", "Web origins, such as \"https://app.example.com\", whose pages may use the gateway."),
    ("server.max_connections", "Connections of all kinds that may be open at once."),
    ("server.workers", "Threads that serve connections. 0 is one for each processor."),
    ("server.drain_ms", "How long running calls may go on after a SIGTERM."),
    ("data.dir", "Where everything is kept; by default $XDG_DATA_HOME/switchboard, else ~/.local/share/switchboard."),
    ("limits.pending_per_node", "Calls that one node may be given at once; more wait for queue_wait_ms."),
    (
        "limits.pending_total",
        "Calls that may run at once in all. Above three quarters, a token with more than an eighth gets no more; a sixteenth is for operators. The other totals are shared by the same rule.",
    ),
    (
        "limits.pending_bytes",
        "All byte budgets in memory together. 0: half of the memory limit (of the control group, else of the machine), at most 2 GiB. See docs/configuration.md for the budgets.",
    ),
    (
        "limits.request_bytes",
        "Large bodies and messages of callers, from their first byte until they are handled. 0: 3/16 of pending_bytes.",
    ),
    ("limits.argument_bytes", "Large arguments of calls that run or wait. 0: 2/16 of pending_bytes."),
    ("limits.answer_bytes", "Large answers that clients have not read yet. 0: 3/16 of pending_bytes."),
    ("limits.default_timeout_ms", "Time limit of a call whose tool and caller set none. Progress extends it."),
    ("limits.max_call_ms", "No call runs longer than this, whatever progress it reports."),
    ("limits.queue_wait_ms", "How long a call waits for a place at a node that is full."),
    (
        "limits.reconnect_wait_ms",
        "How long after a node was lost a call still waits for it to come back; a quarter of it after one that said goodbye.",
    ),
    ("limits.max_frame_bytes", "Largest WebSocket message that is accepted."),
    ("limits.max_body_bytes", "Largest HTTP request body that is accepted."),
    (
        "limits.max_outbox_bytes",
        "What may wait for one connection that reads slowly before it is closed, or for one call's reader of events before the call ends; a call that a node has no room for is refused instead.",
    ),
    ("nodes.hello_timeout_ms", "How long a node may take to introduce itself."),
    ("nodes.ping_interval_ms", "How long a connection may be silent before it is asked for a sign of life."),
    (
        "nodes.dead_after_ms",
        "How long a connection may be silent, or take nothing of what is written to it, before it counts as dead.",
    ),
    (
        "nodes.offline_memory_ms",
        "How long a node that left keeps its names and is listed as offline, also over a restart.",
    ),
    ("nodes.max_tools", "Tools and capabilities that one node may offer."),
    ("nodes.message_bytes", "Large messages of nodes that are still coming in. 0: 2/16 of limits.pending_bytes."),
    ("nodes.request_bytes", "Large requests that nodes have not read yet. 0: 2/16 of limits.pending_bytes."),
    (
        "nodes.hello_bytes",
        "What is kept of the hellos of all nodes, also of nodes that have left, until they are forgotten. 0: 2/16 of limits.pending_bytes.",
    ),
    (
        "nodes.primary",
        "Id of the node on which bare tool names (Bash) run while it is connected. Empty: the execution host that has been here longest.",
    ),
    ("channels.max_message_bytes", "Largest payload of a channel's message."),
    ("channels.max_attachment_bytes", "All attachments of one message together."),
    (
        "channels.max_queue_bytes",
        "What may wait for a participant that reads slowly before it is closed; it can resume where it was.",
    ),
    ("channels.max_messages_per_second", "Messages that one connection may send in a second."),
    ("channels.max_channels", "Channels that there may be."),
    (
        "channels.pending_bytes",
        "Messages of channels that participants have not read yet, in memory. 0: 2/16 of limits.pending_bytes.",
    ),
    ("channels.max_stored_bytes", "Stored messages and attachments of all channels together, on disk."),
    ("channels.max_bytes_per_channel", "Stored messages and attachments of one channel."),
    ("channels.max_bytes_per_principal", "Stored messages and attachments of one token, in all channels together."),
    ("channels.keep_messages", "How many messages each channel keeps."),
    ("channels.keep_days", "For how many days each channel keeps messages."),
    (
        "skills.dirs",
        "Directories with a folder for each skill; ~ is your home. Empty means the directory skills in the data directory.",
    ),
    (
        "mcp.search",
        "List two tools to MCP clients, find_tools and call_tool, instead of all; ?search=1 or 0 in the address decides for one client.",
    ),
    (
        "mcp.session_idle_ms",
        "How long the session of an MCP client (of a revision before 2026-07-28) lives without an open stream or a request.",
    ),
    (
        "mcp.max_sessions",
        "Sessions of MCP clients at once, of about 80 KB each; when there are more, one that is idle goes.",
    ),
    (
        "mcp.resume_ms",
        "How long an MCP client with a session has to come back for a call whose stream broke, before the call is cancelled.",
    ),
    (
        "mcp.task_after_ms",
        "After how long a call becomes a task, which its client asks about later, if the client knows tasks.",
    ),
    (
        "mcp.task_result_bytes",
        "Results of tasks that are kept for a day, on disk. 0: as much as 4/16 of limits.pending_bytes.",
    ),
    ("sessions.enabled", "Whether agents can work in sessions here, with tools that their callers lend them."),
    ("sessions.caller_timeout_ms", "How long a caller may take for one of its tools, where the session does not say."),
    (
        "sessions.caller_grace_ms",
        "How long a caller is waited for after its last stream has closed. By default its pending requests fail at once.",
    ),
    ("sessions.idle_ms", "A session without an agent in which nothing happens for so long is ended."),
    ("sessions.max_open", "Sessions that may be open at once."),
    ("sessions.max_pending", "Calls of one caller's tools that may run at once."),
    ("sessions.keep_events", "Events that are kept of a session."),
    (
        "sessions.default_agent",
        "The agent of a session that names none. Empty: the only one that is configured, else one that connects by itself.",
    ),
    (
        "sessions.agents",
        "Agents by name, each a table [sessions.agents.NAME] with command = [\"…\"]; see docs/sessions.md. Only in the file.",
    ),
    (
        "plugins.allow_inline_manifest",
        "Let plugin hosts bring a plugin's manifest, or the address of an index, along with a call. For development.",
    ),
    ("plugins.accept_changes", "Use a manifest that has changed at its source at once, without an operator's word."),
    (
        "plugins.allow_private",
        "Servers (host:port) that every plugin may call though their address is not public, such as \"localhost:3400\". For development; for one plugin there is: switchboard plugin add --allow-private.",
    ),
    (
        "plugins.allowed_origins",
        "Web origins whose pages may use the plugin gateway, and nothing else; see server.allowed_origins.",
    ),
    ("plugins.settings_headers", "The headers in which a plugin server is sent its user's settings."),
    ("plugins.timeout_ms", "How long a call of a plugin may take, where the caller sets no limit."),
    ("plugins.max_response_bytes", "Largest answer of a plugin server that is taken."),
    ("plugins.calls_per_second", "How often each token may call each plugin."),
    ("plugins.max_running", "Calls that one plugin may be given at once; more wait for limits.queue_wait_ms."),
    ("plugins.refresh_ms", "How often manifests are looked at again at their sources."),
    ("journal.keep_calls", "How many ended calls the history keeps."),
    ("journal.keep_days", "For how many days the history keeps ended calls, and sessions their events."),
    ("journal.payload_bytes", "How much of a call's arguments and result the history keeps; 0 keeps none."),
    ("audit.keep_days", "For how many days audit events are kept."),
    ("policy.deny", "Tools that nobody may call, by any of their names; * stands for any characters."),
    (
        "trust.on_change",
        "What happens when a node or an upstream server changes the definition of a tool: \"allow\" lists it at once, \"hold\" keeps the old one and refuses calls until an operator accepts the change.",
    ),
    ("log.filter", "What is logged, such as \"info\" or \"info,sa_nodes=debug\"."),
    ("log.format", "\"auto\" (human on a terminal, else JSON), \"human\" or \"json\"."),
    (
        "telemetry.otlp_endpoint",
        "OpenTelemetry collector (OTLP over HTTP) to which a span for every call is sent. Empty: none.",
    ),
    ("telemetry.service_name", "The name under which spans are sent."),
];
