//! The sections of the configuration that belong to the gateway itself.

use sa_settings::address::{check_base, check_host, check_origin, write};
use sa_settings::{Key, MAX_COUNT, MAX_DAYS, MAX_MESSAGE, MAX_MS, Section};
use sa_text::mask::address;
use sa_text::printable;
use serde::{Deserialize, Serialize};

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

impl Section for Server {
    fn keys(&self) -> &'static [Key] {
        const KEYS: &[Key] = &[
            Key::new("listen", "Address and port to listen on. Port 0 selects a free port."),
            Key::new(
                "insecure",
                "Allow listening without TLS on an address that other machines can reach.",
            ),
            Key::new("tls_cert", "PEM file with the certificate chain. Enables TLS."),
            Key::new("tls_key", "PEM file with the private key of the certificate."),
            Key::new(
                "public_url",
                "URL by which browsers reach the gateway, such as \"https://gw.example.com\", if a proxy is in front of it. Empty: the URL that was used to start the login to an upstream server.",
            ),
            Key::new(
                "allowed_hosts",
                "Host names (name or name:port) that clients may use for the gateway, in addition to its own address.",
            ),
            Key::new(
                "allowed_origins",
                "Web origins, such as \"https://app.example.com\", whose pages may use the gateway.",
            ),
            Key::number(
                "max_connections",
                1..=MAX_COUNT,
                "Maximum number of open connections of all kinds.",
            ),
            Key::number(
                "workers",
                0..=1_024,
                "Number of threads that serve connections. 0: one for each processor.",
            ),
            Key::number(
                "drain_ms",
                0..=MAX_MS,
                "Maximum time that running calls may continue after a SIGTERM.",
            ),
        ];
        KEYS
    }

    fn check(&self, report: &mut dyn FnMut(&str, String)) {
        for host in &self.allowed_hosts {
            check_host(host).unwrap_or_else(|why| report("allowed_hosts", why));
        }
        for origin in &self.allowed_origins {
            check_origin(origin).unwrap_or_else(|why| report("allowed_origins", why));
        }
        if !self.public_url.is_empty() {
            check_base(&self.public_url, "https://gw.example.com")
                .unwrap_or_else(|why| report("public_url", why));
        }
    }

    fn addresses(&self) -> &'static [&'static str] {
        &["allowed_hosts", "allowed_origins", "public_url"]
    }
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Data {
    pub dir: String,
}

impl Section for Data {
    fn keys(&self) -> &'static [Key] {
        const KEYS: &[Key] = &[Key::new(
            "dir",
            "Directory for all stored data. Default: $XDG_DATA_HOME/switchboard, or else ~/.local/share/switchboard.",
        )];
        KEYS
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Journal {
    pub keep_calls: u64,
    pub keep_days: u64,
    pub payload_bytes: usize,
}

impl Default for Journal {
    fn default() -> Self {
        Self { keep_calls: 250_000, keep_days: 30, payload_bytes: 4_096 }
    }
}

impl Section for Journal {
    fn keys(&self) -> &'static [Key] {
        const KEYS: &[Key] = &[
            Key::number(
                "keep_calls",
                1..=u64::MAX >> 1,
                "Number of ended calls that the history keeps.",
            ),
            Key::number(
                "keep_days",
                1..=MAX_DAYS,
                "Number of days that the history keeps ended calls, and the events of sessions.",
            ),
            Key::number(
                "payload_bytes",
                0..=MAX_MESSAGE,
                "Maximum size of a call's arguments and of its result to keep in the history. 0: keep none.",
            ),
        ];
        KEYS
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Audit {
    pub keep_days: u64,
}

impl Default for Audit {
    fn default() -> Self {
        Self { keep_days: 365 }
    }
}

impl Section for Audit {
    fn keys(&self) -> &'static [Key] {
        const KEYS: &[Key] =
            &[Key::number("keep_days", 1..=MAX_DAYS, "Number of days that audit events are kept.")];
        KEYS
    }
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Policy {
    pub deny: Vec<String>,
}

impl Section for Policy {
    fn keys(&self) -> &'static [Key] {
        const KEYS: &[Key] = &[Key::new(
            "deny",
            "Tools that no caller may use, by any of their names; * matches any characters.",
        )];
        KEYS
    }

    fn check(&self, report: &mut dyn FnMut(&str, String)) {
        for pattern in &self.deny {
            check_pattern(pattern).unwrap_or_else(|why| report("deny", why));
        }
    }
}

/// Checks a deny pattern. A pattern that cannot match any name would silently deny nothing.
fn check_pattern(pattern: &str) -> Result<(), String> {
    if !pattern.is_empty() && pattern.trim() == pattern && !pattern.contains(char::is_control) {
        return Ok(());
    }
    let instead = match pattern.trim() {
        trimmed if !trimmed.is_empty() && !trimmed.contains(char::is_control) => write(trimmed),
        _ => "write a name or a pattern, such as \"*__Bash\"".to_owned(),
    };
    Err(format!("\"{}\" cannot match the name of a tool; {instead}", printable(pattern)))
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

impl Section for Trust {
    fn keys(&self) -> &'static [Key] {
        const KEYS: &[Key] = &[Key::new(
            "on_change",
            "Policy for changed tool definitions of nodes and upstream servers. \"allow\" lists the new definition immediately. \"hold\" keeps the old definition and refuses calls until an operator accepts the change.",
        )];
        KEYS
    }
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

impl Default for Log {
    fn default() -> Self {
        Self { filter: "info".into(), format: LogFormat::Auto }
    }
}

impl Section for Log {
    fn keys(&self) -> &'static [Key] {
        const KEYS: &[Key] = &[
            Key::new("filter", "Log filter, such as \"info\" or \"info,sa_nodes=debug\"."),
            Key::new(
                "format",
                "Log format: \"auto\" (human on a terminal, else JSON), \"human\" or \"json\".",
            ),
        ];
        KEYS
    }

    fn check(&self, report: &mut dyn FnMut(&str, String)) {
        crate::telemetry::check_filter(&self.filter).unwrap_or_else(|why| report("filter", why));
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Telemetry {
    pub otlp_endpoint: String,
    pub service_name: String,
}

impl Default for Telemetry {
    fn default() -> Self {
        Self { otlp_endpoint: String::new(), service_name: "switchboard".into() }
    }
}

impl Section for Telemetry {
    fn keys(&self) -> &'static [Key] {
        const KEYS: &[Key] = &[
            Key::new(
                "otlp_endpoint",
                "URL of an OpenTelemetry collector (OTLP over HTTP) that receives a span for every call. Empty: send no spans.",
            ),
            Key::new("service_name", "Service name in the spans."),
        ];
        KEYS
    }

    fn check(&self, report: &mut dyn FnMut(&str, String)) {
        let endpoint = &self.otlp_endpoint;
        if !endpoint.is_empty() {
            check_base(endpoint, "http://127.0.0.1:4318")
                .unwrap_or_else(|why| report("otlp_endpoint", why));
        }
        if let Some(base) = endpoint.trim_end_matches('/').strip_suffix("/v1/traces") {
            let correction = write(&address(base));
            report(
                "otlp_endpoint",
                format!("must not end with /v1/traces, which is added to it; {correction}"),
            );
        }
        if self.service_name.trim().is_empty() {
            let message = "must not be empty; write a name such as \"switchboard\"";
            report("service_name", message.into());
        }
    }

    fn addresses(&self) -> &'static [&'static str] {
        &["otlp_endpoint"]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_that_no_name_matches_is_none() {
        let check = |entry: &str, instead: &str| {
            let told = check_pattern(entry).unwrap_err();
            assert!(told.ends_with(instead), "{entry}: {told}");
        };
        for right in ["Bash", "*", "*__Bash", "macos.notes.*", "a tool"] {
            assert_eq!(check_pattern(right), Ok(()));
        }
        check(" Bash", "write \"Bash\"");
        check("", "such as \"*__Bash\"");
        check("a\u{7}", "such as \"*__Bash\"");
    }
}
