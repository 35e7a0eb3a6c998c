//! Repeats the revision of an `initialize` request, even if that revision has no `initialize`.
//!
//! rmcp's server answers such a request with an older revision, but some public servers repeat what
//! they receive. A client must therefore never ask for such a revision.

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header::CONTENT_LENGTH;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use rmcp::model::ProtocolVersion;
use serde_json::Value;

const MAX_BODY: usize = 16 << 20;

pub(crate) async fn repeat_revision(request: Request, next: Next) -> Response {
    let (head, body) = request.into_parts();
    let Ok(body) = to_bytes(body, MAX_BODY).await else {
        return StatusCode::PAYLOAD_TOO_LARGE.into_response();
    };
    let message: Value = serde_json::from_slice(&body).unwrap_or_default();
    let repeats = message["method"] == "initialize"
        && message["params"]["protocolVersion"] == ProtocolVersion::NO_INITIALIZE.as_str();
    let response = next.run(Request::from_parts(head, Body::from(body))).await;
    if !repeats {
        return response;
    }
    let (mut head, body) = response.into_parts();
    let Ok(body) = to_bytes(body, MAX_BODY).await else {
        return StatusCode::BAD_GATEWAY.into_response();
    };
    let field = |revision: &ProtocolVersion| format!("\"protocolVersion\":\"{revision}\"");
    let body = String::from_utf8_lossy(&body).replace(
        &field(&ProtocolVersion::LATEST_WITH_INITIALIZE),
        &field(&ProtocolVersion::NO_INITIALIZE),
    );
    head.headers.remove(CONTENT_LENGTH);
    Response::from_parts(head, Body::from(body))
}
