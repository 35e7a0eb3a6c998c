//! Logging in to upstream servers: an operator begins, a browser goes to the server's authority and comes back here.

use std::time::Duration;

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use axum::{Extension, Json};
use sa_core::{AuditEvent, Journal as _};
use sa_upstream::{Callback, ChangeError, Progress};
use serde::Serialize;

use super::front::operator_only;
use super::upstream::{UpstreamDoc, audit};
use super::{App, Problem, Segment};
use crate::journal::MAX_SUBJECT;
use crate::redact::printable;
use crate::serve::Ends;
use crate::tokens::Identity;

/// Where authorities send browsers back to. They bring no token of ours, but the word by which their login is known.
pub(super) const CALLBACK: &str = "/v1/upstream/{name}/callback";
/// How long one question about a login waits.
const PATIENCE: Duration = Duration::from_secs(20);

/// A page of words alone: nothing runs in it, nothing is loaded by it, and nobody shows it inside another.
const POLICY: &str = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; sandbox";

/// A login that has begun.
#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct LoginDoc {
    /// By which the login can be asked about.
    login: String,
    /// The address to open in a browser.
    url: String,
    /// How long it can be used.
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

/// Begins a login at an upstream server: answers with the address that a person is to open.
#[utoipa::path(post, path = "/v1/upstream/{name}/login", tag = "upstream", params(("name" = String, Path, description = "The server's name")),
    responses((status = 200, body = LoginDoc), (status = 400, body = Problem), (status = 403, body = Problem), (status = 404, body = Problem),
        (status = 502, body = Problem, description = "The server's OAuth authority does not let anybody log in")))]
pub(crate) async fn begin(
    State(app): State<App>,
    Extension(identity): Extension<Identity>,
    Extension(ends): Extension<Ends>,
    Segment(name): Segment,
    headers: HeaderMap,
) -> Result<Json<LoginDoc>, Problem> {
    operator_only(&identity)?;
    let redirect = public_url(&app, ends, &headers) + &CALLBACK.replace("{name}", &name);
    let who = format!("{} {}", identity.principal.role, identity.principal.name);
    let begun = app.upstreams.begin_login(&name, &redirect).await.inspect_err(|error| {
        if let ChangeError::Refused(why) = error {
            failed(&app, who.clone(), &name, why);
        }
    })?;
    record(&app, "upstream.login_begun", who, &name);
    let expires_in_ms = u64::try_from(begun.expires_in.as_millis()).unwrap_or(u64::MAX);
    Ok(Json(LoginDoc { login: begun.id, url: begun.url, expires_in_ms }))
}

/// What has become of a login. Waits up to 20 seconds for its end.
#[utoipa::path(get, path = "/v1/upstream/{name}/login/{id}", tag = "upstream",
    params(("name" = String, Path, description = "The server's name"), ("id" = String, Path, description = "The login's id")),
    responses((status = 200, body = LoginProgress), (status = 403, body = Problem), (status = 404, body = Problem)))]
pub(crate) async fn progress(
    State(app): State<App>,
    Extension(identity): Extension<Identity>,
    path: Result<Path<(String, String)>, PathRejection>,
) -> Result<Json<LoginProgress>, Problem> {
    operator_only(&identity)?;
    let Path((name, login)) = path.map_err(|error| Problem::bad_request(error.body_text()))?;
    let progress = app.upstreams.login_progress(&name, &login, PATIENCE).await;
    let progress = progress.ok_or_else(|| {
        Problem::new(404, "not_found", "there is no such login, or another one has taken its place")
            .hint(format!("begin again with: switchboard upstream login {}", printable(&name)))
    })?;
    let (state, problem) = match progress {
        Progress::Waiting => ("waiting", None),
        Progress::Done => ("done", None),
        Progress::Failed(why) => ("failed", Some(printable(&why).into_owned())),
    };
    Ok(Json(LoginProgress { state, problem }))
}

/// Forgets the login at an upstream server.
#[utoipa::path(post, path = "/v1/upstream/{name}/logout", tag = "upstream", params(("name" = String, Path, description = "The server's name")),
    responses((status = 200, body = UpstreamDoc), (status = 400, body = Problem), (status = 403, body = Problem), (status = 404, body = Problem)))]
pub(crate) async fn log_out(
    State(app): State<App>,
    Extension(identity): Extension<Identity>,
    Segment(name): Segment,
) -> Result<Json<UpstreamDoc>, Problem> {
    operator_only(&identity)?;
    let view = app.upstreams.log_out(&name).await?;
    audit(&app, &identity.principal, "upstream.logged_out", &view);
    Ok(Json(UpstreamDoc::of(view)))
}

/// Where an upstream server's authority sends a browser back to. Needs no token: its `state` is known to who began the login, and good once.
#[utoipa::path(get, path = "/v1/upstream/{name}/callback", tag = "upstream",
    params(("name" = String, Path, description = "The server's name"),
        ("code" = Option<String>, Query), ("state" = Option<String>, Query), ("iss" = Option<String>, Query),
        ("error" = Option<String>, Query), ("error_description" = Option<String>, Query)),
    responses((status = 200, body = String, content_type = "text/html", description = "A page that says so"),
        (status = 400, description = "A page that says why not")))]
pub(crate) async fn callback(
    State(app): State<App>,
    Extension(ends): Extension<Ends>,
    Segment(name): Segment,
    query: Result<Query<Callback>, QueryRejection>,
) -> Response {
    let ended = match query {
        Ok(Query(callback)) => app.upstreams.finish_login(&name, callback).await,
        Err(_) => Err("the address that you came back to cannot be read; begin again".into()),
    };
    match ended {
        Ok(()) => {
            record(&app, "upstream.logged_in", "browser".into(), &name);
            let text = format!("The gateway is logged in to {name}. You can close this page.");
            page(StatusCode::OK, "Logged in", &text)
        }
        Err(why) => {
            failed(&app, format!("browser from {}", ends.remote.ip().to_canonical()), &name, &why);
            page(StatusCode::BAD_REQUEST, "Not logged in", &why)
        }
    }
}

/// Whether this is such an address.
pub(super) fn is_callback(path: &str) -> bool {
    let name = path.strip_prefix("/v1/upstream/").and_then(|rest| rest.strip_suffix("/callback"));
    name.is_some_and(|name| !name.is_empty() && !name.contains('/'))
}

fn record(app: &App, what: &'static str, who: String, name: &str) {
    app.journal.audit(AuditEvent { what, who, subject: name.to_owned(), detail: String::new() });
}

/// Writes down a login that came to nothing. Anybody can cause one: the way back needs no token.
fn failed(app: &App, who: String, name: &str, why: &str) {
    app.journal.refused(AuditEvent {
        what: "upstream.login_failed",
        who,
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
        // The address of the page holds the code.
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

/// Where browsers reach the gateway: where the configuration says so, or else where this request has. Its `Host` is one of ours.
fn public_url(app: &App, ends: Ends, headers: &HeaderMap) -> String {
    let public = &app.config.settings.server.public_url;
    if !public.is_empty() {
        return public.trim_end_matches('/').to_owned();
    }
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).map(str::to_owned);
    format!("{}://{}", if ends.tls { "https" } else { "http" }, host.unwrap_or_else(|| ends.local.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_else_is_open_to_browsers() {
        assert!(is_callback(&CALLBACK.replace("{name}", "a-server")));
        for path in
            ["/v1/upstream/a", "/v1/upstream//callback", "/v1/upstream/callback", "/v1/upstream/a/login/callback"]
        {
            assert!(!is_callback(path), "{path}");
        }
    }

    #[test]
    fn words_of_others_are_words_on_the_page() {
        assert_eq!(escaped("<script a=\"b\">'&"), "&lt;script a=&quot;b&quot;&gt;&#39;&amp;");
        let response = page(StatusCode::BAD_REQUEST, "Not logged in", "<b>");
        let policy = response.headers()[header::CONTENT_SECURITY_POLICY].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'"), "{policy}");
    }
}
