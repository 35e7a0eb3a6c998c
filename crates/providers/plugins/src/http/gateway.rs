//! The plugin gateway at the paths that plugin hosts expect.

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use sa_core::call::TraceContext;
use sa_http::auth::unauthorized;
use sa_http::body::whole;
use sa_http::{Identity, Problem, Refused, call_id_header};
use sa_protocol::plugin::{PluginErrorType, SETTINGS_HEADERS};
use serde_json::json;

use super::Routes;
use crate::{Asked, Reply};

/// The request body of a plugin host.
#[derive(utoipa::ToSchema)]
#[allow(dead_code)] // Read by `sa-protocol`; this type only describes the API.
#[schema(rename_all = "camelCase")]
pub(crate) struct PluginRequestPayload {
    identifier: String,
    api_name: String,
    /// A JSON text.
    arguments: Option<String>,
    index_url: Option<String>,
    manifest: Option<serde_json::Value>,
}

/// The error format of the plugin gateway.
#[derive(utoipa::ToSchema)]
#[allow(dead_code)]
#[schema(rename_all = "camelCase")]
pub(crate) struct PluginFailure {
    /// The error, or the response of the plugin's server.
    body: serde_json::Value,
    /// A name such as `PluginApiNotFound`, or the status of the plugin's server.
    error_type: serde_json::Value,
}

/// Runs a function of a plugin, and returns the response of the plugin's server.
#[utoipa::path(post, path = "/api/gateway", tag = "plugins", request_body = PluginRequestPayload,
    responses((status = 200, body = String, content_type = "*/*", description = "The response of the plugin's server, with its content type"), (status = "default", body = PluginFailure)))]
pub(crate) async fn run(
    State(Routes { http, plugins }): State<Routes>,
    request: Request,
) -> Response {
    if request.method() != Method::POST {
        let body =
            json!({ "message": format!("only POST is allowed here, not {}", request.method()) });
        let mut response = reply(Reply::error(PluginErrorType::MethodNotAllowed, &body));
        response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("POST"));
        return response;
    }
    let (parts, body) = request.into_parts();
    let Some(identity) = parts.extensions.get::<Identity>() else {
        return refusal(&unauthorized(Refused::Missing));
    };
    let body = match whole(&http, &identity.principal.holder(), body, http.max_body_bytes).await {
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
        view: http.view(identity, None),
        trace: TraceContext::continue_from(traceparent),
    };
    reply(plugins.run(asked).await)
}

/// Returns the first settings header that is present.
fn settings(headers: &HeaderMap) -> Option<&[u8]> {
    SETTINGS_HEADERS.iter().find_map(|name| headers.get(*name)).map(HeaderValue::as_bytes)
}

/// Returns an error of the gateway itself in the format for plugin hosts.
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
    let content_type =
        HeaderValue::from_str(&content_type).unwrap_or(HeaderValue::from_static("text/plain"));
    let mut response = (status, body).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, content_type);
    // The content comes from another server. A browser must not treat it as a page of the gateway.
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static("sandbox; default-src 'none'"),
    );
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
