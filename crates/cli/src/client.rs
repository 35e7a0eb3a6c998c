//! The HTTP client for a running gateway.

use std::borrow::Cow;

use reqwest::header::{CONTENT_TYPE, HeaderValue};
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use sa_sse::{Broken, Events};
use sa_text::mask::address;
use serde::Deserialize;
use serde_json::Value;
use tower::filter::FilterLayer;

use super::Global;
use super::flags::OfGateway;
use super::output::Failure;
use super::port;
use super::reach::{Found, Trusted, is_own, socket_of};
use super::run::layers;
use sa_gateway::config::Config;

/// The exit code if the gateway cannot be reached.
const UNREACHABLE: u8 = 3;

/// The exit code if the connection was lost during a request that may have had an effect.
const MAY_HAVE_HAPPENED: u8 = 10;

/// The maximum size of an event. A gateway cannot be configured to accept larger messages.
const MAX_EVENT: usize = 1 << 30;

pub(crate) struct Client {
    http: reqwest::Client,
    found: Found,
}

/// A placeholder for a URL that cannot be expressed. No request is ever sent to it.
const UNSPEAKABLE: &str = "http://unspeakable.invalid/";

/// Reports whether the parsed URL still ends with the path that was put into it. The segments `.`
/// and `..` change the path even if they are escaped. An empty segment leads to the list.
fn is_kept(url: &str, path: &str) -> bool {
    let path = path.split('?').next().unwrap_or_default();
    let whole = path.split('/').skip(1).all(|segment| !segment.is_empty());
    // An invalid URL is reported as a different error.
    whole && url::Url::parse(url).map_or(true, |url| url.path().ends_with(path))
}

impl Client {
    pub(crate) fn new(global: &Global) -> Result<Self, Failure> {
        let layers = layers(global, &OfGateway::default())?;
        let config = Config::resolve(&layers)?;
        let found = global.reach.find(&config, &layers)?;
        let mut http = http(&global.reach.trusted()?);
        if let Some(own) = &found.own {
            http = http.connector_layer(FilterLayer::new(own.clone()));
        }
        let http =
            http.build().map_err(|error| Failure::other(format!("cannot set up HTTP: {error}")))?;
        Ok(Self { http, found })
    }

    pub(crate) fn base(&self) -> &str {
        &self.found.base
    }

    /// Returns the base URL for display, without a password.
    pub(crate) fn place(&self) -> Cow<'_, str> {
        address(&self.found.base)
    }

    /// Returns the HTTP client and the token.
    pub(crate) fn into_parts(self) -> (reqwest::Client, String) {
        (self.http, self.found.token)
    }

    /// Reports whether the gateway's address is on this machine, so that it sees the same files.
    pub(crate) fn is_local(&self) -> bool {
        self.found.own.is_some() || is_own(self.base(), None)
    }

    pub(crate) fn has_token(&self) -> bool {
        !self.found.token.is_empty()
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let url = format!("{}{path}", self.found.base);
        let url = if is_kept(&url, path) { &url } else { UNSPEAKABLE };
        let request = self.http.request(method, url);
        if self.has_token() { request.bearer_auth(&self.found.token) } else { request }
    }

    /// Sends a request. Any status other than success becomes a failure with the gateway's message.
    pub(crate) async fn send(&self, request: RequestBuilder) -> Result<Response, Failure> {
        let request = request.build().map_err(|error| self.unreachable(&error))?;
        if request.url().as_str() == UNSPEAKABLE {
            let message = "the names \"\", \".\" and \"..\" cannot be used, because they have another meaning in a URL";
            return Err(
                Failure::of_kind("not_found", message).hint("use a name or an id from the list")
            );
        }
        let asks = *request.method() == Method::GET;
        let failed =
            |error: &reqwest::Error| if asks { self.unreachable(error) } else { self.lost(error) };
        let response = self.http.execute(request).await.map_err(|error| failed(&error))?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        let text = response.text().await.unwrap_or_default();
        let failure = told(&text).unwrap_or_else(|| self.no_gateway(status));
        if status != StatusCode::UNAUTHORIZED || failure.code == UNREACHABLE {
            return Err(failure);
        }
        Err(match &self.found.token_from {
            _ if !self.has_token() => {
                let message = format!("there is no token for the gateway at {}", self.place());
                let missing = Failure::of_kind("unauthorized", message).because(&text);
                missing.hint(self.found.no_token.clone())
            }
            Some(origin) => failure.hint(origin.clone()),
            None => failure,
        })
    }

    pub(crate) async fn get_text(&self, path: &str) -> Result<String, Failure> {
        let response = self.send(self.request(Method::GET, path)).await?;
        response.text().await.map_err(|error| self.unreachable(&error))
    }

    pub(crate) async fn get<T: for<'a> Deserialize<'a>>(
        &self,
        path: &str,
    ) -> Result<(T, String), Failure> {
        let text = self.get_text(path).await?;
        Ok((self.read(&text)?, text))
    }

    /// Parses a JSON response. All responses of a gateway are JSON.
    pub(crate) fn read<T: for<'a> Deserialize<'a>>(&self, text: &str) -> Result<T, Failure> {
        serde_json::from_str(text).map_err(|error| {
            // Valid JSON of another shape may come from another gateway version.
            if error.is_data() {
                Failure::other(format!("cannot read the gateway's response: {error}"))
            } else {
                self.no_gateway(StatusCode::OK)
            }
        })
    }

    /// Returns the status of the gateway.
    pub(crate) async fn status(&self, query: &str) -> Result<(Value, String), Failure> {
        let (status, text): (Value, _) = self.get(&format!("/v1/status{query}")).await?;
        if status["version"].is_string() {
            Ok((status, text))
        } else {
            Err(self.no_gateway(StatusCode::OK))
        }
    }

    /// Returns the event stream of a response.
    pub(crate) fn events(&self, response: Response) -> Result<Events, Failure> {
        let kind = response.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes);
        if kind.is_some_and(|kind| kind.starts_with(b"text/event-stream")) {
            Ok(Events::new(response, MAX_EVENT))
        } else {
            Err(self.no_gateway(response.status()))
        }
    }

    /// Returns the failure for a response that does not come from a gateway.
    fn no_gateway(&self, status: StatusCode) -> Failure {
        let place = self.place();
        let who = if self.is_local() {
            socket_of(&self.found.base).and_then(port::listener)
        } else {
            None
        };
        let who = who.map(|who| format!("{who}, ")).unwrap_or_default();
        let between = if status.is_server_error() {
            ", or a proxy in front of it cannot reach it"
        } else {
            ""
        };
        Failure::new(
            UNREACHABLE,
            format!("the server at {place} is not Switchboard{between} ({who}status {status})"),
        )
        .hint(format!(
            "set the gateway's address with --url; this address is {}",
            self.found.origin
        ))
    }

    /// Returns the failure for a gateway that is not reachable or closed the connection.
    pub(crate) fn unreachable(&self, error: &reqwest::Error) -> Failure {
        if let Some((why, hint)) = misunderstood(error, self.found.base.starts_with("https:")) {
            let message = format!(
                "cannot connect to the gateway at {} ({}): {why}",
                self.place(),
                self.found.origin
            );
            return Failure::new(UNREACHABLE, message).hint(hint);
        }
        if error.is_body() || error.is_decode() || (error.is_request() && !error.is_connect()) {
            let message = format!(
                "lost the connection to the gateway at {}: {}",
                self.place(),
                deepest(error)
            );
            return Failure::new(UNREACHABLE, message)
                .hint("the gateway may be restarting; run the command again");
        }
        let place = self.place();
        Failure::new(
            UNREACHABLE,
            format!(
                "cannot reach the gateway at {place} ({}): {}",
                self.found.origin,
                deepest(error)
            ),
        )
        .hint("start it with `switchboard up`, or set another address with --url")
    }

    /// Returns the failure for a broken connection during a request that changes state. The client
    /// cannot know whether the request took effect, so repeating it may apply it twice.
    pub(crate) fn lost(&self, error: &reqwest::Error) -> Failure {
        if error.is_connect() || error.is_builder() {
            self.unreachable(error)
        } else {
            self.lost_because(&deepest(error))
        }
    }

    /// Returns the failure for a broken event stream of a request that changes state.
    pub(crate) fn lost_in(&self, broken: &Broken) -> Failure {
        match broken {
            Broken::Cut(error) => self.lost(error),
            Broken::TooLong(too_long) => self.lost_because(&too_long.to_string()),
        }
    }

    /// Returns the failure for a broken event stream that only observes. The observed work
    /// continues without a reader.
    pub(crate) fn unheard(&self, broken: &Broken) -> Failure {
        match broken {
            Broken::Cut(error) => self.unreachable(error),
            Broken::TooLong(too_long) => Failure::other(format!(
                "cannot read the events of the gateway at {}: {too_long}",
                self.place()
            )),
        }
    }

    pub(crate) fn lost_because(&self, why: &str) -> Failure {
        let gateway = self.place();
        Failure::new(
            MAY_HAVE_HAPPENED,
            format!(
                "the connection to the gateway at {gateway} was lost during the request ({why}); it may have had an effect"
            ),
        )
        .hint("check the effect before you repeat the request; run `switchboard calls` to list the calls")
    }
}

/// Returns the HTTP client builder that all commands use.
fn http(trusted: &Trusted) -> reqwest::ClientBuilder {
    let http = reqwest::Client::builder()
        .no_proxy()
        .user_agent(concat!("switchboard/", env!("CARGO_PKG_VERSION")));
    trusted.certificates.iter().cloned().fold(http, reqwest::ClientBuilder::add_root_certificate)
}

/// Fails if TLS with this gateway cannot work until its certificate or the trusted certificates
/// change. A gateway that is not reachable is not an error, because it may start later.
pub(super) async fn distrusted(url: &str, trusted: &Trusted) -> Result<(), Failure> {
    /// One or two round trips are needed. The limit allows for connections across the world.
    const TIMEOUT: std::time::Duration = std::time::Duration::from_secs(5);
    let http = http(trusted).redirect(reqwest::redirect::Policy::none());
    let http = http
        .timeout(TIMEOUT)
        .build()
        .map_err(|error| Failure::other(format!("cannot set up HTTP: {error}")))?;
    let Err(error) = http.head(url).send().await else { return Ok(()) };
    let Some((why, hint)) = misunderstood(&error, true) else { return Ok(()) };
    Err(Failure::new(
        UNREACHABLE,
        format!("cannot connect to the gateway at {}: {why}", address(url)),
    )
    .hint(hint))
}

/// Returns the reason if a server is reachable but TLS fails. Either the certificate is not
/// accepted, or only one side uses TLS.
fn misunderstood(error: &reqwest::Error, encrypts: bool) -> Option<(String, &'static str)> {
    use tokio_rustls::rustls::{CertificateError, Error, InvalidMessage};
    const CA: &str = "use --ca FILE (or SWITCHBOARD_CA): the certificate of the authority that signed it, or the gateway's own \
                      certificate if it is self-signed";
    type Cause = dyn std::error::Error + 'static;
    let causes = || std::iter::successors(Some(error as &Cause), |cause| cause.source());
    match causes().find_map(inside) {
        Some(Error::InvalidCertificate(CertificateError::UnknownIssuer)) => Some((
            "its certificate is not signed by an authority that this machine trusts".to_owned(),
            CA,
        )),
        Some(Error::InvalidCertificate(wrong))
            if format!("{wrong:?}").contains("CaUsedAsEndEntity") =>
        {
            Some((
                "its certificate is a CA certificate, not a server certificate".to_owned(),
                "use another certificate for the gateway: signed by that authority, or created with basicConstraints=CA:FALSE \
             (see docs/running.md)",
            ))
        }
        Some(Error::InvalidCertificate(wrong)) => {
            let hint = "check that the certificate contains the address and is valid today";
            Some((format!("its certificate cannot be trusted: {wrong}"), hint))
        }
        Some(Error::InvalidMessage(InvalidMessage::InvalidContentType)) => Some((
            "it does not use TLS".to_owned(),
            "use an address that begins with http:// instead of https://",
        )),
        _ => {
            let is_http = |cause: &Cause| cause.downcast_ref().is_some_and(hyper::Error::is_parse);
            let odd = !encrypts && causes().any(is_http);
            odd.then(|| {
                let hint =
                    "if it has a certificate, use an address that begins with https:// instead of http://";
                ("its response is not HTTP".to_owned(), hint)
            })
        }
    }
}

/// Returns the TLS error within the error. `std::io::Error` does not expose its inner error as a
/// source, and I/O errors may be nested.
fn inside(error: &(dyn std::error::Error + 'static)) -> Option<tokio_rustls::rustls::Error> {
    let of_io =
        || error.downcast_ref::<std::io::Error>()?.get_ref().and_then(|hidden| inside(hidden));
    error.downcast_ref().cloned().or_else(of_io)
}

/// Returns the message of the root cause.
fn deepest(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    let refused = |error: &std::io::Error| error.kind() == std::io::ErrorKind::ConnectionRefused;
    if cause.downcast_ref().is_some_and(refused) {
        "nothing listens there".to_owned()
    } else {
        cause.to_string()
    }
}

#[derive(Deserialize)]
struct Problem {
    detail: String,
    kind: String,
    hint: Option<String>,
    retryable: Option<bool>,
}

/// Parses an error response of the gateway.
pub(crate) fn problem(status: StatusCode, text: &str) -> Failure {
    told(text).unwrap_or_else(|| Failure::other(format!("the gateway answered {status}")))
}

/// Parses a problem document. Returns `None` if the text is not one.
fn told(text: &str) -> Option<Failure> {
    let problem: Problem = serde_json::from_str(text).ok()?;
    let hint = match problem.kind.as_str() {
        "unauthorized" => {
            Some("set a token with --token-file or SWITCHBOARD_TOKEN; the operator's token is in the data directory".into())
        }
        _ => problem.hint.map(|hint| as_typed(&hint)),
    };
    let mut failure =
        Failure::of_kind(&problem.kind, of_options(&problem.kind, problem.detail)).because(text);
    failure.hint = hint;
    // The provider that ran the call disconnected, so the effect is unknown.
    if problem.kind == "offline" && problem.retryable == Some(false) {
        failure.code = MAY_HAVE_HAPPENED;
    }
    Some(failure)
}

/// Requests that appear in the gateway's hints, each with the equivalent command.
const COMMANDS: [(&str, &str); 15] = [
    ("see the plugin's \"settings\" in `GET /v1/plugins`", "run `switchboard plugin show ID`"),
    ("GET /v1/calls/{id}", "switchboard calls ID"),
    ("GET /v1/calls", "switchboard calls"),
    ("GET /v1/sessions/{id}/events", "switchboard sessions events ID"),
    ("GET /v1/channels", "switchboard channel list"),
    ("GET /v1/nodes", "switchboard nodes"),
    ("GET /v1/plugins", "switchboard plugin list"),
    ("GET /v1/tools", "switchboard tools"),
    ("session_list has", "switchboard sessions lists"),
    ("`session_list`", "`switchboard sessions`"),
    ("`session_end`", "`switchboard sessions end ID`"),
    ("with session_end", "with `switchboard sessions end ID`"),
    ("DELETE with ?last_operator=true", "--yes"),
    ("leave session_id out", "leave --session out"),
    ("start a session with agent=", "start a session with --agent "),
];

/// Request fields that appear in error messages, each with the equivalent option.
const OPTIONS: [(&str, &str); 10] = [
    ("session_key must", "--session must"),
    ("idempotency_key must", "--idempotency-key must"),
    ("idle_timeout_ms must", "--idle-timeout must"),
    ("timeout_ms must", "--timeout must"),
    ("outcome is ", "--outcome is "),
    ("node_id is ", "--node-id is "),
    ("tools is ", "--tool is "),
    ("channels is ", "--channel is "),
    ("channel_rights is ", "--channel-right is "),
    ("models is ", "--model is "),
];

/// Replaces the requests in a hint with commands.
pub(super) fn as_typed(hint: &str) -> String {
    COMMANDS.iter().fold(hint.to_owned(), |hint, (request, command)| hint.replace(request, command))
}

/// Replaces request fields with options in the gateway's own error messages. Messages from other
/// sources are returned unchanged.
fn of_options(kind: &str, detail: String) -> String {
    match OPTIONS.iter().find(|(part, _)| kind == "bad_request" && detail.starts_with(part)) {
        Some((part, option)) => detail.replacen(part, option, 1),
        None => detail,
    }
}

/// Escapes all characters of a path segment that have a meaning in a URL.
pub(crate) fn segment(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Checks all hints of the gateway that name a request.
    #[test]
    fn hints_name_commands() {
        let mut checked = 0;
        for dir in [
            "../gateway/src/http",
            "../providers/relay/src",
            "../core/src",
            "../providers/nodes/src",
            "../providers/channels/src",
            "../providers/plugins/src",
        ] {
            let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join(dir);
            for file in std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
                let Ok(source) = std::fs::read_to_string(&file) else { continue };
                for hint in source
                    .split("hint(\"")
                    .skip(1)
                    .map(|rest| rest.split("\")").next().unwrap_or_default())
                {
                    let typed = as_typed(hint);
                    assert!(!typed.contains(" /v1/"), "{}: {typed}", file.display());
                    checked += usize::from(typed != hint);
                }
            }
        }
        assert!(checked > 3, "only {checked} hints were found");
    }

    #[test]
    fn a_name_that_leads_elsewhere_is_noticed() {
        let kept = |name: &str| {
            let path = format!("/v1/tokens/{}?x=..", segment(name));
            is_kept(&format!("http://127.0.0.1:1/gateway{path}"), &path)
        };
        for name in ["a", "a.b", "...", "a/b", "..a", "é", "%2e%2e", " "] {
            assert!(kept(name), "{name}");
        }
        for name in ["", ".", ".."] {
            assert!(!kept(name), "{name}");
        }
        assert!(is_kept("http://127.0.0.1:1/v1/tools?limit=5", "/v1/tools?limit=5"));
    }
}
