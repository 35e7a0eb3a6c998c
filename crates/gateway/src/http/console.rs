//! `/console/`: the embedded web console and its sign-in.
//!
//! A session uses its own token. The page keeps it in the browser tab and sends it like any other
//! client. It is not a cookie, because cookies ignore ports. A browser would send a cookie to every
//! server on this machine, and with requests that other pages cause.

use sa_http::Authenticate as _;
use std::borrow::Cow;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{Html, IntoResponse, Redirect, Response};
use axum::{Extension, Json};
use rust_embed::RustEmbed;
use sa_core::{AuditEvent, Journal as _};
use sa_limits::budget::Holder;
use sa_socket::{NoUpgrade, Upgrade};
use serde::{Deserialize, Serialize};

use super::paced::Embedded;
use super::{App, tokens};
use crate::{assemble, sign_in};
use sa_http::Ends;
use sa_http::auth::bearer;
use sa_http::auth::unauthorized;
use sa_http::body::whole;
use sa_http::operator_only;
use sa_http::parse;
use sa_http::{Identity, Refused};
use sa_http::{Problem, Segment};

/// The output of `npm run build` in `console/`, each file plain and compressed. Absent in a build
/// without Node.js.
#[derive(RustEmbed)]
#[folder = "../../console/dist"]
#[allow_missing = true]
struct Files;

/// The Content-Security-Policy of the page.
///
/// It allows the page's own files, requests to this gateway, and images from tool results. It
/// forbids framing the page and running text as code. Plugin pages run inside it in confined
/// frames. Operators choose them when they accept a plugin.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; \
                      connect-src 'self'; frame-src http: https:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
                      require-trusted-types-for 'script'; trusted-types 'none'";

const NOT_BUILT: &str = "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content=\"width=device-width\">\
    <title>Switchboard</title><h1>Switchboard</h1><p>The gateway is running, and all other features \
    work. It was built without its console, which needs Node.js and npm.</p><p>To add the console, install both \
    (<code>apt install nodejs npm</code>), then run <code>cargo xtask up</code> in the project's folder.</p>";

/// The maximum size of a sign-in body. A code has a few dozen bytes, and the sender is not
/// authenticated yet.
const MAX_SIGN_IN: usize = 1_024;
/// The lifetime of a session: a working day.
const SESSION_MS: i64 = 12 * 3_600 * 1_000;

/// The gateway's root: participants can connect here, and browsers are redirected to the console.
pub(super) async fn root(
    State(app): State<App>,
    upgrade: Result<Upgrade, NoUpgrade>,
    request: Request,
) -> Result<Response, Problem> {
    if matches!(upgrade, Err(NoUpgrade::NotAsked(_))) {
        Ok(redirect().await.into_response())
    } else {
        assemble::routes::root_socket(&app, upgrade, request).await
    }
}

/// Redirects a browser from the gateway's address to the console.
pub(super) async fn redirect() -> Redirect {
    Redirect::temporary("/console/")
}

/// Serves the page. It contains no data and loads everything from the API.
pub(super) async fn page(headers: HeaderMap) -> Response {
    let mut response =
        file("index.html", &headers).unwrap_or_else(|| Html(NOT_BUILT).into_response());
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (header::CACHE_CONTROL, "no-cache"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    protected(response)
}

/// Serves the page between the console and an MCP App.
///
/// Its headers belong to it: they remove its origin, and leave the rest of the policy to the app's
/// declaration.
pub(super) async fn sandbox(headers: HeaderMap) -> Result<Response, Problem> {
    let missing = || Problem::new(404, "not_found", "the gateway was built without its console");
    let mut response = file("sandbox.html", &headers).ok_or_else(missing)?;
    let written = Files::get("sandbox.headers.json").ok_or_else(missing)?;
    let written: std::collections::BTreeMap<String, String> =
        serde_json::from_slice(&written.data).map_err(|_| missing())?;
    for (name, value) in &written {
        // The page must not be served without one of its headers.
        let name = HeaderName::try_from(name).map_err(|_| missing())?;
        response.headers_mut().insert(name, HeaderValue::try_from(value).map_err(|_| missing())?);
    }
    Ok(response)
}

/// Serves a file of the page. Its name changes with its content, so it can be cached forever.
pub(super) async fn asset(Segment(name): Segment, headers: HeaderMap) -> Result<Response, Problem> {
    let path = format!("assets/{name}");
    let mut response = file(&path, &headers).ok_or_else(|| {
        Problem::new(404, "not_found", "the console does not have this file")
            .hint("reload the page")
    })?;
    let forever = HeaderValue::from_static("public, max-age=31536000, immutable");
    response.headers_mut().insert(header::CACHE_CONTROL, forever);
    // An image that is opened directly is also a document of this origin.
    let nothing = HeaderValue::from_static(
        "default-src 'none'; style-src 'unsafe-inline'; sandbox; frame-ancestors 'none'",
    );
    response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, nothing);
    Ok(protected(response))
}

/// Adds headers that prevent other pages from reading the file, and browsers from guessing its
/// type.
fn protected(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert("cross-origin-resource-policy", HeaderValue::from_static("same-origin"));
    response
}

/// Returns the smallest encoding of a file that the client accepts.
fn file(path: &str, headers: &HeaderMap) -> Option<Response> {
    let kind = match path.rsplit('.').next()? {
        "html" => "text/html; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        _ => return None,
    };
    let coding = ["br", "gzip"].into_iter().find(|coding| accepts(headers, coding));
    let compressed =
        coding.and_then(|coding| Some((Files::get(&format!("{path}.{coding}"))?, coding)));
    let (data, coding) = match compressed {
        Some((found, coding)) => (found.data, Some(coding)),
        None => (Files::get(path)?.data, None),
    };
    let body = match data {
        Cow::Borrowed(bytes) => Body::from(bytes),
        Cow::Owned(bytes) => Body::from(bytes),
    };
    let headers = [(header::CONTENT_TYPE, kind), (header::VARY, "accept-encoding")];
    let mut response = (headers, Extension(Embedded), body).into_response();
    if let Some(coding) = coding {
        response.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static(coding));
    }
    Some(response)
}

fn accepts(headers: &HeaderMap, coding: &str) -> bool {
    let accepted =
        headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    accepted.flat_map(|value| value.split(',')).any(|part| {
        let (name, weight) = part.split_once(';').unwrap_or((part, ""));
        let refused =
            weight.trim().strip_prefix("q=").is_some_and(|weight| weight.parse() == Ok(0.0));
        name.trim().eq_ignore_ascii_case(coding) && !refused
    })
}

#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SignIn {
    /// The code of a sign-in link.
    code: String,
}

#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct ConsoleSession {
    /// An operator token for the console only.
    token: String,
    /// The expiry time in milliseconds since 1970.
    expires_ms: i64,
}

/// Signs in to the console.
///
/// Send the code of a sign-in link, which works once, or an operator's token in `Authorization`.
/// The response contains a token for twelve hours, so the page never stores the operator's own
/// token.
#[utoipa::path(post, path = "/v1/console/sign-in", tag = "console", request_body = Option<SignIn>,
    responses((status = 201, body = ConsoleSession), (status = 401, body = Problem), (status = 403, body = Problem)))]
pub(crate) async fn sign_in(
    State(app): State<App>,
    Extension(ends): Extension<Ends>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let body = whole(&app.http, &Holder::anonymous(), body, MAX_SIGN_IN).await?;
    let refuse = |with: &str, why: &str| {
        app.metrics.refused("http", "token");
        app.journal.refused(AuditEvent {
            name: "console.sign_in_refused",
            actor: ends.remote.ip().to_canonical().to_string(),
            subject: with.to_owned(),
            detail: why.to_owned(),
        });
    };
    let who = if body.is_empty() {
        let token = bearer(&headers).and_then(|token| app.tokens.authenticate(token));
        let identity = token.map_err(|refused| {
            // A request without a token is no sign-in attempt.
            match refused {
                Refused::Missing => app.metrics.refused("http", "token"),
                _ => refuse("token", refused.message()),
            }
            unauthorized(refused)
        })?;
        let who = format!("{} {}", identity.principal.role, identity.principal.name);
        operator_only(&identity)
            .inspect_err(|_| refuse(&who, "the token is not an operator token"))?;
        who
    } else {
        let SignIn { code } = parse(&body)?;
        if !app.sign_in.redeem(&code) {
            let stale =
                "the sign-in link was already used, has expired, or belongs to another gateway";
            let problem = Problem::new(401, "unauthorized", stale)
                .hint("run `switchboard console` to get a new one");
            refuse("sign-in link", stale);
            return Err(problem);
        }
        "sign-in link".to_owned()
    };
    let (record, token) = app.tokens.open_console_session(SESSION_MS).await?;
    app.journal.audit(AuditEvent {
        name: "console.signed_in",
        actor: who,
        subject: record.id.clone(),
        detail: String::new(),
    });
    let session = ConsoleSession { token, expires_ms: record.expires_ms.unwrap_or_default() };
    Ok((StatusCode::CREATED, [(header::CACHE_CONTROL, "no-store")], Json(session)).into_response())
}

/// Ends the console session of the token.
#[utoipa::path(post, path = "/v1/console/sign-out", tag = "console",
    responses((status = 204, description = "The session's token is no longer valid"), (status = 403, body = Problem), (status = 409, body = Problem)))]
pub(crate) async fn sign_out(
    State(app): State<App>,
    Extension(identity): Extension<Identity>,
) -> Result<StatusCode, Problem> {
    operator_only(&identity)?;
    if !crate::tokens::is_console_session(&identity.principal.id) {
        let detail =
            "the token does not belong to a console session, so signing out does not revoke it";
        return Err(Problem::new(409, "conflict", detail)
            .hint("run `switchboard token revoke ID` to revoke it"));
    }
    let record = app
        .tokens
        .revoke(&identity.principal.id, false)
        .map_err(|_| unauthorized(Refused::Revoked))?;
    tokens::cut_off(&app, &identity, &record).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct SignInLink {
    /// The path to append to the gateway's address.
    path: String,
    /// The time in seconds during which the link can be used once.
    expires_in_s: u64,
}

/// Creates a link that signs a person in to the console once.
#[utoipa::path(post, path = "/v1/console/links", tag = "console",
    responses((status = 201, body = SignInLink), (status = 403, body = Problem)))]
pub(crate) async fn link(
    State(app): State<App>,
    Extension(identity): Extension<Identity>,
) -> Result<Response, Problem> {
    operator_only(&identity)?;
    let link = SignInLink {
        path: sign_in::path(&app.sign_in.issue()),
        expires_in_s: sign_in::LIFE.as_secs(),
    };
    Ok((StatusCode::CREATED, [(header::CACHE_CONTROL, "no-store")], Json(link)).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_accepts(value: &str, coding: &str, expected: bool) {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_str(value).unwrap());
        assert_eq!(accepts(&headers, coding), expected, "{value}");
    }

    #[test]
    fn a_coding_is_used_for_who_asks_for_it() {
        check_accepts("gzip, deflate, br", "br", true);
        check_accepts("gzip;q=0.5, BR ; q=1", "br", true);
        check_accepts("gzip", "br", false);
        check_accepts("br;q=0, gzip", "br", false);
        check_accepts("brotli", "br", false);
        check_accepts("", "gzip", false);
    }
}
