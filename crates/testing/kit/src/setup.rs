//! The settings of a small gateway.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sa_core::{Pattern, Policy, RouterOptions};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tempfile::TempDir;

use crate::{Gateway, Parts};

/// The settings of a gateway, as in the configuration file and in the environment.
#[derive(Debug, Clone, Default)]
pub struct Setup {
    config: String,
    env: BTreeMap<String, String>,
    dir: Option<Arc<TempDir>>,
    tokens: Option<Arc<crate::MemoryTokens>>,
}

impl Setup {
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends lines to the configuration (TOML).
    #[must_use]
    pub fn config(mut self, toml: &str) -> Self {
        self.config.push_str(toml);
        self.config.push('\n');
        self
    }

    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.insert(name.into(), value.into());
        self
    }

    /// Uses the data directory and the tokens of an earlier gateway.
    #[must_use]
    pub fn on(mut self, former: &Gateway) -> Self {
        self.dir = Some(Arc::clone(&former.inner().dir));
        self.tokens = Some(Arc::clone(&former.inner().tokens));
        self
    }

    /// Starts a gateway with tools, calls, nodes, channels and MCP.
    pub async fn start(self) -> Gateway {
        self.parts().serve(axum::Router::new(), |_| false).await
    }

    /// Creates the parts of a gateway. A crate's tests add their provider or surface to them.
    pub fn parts(self) -> Parts {
        let sections: Sections = toml::from_str(&self.config).unwrap();
        let Limits { reconnect_wait_ms, queue_wait_ms, default_timeout_ms, max_call_ms, .. } =
            sections.limits;
        let options = RouterOptions {
            max_running: sections.limits.pending_total,
            default_timeout: Duration::from_millis(default_timeout_ms),
            max_duration: Duration::from_millis(max_call_ms),
            queue_timeout: Duration::from_millis(queue_wait_ms),
            reconnect_timeout: Duration::from_millis(reconnect_wait_ms),
            ..RouterOptions::default()
        };
        let deny = sections.policy.deny.iter().map(|pattern| Pattern::new(pattern)).collect();
        let dir = self.dir.unwrap_or_else(|| Arc::new(tempfile::tempdir().unwrap()));
        let tokens = self.tokens.unwrap_or_default();
        Parts::new(dir, tokens, options, Policy { deny }, Settings { sections, env: self.env })
    }
}

/// The settings of all parts.
#[derive(Debug, Clone)]
pub struct Settings {
    sections: Sections,
    env: BTreeMap<String, String>,
}

impl Settings {
    /// Returns the section of a provider or a surface. It has the default of all missing keys.
    pub fn section<T: DeserializeOwned>(&self, name: &str) -> T {
        let section = self.sections.others.get(name).cloned();
        let section = section.unwrap_or_else(|| toml::Table::new().into());
        section.try_into().unwrap_or_else(|error| panic!("[{name}]: {error}"))
    }

    pub fn env(&self, name: &str) -> Option<String> {
        self.env.get(name).cloned()
    }

    /// Returns the time for which disconnected providers are remembered.
    pub(crate) fn offline_memory(&self) -> Duration {
        Duration::from_millis(self.section::<Memory>("nodes").offline_memory_ms)
    }

    pub fn limits(&self) -> &Limits {
        &self.sections.limits
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Sections {
    limits: Limits,
    policy: Denied,
    #[serde(flatten)]
    others: toml::Table,
}

#[derive(Debug, Deserialize)]
#[serde(default)]
struct Memory {
    offline_memory_ms: u64,
}

impl Default for Memory {
    fn default() -> Self {
        Self { offline_memory_ms: 600_000 }
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Denied {
    deny: Vec<String>,
}

/// The limits of calls, of requests and of sockets.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    pub pending_per_node: usize,
    pub pending_total: usize,
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
            default_timeout_ms: 60_000,
            max_call_ms: 3_600_000,
            queue_wait_ms: 2_000,
            reconnect_wait_ms: 10_000,
            max_frame_bytes: 16 << 20,
            max_body_bytes: 4 << 20,
            max_outbox_bytes: 16 << 20,
        }
    }
}
