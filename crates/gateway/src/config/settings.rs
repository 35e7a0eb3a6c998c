//! The keys of the configuration file and their defaults.

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
    /// The upstream servers by name; see `docs/upstream.md`.
    pub upstream: BTreeMap<String, sa_upstream::Spec>,
    /// The models by name; see `docs/chat.md`.
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
    /// The new definition is listed immediately.
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
    /// Human-readable on a terminal, JSON otherwise.
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
    pub keep_event_bytes: u64,
    pub max_stored_bytes: usize,
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
            keep_event_bytes: 16 * 1024 * 1024,
            max_stored_bytes: 4 * 1024 * 1024 * 1024,
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
