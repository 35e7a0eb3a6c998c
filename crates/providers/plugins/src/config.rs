//! `[plugins]`: the configuration of plugins.

use std::num::NonZeroU32;
use std::sync::Arc;

use sa_egress::header::HeaderName;
use sa_limits::budget::SharedBudget;
use sa_settings::address::check_origin;
use sa_settings::{Key, MAX_COUNT, MAX_MESSAGE, MAX_MS, Section, millis};
use sa_text::mask::address;
use sa_vault::Vault;
use serde::{Deserialize, Serialize};

use crate::Options;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
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

impl Default for Settings {
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

impl Settings {
    pub fn options(&self, vault: Arc<Vault>, answers: Arc<SharedBudget>) -> Options {
        Options {
            allow_inline_manifest: self.allow_inline_manifest,
            accept_changes: self.accept_changes,
            allow_private: self.allow_private.clone(),
            settings_headers: self.settings_headers.clone(),
            timeout: millis(self.timeout_ms),
            max_response_bytes: self.max_response_bytes,
            calls_per_second: NonZeroU32::new(self.calls_per_second).unwrap_or(NonZeroU32::MIN),
            max_running: self.max_running,
            refresh: millis(self.refresh_ms),
            vault,
            answers,
        }
    }
}

impl Section for Settings {
    fn keys(&self) -> &'static [Key] {
        KEYS
    }

    fn check(&self, report: &mut dyn FnMut(&str, String)) {
        for origin in &self.allowed_origins {
            check_origin(origin).unwrap_or_else(|why| report("allowed_origins", why));
        }
        for entry in &self.allow_private {
            check_private(entry).unwrap_or_else(|why| report("allow_private", why));
        }
        for name in &self.settings_headers {
            check_settings_header(name).unwrap_or_else(|why| report("settings_headers", why));
        }
    }

    fn addresses(&self) -> &'static [&'static str] {
        &["allow_private", "allowed_origins"]
    }
}

/// Checks an entry of `allow_private`. The message repeats no password.
fn check_private(entry: &str) -> Result<(), String> {
    sa_egress::Allowed::parse(&[entry]).map(drop).map_err(|why| why.replace(entry, &address(entry)))
}

/// Checks that settings can be sent in a header with this name. Headers with another purpose are
/// rejected.
fn check_settings_header(name: &str) -> Result<(), String> {
    const TAKEN: [&str; 9] = [
        "authorization",
        "connection",
        "content-length",
        "content-type",
        "cookie",
        "host",
        "te",
        "traceparent",
        "transfer-encoding",
    ];
    match HeaderName::try_from(name) {
        Ok(name) if TAKEN.contains(&name.as_str()) => Err(format!("\"{name}\" is reserved")),
        Ok(_) => Ok(()),
        Err(_) => Err(format!("\"{name}\" is not a valid header name")),
    }
}

const KEYS: &[Key] = &[
    Key::new(
        "allow_inline_manifest",
        "Allow plugin hosts to send a plugin's manifest, or the URL of an index, with a call. For development.",
    ),
    Key::new(
        "accept_changes",
        "Use a manifest that has changed at its source immediately, without an operator's approval.",
    ),
    Key::new(
        "allow_private",
        "Servers (host:port) that every plugin may call although their address is not public, such as \"localhost:3400\". For development. To allow this for one plugin only, use `switchboard plugin add --allow-private`.",
    ),
    Key::new(
        "allowed_origins",
        "Web origins whose pages may use the plugin gateway and nothing else; see server.allowed_origins.",
    ),
    Key::new("settings_headers", "Headers that pass a user's settings to a plugin server."),
    Key::number("timeout_ms", 1..=MAX_MS, "Timeout of a plugin call, if the caller sets none."),
    Key::number(
        "max_response_bytes",
        1..=MAX_MESSAGE,
        "Maximum size of a response of a plugin server.",
    ),
    Key::number(
        "calls_per_second",
        1..=MAX_COUNT,
        "Maximum number of calls per second for each token and plugin.",
    ),
    Key::number(
        "max_running",
        1..=MAX_COUNT,
        "Maximum number of concurrent calls of one plugin. More calls wait for up to limits.queue_wait_ms.",
    ),
    Key::number(
        "refresh_ms",
        1_000..=MAX_MS,
        "Time between two checks of the manifests at their sources.",
    ),
];
