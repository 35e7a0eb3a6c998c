//! Configuration: a TOML file, then the environment (`SWITCHBOARD_SECTION_KEY`), then flags; each goes over the one
//! before it.
//!
//! [`settings`] is what can be written, [`layers`] is where each value came from, and [`Config`] is what it means: checked,
//! with paths and addresses resolved.

mod bounds;
pub mod layers;
pub mod named;
pub mod settings;

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use self::layers::Layers;
use self::settings::Settings;

/// A mistake in the configuration: where it is, what is wrong, what would be right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {message}")]
pub struct ConfigError {
    pub place: String,
    pub message: String,
}

/// The configuration as the gateway uses it.
#[derive(Debug, Clone)]
pub struct Config {
    pub listen: SocketAddr,
    pub data_dir: PathBuf,
    pub tls: Option<TlsFiles>,
    pub node_tokens: NodeTokens,
    /// `SWITCHBOARD_KEY`: what seals the settings of plugins and the logins at upstream servers, in place of a key file.
    pub key: Option<sa_vault::Key>,
    pub settings: Settings,
}

#[derive(Debug, Clone)]
pub struct TlsFiles {
    pub cert: PathBuf,
    pub key: PathBuf,
}

/// Tokens for nodes that come from the environment.
#[derive(Clone, Default)]
pub struct NodeTokens {
    /// `SA_NODE_TOKEN`: any node may use it.
    pub shared: Option<String>,
    /// `SA_NODE_TOKENS`: each for one node id.
    pub bound: Vec<(String, String)>,
}

impl std::fmt::Debug for NodeTokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NodeTokens(shared: {}, bound: {})", self.shared.is_some(), self.bound.len())
    }
}

impl Config {
    /// Checks what the layers add up to.
    pub fn resolve(layers: &Layers) -> Result<Self, ConfigError> {
        let settings = layers.settings()?;
        let wrong = |key: &str, message: String| ConfigError { place: layers.place_of(key), message };

        let listen: SocketAddr = resolve_listen(&settings.server.listen).ok_or_else(|| {
            wrong("server.listen", "must be an address and a port, such as \"127.0.0.1:3210\"".into())
        })?;
        let tls = match (&*settings.server.tls_cert, &*settings.server.tls_key) {
            ("", "") => None,
            (cert, "") => return Err(wrong("server.tls_cert", format!("\"{cert}\" needs server.tls_key beside it"))),
            ("", key) => return Err(wrong("server.tls_key", format!("\"{key}\" needs server.tls_cert beside it"))),
            (cert, key) => Some(TlsFiles { cert: cert.into(), key: key.into() }),
        };
        if !listen.ip().is_loopback() && tls.is_none() && !settings.server.insecure {
            return Err(wrong(
                "server.listen",
                format!(
                    "{listen} is reachable from other machines, and tokens would cross the network in clear text; \
                     set --tls-cert and --tls-key, or --insecure if something in front of it does TLS"
                ),
            ));
        }
        if let Some((key, message)) = bounds::violation(&settings) {
            return Err(wrong(key, message));
        }
        for (name, spec) in &settings.upstream {
            spec.check(name).map_err(|error| wrong(&format!("upstream.{name}"), error))?;
        }
        for (name, spec) in &settings.models {
            spec.check(name).map_err(|error| wrong(&format!("models.{name}"), error))?;
        }
        let sessions = &settings.sessions;
        if !sessions.default_agent.is_empty() && !sessions.agents.contains_key(&sessions.default_agent) {
            let message = format!("there is no [sessions.agents.{}]", sessions.default_agent);
            return Err(wrong("sessions.default_agent", message));
        }
        if let Some((name, _)) = sessions.agents.iter().find(|(_, agent)| agent.command.is_empty()) {
            return Err(wrong("sessions.agents", format!("the command of \"{name}\" must have a program in it")));
        }
        for entry in &settings.plugins.allow_private {
            sa_plugins::check_private(entry).map_err(|error| wrong("plugins.allow_private", error))?;
        }
        for name in &settings.plugins.settings_headers {
            sa_plugins::check_settings_header(name).map_err(|error| wrong("plugins.settings_headers", error))?;
        }
        if settings.nodes.dead_after_ms <= settings.nodes.ping_interval_ms {
            return Err(wrong("nodes.dead_after_ms", "must be more than nodes.ping_interval_ms".into()));
        }
        let public = &settings.server.public_url;
        if !public.is_empty() && !is_base(public) {
            return Err(wrong("server.public_url", "must be a URL, such as \"https://gw.example.com\"".into()));
        }
        if !settings.telemetry.otlp_endpoint.is_empty() && url::Url::parse(&settings.telemetry.otlp_endpoint).is_err() {
            return Err(wrong("telemetry.otlp_endpoint", "must be a URL, such as \"http://127.0.0.1:4318\"".into()));
        }
        crate::telemetry::check_filter(&settings.log.filter).map_err(|error| wrong("log.filter", error))?;
        let data_dir = if settings.data.dir.is_empty() { default_data_dir() } else { settings.data.dir.clone().into() };
        let key = layers.variable("SWITCHBOARD_KEY").filter(|key| !key.is_empty()).map(sa_vault::Key);
        Ok(Self { listen, data_dir, tls, node_tokens: NodeTokens::from_env(layers)?, key, settings })
    }

    /// Makes sure that the files of TLS can be opened. Not a part of [`Config::resolve`]: the commands that are used beside
    /// a gateway read the same configuration, and its private key is not theirs to read.
    pub fn check_files(&self, layers: &Layers) -> Result<(), ConfigError> {
        let Some(tls) = &self.tls else { return Ok(()) };
        for (key, file) in [("server.tls_cert", &tls.cert), ("server.tls_key", &tls.key)] {
            std::fs::File::open(file).map_err(|error| ConfigError {
                place: layers.place_of(key),
                message: format!("{} cannot be opened: {error}", file.display()),
            })?;
        }
        Ok(())
    }

    /// Where skills are looked for.
    pub fn skill_dirs(&self) -> Vec<PathBuf> {
        if self.settings.skills.dirs.is_empty() {
            return vec![self.data_dir.join("skills")];
        }
        let home = std::env::var_os("HOME").map(PathBuf::from);
        let from_home = |dir: &String| Some(home.as_ref()?.join(dir.strip_prefix("~/")?));
        self.settings.skills.dirs.iter().map(|dir| from_home(dir).unwrap_or_else(|| dir.into())).collect()
    }

    /// The one file behind all records.
    pub fn store_file(&self) -> PathBuf {
        self.data_dir.join("switchboard.db")
    }

    pub fn operator_token_file(&self) -> PathBuf {
        self.data_dir.join("operator.token")
    }

    /// Where a running gateway leaves its address, for the commands that are used beside it.
    pub fn endpoint_file(&self) -> PathBuf {
        self.data_dir.join("endpoint")
    }
}

impl NodeTokens {
    fn from_env(layers: &Layers) -> Result<Self, ConfigError> {
        let shared = layers.variable("SA_NODE_TOKEN").filter(|token| !token.is_empty());
        let mut bound = Vec::new();
        for pair in
            layers.variable("SA_NODE_TOKENS").unwrap_or_default().split(',').filter(|pair| !pair.trim().is_empty())
        {
            // An id may hold colons (`linux:laptop`), a token of ours never does.
            match pair.trim().rsplit_once(':') {
                Some((id, token)) if !id.is_empty() && !token.is_empty() => bound.push((id.into(), token.into())),
                _ => {
                    return Err(ConfigError {
                        place: "the environment variable SA_NODE_TOKENS".into(),
                        message: "must be a list of id:token pairs with commas between them".into(),
                    });
                }
            }
        }
        Ok(Self { shared, bound })
    }

    pub fn is_empty(&self) -> bool {
        self.shared.is_none() && self.bound.is_empty()
    }
}

pub(crate) fn millis(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Whether a path can be put behind it.
fn is_base(text: &str) -> bool {
    url::Url::parse(text).is_ok_and(|url| {
        let plain = url.query().is_none() && url.fragment().is_none() && url.username().is_empty();
        matches!(url.scheme(), "http" | "https") && url.has_host() && plain
    })
}

fn resolve_listen(text: &str) -> Option<SocketAddr> {
    if let Some(port) = text.strip_prefix("localhost:") {
        return Some(SocketAddr::new(IpAddr::from([127, 0, 0, 1]), port.parse().ok()?));
    }
    text.parse().ok()
}

fn default_data_dir() -> PathBuf {
    let home = |name: &str, below: &str| {
        std::env::var_os(name).filter(|dir| !dir.is_empty()).map(|dir| Path::new(&dir).join(below))
    };
    home("XDG_DATA_HOME", "switchboard")
        .or_else(|| home("HOME", ".local/share/switchboard"))
        .unwrap_or_else(|| PathBuf::from("switchboard-data"))
}
