//! `[upstream.NAME]`: the configured MCP servers.

use std::collections::BTreeMap;
use std::path::PathBuf;

use sa_settings::{Key, Section, key_of};
use serde::{Deserialize, Serialize};

use crate::Spec;

/// The servers by name.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Settings(pub BTreeMap<String, Spec>);

impl Section for Settings {
    fn keys(&self) -> &'static [Key] {
        KEYS
    }

    fn check(&self, report: &mut dyn FnMut(&str, String)) {
        for (name, spec) in &self.0 {
            spec.check(name).unwrap_or_else(|why| report(&key_of(KEYS, "", name, &why), why));
        }
    }

    fn secrets(&self) -> &'static [&'static str] {
        &["bearer", "client_secret", "env", "headers", "oauth"]
    }

    fn addresses(&self) -> &'static [&'static str] {
        &["url"]
    }

    fn secret_files(&self) -> Vec<PathBuf> {
        self.0.values().flat_map(Spec::secret_files).map(Into::into).collect()
    }
}

const KEYS: &[Key] = &[
    Key::named(
        "NAME.command",
        "[]",
        "Program and arguments of an MCP server that communicates over stdin and stdout.",
    ),
    Key::named(
        "NAME.env",
        "{}",
        "Additional environment variables for the program. A value may be a reference: env:NAME or file:PATH.",
    ),
    Key::named("NAME.cwd", "\"\"", "Working directory of the program."),
    Key::named("NAME.url", "\"\"", "URL of an MCP server, instead of a command."),
    Key::named(
        "NAME.bearer",
        "\"\"",
        "Reference to the server's bearer token: env:NAME or file:PATH.",
    ),
    Key::named(
        "NAME.headers",
        "{}",
        "Additional headers for each request. A value may be a reference, like bearer.",
    ),
    Key::named(
        "NAME.oauth",
        "",
        "OAuth settings for the server: { grant, client_id, client_secret, client_metadata_url, issuer, scopes }. grant is \"client_credentials\" for an account of the gateway itself, or \"authorization_code\" for a user who logs in. client_secret is a reference, like bearer.",
    ),
    Key::named("NAME.enabled", "true", "Use the server."),
    Key::named(
        "NAME.timeout_ms",
        "",
        "Timeout of its tools, if the caller sets none. Default: limits.default_timeout_ms.",
    ),
    Key::named("NAME.max_running", "50", "Maximum number of concurrent calls of the server."),
    Key::named(
        "NAME.isolate",
        "",
        "Use a separate connection or process for each calling token. Default: true for a url, false for a command.",
    ),
];
