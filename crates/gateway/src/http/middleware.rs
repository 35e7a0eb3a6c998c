//! The checks before every handler: Host, Origin and token, in this order.

use sa_http::Authenticate as _;
use sa_http::auth::{bearer, unauthorized};
use sa_http::connection::over_share;
use std::any::Any;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use sa_core::{AuditEvent, Journal as _, Principal, Role};
use sa_socket::Upgrade;

use super::App;
use super::paced::paced;
use crate::assemble::routes;
use crate::config::settings::Server;
use sa_http::SocketRoute;
use sa_http::masked_path;
use sa_http::slot::Slot;
use sa_http::{Client, Ends, Problem, RouteTable};

/// Routes that need no token in the header: health checks, the console's page and sign-in. The root
/// is also a socket for browsers, see [`super::console::root`].
const OPEN: [&str; 7] = ["/healthz", "/readyz", "/", "/console", "/console/", SANDBOX, SIGN_IN];
/// The static files of the console, which are public.
const ASSETS: &str = "/console/assets/";
/// A frame without an origin loads this page and has no token to send: see [`super::console`].
const SANDBOX: &str = "/console/sandbox.html";
/// Accepts a code instead of a token: see [`super::console`].
const SIGN_IN: &str = "/v1/console/sign-in";

/// The gateway's own path that accepts WebSockets.
const ROOT: &str = "/";

/// The route for monitoring systems.
const METRICS: &str = "/metrics";

/// The request headers that pages may send: those of the supported protocols and of OpenAI's
/// official clients.
const ALLOWED_HEADERS: &str = "accept, authorization, content-type, last-event-id, mcp-protocol-version, \
    mcp-session-id, mcp-method, mcp-name, traceparent, x-sperax-plugin-settings, sperax-plugin-settings, speraxos-plugin-settings, \
    x-lobe-plugin-settings, idempotency-key, openai-beta, openai-organization, openai-project, user-agent";

/// Checks a request and passes it to its route.
///
/// [`super::HttpService`] calls this directly. As a layer of the router it would cost two boxed
/// futures and four boxed services per request.
pub(super) async fn answer(
    app: &App,
    table: &RouteTable,
    (ends, slot): (Ends, Option<Arc<Slot>>),
    request: Request,
) -> Response {
    let server = &app.config.settings.server;
    let path = request.uri().path();
    let refuse = |reason: &'static str, detail: String| {
        app.metrics.refused("http", reason);
        Problem::new(403, "not_allowed", detail)
    };
    // Clients of other protocols need errors in a separate format.
    let foreign = routes::foreign(app, path);
    let render = |problem: Problem| match foreign {
        Some(foreign) => (foreign.render)(&problem),
        None => problem.into_response(),
    };
    if let Err(detail) = check_host(request.headers(), request.uri(), ends, server) {
        let problem = refuse("host", detail);
        return render(
            problem.hint("use the gateway's own address, or add the name to server.allowed_hosts"),
        );
    }
    // Some pages may use the routes of their own protocol only.
    let pages = foreign.map_or(&[][..], |foreign| foreign.origins);
    let origin = match check_origin(request.headers(), ends, server, pages) {
        Ok(origin) => origin,
        Err(detail) => {
            let list = foreign.map_or("server.allowed_origins", |foreign| foreign.origins_key);
            return render(
                refuse("origin", detail).hint(format!("add the page's origin to {list}")),
            );
        }
    };
    let socket = routes::sockets().into_iter().find(|socket| socket.path == path);
    if let Some(socket) = socket.filter(|socket| !socket.allows_pages && origin != Origin::None) {
        let detail = format!("web pages cannot connect as {}", socket.clients);
        return refuse("origin", detail).into_response();
    }
    let cors = if let Origin::Listed(origin) = &origin { Some(origin.clone()) } else { None };
    if cors.is_some() && request.method() == Method::OPTIONS {
        return preflight(request.headers(), cors);
    }
    if request.headers().get_all(header::AUTHORIZATION).iter().nth(1).is_some() {
        // Two programs on the way may disagree about which of them counts.
        app.metrics.refused("http", "token");
        return with_cors(
            render(Problem::bad_request("the request has more than one Authorization header")),
            cors,
        );
    }
    if socket.is_none() && path != ROOT && Upgrade::is_asked_for(request.headers()) {
        // Checked before the token. A client with the wrong path would otherwise look for an error
        // in its token.
        app.metrics.refused("http", "route");
        let there_is_none = format!("there is no WebSocket at {}", sa_text::printable(path));
        let problem = Problem::new(404, "not_found", there_is_none).hint(socket_paths());
        return with_cors(render(problem), cors);
    }
    let mut identity = None;
    if !is_open(path) {
        match bearer(request.headers()).and_then(|token| app.tokens.authenticate(token)) {
            Ok(known) => {
                if let Some(Err(refused)) =
                    slot.as_ref().map(|slot| slot.settle(|| known.principal.holder()))
                {
                    app.metrics.refused("http", "too_many_connections");
                    return with_cors(closing(render(over_share(refused))), cors);
                }
                identity = Some(known);
            }
            Err(refused) => {
                app.metrics.refused("http", "token");
                app.http.token_refused(refused, ends, path);
                return with_cors(render(unauthorized(refused)), cors);
            }
        }
    }
    // A monitoring token is valid for the metrics route only.
    if let Some(known) =
        identity.as_ref().filter(|known| known.principal.role == Role::Monitor && path != METRICS)
    {
        request_refused(app, &known.principal, request.method(), path);
        let problem = refuse(
            "role",
            format!("the token's role is {}, which may only read {METRICS}", Role::Monitor),
        );
        return with_cors(render(problem), cors);
    }
    let principal = identity.as_ref().map(|identity| Arc::clone(&identity.principal));
    let (method, uri) = (request.method().clone(), request.uri().clone());
    let client = Client { identity, ends, slot };
    let response = app.journal.answerable(table.answer(client, request)).await;
    // Outcomes of calls are counted and recorded with the other calls.
    if !response.headers().contains_key(sa_http::CALL_ID) {
        if let Some(reason) = refusal(response.status()) {
            app.metrics.refused("http", reason);
        }
        if let (StatusCode::FORBIDDEN, Some(principal)) = (response.status(), &principal) {
            request_refused(app, principal, &method, uri.path());
        }
    }
    with_cors(paced(app, principal.as_deref(), &method, response, render), cors)
}

/// Makes this the last response on its connection, after the principal's share refused the
/// connection.
fn closing(mut response: Response) -> Response {
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

/// Returns the hint for a client that opens a WebSocket elsewhere.
fn socket_paths() -> String {
    let [first, rest @ ..] = routes::sockets();
    let first = format!("{} connect to {}", first.clients, first.path);
    rest.iter().fold(first, |hint, SocketRoute { clients, path, .. }| {
        format!("{hint}, {clients} to {path}")
    })
}

/// Whether a request for this path is answered without a token in its header.
pub(super) fn is_open(path: &str) -> bool {
    OPEN.contains(&path)
        || path.starts_with(ASSETS)
        || routes::is_open(path)
        || is_oauth_discovery(path)
}

/// Whether an MCP client looks for an OAuth authority at this path.
///
/// There is none, so the response is 404. Clients would read 401 as an authority that refuses to
/// register them.
fn is_oauth_discovery(path: &str) -> bool {
    // Some clients append the well-known path to that of the resource.
    let well_known = path.strip_prefix("/mcp").unwrap_or(path);
    well_known.starts_with("/.well-known/oauth-")
        || well_known.starts_with("/.well-known/openid-configuration")
        || path == "/register"
}

/// Records a request that the token does not allow.
fn request_refused(app: &App, principal: &Principal, method: &Method, path: &str) {
    app.journal.refused(AuditEvent {
        name: "request.refused",
        actor: format!("{} {}", principal.role, principal.name),
        subject: format!("{method} {}", masked_path(path)),
        detail: "the token does not allow this request".to_owned(),
    });
}

/// Returns the metrics reason for an invalid request.
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

#[derive(Debug, PartialEq, Eq)]
enum Origin {
    /// No Origin header: not a browser, or a request without an origin.
    None,
    /// The gateway's own page.
    Own,
    Listed(HeaderValue),
}

/// Checks the host name, against DNS rebinding.
///
/// A page of another site can point its own host name to this address. The browser then sends
/// requests here, but never with the gateway's name as `Host`.
fn check_host(headers: &HeaderMap, uri: &Uri, ends: Ends, server: &Server) -> Result<(), String> {
    let host = only(headers, header::HOST)?.ok_or("the request has no Host header")?;
    let named = [Some(host), uri.authority().map(axum::http::uri::Authority::as_str)];
    match named.into_iter().flatten().find(|name| !is_our_host(name, ends, server)) {
        None => Ok(()),
        Some(name) => Err(format!("the host \"{}\" is not allowed", sa_text::printable(name))),
    }
}

fn is_our_host(name: &str, ends: Ends, server: &Server) -> bool {
    let (host, port) = sa_text::split_port(name);
    if server
        .allowed_hosts
        .iter()
        .any(|allowed| allowed.eq_ignore_ascii_case(name) || allowed.eq_ignore_ascii_case(host))
    {
        return true;
    }
    let port = match port {
        // The number parser would also accept a sign.
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

fn check_origin(
    headers: &HeaderMap,
    ends: Ends,
    server: &Server,
    pages: &[String],
) -> Result<Origin, String> {
    let Some(origin) = only(headers, header::ORIGIN)? else { return Ok(Origin::None) };
    if server
        .allowed_origins
        .iter()
        .chain(pages)
        .any(|allowed| allowed.eq_ignore_ascii_case(origin))
    {
        let value = HeaderValue::from_str(origin).map_err(|error| error.to_string())?;
        return Ok(Origin::Listed(value));
    }
    let scheme = if ends.tls { "https://" } else { "http://" };
    match origin.strip_prefix(scheme) {
        Some(host) if !host.contains('/') && is_our_host(host, ends, server) => Ok(Origin::Own),
        _ => Err(format!("web pages from \"{}\" are not allowed", sa_text::printable(origin))),
    }
}

fn only(headers: &HeaderMap, name: HeaderName) -> Result<Option<&str>, String> {
    let mut values = headers.get_all(&name).iter();
    let first = values.next();
    if values.next().is_some() {
        return Err(format!("the request has more than one {name} header"));
    }
    first
        .map(|value| value.to_str().map_err(|_| format!("the {name} header cannot be read")))
        .transpose()
}

/// Answers a CORS preflight request.
fn preflight(asked: &HeaderMap, origin: Option<HeaderValue>) -> Response {
    let mut response = with_cors(StatusCode::NO_CONTENT.into_response(), origin);
    // OpenAI's official clients describe their platform in headers. Each version adds more of them.
    let asked = asked
        .get_all(header::ACCESS_CONTROL_REQUEST_HEADERS)
        .iter()
        .filter_map(|value| value.to_str().ok());
    let names =
        asked.flat_map(|value| value.split(',')).map(str::trim).filter(|name| name.len() <= 64);
    let more = names.filter_map(|name| HeaderName::try_from(name).ok());
    let more: Vec<HeaderName> =
        more.filter(|name| name.as_str().starts_with("x-stainless-")).take(32).collect();
    let allowed =
        more.iter().fold(ALLOWED_HEADERS.to_owned(), |list, name| list + ", " + name.as_str());
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
        headers.insert(
            header::ACCESS_CONTROL_ALLOW_METHODS,
            HeaderValue::from_static("GET, POST, PUT, DELETE"),
        );
        headers.insert(
            header::ACCESS_CONTROL_ALLOW_HEADERS,
            HeaderValue::from_static(ALLOWED_HEADERS),
        );
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
    Problem::new(404, "not_found", format!("there is no route {}", sa_text::printable(uri.path())))
        .hint("`GET /openapi.json` lists the routes")
}

pub(super) fn panicked(_: Box<dyn Any + Send>) -> Response {
    tracing::error!("a request handler panicked");
    Problem::new(
        500,
        "internal",
        "the gateway failed to process this request; other requests are not affected",
    )
    .into_response()
}

#[cfg(test)]
mod tests;
