//! Configuration: a TOML file, then the environment (`SWITCHBOARD_SECTION_KEY`), then flags; each goes over the one
//! before it.
//!
//! [`settings`] is what can be written, [`layers`] is where each value came from, and [`Config`] is what it means: checked,
//! with paths and addresses resolved.

mod bounds;
pub mod environment;
mod file;
#[cfg(test)]
mod hostile;
pub mod layers;
pub mod named;
mod node_tokens;
pub mod settings;
mod syntax;

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use self::layers::Layers;
pub use self::node_tokens::NodeTokens;
use self::settings::Settings;
use crate::redact::printable;
use crate::wording::shortened_to;

/// What is told of a mistake. The value that is wrong is a part of it, and may be of any length.
const MAX_MESSAGE: usize = 400;

/// A mistake in the configuration: where it is, what is wrong, what would be right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {}", printable(place), printable(&shortened_to(MAX_MESSAGE, message)))]
pub struct Mistake {
    pub place: String,
    pub message: String,
    /// The key that it is about, whole; empty when it is about more than one, or none.
    pub key: String,
    /// Its line, where it is in the file.
    pub line: Option<usize>,
}

impl Mistake {
    fn new(place: String, message: String) -> Self {
        Self { place, message, key: String::new(), line: None }
    }

    /// As a file is read, from its top; what is not in the file comes after it.
    fn sort(mistakes: &mut [Self]) {
        mistakes.sort_by_key(|mistake| (mistake.line.is_none(), mistake.line));
    }
}

/// Everything that is wrong with the configuration: whoever mends it would rather hear of all at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError(pub Vec<Mistake>);

impl std::fmt::Display for ConfigError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().enumerate().try_for_each(|(number, mistake)| {
            let separator = if number == 0 { "" } else { "\n" };
            write!(f, "{separator}{mistake}")
        })
    }
}

impl std::error::Error for ConfigError {}

/// The configuration as the gateway uses it.
#[derive(Debug, Clone)]
pub struct Config {
    pub listen: SocketAddr,
    pub data_dir: PathBuf,
    pub tls: Option<TlsFiles>,
    pub node_tokens: NodeTokens,
    /// `SWITCHBOARD_KEY`: what seals the settings of plugins and the logins at upstream servers, in place of a key file.
    pub key: Option<sa_vault::Key>,
    /// The file that was read, if there is one.
    pub file: Option<PathBuf>,
    pub settings: Settings,
}

#[derive(Debug, Clone)]
pub struct TlsFiles {
    pub cert: PathBuf,
    pub key: PathBuf,
}

impl Config {
    /// Checks what the layers add up to.
    pub fn resolve(layers: &Layers) -> Result<Self, ConfigError> {
        let settings = layers.settings().map_err(|mistake| ConfigError(vec![mistake]))?;
        let mut mistakes = Vec::new();
        let mut wrong = |key: &str, message: String| {
            mistakes.push(layers.mistake(key, message));
        };
        let listen = resolve_listen(&settings.server.listen);
        if listen.is_none() {
            wrong("server.listen", "must be an address and a port, such as \"127.0.0.1:3210\"".into());
        }
        let tls = match (&*settings.server.tls_cert, &*settings.server.tls_key) {
            ("", "") => None,
            (cert, "") => {
                wrong("server.tls_cert", format!("\"{cert}\" needs server.tls_key beside it"));
                None
            }
            ("", key) => {
                wrong("server.tls_key", format!("\"{key}\" needs server.tls_cert beside it"));
                None
            }
            (cert, key) => Some(TlsFiles { cert: cert.into(), key: key.into() }),
        };
        let open = listen.filter(|listen| !listen.ip().is_loopback() && tls.is_none() && !settings.server.insecure);
        if let Some(listen) = open {
            wrong(
                "server.listen",
                format!(
                    "{listen} is reachable from other machines, and tokens would cross the network in clear text; \
                     set --tls-cert and --tls-key, or --insecure if something in front of it does TLS"
                ),
            );
        }
        check(&settings, &mut wrong);
        let node_tokens = NodeTokens::from_env(layers).unwrap_or_else(|mistake| {
            mistakes.push(mistake);
            NodeTokens::default()
        });
        let data_dir = if settings.data.dir.is_empty() { default_data_dir() } else { settings.data.dir.clone().into() };
        let key = layers.variable("SWITCHBOARD_KEY").filter(|key| !key.is_empty()).map(sa_vault::Key);
        let file = layers.file().map(|file| std::path::absolute(file).unwrap_or_else(|_| file.to_owned()));
        match listen {
            Some(listen) if mistakes.is_empty() => Ok(Self { listen, data_dir, tls, node_tokens, key, file, settings }),
            _ => {
                Mistake::sort(&mut mistakes);
                Err(ConfigError(mistakes))
            }
        }
    }

    /// Makes sure that the files of TLS can be opened. Not a part of [`Config::resolve`]: the commands that are used beside
    /// a gateway read the same configuration, and its private key is not theirs to read.
    pub fn check_files(&self, layers: &Layers) -> Result<(), ConfigError> {
        let Some(tls) = &self.tls else { return Ok(()) };
        let files = [("server.tls_cert", &tls.cert), ("server.tls_key", &tls.key)].into_iter();
        let mistakes: Vec<Mistake> = files
            .filter_map(|(key, file)| {
                let error = std::fs::File::open(file).err()?;
                let message = format!("{} cannot be opened: {error}", file.display());
                Some(layers.mistake(key, message))
            })
            .collect();
        if mistakes.is_empty() { Ok(()) } else { Err(ConfigError(mistakes)) }
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

/// What each setting says by itself, and what some say together.
fn check(settings: &Settings, wrong: &mut impl FnMut(&str, String)) {
    for (key, message) in bounds::violations(settings) {
        wrong(key, message);
    }
    for (name, spec) in &settings.upstream {
        spec.check(name).unwrap_or_else(|error| wrong(&format!("upstream.{name}"), error));
    }
    for (name, spec) in &settings.models {
        spec.check(name).unwrap_or_else(|error| wrong(&format!("models.{name}"), error));
    }
    let sessions = &settings.sessions;
    if !sessions.default_agent.is_empty() && !sessions.agents.contains_key(&sessions.default_agent) {
        wrong("sessions.default_agent", format!("there is no [sessions.agents.{}]", sessions.default_agent));
    }
    for (name, _) in sessions.agents.iter().filter(|(_, agent)| agent.command.is_empty()) {
        let needed = "needs a command: the program and its arguments, such as command = [\"my-agent\"]";
        wrong(&format!("sessions.agents.{name}"), needed.into());
    }
    for entry in &settings.plugins.allow_private {
        sa_plugins::check_private(entry).unwrap_or_else(|error| wrong("plugins.allow_private", error));
    }
    for name in &settings.plugins.settings_headers {
        sa_plugins::check_settings_header(name).unwrap_or_else(|error| wrong("plugins.settings_headers", error));
    }
    if settings.nodes.dead_after_ms <= settings.nodes.ping_interval_ms {
        wrong("nodes.dead_after_ms", "must be more than nodes.ping_interval_ms".into());
    }
    let public = &settings.server.public_url;
    if !public.is_empty() && !is_base(public) {
        wrong("server.public_url", "must be a URL, such as \"https://gw.example.com\"".into());
    }
    if !settings.telemetry.otlp_endpoint.is_empty() && url::Url::parse(&settings.telemetry.otlp_endpoint).is_err() {
        wrong("telemetry.otlp_endpoint", "must be a URL, such as \"http://127.0.0.1:4318\"".into());
    }
    crate::telemetry::check_filter(&settings.log.filter).unwrap_or_else(|error| wrong("log.filter", error));
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

/// Where everything is kept if nobody says where.
pub(crate) fn default_data_dir() -> PathBuf {
    let home = |name: &str, below: &str| {
        std::env::var_os(name).filter(|dir| !dir.is_empty()).map(|dir| Path::new(&dir).join(below))
    };
    home("XDG_DATA_HOME", "switchboard")
        .or_else(|| home("HOME", ".local/share/switchboard"))
        .unwrap_or_else(|| PathBuf::from("switchboard-data"))
}
