//! Talking to a running gateway.

use std::borrow::Cow;

use reqwest::header::{CONTENT_TYPE, HeaderValue};
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use sa_core::mask::address;
use sa_sse::{Broken, Events};
use serde::Deserialize;
use serde_json::Value;
use tower::filter::FilterLayer;

use super::Global;
use super::flags::OfGateway;
use super::output::Failure;
use super::port;
use super::reach::{Found, Trusted, is_own, socket_of};
use super::run::layers;
use crate::config::Config;

/// The exit code of what no gateway was there for.
const UNREACHABLE: u8 = 3;

/// The exit code of what was under way when the connection was lost.
const MAY_HAVE_HAPPENED: u8 = 10;

/// The longest event: no gateway can be configured to take a longer message than this.
const MAX_EVENT: usize = 1 << 30;

pub(crate) struct Client {
    http: reqwest::Client,
    found: Found,
}

/// Stands for an address that cannot be written down. Nothing is ever sent to it.
const UNSPEAKABLE: &str = "http://unspeakable.invalid/";

/// Whether an address still has a path that was put into it. The names `.` and `..` lead elsewhere however they are written,
/// and an empty one to the list.
fn is_kept(url: &str, path: &str) -> bool {
    let path = path.split('?').next().unwrap_or_default();
    let whole = path.split('/').skip(1).all(|segment| !segment.is_empty());
    // What is no address at all is another mistake.
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
        let http = http.build().map_err(|error| Failure::other(format!("cannot set up HTTP: {error}")))?;
        Ok(Self { http, found })
    }

    pub(crate) fn base(&self) -> &str {
        &self.found.base
    }

    /// The same for people, who may have written a password into it.
    pub(crate) fn place(&self) -> Cow<'_, str> {
        address(&self.found.base)
    }

    /// What it talks HTTP with, and the token that it shows.
    pub(crate) fn into_parts(self) -> (reqwest::Client, String) {
        (self.http, self.found.token)
    }

    /// Whether the gateway is on this machine, as far as its address tells, and sees the same files.
    pub(crate) fn is_local(&self) -> bool {
        is_own(self.base(), None)
    }

    pub(crate) fn has_token(&self) -> bool {
        !self.found.token.is_empty()
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let url = format!("{}{path}", self.found.base);
        let url = if is_kept(&url, path) { &url } else { UNSPEAKABLE };
        self.http.request(method, url).bearer_auth(&self.found.token)
    }

    /// Sends a request; every answer but a success is a failure with the gateway's own words.
    pub(crate) async fn send(&self, request: RequestBuilder) -> Result<Response, Failure> {
        let request = request.build().map_err(|error| self.unreachable(&error))?;
        if request.url().as_str() == UNSPEAKABLE {
            let message =
                "nothing can be asked for by the name \"\", \".\" or \"..\", which means something else in an address";
            return Err(
                Failure::of_kind("not_found", message).hint("lists have the names, and ids where there are such")
            );
        }
        let asks = *request.method() == Method::GET;
        let failed = |error: &reqwest::Error| if asks { self.unreachable(error) } else { self.lost(error) };
        let response = self.http.execute(request).await.map_err(|error| failed(&error))?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        let text = response.text().await.unwrap_or_default();
        let failure = told(&text).unwrap_or_else(|| self.no_gateway(status));
        Err(match &self.found.token_from {
            Some(origin) if status == StatusCode::UNAUTHORIZED && failure.code != UNREACHABLE => {
                failure.hint(origin.clone())
            }
            _ => failure,
        })
    }

    pub(crate) async fn get_text(&self, path: &str) -> Result<String, Failure> {
        let response = self.send(self.request(Method::GET, path)).await?;
        response.text().await.map_err(|error| self.unreachable(&error))
    }

    pub(crate) async fn get<T: for<'a> Deserialize<'a>>(&self, path: &str) -> Result<(T, String), Failure> {
        let text = self.get_text(path).await?;
        Ok((self.read(&text)?, text))
    }

    /// An answer in JSON, which all of a gateway's are.
    pub(crate) fn read<T: for<'a> Deserialize<'a>>(&self, text: &str) -> Result<T, Failure> {
        serde_json::from_str(text).map_err(|error| {
            // Another version may say things differently; JSON it is.
            if error.is_data() {
                Failure::other(format!("the gateway's answer cannot be read: {error}"))
            } else {
                self.no_gateway(StatusCode::OK)
            }
        })
    }

    /// How the gateway is.
    pub(crate) async fn status(&self, query: &str) -> Result<(Value, String), Failure> {
        let (status, text): (Value, _) = self.get(&format!("/v1/status{query}")).await?;
        if status["version"].is_string() { Ok((status, text)) } else { Err(self.no_gateway(StatusCode::OK)) }
    }

    /// The events that a gateway answers with.
    pub(crate) fn events(&self, response: Response) -> Result<Events, Failure> {
        let kind = response.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes);
        if kind.is_some_and(|kind| kind.starts_with(b"text/event-stream")) {
            Ok(Events::new(response, MAX_EVENT))
        } else {
            Err(self.no_gateway(response.status()))
        }
    }

    /// Somebody has answered, in a way in which no gateway does.
    fn no_gateway(&self, status: StatusCode) -> Failure {
        let place = self.place();
        let who = if self.is_local() { socket_of(&self.found.base).and_then(port::listener) } else { None };
        let who = who.map(|who| format!("{who}, ")).unwrap_or_default();
        let between = if status.is_server_error() { ", or a proxy before it cannot reach it" } else { "" };
        Failure::new(
            UNREACHABLE,
            format!("what listens at {place} is not Switchboard{between}: {who}which answered {status}"),
        )
        .hint(format!("name the gateway's address with --url: this one is {}", self.found.origin))
    }

    /// The gateway is not there, or has gone away while it was asked.
    pub(crate) fn unreachable(&self, error: &reqwest::Error) -> Failure {
        if let Some((why, hint)) = misunderstood(error, self.found.base.starts_with("https:")) {
            let message = format!("cannot talk to the gateway at {} ({}): {why}", self.place(), self.found.origin);
            return Failure::new(UNREACHABLE, message).hint(hint);
        }
        if error.is_body() || error.is_decode() || (error.is_request() && !error.is_connect()) {
            let message = format!("the gateway at {} went away: {}", self.place(), deepest(error));
            return Failure::new(UNREACHABLE, message).hint("it may be restarting; run the command again");
        }
        let place = self.place();
        Failure::new(
            UNREACHABLE,
            format!("cannot reach the gateway at {place} ({}): {}", self.found.origin, deepest(error)),
        )
        .hint("start it with: switchboard up   (or name another one with --url)")
    }

    /// The same for what changes something: once it was under way nobody can tell whether it was done, and whoever simply
    /// repeats it may do it twice.
    pub(crate) fn lost(&self, error: &reqwest::Error) -> Failure {
        if error.is_connect() || error.is_builder() {
            self.unreachable(error)
        } else {
            self.lost_because(&deepest(error))
        }
    }

    /// The same for the events of what changes something.
    pub(crate) fn lost_in(&self, broken: &Broken) -> Failure {
        match broken {
            Broken::Cut(error) => self.lost(error),
            Broken::TooLong(too_long) => self.lost_because(&too_long.to_string()),
        }
    }

    /// A stream of events that cannot be read on, of what goes on without anybody who reads.
    pub(crate) fn unheard(&self, broken: &Broken) -> Failure {
        match broken {
            Broken::Cut(error) => self.unreachable(error),
            Broken::TooLong(too_long) => {
                Failure::other(format!("what the gateway at {} sends cannot be read: {too_long}", self.place()))
            }
        }
    }

    pub(crate) fn lost_because(&self, why: &str) -> Failure {
        let gateway = self.place();
        Failure::new(
            MAY_HAVE_HAPPENED,
            format!(
                "the connection to the gateway at {gateway} was lost in the middle ({why}); it may have had an effect"
            ),
        )
        .hint("check before you do it again; switchboard calls shows what was called, once the gateway is back")
    }
}

/// HTTP as all commands speak it.
fn http(trusted: &Trusted) -> reqwest::ClientBuilder {
    let http = reqwest::Client::builder().no_proxy().user_agent(concat!("switchboard/", env!("CARGO_PKG_VERSION")));
    trusted.certificates.iter().cloned().fold(http, reqwest::ClientBuilder::add_root_certificate)
}

/// Fails where a gateway that encrypts cannot be talked to until it has another certificate, or we trust more. One that is not
/// there may come.
pub(super) async fn distrusted(url: &str, trusted: &Trusted) -> Result<(), Failure> {
    /// It takes a round trip or two, of which the longest is from the other side of the world.
    const PATIENCE: std::time::Duration = std::time::Duration::from_secs(5);
    let http = http(trusted).redirect(reqwest::redirect::Policy::none());
    let http =
        http.timeout(PATIENCE).build().map_err(|error| Failure::other(format!("cannot set up HTTP: {error}")))?;
    let Err(error) = http.head(url).send().await else { return Ok(()) };
    let Some((why, hint)) = misunderstood(&error, true) else { return Ok(()) };
    Err(Failure::new(UNREACHABLE, format!("cannot talk to the gateway at {}: {why}", address(url))).hint(hint))
}

/// Why somebody is there, and cannot be talked to: it is about the certificate, or one side encrypts and the other does not.
fn misunderstood(error: &reqwest::Error, encrypts: bool) -> Option<(String, &'static str)> {
    use tokio_rustls::rustls::{CertificateError, Error, InvalidMessage};
    const CA: &str = "--ca FILE (or SWITCHBOARD_CA) names what to trust: the certificate of the authority that signed it, or the \
                      gateway's own if nobody else did";
    type Cause = dyn std::error::Error + 'static;
    let causes = || std::iter::successors(Some(error as &Cause), |cause| cause.source());
    match causes().find_map(inside) {
        Some(Error::InvalidCertificate(CertificateError::UnknownIssuer)) => {
            Some(("its certificate is signed by nobody whom this machine trusts".to_owned(), CA))
        }
        Some(Error::InvalidCertificate(wrong)) if format!("{wrong:?}").contains("CaUsedAsEndEntity") => Some((
            "its certificate is that of an authority, and no server's".to_owned(),
            "give the gateway another one: signed by that authority, or made with basicConstraints=CA:FALSE, as docs/running.md \
             shows",
        )),
        Some(Error::InvalidCertificate(wrong)) => {
            let hint =
                "the address must be one of those in the certificate, and the certificate one that is valid today";
            Some((format!("its certificate cannot be trusted: {wrong}"), hint))
        }
        Some(Error::InvalidMessage(InvalidMessage::InvalidContentType)) => {
            Some(("it does not encrypt".to_owned(), "its address begins with http:// in place of https://"))
        }
        _ => {
            let is_http = |cause: &Cause| cause.downcast_ref().is_some_and(hyper::Error::is_parse);
            let odd = !encrypts && causes().any(is_http);
            odd.then(|| {
                let hint = "if it has a certificate, its address begins with https:// in place of http://";
                ("what it answers is no HTTP".to_owned(), hint)
            })
        }
    }
}

/// What TLS says of it. An error of I/O hides what it is about from whoever follows its sources, and there may be one in another.
fn inside(error: &(dyn std::error::Error + 'static)) -> Option<tokio_rustls::rustls::Error> {
    let of_io = || error.downcast_ref::<std::io::Error>()?.get_ref().and_then(|hidden| inside(hidden));
    error.downcast_ref().cloned().or_else(of_io)
}

/// Why it failed, in the words of whatever failed first.
fn deepest(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    let refused = |error: &std::io::Error| error.kind() == std::io::ErrorKind::ConnectionRefused;
    if cause.downcast_ref().is_some_and(refused) { "nothing listens there".to_owned() } else { cause.to_string() }
}

#[derive(Deserialize)]
struct Problem {
    detail: String,
    kind: String,
    hint: Option<String>,
    retryable: Option<bool>,
}

/// The gateway's words about a failure.
pub(crate) fn problem(status: StatusCode, text: &str) -> Failure {
    told(text).unwrap_or_else(|| Failure::other(format!("the gateway answered {status}")))
}

/// The same, if they are any.
fn told(text: &str) -> Option<Failure> {
    let problem: Problem = serde_json::from_str(text).ok()?;
    let hint = match problem.kind.as_str() {
        "unauthorized" => {
            Some("name a token with --token-file or SWITCHBOARD_TOKEN; the operator's is in the data directory".into())
        }
        _ => problem.hint.map(|hint| as_typed(&hint)),
    };
    let mut failure = Failure::of_kind(&problem.kind, of_options(&problem.kind, problem.detail)).because(text);
    failure.hint = hint;
    // Whoever ran it went away with it.
    if problem.kind == "offline" && problem.retryable == Some(false) {
        failure.code = MAY_HAVE_HAPPENED;
    }
    Some(failure)
}

/// What the gateway tells its clients to ask for, and what somebody at a terminal types for the same.
const COMMANDS: [(&str, &str); 13] = [
    ("the plugin's \"settings\" in GET /v1/plugins say what it takes", "switchboard plugin show ID says what it takes"),
    ("GET /v1/calls/{id}", "switchboard calls ID"),
    ("GET /v1/calls", "switchboard calls"),
    ("GET /v1/sessions/{id}/events", "switchboard sessions events ID"),
    ("GET /v1/channels", "switchboard channel list"),
    ("GET /v1/nodes", "switchboard nodes"),
    ("GET /v1/plugins", "switchboard plugin list"),
    ("GET /v1/tools", "switchboard tools"),
    ("session_list has", "switchboard sessions lists"),
    ("end one with session_end", "end one with: switchboard sessions end ID"),
    ("DELETE with ?last_operator=true", "--yes"),
    ("leave session_id out", "leave --session out"),
    ("start a session with agent=", "start a session with --agent "),
];

/// What the API calls parts of a request, and the options that stand for them.
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

/// A hint with commands in the place of requests.
pub(super) fn as_typed(hint: &str) -> String {
    COMMANDS.iter().fold(hint.to_owned(), |hint, (request, command)| hint.replace(request, command))
}

/// What the gateway says of a request's own parts. What anybody else says is left as it is.
fn of_options(kind: &str, detail: String) -> String {
    match OPTIONS.iter().find(|(part, _)| kind == "bad_request" && detail.starts_with(part)) {
        Some((part, option)) => detail.replacen(part, option, 1),
        None => detail,
    }
}

/// A path segment with everything escaped that has a meaning in a URL.
pub(crate) fn segment(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Every hint of the gateway's own that names a request.
    #[test]
    fn hints_name_commands() {
        let mut checked = 0;
        for dir in ["src/http", "../relay/src", "../core/src", "../nodes/src", "../channels/src", "../plugins/src"] {
            let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join(dir);
            for file in std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
                let Ok(source) = std::fs::read_to_string(&file) else { continue };
                for hint in source.split("hint(\"").skip(1).map(|rest| rest.split("\")").next().unwrap_or_default()) {
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
