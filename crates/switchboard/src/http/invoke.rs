//! `/v1/tools/invoke`: a call with the tool's name in the body.

use std::borrow::Cow;

use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use sa_core::Finished;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::body::Payload;
use super::tools::{CallBody, JSON, call_id_header, call_request, parse, raw};
use super::{App, Problem};
use crate::tokens::Identity;

#[derive(Debug, Deserialize, utoipa::ToSchema)]
pub(crate) struct InvokeBody<'a> {
    #[serde(borrow)]
    tool: Cow<'a, str>,
    #[serde(borrow)]
    #[schema(value_type = Object)]
    args: Option<&'a RawValue>,
    #[serde(borrow)]
    session_key: Option<Cow<'a, str>>,
    timeout_ms: Option<u64>,
    /// A retry with the same key gets the first one's outcome instead of a second run.
    #[serde(borrow)]
    idempotency_key: Option<Cow<'a, str>>,
}

#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct Invoked<'a> {
    request_id: String,
    tool: &'a str,
    ok: bool,
    #[schema(value_type = Object)]
    result: Cow<'a, RawValue>,
    duration_ms: u64,
}

/// A problem, and beside it the failure in the form of the node protocol.
#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct InvokeFailed<'a> {
    #[serde(flatten)]
    problem: &'a Problem,
    request_id: String,
    tool: &'a str,
    ok: bool,
    error: InvokeError<'a>,
    duration_ms: u64,
}

#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct InvokeError<'a> {
    kind: &'a str,
    message: &'a str,
}

/// Calls a tool that is named in the body.
#[utoipa::path(post, path = "/v1/tools/invoke", tag = "tools", request_body = InvokeBody,
    responses((status = 200, body = Invoked), (status = "default", body = InvokeFailed)))]
pub(crate) async fn invoke(
    State(app): State<App>,
    Extension(identity): Extension<Identity>,
    headers: HeaderMap,
    Payload(body): Payload,
) -> Result<Response, Problem> {
    let body: InvokeBody<'_> = parse(&body)?;
    let tool = body.tool.into_owned();
    let call = CallBody::new(body.args, body.session_key, body.timeout_ms, body.idempotency_key);
    let request = call_request(&app, "invoke", identity, tool.clone(), call, &headers)?;
    let finished = app.router.start(request, None).outcome().await;
    Ok(finished.told(|finished| finished_response(&tool, finished)).await)
}

fn finished_response(tool: &str, finished: &Finished) -> Response {
    let (request_id, duration_ms) = (finished.id.to_string(), finished.duration.as_millis() as u64);
    let response = match &finished.outcome {
        Ok(output) => {
            let result = raw(&output.content).unwrap_or(Cow::Borrowed(RawValue::NULL));
            let done = Invoked { request_id, tool, ok: true, result, duration_ms };
            ([(header::CONTENT_TYPE, JSON)], crate::json::to_json(&done)).into_response()
        }
        Err(error) => {
            let problem = Problem::call(error, finished.id);
            let error = InvokeError { kind: error.kind.as_str(), message: &error.message };
            let failed = InvokeFailed { problem: &problem, request_id, tool, ok: false, error, duration_ms };
            let body = crate::json::to_json(&failed);
            let (parts, _) = problem.into_response().into_parts();
            let mut parts = parts;
            parts.headers.remove(header::CONTENT_LENGTH);
            Response::from_parts(parts, body.into())
        }
    };
    (call_id_header(finished.id), response).into_response()
}
