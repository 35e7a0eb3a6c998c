//! Login at upstream servers.
//!
//! An operator starts it, a browser visits the server's OAuth authority, and the authority
//! redirects the browser to this gateway.

use std::time::Duration;

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{Html, IntoResponse as _, Response};
use axum::{Extension, Json};
use sa_core::AuditEvent;
use sa_core::audit::MAX_SUBJECT;
use sa_http::{Ends, Http, Identity, Problem, Segment, operator_only};
use sa_text::printable;
use serde::Serialize;

use super::{PublicUrl, Routes, UpstreamDoc, audit};
use crate::{Callback, ChangeError, Progress};

/// The redirect path for authorities. A redirected browser has no token, but the `state` parameter
/// identifies its login.
const CALLBACK: &str = "/v1/upstream/{name}/callback";
/// The timeout of one request for the progress of a login.
const TIMEOUT: Duration = Duration::from_secs(20);

/// The Content-Security-Policy of a page of plain text. It runs nothing, loads nothing and cannot
/// be framed.
const POLICY: &str =
    "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; sandbox";

/// A login that was started.
#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct LoginDoc {
    /// The id to request the progress with.
    login: String,
    /// The address to open in a browser.
    url: String,
    /// The time in milliseconds during which it can be used.
    expires_in_ms: u64,
}

#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct LoginProgress {
    /// `waiting`, `done` or `failed`.
    state: &'static str,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

/// Starts a login at an upstream server.
///
/// The response contains the address that a person must open.
#[utoipa::path(post, path = "/v1/upstream/{name}/login", tag = "upstream", params(("name" = String, Path, description = "The server's name")),
    responses((status = 200, body = LoginDoc), (status = 400, body = Problem), (status = 403, body = Problem), (status = 404, body = Problem),
        (status = 502, body = Problem, description = "The server's OAuth authority does not allow the login")))]
pub(crate) async fn begin(
    State(Routes { http, upstreams, public_url: configured }): State<Routes>,
    Extension(identity): Extension<Identity>,
    Extension(ends): Extension<Ends>,
    Segment(name): Segment,
    headers: HeaderMap,
) -> Result<Json<LoginDoc>, Problem> {
    operator_only(&identity)?;
    let redirect = public_url(&configured, ends, &headers) + &CALLBACK.replace("{name}", &name);
    let actor = format!("{} {}", identity.principal.role, identity.principal.name);
    let login = upstreams.begin_login(&name, &redirect).await.inspect_err(|error| {
        if let ChangeError::Refused(why) = error {
            failed(&http, actor.clone(), &name, why);
        }
    })?;
    record(&http, "upstream.login_begun", actor, &name);
    let expires_in_ms = u64::try_from(login.expires_in.as_millis()).unwrap_or(u64::MAX);
    Ok(Json(LoginDoc { login: login.id, url: login.url, expires_in_ms }))
}

/// Shows the progress of a login. Waits up to 20 seconds for its end.
#[utoipa::path(get, path = "/v1/upstream/{name}/login/{id}", tag = "upstream",
    params(("name" = String, Path, description = "The server's name"), ("id" = String, Path, description = "The login's id")),
    responses((status = 200, body = LoginProgress), (status = 403, body = Problem), (status = 404, body = Problem)))]
pub(crate) async fn progress(
    State(Routes { upstreams, .. }): State<Routes>,
    Extension(identity): Extension<Identity>,
    path: Result<Path<(String, String)>, PathRejection>,
) -> Result<Json<LoginProgress>, Problem> {
    operator_only(&identity)?;
    let Path((name, login)) = path.map_err(|error| Problem::bad_request(error.body_text()))?;
    let progress = upstreams.login_progress(&name, &login, TIMEOUT).await;
    let progress = progress.ok_or_else(|| {
        Problem::new(404, "not_found", "the login does not exist, or a newer one has replaced it")
            .hint(format!("run `switchboard upstream login {}` to start again", printable(&name)))
    })?;
    let (state, problem) = match progress {
        Progress::Waiting => ("waiting", None),
        Progress::Done => ("done", None),
        Progress::Failed(why) => ("failed", Some(printable(&why).into_owned())),
    };
    Ok(Json(LoginProgress { state, problem }))
}

/// Logs out of an upstream server.
#[utoipa::path(post, path = "/v1/upstream/{name}/logout", tag = "upstream", params(("name" = String, Path, description = "The server's name")),
    responses((status = 200, body = UpstreamDoc), (status = 400, body = Problem), (status = 403, body = Problem), (status = 404, body = Problem)))]
pub(crate) async fn log_out(
    State(Routes { http, upstreams, .. }): State<Routes>,
    Extension(identity): Extension<Identity>,
    Segment(name): Segment,
) -> Result<Json<UpstreamDoc>, Problem> {
    operator_only(&identity)?;
    let view = upstreams.log_out(&name).await?;
    audit(&http, &identity.principal, "upstream.logged_out", &view);
    Ok(Json(UpstreamDoc::of(view)))
}

/// Receives the browser from an upstream server's OAuth authority.
///
/// It needs no token. Only the browser that started the login knows the `state`, which is valid
/// once.
#[utoipa::path(get, path = "/v1/upstream/{name}/callback", tag = "upstream",
    params(("name" = String, Path, description = "The server's name"),
        ("code" = Option<String>, Query), ("state" = Option<String>, Query), ("iss" = Option<String>, Query),
        ("error" = Option<String>, Query), ("error_description" = Option<String>, Query)),
    responses((status = 200, body = String, content_type = "text/html", description = "A page that confirms the login"),
        (status = 400, description = "A page with the reason for the failure")))]
pub(crate) async fn callback(
    State(Routes { http, upstreams, .. }): State<Routes>,
    Extension(ends): Extension<Ends>,
    Segment(name): Segment,
    query: Result<Query<Callback>, QueryRejection>,
) -> Response {
    let ended = match query {
        Ok(Query(callback)) => upstreams.finish_login(&name, callback).await,
        Err(_) => Err("the callback address cannot be read; start the login again".into()),
    };
    match ended {
        Ok(()) => {
            record(&http, "upstream.logged_in", "browser".into(), &name);
            let text = format!("The gateway is logged in to {name}. You can close this page.");
            page(StatusCode::OK, "Logged in", &text)
        }
        Err(why) => {
            failed(&http, format!("browser from {}", ends.remote.ip().to_canonical()), &name, &why);
            page(StatusCode::BAD_REQUEST, "Not logged in", &why)
        }
    }
}

/// Whether this is a callback path.
pub fn is_callback(path: &str) -> bool {
    let name = path.strip_prefix("/v1/upstream/").and_then(|rest| rest.strip_suffix("/callback"));
    name.is_some_and(|name| !name.is_empty() && !name.contains('/'))
}

fn record(http: &Http, event: &'static str, actor: String, server: &str) {
    http.journal.audit(AuditEvent {
        name: event,
        actor,
        subject: server.to_owned(),
        detail: String::new(),
    });
}

/// Records a failed login. Anyone can cause one, because the callback needs no token.
fn failed(http: &Http, actor: String, name: &str, why: &str) {
    http.journal.refused(AuditEvent {
        name: "upstream.login_failed",
        actor,
        subject: name.chars().take(MAX_SUBJECT).collect(),
        detail: why.chars().take(2 * MAX_SUBJECT).collect(),
    });
}

fn page(status: StatusCode, title: &str, text: &str) -> Response {
    let text = escaped(&printable(text));
    let html = format!(
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content=\"width=device-width\">\
         <title>Switchboard</title><h1>{title}</h1><p>{text}</p>"
    );
    let mut response = (status, Html(html)).into_response();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        // The URL of this page contains the code.
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            other => safe.push(other),
        }
    }
    safe
}

/// Returns the gateway's address for browsers: the configured one, or else the address of this
/// request.
///
/// The `Host` of the request has already been checked.
fn public_url(PublicUrl(url): &PublicUrl, ends: Ends, headers: &HeaderMap) -> String {
    if let Some(url) = url {
        return url.trim_end_matches('/').to_owned();
    }
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).map(str::to_owned);
    format!(
        "{}://{}",
        if ends.tls { "https" } else { "http" },
        host.unwrap_or_else(|| ends.local.to_string())
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_callback_is_open_to_browsers() {
        assert!(is_callback(&CALLBACK.replace("{name}", "a-server")));
        for path in [
            "/v1/upstream/a",
            "/v1/upstream//callback",
            "/v1/upstream/callback",
            "/v1/upstream/a/login/callback",
        ] {
            assert!(!is_callback(path), "{path}");
        }
    }

    #[test]
    fn external_text_is_escaped_on_the_page() {
        assert_eq!(escaped("<script a=\"b\">'&"), "&lt;script a=&quot;b&quot;&gt;&#39;&amp;");
        let response = page(StatusCode::BAD_REQUEST, "Not logged in", "<b>");
        let policy = response.headers()[header::CONTENT_SECURITY_POLICY].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'"), "{policy}");
    }
}
