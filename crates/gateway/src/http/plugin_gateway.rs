//! The plugin gateway at the paths where hosts look for it.

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use sa_core::budget::Holder;
use sa_core::call::TraceContext;
use sa_plugins::{Asked, Reply};
use sa_protocol::plugin::{PluginErrorType, SETTINGS_HEADERS};
use serde_json::json;

use super::body::whole;
use super::front::unauthorized;
use super::tools::call_id_header;
use super::{App, Problem};
use crate::tokens::{Identity, Refused};

/// What a plugin host posts.
#[derive(utoipa::ToSchema)]
#[allow(dead_code)] // It is read by `sa-protocol`; this one is for the description of the API.
#[schema(rename_all = "camelCase")]
pub(crate) struct PluginRequestPayload {
    identifier: String,
    api_name: String,
    /// A JSON text.
    arguments: Option<String>,
    index_url: Option<String>,
    manifest: Option<serde_json::Value>,
}

/// How the plugin gateway reports a failure.
#[derive(utoipa::ToSchema)]
#[allow(dead_code)]
#[schema(rename_all = "camelCase")]
pub(crate) struct PluginFailure {
    /// What happened, or what the plugin's server said.
    body: serde_json::Value,
    /// A name such as `PluginApiNotFound`, or the status of the plugin's server.
    error_type: serde_json::Value,
}

/// Runs a function of a plugin, and answers as its server does.
#[utoipa::path(post, path = "/api/gateway", tag = "plugins", request_body = PluginRequestPayload,
    responses((status = 200, body = String, content_type = "*/*", description = "The answer of the plugin's server, with its content type"), (status = "default", body = PluginFailure)))]
pub(crate) async fn run(State(app): State<App>, request: Request) -> Response {
    if request.method() != Method::POST {
        let body = json!({ "message": format!("only POST is answered here, not {}", request.method()) });
        let mut response = reply(Reply::error(PluginErrorType::MethodNotAllowed, &body));
        response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("POST"));
        return response;
    }
    let (parts, body) = request.into_parts();
    let Some(identity) = parts.extensions.get::<Identity>() else {
        return refusal(&unauthorized(Refused::Missing));
    };
    let body =
        match whole(&app, &Holder::of(&identity.principal), body, app.config.settings.limits.max_body_bytes).await {
            Ok(body) => body,
            Err(problem) => return refusal(&problem),
        };
    if identity.revoked.is_cancelled() {
        return refusal(&unauthorized(Refused::Revoked));
    }
    let traceparent = parts.headers.get("traceparent").and_then(|value| value.to_str().ok());
    let asked = Asked {
        body: &body,
        settings: settings(&parts.headers),
        view: app.view(identity, None),
        trace: TraceContext::continue_from(traceparent),
    };
    reply(app.plugins.run(asked).await)
}

/// The first settings header that is there and says something.
fn settings(headers: &HeaderMap) -> Option<&[u8]> {
    SETTINGS_HEADERS.iter().find_map(|name| headers.get(*name)).map(HeaderValue::as_bytes)
}

/// A failure of the gateway's own, in the form that plugin hosts read.
pub(super) fn refusal(problem: &Problem) -> Response {
    let mut body = json!({ "message": problem.detail() });
    if let Some(advice) = problem.advice() {
        body["hint"] = advice.into();
    }
    let mut response = reply(Reply::error(PluginErrorType::Status(problem.status()), &body));
    if problem.passes_soon() {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

fn reply(reply: Reply) -> Response {
    let Reply { status, content_type, body, call } = reply;
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY);
    let content_type = HeaderValue::from_str(&content_type).unwrap_or(HeaderValue::from_static("text/plain"));
    let mut response = (status, body).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, content_type);
    // It is somebody else's page, on our address: it must not be taken for one of ours.
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox; default-src 'none'"));
    if status == StatusCode::UNAUTHORIZED && call.is_none() {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    if status == StatusCode::TOO_MANY_REQUESTS {
        headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    match call {
        Some(call) => (call_id_header(call), response).into_response(),
        None => response,
    }
}
