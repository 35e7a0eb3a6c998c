//! Which gateway a command talks to, and with which token.

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use sa_core::mask::address;
use sa_vault::bounded;
use tower::BoxError;
use tower::filter::Predicate;

use super::output::Failure;
use super::port;
use crate::config::Config;
use crate::config::layers::Layers;
use crate::config::settings::Server;

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Reach {
    /// The gateway's address; by default the one that runs on this data directory.
    #[arg(long, global = true, help_heading = "Global options", value_name = "URL", env = "SWITCHBOARD_URL")]
    pub(super) url: Option<String>,
    /// File with the token to use; SWITCHBOARD_TOKEN (for `node`: SA_NODE_TOKEN) works as well. By default the operator's,
    /// for the gateway on this machine alone; a node has none.
    #[arg(long, global = true, help_heading = "Global options", value_name = "FILE")]
    pub(super) token_file: Option<PathBuf>,
    /// Certificate (PEM) to trust, beside the system's.
    #[arg(long, global = true, help_heading = "Global options", value_name = "FILE", env = "SWITCHBOARD_CA")]
    pub(super) ca: Option<PathBuf>,
}

/// Those to trust beside whom the system trusts; mostly nobody.
#[derive(Default)]
pub(super) struct Trusted {
    pub(super) pem: Vec<u8>,
    pub(super) certificates: Vec<reqwest::Certificate>,
}

/// The gateway that was found.
pub(super) struct Found {
    pub(super) base: String,
    pub(super) token: String,
    /// Shown when the gateway cannot be reached.
    pub(super) origin: String,
    /// What to do when the token is not taken, where somebody has chosen it.
    pub(super) token_from: Option<String>,
    /// Where the token is the operator's: the gateway that it is for.
    pub(super) own: Option<Own>,
}

/// The gateway on a data directory, at the address that it has there.
#[derive(Debug, Clone)]
pub(super) struct Own {
    base: String,
    endpoint: PathBuf,
    store: PathBuf,
}

impl Own {
    fn new(config: &Config, base: String) -> Self {
        Self { base, endpoint: config.endpoint_file(), store: config.store_file() }
    }

    /// Whether it runs, and is still there. One that was killed has left its address, and holds its store no longer.
    fn is_there(&self) -> bool {
        endpoint(&self.endpoint).is_some_and(|left| left == self.base) && sa_store::is_held(&self.store)
    }
}

/// Asked before each connection: a command may outlive its gateway, and somebody else may listen in its place by then.
impl<R> Predicate<R> for Own {
    type Request = R;

    fn check(&mut self, connection: R) -> Result<R, BoxError> {
        if self.is_there() {
            Ok(connection)
        } else {
            Err("the gateway of the data directory does not run there any more".into())
        }
    }
}

fn endpoint(file: &Path) -> Option<String> {
    bounded::text_of_file(file, bounded::TOKEN).ok().map(|url| url.trim().to_owned())
}

impl Reach {
    /// An empty variable counts as unset. An empty `--url` is a mistake.
    pub(super) fn without_empty_variable(mut self, variable: Option<&OsStr>) -> Self {
        self.url = self.url.filter(|url| !(url.is_empty() && variable.is_some_and(OsStr::is_empty)));
        self
    }

    /// Whom `--ca` names.
    pub(super) fn trusted(&self) -> Result<Trusted, Failure> {
        let Some(file) = &self.ca else { return Ok(Trusted::default()) };
        let unusable = |error: &dyn std::error::Error| Failure::usage(format!("{}: {error}", file.display()));
        // Read once: it may be a pipe that a shell has made.
        let pem = bounded::bytes(file, bounded::PEM).map_err(|error| unusable(&error))?;
        let certificates = reqwest::Certificate::from_pem_bundle(&pem).map_err(|error| unusable(&error))?;
        if certificates.is_empty() {
            return Err(Failure::usage(format!("{} holds no certificate", file.display()))
                .hint("--ca and SWITCHBOARD_CA name a PEM file, with a line BEGIN CERTIFICATE"));
        }
        Ok(Trusted { pem, certificates })
    }

    pub(super) fn find(&self, config: &Config, layers: &Layers) -> Result<Found, Failure> {
        let other = |url: &&str| ["http://", "https://"].iter().all(|scheme| !url.to_lowercase().starts_with(scheme));
        if let Some(url) = self.url.as_deref().filter(other) {
            let url = address(url);
            return Err(Failure::usage(format!(
                "\"{url}\" is no address of a gateway: http:// or https:// is missing"
            ))
            .hint(format!(
                "--url http://{}   (SWITCHBOARD_URL is read in the same way)",
                url.rsplit("://").next().unwrap_or(&url)
            )));
        }
        let set = layers.variable("SWITCHBOARD_TOKEN").filter(|token| !token.is_empty());
        let token_from = chosen_token(self, set.is_some(), &config.operator_token_file());
        let chosen = match (&self.token_file, set) {
            (Some(file), _) => Some(read_token(file)?),
            (None, set) => set,
        };
        let token = match chosen.clone() {
            Some(token) => token,
            None => operator_token(config, self.url.as_deref())?,
        };
        if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(Failure::usage("the token holds a line break or another character that no token has")
                .hint("see SWITCHBOARD_TOKEN, or the file of --token-file: one token, and nothing else"));
        }
        let shows_operators = chosen.is_none() && !token.is_empty();
        let (base, origin) = match &self.url {
            Some(url) => (url.trim_end_matches('/').to_owned(), "from --url or SWITCHBOARD_URL".to_owned()),
            None => on_data_of(config, shows_operators)?,
        };
        // Who names an address vouches for it.
        let own = (shows_operators && self.url.is_none()).then(|| Own::new(config, base.clone()));
        Ok(Found { base, token, origin, token_from, own })
    }
}

/// The address of the gateway on the data directory, and where that is from. Whoever has the operator's token has
/// everything: where it is to be shown, the gateway has to run, for whatever listens where one was, or would be, may be
/// anybody's.
fn on_data_of(config: &Config, shows_operators: bool) -> Result<(String, String), Failure> {
    let file = config.endpoint_file();
    let left = endpoint(&file);
    // Somebody who names a data directory means the gateway on it, not whatever runs at the usual address.
    let named = !config.settings.data.dir.is_empty() && config.settings.server.listen == Server::default().listen;
    match left {
        Some(url) if !shows_operators || Own::new(config, url.clone()).is_there() => {
            Ok((url, format!("from {}", file.display())))
        }
        None if !shows_operators && !named => {
            Ok((format!("http://{}", config.listen), "the default address".to_owned()))
        }
        left => Err(none_runs(config, left.as_deref().and_then(socket_of).unwrap_or(config.listen))),
    }
}

/// No gateway runs on the data directory. Whoever listens in its place is named, and told nothing.
fn none_runs(config: &Config, place: SocketAddr) -> Failure {
    let dir = config.data_dir.display();
    let instead = port::listener(place).map(|who| format!("; {who} listens on {place}")).unwrap_or_default();
    let on = if config.settings.data.dir.is_empty() { String::new() } else { format!(" --data-dir {dir}") };
    Failure::new(3, format!("cannot reach the gateway: none runs on {dir}{instead}"))
        .hint(format!("start it with: switchboard up{on}   (or name another one with --url)"))
}

/// What to say to somebody whose own choice of a token is refused.
fn chosen_token(reach: &Reach, set: bool, operators: &Path) -> Option<String> {
    let operators = operators.display();
    if let Some(file) = &reach.token_file {
        return Some(format!(
            "the token came from --token-file {}; without it the operator's is used, from {operators}",
            file.display()
        ));
    }
    set.then(|| {
        format!("the token came from SWITCHBOARD_TOKEN, which is set and goes before the operator's in {operators}: unset SWITCHBOARD_TOKEN, or put a valid token there")
    })
}

/// The operator's token, for the gateway whose it is. An address from elsewhere may be anybody's, and whoever has this
/// token has everything; so it goes there only when somebody says so.
fn operator_token(config: &Config, url: Option<&str>) -> Result<String, Failure> {
    let file = config.operator_token_file();
    let Ok(token) = read_token(&file) else { return Ok(String::new()) };
    let own = endpoint(&config.endpoint_file());
    match url {
        Some(url) if !is_own(url, own.as_deref()) => Err(Failure::new(
            4,
            format!(
                "no token was given for {}: the one in {} is for the gateway on this machine alone",
                address(url),
                file.display()
            ),
        )
        .hint("name that gateway's token with --token-file FILE or SWITCHBOARD_TOKEN")),
        _ => Ok(token),
    }
}

/// Whether an address is this machine's own, or that of the gateway on the data directory.
pub(super) fn is_own(url: &str, endpoint: Option<&str>) -> bool {
    let Ok(url) = url::Url::parse(url) else { return false };
    let own = endpoint.and_then(|own| url::Url::parse(own).ok());
    is_loopback(&url) || own.is_some_and(|own| own.origin() == url.origin())
}

/// Whether an address is on this machine, whoever asks.
pub(super) fn is_loopback(url: &url::Url) -> bool {
    match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost",
        Some(url::Host::Ipv4(ip)) => ip.is_loopback(),
        Some(url::Host::Ipv6(ip)) => ip.is_loopback(),
        None => false,
    }
}

fn read_token(file: &Path) -> Result<String, Failure> {
    bounded::text(file, bounded::TOKEN).map(|text| text.trim().to_owned()).map_err(|error| {
        Failure::usage(format!("cannot read the token in {}: {error}", file.display()))
            .hint("name a file that holds one token; switchboard token create NAME makes one")
    })
}

/// Where an address of this machine is listened on.
pub(super) fn socket_of(url: &str) -> Option<SocketAddr> {
    let url = url::Url::parse(url).ok()?;
    let ip = match url.host()? {
        url::Host::Domain(name) => (name == "localhost").then(|| [127, 0, 0, 1].into())?,
        url::Host::Ipv4(ip) => ip.into(),
        url::Host::Ipv6(ip) => ip.into(),
    };
    Some(SocketAddr::new(ip, url.port_or_known_default()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_variable_counts_as_unset() {
        let reach = |url: &str| Reach { url: Some(url.into()), token_file: None, ca: None };
        let url = |url: &str, variable: Option<&str>| reach(url).without_empty_variable(variable.map(OsStr::new)).url;
        assert_eq!(url("", Some("")), None);
        assert_eq!(url("", None).as_deref(), Some(""));
        assert_eq!(url("http://a", Some("")).as_deref(), Some("http://a"));
        assert_eq!(url("http://a", Some("http://a")).as_deref(), Some("http://a"));
    }

    #[track_caller]
    fn check_own(url: &str, own: bool) {
        assert_eq!(is_own(url, Some("https://192.0.2.7:3210")), own, "{url}");
    }

    #[test]
    fn the_operators_token_stays_on_this_machine() {
        check_own("http://127.0.0.1:1", true);
        check_own("http://localhost:9/", true);
        check_own("http://[::1]:3210", true);
        check_own("https://192.0.2.7:3210/", true);
        check_own("http://192.0.2.7:3210", false);
        check_own("https://192.0.2.7:3211", false);
        check_own("https://mcp.example.com/mcp", false);
        check_own("https://localhost.example.com", false);
        check_own("https://127.0.0.1@example.com", false);
        check_own("no address", false);
    }
}
