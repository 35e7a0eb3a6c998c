//! The HTTP routes of upstream servers, for operators.

mod login;

use std::sync::Arc;

use axum::extract::{FromRef, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use sa_core::{AuditEvent, Principal};
use sa_http::{Http, Identity, Payload, Problem, Segment, operator_only, parse};
use sa_text::{plain, printable};
use serde::{Deserialize, Serialize};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub use self::login::is_callback;

use crate::{ChangeError, LeftOut, Spec, Upstreams, View};

/// The state of the handlers.
#[derive(Debug, Clone, FromRef)]
pub struct Routes {
    pub http: Http,
    pub upstreams: Arc<Upstreams>,
    /// The gateway's address for browsers, if it is configured.
    pub public_url: PublicUrl,
}

/// See [`Routes::public_url`].
#[derive(Debug, Clone)]
pub struct PublicUrl(pub Option<Arc<str>>);

pub fn router() -> OpenApiRouter<Routes> {
    OpenApiRouter::new()
        .routes(routes!(list, add))
        .routes(routes!(remove))
        .routes(routes!(restart))
        .routes(routes!(login::begin))
        .routes(routes!(login::progress))
        .routes(routes!(login::log_out))
        .routes(routes!(login::callback))
}

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
    state: crate::State,
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

impl From<ChangeError> for Problem {
    fn from(error: ChangeError) -> Self {
        let detail = printable(&error.to_string()).into_owned();
        match error {
            ChangeError::Invalid(_) => Self::bad_request(detail),
            ChangeError::Exists(_) => {
                Self::new(409, "conflict", detail).hint("remove it first, or choose another name")
            }
            ChangeError::Configured(_) => Self::new(409, "conflict", detail),
            ChangeError::Taken(_) => Self::new(409, "conflict", detail).hint("choose another name"),
            ChangeError::Unknown(_) => {
                Self::new(404, "not_found", detail).hint("run `switchboard upstream list`")
            }
            ChangeError::Refused(_) => Self::new(502, "failed", detail),
            ChangeError::Store(error) => error.into(),
        }
    }
}

/// Lists all upstream servers by name, with their state.
#[utoipa::path(get, path = "/v1/upstream", tag = "upstream", responses((status = 200, body = UpstreamList), (status = 403, body = Problem)))]
pub(crate) async fn list(
    State(Routes { upstreams, .. }): State<Routes>,
    Extension(identity): Extension<Identity>,
) -> Result<Json<UpstreamList>, Problem> {
    operator_only(&identity)?;
    Ok(Json(UpstreamList { upstream: upstreams.list().into_iter().map(UpstreamDoc::of).collect() }))
}

/// Adds an upstream server, and starts it.
#[utoipa::path(post, path = "/v1/upstream", tag = "upstream", request_body = AddUpstream,
    responses((status = 201, body = UpstreamDoc), (status = 400, body = Problem), (status = 403, body = Problem), (status = 409, body = Problem)))]
pub(crate) async fn add(
    State(Routes { http, upstreams, .. }): State<Routes>,
    Extension(identity): Extension<Identity>,
    Payload(body): Payload,
) -> Result<Response, Problem> {
    operator_only(&identity)?;
    let new: AddUpstream = parse(&body).map_err(|problem| {
        problem.hint("the request body needs a \"name\", and a \"command\" or a \"url\"")
    })?;
    let spec: Spec = serde_json::from_value(serde_json::Value::Object(new.spec))
        .map_err(|error| Problem::bad_request(printable(&plain(&error.to_string()))))?;
    let view = upstreams.add(&new.name, spec).await?;
    audit(&http, &identity.principal, "upstream.added", &view);
    Ok((StatusCode::CREATED, Json(UpstreamDoc::of(view))).into_response())
}

/// Removes an added upstream server. Its processes end and its tools are removed.
#[utoipa::path(delete, path = "/v1/upstream/{name}", tag = "upstream", params(("name" = String, Path, description = "The server's name")),
    responses((status = 200, body = UpstreamDoc), (status = 403, body = Problem), (status = 404, body = Problem),
        (status = 409, body = Problem, description = "The server is defined in the configuration file")))]
pub(crate) async fn remove(
    State(Routes { http, upstreams, .. }): State<Routes>,
    Extension(identity): Extension<Identity>,
    Segment(name): Segment,
) -> Result<Json<UpstreamDoc>, Problem> {
    operator_only(&identity)?;
    let view = upstreams.remove(&name).await?;
    audit(&http, &identity.principal, "upstream.removed", &view);
    Ok(Json(UpstreamDoc::of(view)))
}

/// Restarts an upstream server, and resets its failure count.
#[utoipa::path(post, path = "/v1/upstream/{name}/restart", tag = "upstream", params(("name" = String, Path, description = "The server's name")),
    responses((status = 200, body = UpstreamDoc), (status = 400, body = Problem), (status = 403, body = Problem), (status = 404, body = Problem)))]
pub(crate) async fn restart(
    State(Routes { http, upstreams, .. }): State<Routes>,
    Extension(identity): Extension<Identity>,
    Segment(name): Segment,
) -> Result<Json<UpstreamDoc>, Problem> {
    operator_only(&identity)?;
    let view = upstreams.restart(&name)?;
    audit(&http, &identity.principal, "upstream.restarted", &view);
    Ok(Json(UpstreamDoc::of(view)))
}

pub(super) fn audit(http: &Http, by: &Principal, what: &'static str, view: &View) {
    http.journal.audit(AuditEvent {
        name: what,
        actor: format!("{} {}", by.role, by.name),
        subject: view.name.clone(),
        detail: if view.spec.url.is_empty() {
            view.spec.command[0].clone()
        } else {
            view.spec.url.clone()
        },
    });
}
