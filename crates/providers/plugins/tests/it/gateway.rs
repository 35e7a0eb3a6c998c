//! A small gateway with plugins.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use sa_plugins::{Options, Plugins};
use sa_testkit::{Gateway, Setup};
use sa_vault::Vault;
use serde::Deserialize;

/// The section `plugins` of the configuration.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Section {
    allow_inline_manifest: bool,
    accept_changes: bool,
    allow_private: Vec<String>,
    timeout_ms: u64,
    max_response_bytes: usize,
    calls_per_second: NonZeroU32,
    max_running: usize,
    refresh_ms: u64,
}

impl Default for Section {
    fn default() -> Self {
        Self {
            allow_inline_manifest: false,
            accept_changes: false,
            allow_private: Vec::new(),
            timeout_ms: 30_000,
            max_response_bytes: 4 << 20,
            calls_per_second: NonZeroU32::new(100).unwrap(),
            max_running: 50,
            refresh_ms: 3_600_000,
        }
    }
}

/// Starts a gateway with plugins.
pub(crate) trait Serve {
    async fn serve(self) -> Gateway;
}

impl Serve for Setup {
    async fn serve(self) -> Gateway {
        let parts = self.parts();
        let section: Section = parts.settings.section("plugins");
        let options = Options {
            allow_inline_manifest: section.allow_inline_manifest,
            accept_changes: section.accept_changes,
            allow_private: section.allow_private,
            settings_headers: sa_protocol::plugin::SETTINGS_HEADERS.map(str::to_owned).into(),
            timeout: Duration::from_millis(section.timeout_ms),
            max_response_bytes: section.max_response_bytes,
            calls_per_second: section.calls_per_second,
            max_running: section.max_running,
            refresh: Duration::from_millis(section.refresh_ms),
            vault: Arc::new(Vault::new(parts.dir.path().join("settings.key"), None)),
            answers: Arc::clone(&parts.answers),
        };
        let records = Arc::new(parts.store.clone());
        let closing = parts.closing.clone();
        let plugins = Plugins::load(Arc::clone(&parts.router), records, options, closing);
        let plugins = plugins.await.unwrap();
        let routes = sa_plugins::http::Routes { http: parts.http(), plugins };
        parts.serve(sa_plugins::http::router().with_state(routes).into(), |_| false).await
    }
}
