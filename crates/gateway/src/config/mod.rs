//! Configuration: a TOML file, then the environment (`SWITCHBOARD_SECTION_KEY`), then flags; each goes over the one
//! before it.
//!
//! [`settings`] is what can be written, [`flags`] what can be typed, [`layers`] is where each value came from, and [`Config`]
//! is what it means: checked, with paths and addresses resolved.

mod bounds;
#[cfg(test)]
mod canary;
pub mod environment;
mod file;
pub mod flags;
#[cfg(test)]
mod hostile;
pub mod layers;
pub mod named;
mod node_tokens;
mod secrets;
pub mod settings;
mod syntax;
pub(crate) mod values;

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use self::layers::Layers;
pub use self::node_tokens::NodeTokens;
use self::settings::Settings;
use crate::redact::printable;
use crate::wording::{quoted, shortened_to};

/// What is told of a mistake. The value that is wrong is a part of it, and may be of any length.
const MAX_MESSAGE: usize = 400;

/// How many mistakes are told: more than anybody mends at once.
const MOST: usize = 20;

/// What is told of a file that nobody can read begins so: what is wrong in it is not known.
pub(crate) const UNREADABLE: &str = "cannot be read";

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

    /// What is told after as many as are told.
    fn and_more(file: Option<&Path>) -> Self {
        let place = file.map_or_else(|| "the configuration".to_owned(), |file| file.display().to_string());
        Self::new(place, "more may be wrong, beyond this".to_owned())
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
        let mut wrong = |key: &str, message: String| match mistakes.len() {
            0..MOST => mistakes.push(layers.mistake(key, message)),
            MOST => mistakes.push(Mistake::and_more(layers.file())),
            _ => {}
        };
        let listen = resolve_listen(&settings.server.listen);
        if listen.is_none() {
            let written = printable(&settings.server.listen);
            let message = format!("must be an address and a port, such as \"127.0.0.1:3210\", and is \"{written}\"");
            wrong("server.listen", message);
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
            (cert, key) => Some(TlsFiles { cert: from_home(cert), key: from_home(key) }),
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
        values::check(&settings, &mut wrong);
        let node_tokens = NodeTokens::from_env(layers).unwrap_or_else(|mistake| {
            mistakes.push(mistake);
            NodeTokens::default()
        });
        let data_dir = if settings.data.dir.is_empty() { default_data_dir() } else { from_home(&settings.data.dir) };
        // What is printed of it is typed elsewhere.
        let data_dir = std::path::absolute(&data_dir).unwrap_or(data_dir);
        let key = layers.variable("SWITCHBOARD_KEY").filter(|key| !key.is_empty()).map(sa_vault::Key::new);
        let key = key.transpose().unwrap_or_else(|error| {
            mistakes.push(of_variable("SWITCHBOARD_KEY", error.to_string()));
            None
        });
        let file = layers.file().map(|file| std::path::absolute(file).unwrap_or_else(|_| file.to_owned()));
        match listen {
            Some(listen) if mistakes.is_empty() => Ok(Self { listen, data_dir, tls, node_tokens, key, file, settings }),
            _ => {
                Mistake::sort(&mut mistakes);
                Err(ConfigError(mistakes))
            }
        }
    }

    /// Makes sure that the files which are named can be used. Not a part of [`Config::resolve`]: the commands that are used
    /// beside a gateway read the same configuration, and its private key is not theirs to read.
    pub fn check_files(&self, layers: &Layers) -> Result<(), ConfigError> {
        let mut mistakes = Vec::new();
        if let Some(tls) = &self.tls {
            let wrong = crate::serve::check_tls(tls);
            mistakes.extend(wrong.into_iter().map(|(key, message)| layers.mistake(key, message)));
        }
        if self.data_dir.exists() && !self.data_dir.is_dir() {
            let message =
                format!("{} is no directory; name one, which is made if it is not there", self.data_dir.display());
            mistakes.push(layers.mistake("data.dir", message));
        }
        Mistake::sort(&mut mistakes);
        if mistakes.is_empty() { Ok(()) } else { Err(ConfigError(mistakes)) }
    }

    /// What is typed behind the program's name for a command to be about this gateway: nothing, where its data directory is
    /// the usual one.
    pub fn options(&self) -> String {
        let whole = |dir: &Path| std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
        let dir = whole(&self.data_dir);
        if dir == whole(&default_data_dir()) {
            return String::new();
        }
        format!(" --data-dir {}", quoted(&dir.display().to_string()))
    }

    /// A command about this gateway, as somebody would type it.
    pub fn typed(&self, command: &str) -> String {
        format!("switchboard{} {command}", self.options())
    }

    /// Where skills are looked for.
    pub fn skill_dirs(&self) -> Vec<PathBuf> {
        if self.settings.skills.dirs.is_empty() {
            return vec![self.data_dir.join("skills")];
        }
        self.settings.skills.dirs.iter().map(|dir| from_home(dir)).collect()
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

/// A mistake in a variable that sets no key.
fn of_variable(name: &str, message: String) -> Mistake {
    Mistake { key: name.to_owned(), ..Mistake::new(format!("the environment variable {name}"), message) }
}

/// A path as it is written in a file, where no shell has put the home directory in the place of `~`.
fn from_home(path: &str) -> PathBuf {
    let home = || std::env::var_os("HOME").map(PathBuf::from);
    path.strip_prefix("~/").and_then(|below| Some(home()?.join(below))).unwrap_or_else(|| path.into())
}

pub(crate) fn millis(ms: u64) -> Duration {
    Duration::from_millis(ms)
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
