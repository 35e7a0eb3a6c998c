//! What every request passes first: Host, Origin, token. In that order, before any handler runs.

use std::any::Any;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{Extensions, HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use hyper::body::Incoming;
use sa_core::budget::Holder;
use sa_core::{AuditEvent, CallError, Journal as _, Principal, Role};
use sa_protocol::plugin::GATEWAY_PATHS;
use sa_socket::Upgrade;
use tower::ServiceExt as _;

use super::paced::paced;
use super::{App, Problem, mcp, plugin_gateway, tools, upstream_login};
use crate::config::settings::Server;
use crate::config::values::split_port;
use crate::journal::MAX_SUBJECT;
use crate::serve::Ends;
use crate::slot::Slot;
use crate::tokens::{Identity, Refused};

/// Routes that are open before there is a token: what machines ask, and the page on which a person types theirs.
const OPEN: [&str; 8] = ["/healthz", "/readyz", "/", "/console", "/console/", SANDBOX, SIGN_IN, CHANNELS];
/// The page's files: what everybody can download with the program.
const ASSETS: &str = "/console/assets/";
/// A frame without an origin loads it, which has no token to send: see [`super::console`].
const SANDBOX: &str = "/console/sandbox.html";
/// Takes a code in place of a token: see [`super::console`].
const SIGN_IN: &str = "/v1/console/sign-in";
/// Browsers connect here, which can send a token in the query alone: see [`super::channels`]. So it is at `/`.
const CHANNELS: &str = "/v1/channels/ws";
/// Its tokens are its own, and come in the query: see [`super::nodes`].
const NODES: &str = "/v1/nodes/ws";

/// See [`super::calls_ws`].
const CALLS: &str = "/v1/calls/ws";
/// Where a WebSocket can be opened.
const SOCKETS: [&str; 4] = [NODES, CALLS, CHANNELS, "/"];

/// What machines that watch read.
const METRICS: &str = "/metrics";

/// What pages may send: of the protocols that are spoken here, and what the official clients of OpenAI add.
const ALLOWED_HEADERS: &str = "accept, authorization, content-type, last-event-id, mcp-protocol-version, \
    mcp-session-id, mcp-method, mcp-name, traceparent, x-sperax-plugin-settings, sperax-plugin-settings, speraxos-plugin-settings, \
    x-lobe-plugin-settings, idempotency-key, openai-beta, openai-organization, openai-project, user-agent";

/// Answers a request that may come in, by way of the routes. Called by [`super::FrontDoor`] and not a layer of the
/// router's, where it would cost two boxed futures and four boxed services for each request.
pub(super) async fn door(
    app: &App,
    routes: Router,
    (ends, slot): (Ends, Option<&Arc<Slot>>),
    request: axum::http::Request<Incoming>,
) -> Response {
    let server = &app.config.settings.server;
    let path = request.uri().path();
    let refuse = |reason: &'static str, detail: String| {
        app.metrics.refused("http", reason);
        Problem::new(403, "not_allowed", detail)
    };
    // Plugin hosts read failures in a form of their own.
    let for_hosts = GATEWAY_PATHS.contains(&path);
    let told = |problem: Problem| {
        if for_hosts { plugin_gateway::refusal(&problem) } else { problem.into_response() }
    };
    if let Err(detail) = check_host(request.headers(), request.uri(), ends, server) {
        let problem = refuse("host", detail);
        return told(problem.hint("use the gateway's own address, or add the name to server.allowed_hosts"));
    }
    // Pages of plugin hosts may be let in to the plugin gateway, and to nothing else.
    let hosts: &[String] = if for_hosts { &app.config.settings.plugins.allowed_origins } else { &[] };
    let origin = match check_origin(request.headers(), ends, server, hosts) {
        Ok(origin) => origin,
        Err(detail) => {
            let list = if for_hosts { "plugins.allowed_origins" } else { "server.allowed_origins" };
            return told(refuse("origin", detail).hint(format!("add the page's origin to {list}")));
        }
    };
    if path == NODES && origin != Origin::None {
        return refuse("origin", "web pages cannot connect as nodes".into()).into_response();
    }
    let cors = if let Origin::Listed(origin) = &origin { Some(origin.clone()) } else { None };
    if cors.is_some() && request.method() == Method::OPTIONS {
        return preflight(request.headers(), cors);
    }
    if request.headers().get_all(header::AUTHORIZATION).iter().nth(1).is_some() {
        // Which of them counts is a question that two programs on the way may answer differently.
        app.metrics.refused("http", "token");
        return with_cors(told(Problem::bad_request("the request has more than one Authorization")), cors);
    }
    if !SOCKETS.contains(&path) && Upgrade::is_asked_for(request.headers()) {
        // Before the token: whoever has the wrong path would be sent to look for what is wrong with that.
        app.metrics.refused("http", "route");
        let there_is_none = format!("there is no WebSocket at {}", crate::redact::printable(path));
        let problem = Problem::new(404, "not_found", there_is_none)
            .hint(format!("nodes connect to {NODES}, callers to {CALLS}, participants of channels to {CHANNELS}"));
        return with_cors(told(problem), cors);
    }
    let mut identity = None;
    if !is_open(path) {
        match bearer(request.headers()).and_then(|token| app.tokens.authenticate(token)) {
            Ok(known) => {
                if let Some(Err(refused)) = slot.map(|slot| slot.settle(|| Holder::of(&known.principal))) {
                    app.metrics.refused("http", "too_many_connections");
                    return with_cors(closing(told(over_share(refused))), cors);
                }
                identity = Some(known);
            }
            Err(refused) => {
                app.metrics.refused("http", "token");
                token_refused(app, refused, ends, path);
                return with_cors(told(unauthorized(refused)), cors);
            }
        }
    }
    // A token for machines that watch is good for what they watch, and nothing else.
    if let Some(known) = identity.as_ref().filter(|known| known.principal.role == Role::Monitor && path != METRICS) {
        request_refused(app, &known.principal, request.method(), path);
        let problem = refuse("role", format!("the token's role is {}, which is for {METRICS} alone", Role::Monitor));
        return with_cors(told(problem), cors);
    }
    let asked = identity.as_ref().map(|identity| Arc::clone(&identity.principal));
    let (method, uri) = (request.method().clone(), request.uri().clone());
    let response = match (identity, tools::called(&request).map(str::to_owned)) {
        // What is called most goes straight to its handler: the routes would cost it a dozen allocations.
        (Some(identity), Some(tool)) => tools::call_named(app, identity, tool, request).await.into_response(),
        (Some(identity), None) if path == mcp::PATH => mcp::answer(app, identity, request).await.into_response(),
        (identity, _) => {
            let mut request = request.map(Body::new);
            identity.map(|identity| request.extensions_mut().insert(identity));
            request.extensions_mut().insert(ends);
            slot.map(|slot| request.extensions_mut().insert(Arc::clone(slot)));
            let Ok(response) = app.journal.answerable(routes.oneshot(request)).await;
            response
        }
    };
    // What becomes of a call is counted and written down where all calls are.
    if !response.headers().contains_key(tools::CALL_ID) {
        if let Some(reason) = refusal(response.status()) {
            app.metrics.refused("http", reason);
        }
        if let (StatusCode::FORBIDDEN, Some(principal)) = (response.status(), &asked) {
            request_refused(app, principal, &method, uri.path());
        }
    }
    with_cors(paced(app, asked.as_deref(), &method, response, told), cors)
}

/// Counts a connection for the principal of a socket whose token only its handler knows.
pub(super) fn settle(extensions: &Extensions, holder: impl FnOnce() -> Holder) -> Result<(), Problem> {
    let slot = extensions.get::<Arc<Slot>>();
    slot.map_or(Ok(()), |slot| slot.settle(holder)).map_err(over_share)
}

fn over_share(refused: sa_core::budget::Refused) -> Problem {
    Problem::from(&CallError::from(refused))
}

/// The last answer on its connection, which counts for nobody else meanwhile.
fn closing(mut response: Response) -> Response {
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

/// Whether a request for this path is answered without a token in its header.
pub(super) fn is_open(path: &str) -> bool {
    path == NODES
        || OPEN.contains(&path)
        || path.starts_with(ASSETS)
        || upstream_login::is_callback(path)
        || is_oauth_discovery(path)
}

/// Whether an MCP client looks here for an OAuth authority. There is none, so the answer is 404: clients take 401 for an
/// authority that refuses to register them.
fn is_oauth_discovery(path: &str) -> bool {
    path.starts_with("/.well-known/oauth-") || path == "/register"
}

/// Writes down that a token was refused, and never the token. Who comes without one has tried nothing.
pub(super) fn token_refused(app: &App, refused: Refused, ends: Ends, path: &str) {
    if refused != Refused::Missing {
        refused_because(app, refused.message(), ends, path);
    }
}

/// The same of a token that is known, and not for this.
pub(super) fn refused_because(app: &App, why: &str, ends: Ends, path: &str) {
    app.journal.refused(AuditEvent {
        what: "token.refused",
        who: ends.remote.ip().to_canonical().to_string(),
        subject: place(path),
        detail: why.to_owned(),
    });
}

/// Writes down that somebody asked for what is not theirs.
fn request_refused(app: &App, principal: &Principal, method: &Method, path: &str) {
    app.journal.refused(AuditEvent {
        what: "request.refused",
        who: format!("{} {}", principal.role, principal.name),
        subject: format!("{method} {}", place(path)),
        detail: "the token is not for this".to_owned(),
    });
}

/// A path for the record. Somebody may have put a token where an id belongs.
fn place(path: &str) -> String {
    let segment = |segment: &str| if segment.contains("sb_") { "***".to_owned() } else { segment.to_owned() };
    let path: Vec<String> = path.split('/').map(segment).collect();
    path.join("/").chars().take(MAX_SUBJECT).collect()
}

/// Input that no handler could use.
fn refusal(status: StatusCode) -> Option<&'static str> {
    match status {
        StatusCode::BAD_REQUEST => Some("bad_request"),
        StatusCode::METHOD_NOT_ALLOWED => Some("method"),
        StatusCode::REQUEST_TIMEOUT => Some("slow_body"),
        StatusCode::PAYLOAD_TOO_LARGE => Some("too_large"),
        StatusCode::UPGRADE_REQUIRED => Some("no_upgrade"),
        _ => None,
    }
}

/// The one token in the `Authorization` header.
pub(super) fn bearer(headers: &HeaderMap) -> Result<&str, Refused> {
    let value = headers.get(header::AUTHORIZATION).ok_or(Refused::Missing)?;
    let value = value.to_str().map_err(|_| Refused::Unknown)?;
    let (scheme, token) = value.split_once(' ').ok_or(Refused::Unknown)?;
    if scheme.eq_ignore_ascii_case("bearer") { Ok(token.trim()) } else { Err(Refused::Unknown) }
}

pub(super) fn unauthorized(refused: Refused) -> Problem {
    Problem::new(401, "unauthorized", refused.message()).hint(
        "send it as \"Authorization: Bearer TOKEN\"; the operator's token is in the data directory, in operator.token",
    )
}

/// Only operators pass.
pub(super) fn operator_only(identity: &Identity) -> Result<(), Problem> {
    if identity.principal.role == Role::Operator {
        return Ok(());
    }
    let detail = format!("this is for operators; the token's role is {}", identity.principal.role);
    Err(Problem::new(403, "not_allowed", detail)
        .hint("use an operator's token; commands take one by --token-file or SWITCHBOARD_TOKEN"))
}

#[derive(Debug, PartialEq, Eq)]
enum Origin {
    /// Not a browser, or not a page of another site.
    None,
    /// Our own page.
    Own,
    Listed(HeaderValue),
}

/// A page of another site can make a browser send requests here, under a name of its own that points to this address.
/// What it cannot do is send our name as `Host`.
fn check_host(headers: &HeaderMap, uri: &Uri, ends: Ends, server: &Server) -> Result<(), String> {
    let host = only(headers, header::HOST)?.ok_or("the request has no Host")?;
    let named = [Some(host), uri.authority().map(axum::http::uri::Authority::as_str)];
    match named.into_iter().flatten().find(|name| !is_our_host(name, ends, server)) {
        None => Ok(()),
        Some(name) => Err(format!("the gateway does not answer to the host \"{}\"", crate::redact::printable(name))),
    }
}

fn is_our_host(name: &str, ends: Ends, server: &Server) -> bool {
    let (host, port) = split_port(name);
    if server
        .allowed_hosts
        .iter()
        .any(|allowed| allowed.eq_ignore_ascii_case(name) || allowed.eq_ignore_ascii_case(host))
    {
        return true;
    }
    let port = match port {
        // The parser of numbers would take a sign as well.
        Some(port) => port.parse().ok().filter(|_| !port.starts_with('+')),
        None => Some(if ends.tls { 443 } else { 80 }),
    };
    if port != Some(ends.local.port()) {
        return false;
    }
    let local = ends.local.ip().to_canonical();
    let ip = match host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(literal) => literal.parse::<Ipv6Addr>().ok().map(IpAddr::from),
        None => host.parse::<Ipv4Addr>().ok().map(IpAddr::from),
    };
    match ip {
        Some(ip) => ip.to_canonical() == local || (ip.is_loopback() && local.is_loopback()),
        None => host.eq_ignore_ascii_case("localhost") && local.is_loopback(),
    }
}

fn check_origin(headers: &HeaderMap, ends: Ends, server: &Server, hosts: &[String]) -> Result<Origin, String> {
    let Some(origin) = only(headers, header::ORIGIN)? else { return Ok(Origin::None) };
    if server.allowed_origins.iter().chain(hosts).any(|allowed| allowed.eq_ignore_ascii_case(origin)) {
        let value = HeaderValue::from_str(origin).map_err(|error| error.to_string())?;
        return Ok(Origin::Listed(value));
    }
    let scheme = if ends.tls { "https://" } else { "http://" };
    match origin.strip_prefix(scheme) {
        Some(host) if !host.contains('/') && is_our_host(host, ends, server) => Ok(Origin::Own),
        _ => Err(format!("pages of \"{}\" cannot use the gateway", crate::redact::printable(origin))),
    }
}

fn only(headers: &HeaderMap, name: HeaderName) -> Result<Option<&str>, String> {
    let mut values = headers.get_all(&name).iter();
    let first = values.next();
    if values.next().is_some() {
        return Err(format!("the request has more than one {name}"));
    }
    first.map(|value| value.to_str().map_err(|_| format!("the {name} cannot be read"))).transpose()
}

/// What a page may do, before it does it.
fn preflight(asked: &HeaderMap, origin: Option<HeaderValue>) -> Response {
    let mut response = with_cors(StatusCode::NO_CONTENT.into_response(), origin);
    // The official clients of OpenAI send what they run on, in more headers with each version.
    let asked = asked.get_all(header::ACCESS_CONTROL_REQUEST_HEADERS).iter().filter_map(|value| value.to_str().ok());
    let names = asked.flat_map(|value| value.split(',')).map(str::trim).filter(|name| name.len() <= 64);
    let more = names.filter_map(|name| HeaderName::try_from(name).ok());
    let more: Vec<HeaderName> = more.filter(|name| name.as_str().starts_with("x-stainless-")).take(32).collect();
    let allowed = more.iter().fold(ALLOWED_HEADERS.to_owned(), |list, name| list + ", " + name.as_str());
    if let Ok(allowed) = HeaderValue::try_from(allowed) {
        response.headers_mut().insert(header::ACCESS_CONTROL_ALLOW_HEADERS, allowed);
    }
    response
}

fn with_cors(mut response: Response, origin: Option<HeaderValue>) -> Response {
    if let Some(origin) = origin {
        let headers = response.headers_mut();
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.append(header::VARY, HeaderValue::from_static("origin"));
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST, PUT, DELETE"));
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(ALLOWED_HEADERS));
        headers.insert(
            header::ACCESS_CONTROL_EXPOSE_HEADERS,
            HeaderValue::from_static("mcp-session-id, retry-after, x-call-id, x-should-retry"),
        );
        headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    }
    response
}

pub(super) async fn not_found(State(app): State<App>, uri: Uri) -> Problem {
    app.metrics.refused("http", "route");
    Problem::new(404, "not_found", format!("there is nothing at {}", crate::redact::printable(uri.path())))
        .hint("GET /openapi.json lists the routes")
}

pub(super) async fn method_not_allowed(method: Method, uri: Uri) -> Problem {
    Problem::new(405, "method_not_allowed", format!("{method} is not for {}", crate::redact::printable(uri.path())))
        .hint("GET /openapi.json lists the routes")
}

pub(super) fn panicked(_: Box<dyn Any + Send>) -> Response {
    tracing::error!("a request handler panicked");
    Problem::new(500, "internal", "the gateway failed at this request; others are not affected").into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(local: &str, tls: bool) -> Ends {
        Ends { local: local.parse().unwrap(), remote: "127.0.0.1:9".parse().unwrap(), tls }
    }

    #[track_caller]
    fn check_host_name(host: &str, local: &str, accepted: bool) {
        let server = Server { allowed_hosts: vec!["gw.example.com".into(), "other:8443".into()], ..Server::default() };
        assert_eq!(is_our_host(host, ends(local, false), &server), accepted, "{host} at {local}");
    }

    #[test]
    fn hosts() {
        check_host_name("127.0.0.1:3210", "127.0.0.1:3210", true);
        check_host_name("localhost:3210", "127.0.0.1:3210", true);
        check_host_name("LOCALHOST:3210", "127.0.0.1:3210", true);
        check_host_name("[::1]:3210", "[::1]:3210", true);
        check_host_name("localhost", "127.0.0.1:80", true);
        check_host_name("localhost", "127.0.0.1:3210", false);
        check_host_name("localhost:3211", "127.0.0.1:3210", false);
        check_host_name("evil.example:3210", "127.0.0.1:3210", false);
        check_host_name("127.0.0.1.evil.example:3210", "127.0.0.1:3210", false);
        check_host_name("localhost:3210@evil.example", "127.0.0.1:3210", false);
        check_host_name("localhost:", "127.0.0.1:3210", false);
        check_host_name("", "127.0.0.1:3210", false);
        check_host_name("null", "127.0.0.1:3210", false);
        check_host_name("localhost:3210", "10.0.0.5:3210", false);
        check_host_name("10.0.0.5:3210", "10.0.0.5:3210", true);
        check_host_name("10.0.0.6:3210", "10.0.0.5:3210", false);
        check_host_name("[127.0.0.1]:3210", "127.0.0.1:3210", false);
        check_host_name("[[127.0.0.1]]]:3210", "127.0.0.1:3210", false);
        check_host_name("[[::1]]:3210", "[::1]:3210", false);
        check_host_name("[localhost]:3210", "127.0.0.1:3210", false);
        check_host_name("127.0.0.1:+3210", "127.0.0.1:3210", false);
        check_host_name("127.0.0.1:-3210", "127.0.0.1:3210", false);
        check_host_name("[::ffff:127.0.0.1]:3210", "127.0.0.1:3210", true);
        check_host_name("gw.example.com", "10.0.0.5:3210", true);
        check_host_name("gw.example.com:443", "10.0.0.5:3210", true);
        check_host_name("other:8443", "10.0.0.5:3210", true);
        check_host_name("other:8444", "10.0.0.5:3210", false);
    }

    #[track_caller]
    fn check_origin_value(origins: &[&str], accepted: bool) {
        let server = Server { allowed_origins: vec!["https://app.example.com".into()], ..Server::default() };
        let mut headers = HeaderMap::new();
        for origin in origins {
            headers.append(header::ORIGIN, HeaderValue::from_bytes(origin.as_bytes()).unwrap());
        }
        let result = check_origin(&headers, ends("127.0.0.1:3210", false), &server, &[]);
        assert_eq!(result.is_ok(), accepted, "{origins:?}: {result:?}");
    }

    #[test]
    fn origins() {
        check_origin_value(&[], true);
        check_origin_value(&["http://127.0.0.1:3210"], true);
        check_origin_value(&["http://localhost:3210"], true);
        check_origin_value(&["https://app.example.com"], true);
        check_origin_value(&["https://127.0.0.1:3210"], false);
        check_origin_value(&["http://127.0.0.1:3211"], false);
        check_origin_value(&["http://127.0.0.1"], false);
        check_origin_value(&["null"], false);
        check_origin_value(&[""], false);
        check_origin_value(&["http://127.0.0.1:3210/"], false);
        check_origin_value(&["http://127.0.0.1:3210 "], false);
        check_origin_value(&["http://evil.example"], false);
        check_origin_value(&["http://127.0.0.1:3210", "http://127.0.0.1:3210"], false);
        check_origin_value(&["http://127.0.0.1:3210", "http://evil.example"], false);
    }

    proptest::proptest! {
        #[test]
        fn no_name_but_our_own_passes(name in "[ -~]{0,60}") {
            let server = Server::default();
            let ours = ["127.0.0.1:3210", "localhost:3210", "[::1]:3210", "::1:3210"];
            let accepted = is_our_host(&name, ends("127.0.0.1:3210", false), &server);
            proptest::prop_assert!(!accepted || ours.contains(&name.to_lowercase().as_str()), "{name}");
        }
    }
}
