//! Upstream MCP servers over REST, for operators.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use sa_core::{AuditEvent, Journal as _, Principal};
use sa_upstream::{LeftOut, Spec, View};
use serde::{Deserialize, Serialize};

use super::App;
use sa_http::Identity;
use sa_http::Payload;
use sa_http::operator_only;
use sa_http::parse;
use sa_http::{Problem, Segment};
use sa_text::plain;
use sa_text::printable;

#[derive(Debug, Deserialize, utoipa::ToSchema)]
pub(crate) struct AddUpstream {
    /// The prefix of its tools' names: `{name}__{tool}`.
    name: String,
    /// `command` (with `env`, `cwd`) or `url` (with `bearer`, `headers`, `oauth`), `timeout_ms`,
    /// `max_running`, `enabled`, `isolate`.
    #[serde(flatten)]
    #[schema(value_type = Object)]
    spec: serde_json::Map<String, serde_json::Value>,
}

/// An upstream server as operators see it. Values that may be secrets are masked.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct UpstreamDoc {
    name: String,
    /// `disabled`, `idle`, `starting`, `ready`, `offline`, `failed` or `login_needed`.
    #[schema(value_type = String)]
    state: sa_upstream::State,
    /// The time at which it entered this state.
    since_ms: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<String>,
    /// Whether the gateway is logged in; absent if no login is needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    logged_in: Option<bool>,
    tools: usize,
    /// Its tools that cannot be used, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    left_out: Vec<LeftOutDoc>,
    /// The number of automatic restarts since the last manual start.
    restarts: u64,
    /// `config` for a server in the configuration file, which is read-only here, or `added`.
    source: &'static str,
    #[schema(value_type = Object)]
    #[serde(flatten)]
    spec: Spec,
}

#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct LeftOutDoc {
    tool: String,
    why: String,
}

#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct UpstreamList {
    upstream: Vec<UpstreamDoc>,
}

impl UpstreamDoc {
    pub(super) fn of(view: View) -> Self {
        let View { name, spec, configured, health, logged_in } = view;
        let source = if configured { "config" } else { "added" };
        let left_out =
            health.left_out.into_iter().map(|LeftOut { tool, why }| LeftOutDoc { tool, why });
        Self {
            name,
            state: health.state,
            since_ms: health.since_ms,
            last_error: health.last_error,
            logged_in,
            tools: health.tools,
            left_out: left_out.collect(),
            restarts: health.restarts,
            source,
            spec,
        }
    }
}

/// Lists all upstream servers by name, with their state.
#[utoipa::path(get, path = "/v1/upstream", tag = "upstream", responses((status = 200, body = UpstreamList), (status = 403, body = Problem)))]
pub(crate) async fn list(
    State(app): State<App>,
    Extension(identity): Extension<Identity>,
) -> Result<Json<UpstreamList>, Problem> {
    operator_only(&identity)?;
    Ok(Json(UpstreamList {
        upstream: app.upstreams.list().into_iter().map(UpstreamDoc::of).collect(),
    }))
}

/// Adds an upstream server, and starts it.
#[utoipa::path(post, path = "/v1/upstream", tag = "upstream", request_body = AddUpstream,
    responses((status = 201, body = UpstreamDoc), (status = 400, body = Problem), (status = 403, body = Problem), (status = 409, body = Problem)))]
pub(crate) async fn add(
    State(app): State<App>,
    Extension(identity): Extension<Identity>,
    Payload(body): Payload,
) -> Result<Response, Problem> {
    operator_only(&identity)?;
    let new: AddUpstream = parse(&body).map_err(|problem| {
        problem.hint("the request body needs a \"name\", and a \"command\" or a \"url\"")
    })?;
    let spec: Spec = serde_json::from_value(serde_json::Value::Object(new.spec))
        .map_err(|error| Problem::bad_request(printable(&plain(&error.to_string()))))?;
    let view = app.upstreams.add(&new.name, spec).await?;
    audit(&app, &identity.principal, "upstream.added", &view);
    Ok((StatusCode::CREATED, Json(UpstreamDoc::of(view))).into_response())
}

/// Removes an added upstream server. Its processes end and its tools are removed.
#[utoipa::path(delete, path = "/v1/upstream/{name}", tag = "upstream", params(("name" = String, Path, description = "The server's name")),
    responses((status = 200, body = UpstreamDoc), (status = 403, body = Problem), (status = 404, body = Problem),
        (status = 409, body = Problem, description = "The server is defined in the configuration file")))]
pub(crate) async fn remove(
    State(app): State<App>,
    Extension(identity): Extension<Identity>,
    Segment(name): Segment,
) -> Result<Json<UpstreamDoc>, Problem> {
    operator_only(&identity)?;
    let view = app.upstreams.remove(&name).await?;
    audit(&app, &identity.principal, "upstream.removed", &view);
    Ok(Json(UpstreamDoc::of(view)))
}

/// Restarts an upstream server, and resets its failure count.
#[utoipa::path(post, path = "/v1/upstream/{name}/restart", tag = "upstream", params(("name" = String, Path, description = "The server's name")),
    responses((status = 200, body = UpstreamDoc), (status = 400, body = Problem), (status = 403, body = Problem), (status = 404, body = Problem)))]
pub(crate) async fn restart(
    State(app): State<App>,
    Extension(identity): Extension<Identity>,
    Segment(name): Segment,
) -> Result<Json<UpstreamDoc>, Problem> {
    operator_only(&identity)?;
    let view = app.upstreams.restart(&name)?;
    audit(&app, &identity.principal, "upstream.restarted", &view);
    Ok(Json(UpstreamDoc::of(view)))
}

pub(super) fn audit(app: &App, by: &Principal, what: &'static str, view: &View) {
    app.journal.audit(AuditEvent {
        what,
        who: format!("{} {}", by.role, by.name),
        subject: view.name.clone(),
        detail: if view.spec.url.is_empty() {
            view.spec.command[0].clone()
        } else {
            view.spec.url.clone()
        },
    });
}
