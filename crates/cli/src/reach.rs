//! Selects the gateway and the token for a command.

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use sa_text::mask::address;
use sa_vault::bounded;
use tower::BoxError;
use tower::filter::Predicate;

use super::output::Failure;
use super::port;
use sa_gateway::config::Config;
use sa_gateway::config::layers::Layers;
use sa_gateway::config::settings::Server;

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Reach {
    /// Address of the gateway. Defaults to the gateway of the data directory.
    #[arg(
        long,
        global = true,
        help_heading = "Global options",
        value_name = "URL",
        env = "SWITCHBOARD_URL"
    )]
    pub(super) url: Option<String>,
    /// File with the token. SWITCHBOARD_TOKEN (for `node`: SA_NODE_TOKEN) can be set instead.
    /// Defaults to the operator's token, but only for the gateway on this machine; `node` has no
    /// default.
    #[arg(long, global = true, help_heading = "Global options", value_name = "FILE")]
    pub(super) token_file: Option<PathBuf>,
    /// Additional CA certificate (PEM) to trust.
    #[arg(
        long,
        global = true,
        help_heading = "Global options",
        value_name = "FILE",
        env = "SWITCHBOARD_CA"
    )]
    pub(super) ca: Option<PathBuf>,
}

/// Certificates that are trusted in addition to the system's. Usually empty.
#[derive(Default)]
pub(super) struct Trusted {
    pub(super) pem: Vec<u8>,
    pub(super) certificates: Vec<reqwest::Certificate>,
}

/// The selected gateway.
pub(super) struct Found {
    pub(super) base: String,
    pub(super) token: String,
    /// The source of the address, shown if the gateway cannot be reached.
    pub(super) origin: String,
    /// The hint for a rejected token, if the user chose the token.
    pub(super) token_from: Option<String>,
    /// The hint if there is no token. It names the places that were read.
    pub(super) no_token: String,
    /// The gateway that the token belongs to, if it is the operator's token.
    pub(super) own: Option<Own>,
}

/// The gateway of a data directory, with its current address.
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

    /// Reports whether the gateway still runs. A killed gateway leaves its address file, but no
    /// longer holds the lock of its store.
    fn is_there(&self) -> bool {
        endpoint(&self.endpoint).is_some_and(|left| left == self.base)
            && sa_store::is_held(&self.store)
    }
}

/// Checks the gateway before each connection. The gateway may have stopped since the command
/// started, and another program may listen on its address.
impl<R> Predicate<R> for Own {
    type Request = R;

    fn check(&mut self, connection: R) -> Result<R, BoxError> {
        if self.is_there() {
            Ok(connection)
        } else {
            Err("the gateway of the data directory no longer runs there".into())
        }
    }
}

fn endpoint(file: &Path) -> Option<String> {
    bounded::text_of_file(file, bounded::TOKEN).ok().map(|url| url.trim().to_owned())
}

impl Reach {
    /// Treats an empty variable as unset. An empty `--url` stays an error.
    pub(super) fn without_empty_variable(mut self, variable: Option<&OsStr>) -> Self {
        self.url =
            self.url.filter(|url| !(url.is_empty() && variable.is_some_and(OsStr::is_empty)));
        self
    }

    /// Reads the certificates of `--ca`.
    pub(super) fn trusted(&self) -> Result<Trusted, Failure> {
        let Some(file) = &self.ca else { return Ok(Trusted::default()) };
        let unusable =
            |error: &dyn std::error::Error| Failure::usage(format!("{}: {error}", file.display()));
        // Read only once, because the file may be a pipe from shell process substitution.
        let pem = bounded::bytes(file, bounded::PEM).map_err(|error| unusable(&error))?;
        let certificates =
            reqwest::Certificate::from_pem_bundle(&pem).map_err(|error| unusable(&error))?;
        if certificates.is_empty() {
            return Err(Failure::usage(format!("{} contains no certificate", file.display()))
                .hint("set --ca or SWITCHBOARD_CA to a PEM file with a line BEGIN CERTIFICATE"));
        }
        Ok(Trusted { pem, certificates })
    }

    pub(super) fn find(&self, config: &Config, layers: &Layers) -> Result<Found, Failure> {
        let other = |url: &&str| {
            ["http://", "https://"].iter().all(|scheme| !url.to_lowercase().starts_with(scheme))
        };
        if let Some(url) = self.url.as_deref().filter(other) {
            let url = address(url);
            return Err(Failure::usage(format!(
                "\"{url}\" is not an address of a gateway: http:// or https:// is missing"
            ))
            .hint(format!(
                "use --url http://{}, or set SWITCHBOARD_URL in the same way",
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
            return Err(Failure::usage(
                "the token contains a line break or another invalid character",
            )
            .hint(
                "check SWITCHBOARD_TOKEN, or the file of --token-file; it must contain one token and nothing else",
            ));
        }
        let shows_operators = chosen.is_none() && !token.is_empty();
        let (base, origin) = match &self.url {
            Some(url) => {
                (url.trim_end_matches('/').to_owned(), "from --url or SWITCHBOARD_URL".to_owned())
            }
            None => on_data_of(config, shows_operators)?,
        };
        // An address that the user typed is trusted.
        let own = (shows_operators && self.url.is_none()).then(|| Own::new(config, base.clone()));
        let no_token = format!(
            "--token-file is not given, SWITCHBOARD_TOKEN is not set, and {} holds no token; set SWITCHBOARD_TOKEN, or use --token-file FILE",
            config.operator_token_file().display()
        );
        Ok(Found { base, token, origin, token_from, no_token, own })
    }
}

/// Returns the address of the data directory's gateway, and the source of the address. The
/// operator's token grants full access. It is therefore only sent if the gateway runs, because any
/// program could listen on an unused address.
fn on_data_of(config: &Config, shows_operators: bool) -> Result<(String, String), Failure> {
    let file = config.endpoint_file();
    let left = endpoint(&file);
    // A user that names a data directory means its gateway, not a gateway at the default address.
    let named = !config.settings.data.dir.is_empty()
        && config.settings.server.listen == Server::default().listen;
    match left {
        Some(url) if !shows_operators || Own::new(config, url.clone()).is_there() => {
            Ok((url, format!("from {}", file.display())))
        }
        None if !shows_operators && !named => {
            Ok((format!("http://{}", config.listen), "the default address".to_owned()))
        }
        left => {
            Err(none_runs(config, left.as_deref().and_then(socket_of).unwrap_or(config.listen)))
        }
    }
}

/// Returns the failure if no gateway runs on the data directory. A program that listens on its
/// address is named, but receives no data.
fn none_runs(config: &Config, place: SocketAddr) -> Failure {
    let dir = config.data_dir.display();
    let instead =
        port::listener(place).map(|who| format!("; {who} listens on {place}")).unwrap_or_default();
    let on = if config.settings.data.dir.is_empty() {
        String::new()
    } else {
        format!(" --data-dir {dir}")
    };
    Failure::new(3, format!("cannot reach the gateway: none is running on {dir}{instead}"))
        .hint(format!("start it with `switchboard up{on}`, or set another address with --url"))
}

/// Returns the hint for a rejected token that the user chose.
fn chosen_token(reach: &Reach, set: bool, operators: &Path) -> Option<String> {
    let operators = operators.display();
    if let Some(file) = &reach.token_file {
        return Some(format!(
            "the token is from --token-file {}; without this option, the operator's token in {operators} is used",
            file.display()
        ));
    }
    set.then(|| {
        format!("the token is from SWITCHBOARD_TOKEN, which is set and overrides the operator's token in {operators}; unset SWITCHBOARD_TOKEN, or set it to a valid token")
    })
}

/// Returns the operator's token if the address belongs to its gateway. The token grants full
/// access, so other addresses need an explicit token.
fn operator_token(config: &Config, url: Option<&str>) -> Result<String, Failure> {
    let file = config.operator_token_file();
    let Ok(token) = read_token(&file) else { return Ok(String::new()) };
    let own = endpoint(&config.endpoint_file());
    match url {
        Some(url) if !is_own(url, own.as_deref()) => Err(Failure::new(
            4,
            format!(
                "no token was given for {}: the token in {} is only for the gateway on this machine",
                address(url),
                file.display()
            ),
        )
        .hint("set that gateway's token with --token-file FILE or SWITCHBOARD_TOKEN")),
        _ => Ok(token),
    }
}

/// Reports whether the address is on this machine or is the address of the data directory's
/// gateway.
pub(super) fn is_own(url: &str, endpoint: Option<&str>) -> bool {
    let Ok(url) = url::Url::parse(url) else { return false };
    let own = endpoint.and_then(|own| url::Url::parse(own).ok());
    is_loopback(&url) || own.is_some_and(|own| own.origin() == url.origin())
}

/// Reports whether the address is a loopback address.
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
        Failure::usage(format!("cannot read the token in {}: {error}", file.display())).hint(
            "use a file that contains one token; run `switchboard token create NAME` to create one",
        )
    })
}

/// Returns the socket address for a URL on this machine.
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
        let url = |url: &str, variable: Option<&str>| {
            reach(url).without_empty_variable(variable.map(OsStr::new)).url
        };
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
