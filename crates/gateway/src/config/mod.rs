//! Configuration from three sources: a TOML file, environment variables
//! (`SWITCHBOARD_SECTION_KEY`), and flags. Each source overrides the ones before it.
//!
//! Each crate describes its section of the file; [`settings`] describes the gateway's own sections.
//! [`flags`] defines the command line flags, and [`layers`] the source of each value. [`Config`] is
//! the checked result, with paths and addresses resolved.

mod bounds;
pub mod environment;
mod file;
pub mod flags;
pub mod keys;
pub mod layers;
mod secrets;
pub mod settings;
mod syntax;

use sa_settings::from_home;
use sa_text::{excerpt, printable, quote};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use self::layers::Layers;
use crate::assemble::Settings;

/// The maximum length of a mistake's message. It may contain the wrong value, which can have any
/// length.
const MAX_MESSAGE: usize = 400;

/// The maximum number of reported mistakes.
const MOST: usize = 20;

/// The prefix of the message for a file that cannot be read. Other mistakes in such a file are
/// unknown.
pub const UNREADABLE: &str = "cannot be read";

/// A mistake in the configuration: its location, the problem, and the expected value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {}", printable(place), printable(&excerpt(MAX_MESSAGE, message)))]
pub struct Mistake {
    pub place: String,
    pub message: String,
    /// The full key. Empty if the mistake concerns no key or several keys.
    pub key: String,
    /// The line in the file, if the mistake is in the file.
    pub line: Option<usize>,
}

impl Mistake {
    fn new(place: String, message: String) -> Self {
        Self { place, message, key: String::new(), line: None }
    }

    /// Creates the final entry of a truncated list of mistakes.
    fn and_more(file: Option<&Path>) -> Self {
        let place =
            file.map_or_else(|| "the configuration".to_owned(), |file| file.display().to_string());
        Self::new(place, "there may be more mistakes".to_owned())
    }

    /// Sorts the mistakes by line. Mistakes outside of the file come last.
    fn sort(mistakes: &mut [Self]) {
        mistakes.sort_by_key(|mistake| (mistake.line.is_none(), mistake.line));
    }
}

/// All mistakes in the configuration. They are reported together, so that they can be fixed at
/// once.
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

/// Defines the struct with all sections of the configuration. Each line is the name and the type of
/// one section.
macro_rules! sections {
    ($($name:ident: $section:ty,)*) => {
        /// All sections of the configuration.
        #[derive(Debug, Clone, Default, serde::Serialize, serde::Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub struct Settings {
            $(pub $name: $section,)*
        }

        impl Settings {
            /// Returns the sections with their names.
            pub(crate) fn sections(&self) -> Vec<(&'static str, &dyn sa_settings::Section)> {
                vec![$((stringify!($name), &self.$name),)*]
            }

            /// Returns the sections with their names.
            pub(crate) fn sections_mut(
                &mut self,
            ) -> Vec<(&'static str, &mut dyn sa_settings::Section)> {
                vec![$((stringify!($name), &mut self.$name),)*]
            }
        }
    };
}
pub(crate) use sections;

/// The configuration as used by the gateway.
#[derive(Debug, Clone)]
pub struct Config {
    pub listen: SocketAddr,
    pub data_dir: PathBuf,
    pub tls: Option<TlsFiles>,
    /// `SWITCHBOARD_KEY`: the key that encrypts plugin settings and upstream logins, instead of a
    /// key file.
    pub key: Option<sa_vault::Key>,
    /// The path of the file that was read, if any.
    pub file: Option<PathBuf>,
    pub settings: Settings,
}

#[derive(Debug, Clone)]
pub struct TlsFiles {
    pub cert: PathBuf,
    pub key: PathBuf,
}

impl Config {
    /// Checks and resolves the merged settings.
    pub fn resolve(layers: &Layers) -> Result<Self, ConfigError> {
        let mut settings = layers.settings().map_err(|mistake| ConfigError(vec![mistake]))?;
        let mut mistakes = Vec::new();
        let mut wrong = |key: &str, message: String| match mistakes.len() {
            0..MOST => mistakes.push(layers.mistake(key, message)),
            MOST => mistakes.push(Mistake::and_more(layers.file())),
            _ => {}
        };
        let listen = resolve_listen(&settings.server.listen);
        if listen.is_none() {
            let written = printable(&settings.server.listen);
            let message = format!(
                "must be an address and a port, such as \"127.0.0.1:3210\", and is \"{written}\""
            );
            wrong("server.listen", message);
        }
        let tls = match (&*settings.server.tls_cert, &*settings.server.tls_key) {
            ("", "") => None,
            (cert, "") => {
                wrong("server.tls_cert", format!("\"{cert}\" also needs server.tls_key"));
                None
            }
            ("", key) => {
                wrong("server.tls_key", format!("\"{key}\" also needs server.tls_cert"));
                None
            }
            (cert, key) => Some(TlsFiles { cert: from_home(cert), key: from_home(key) }),
        };
        let open = listen.filter(|listen| {
            !listen.ip().is_loopback() && tls.is_none() && !settings.server.insecure
        });
        if let Some(listen) = open {
            wrong(
                "server.listen",
                format!(
                    "{listen} is reachable from other machines, and tokens would cross the network in clear text; \
                     set --tls-cert and --tls-key, or --insecure if a proxy in front of it provides TLS"
                ),
            );
        }
        check(&settings, &mut wrong);
        for (_, section) in settings.sections_mut() {
            let read = section.read_variables(&|name| layers.variable(name));
            mistakes.extend(read.err().map(|(name, message)| of_variable(name, message)));
        }
        let data_dir = if settings.data.dir.is_empty() {
            default_data_dir()
        } else {
            from_home(&settings.data.dir)
        };
        // The path is made absolute, because printed commands may be run in another directory.
        let data_dir = std::path::absolute(&data_dir).unwrap_or(data_dir);
        let key = layers
            .variable("SWITCHBOARD_KEY")
            .filter(|key| !key.is_empty())
            .map(sa_vault::Key::new);
        let key = key.transpose().unwrap_or_else(|error| {
            mistakes.push(of_variable("SWITCHBOARD_KEY", error.to_string()));
            None
        });
        let file =
            layers.file().map(|file| std::path::absolute(file).unwrap_or_else(|_| file.to_owned()));
        match listen {
            Some(listen) if mistakes.is_empty() => {
                Ok(Self { listen, data_dir, tls, key, file, settings })
            }
            _ => {
                Mistake::sort(&mut mistakes);
                Err(ConfigError(mistakes))
            }
        }
    }

    /// Checks that the configured files can be used. This is separate from [`Config::resolve`],
    /// because other commands read the same configuration without access to the private key.
    pub fn check_files(&self, layers: &Layers) -> Result<(), ConfigError> {
        let mut mistakes = Vec::new();
        if let Some(tls) = &self.tls {
            let wrong = crate::serve::check_tls(tls);
            mistakes.extend(wrong.into_iter().map(|(key, message)| layers.mistake(key, message)));
        }
        if self.data_dir.exists() && !self.data_dir.is_dir() {
            let message = format!(
                "{} is not a directory; set the path of a directory, which is created if it does not exist",
                self.data_dir.display()
            );
            mistakes.push(layers.mistake("data.dir", message));
        }
        Mistake::sort(&mut mistakes);
        if mistakes.is_empty() { Ok(()) } else { Err(ConfigError(mistakes)) }
    }

    /// Returns the options with which a command selects this gateway. Empty if the data directory
    /// is the default one.
    pub fn options(&self) -> String {
        let whole = |dir: &Path| std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
        let dir = whole(&self.data_dir);
        if dir == whole(&default_data_dir()) {
            return String::new();
        }
        format!(" --data-dir {}", quote(&dir.display().to_string()))
    }

    /// Returns a command line for this gateway.
    pub fn typed(&self, command: &str) -> String {
        format!("switchboard{} {command}", self.options())
    }

    /// Returns the files outside of the data directory that sandboxed agents must not see: the
    /// configuration, the TLS key, and the files that the configuration names for secrets.
    pub fn secret_files(&self) -> Vec<PathBuf> {
        let sections = self.settings.sections().into_iter();
        let named = sections
            .flat_map(|(_, section)| section.secret_files())
            .map(|path| std::path::absolute(&path).unwrap_or(path));
        let own = self.file.iter().chain(self.tls.iter().map(|tls| &tls.key)).cloned();
        let mut files: Vec<PathBuf> = own.chain(named).collect();
        files.sort();
        files.dedup();
        files
    }

    /// Returns the path of the store, which holds all records.
    pub fn store_file(&self) -> PathBuf {
        self.data_dir.join("switchboard.db")
    }

    pub fn operator_token_file(&self) -> PathBuf {
        self.data_dir.join("operator.token")
    }

    /// Returns the path of the file with the running gateway's address. Other commands read it to
    /// find the gateway.
    pub fn endpoint_file(&self) -> PathBuf {
        self.data_dir.join("endpoint")
    }
}

/// Creates a mistake about a variable that is not a configuration key.
fn of_variable(name: &str, message: String) -> Mistake {
    Mistake {
        key: name.to_owned(),
        ..Mistake::new(format!("the environment variable {name}"), message)
    }
}

/// Reports each value that cannot work, with its key.
fn check(settings: &Settings, wrong: &mut impl FnMut(&str, String)) {
    for (key, message) in bounds::violations(settings) {
        wrong(key, message);
    }
    for (name, section) in settings.sections() {
        section.check(&mut |key, message| wrong(&format!("{name}.{key}"), message));
    }
}

fn resolve_listen(text: &str) -> Option<SocketAddr> {
    if let Some(port) = text.strip_prefix("localhost:") {
        return Some(SocketAddr::new(IpAddr::from([127, 0, 0, 1]), port.parse().ok()?));
    }
    text.parse().ok()
}

/// Returns the default data directory.
pub fn default_data_dir() -> PathBuf {
    let home = |name: &str, below: &str| {
        std::env::var_os(name).filter(|dir| !dir.is_empty()).map(|dir| Path::new(&dir).join(below))
    };
    home("XDG_DATA_HOME", "switchboard")
        .or_else(|| home("HOME", ".local/share/switchboard"))
        .unwrap_or_else(|| PathBuf::from("switchboard-data"))
}
