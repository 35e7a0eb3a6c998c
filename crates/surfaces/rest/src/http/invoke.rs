//! `/v1/tools/invoke`: a call with the tool's name in the body.

use std::borrow::Cow;

use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use sa_core::Finished;
use sa_http::blocks::raw;
use sa_http::{Http, Identity, JSON, Payload, Problem, call_id_header, parse};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::call::{CallBody, call_request};

#[derive(Debug, Deserialize, utoipa::ToSchema)]
pub(crate) struct InvokeBody<'a> {
    #[serde(borrow)]
    tool: Cow<'a, str>,
    #[serde(borrow)]
    #[schema(value_type = Object)]
    args: Option<&'a RawValue>,
    #[serde(borrow)]
    session_key: Option<Cow<'a, str>>,
    /// Hard time limit, in milliseconds.
    timeout_ms: Option<u64>,
    /// Time limit that each progress report restarts, in milliseconds. It replaces the tool's own.
    idle_timeout_ms: Option<u64>,
    /// A retry with the same key gets the outcome of the first call and does not run again.
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

/// A problem that also has the members of a failure in the node protocol, for the OpenAPI document.
#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct InvokeFailed {
    #[serde(flatten)]
    problem: Problem,
    request_id: String,
    tool: String,
    ok: bool,
    error: InvokeError,
    duration_ms: u64,
}

/// The `error` member of a problem, with the node protocol's `kind`.
#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct InvokeError {
    kind: String,
    message: String,
}

/// Calls a tool that is named in the body.
#[utoipa::path(post, path = "/v1/tools/invoke", tag = "tools", request_body = InvokeBody,
    params(("Idempotency-Key" = Option<String>, Header, description = "The same as `idempotency_key` in the body. If both are given, they must be equal")),
    responses((status = 200, body = Invoked), (status = "default", body = InvokeFailed)))]
pub(crate) async fn invoke(
    State(http): State<Http>,
    Extension(identity): Extension<Identity>,
    headers: HeaderMap,
    Payload(body): Payload,
) -> Result<Response, Problem> {
    let body: InvokeBody<'_> = parse(&body)?;
    let tool = body.tool.into_owned();
    let InvokeBody { args, session_key, timeout_ms, idle_timeout_ms, idempotency_key, .. } = body;
    let call = CallBody { args, session_key, timeout_ms, idle_timeout_ms, idempotency_key };
    let request = call_request(&http, "invoke", identity, tool.clone(), call, &headers)?;
    let finished = http.router.start(request, None).outcome().await;
    Ok(finished.render(|finished| finished_response(&tool, finished)).await)
}

fn finished_response(tool: &str, finished: &Finished) -> Response {
    let (request_id, duration_ms) = (finished.id.to_string(), finished.duration.as_millis() as u64);
    let response = match &finished.outcome {
        Ok(output) => {
            let result = raw(&output.content).unwrap_or(Cow::Borrowed(RawValue::NULL));
            let done = Invoked { request_id, tool, ok: true, result, duration_ms };
            ([(header::CONTENT_TYPE, JSON)], sa_text::json::to_json(&done)).into_response()
        }
        Err(error) => {
            let problem = Problem::call(error, finished.id);
            let mut body = serde_json::to_value(&problem).unwrap_or_default();
            body["error"]["kind"] = error.kind.as_str().into();
            for (name, value) in [
                ("request_id", request_id.into()),
                ("tool", tool.into()),
                ("ok", false.into()),
                ("duration_ms", duration_ms.into()),
            ] {
                body[name] = value;
            }
            let body = body.to_string();
            let (parts, _) = problem.into_response().into_parts();
            let mut parts = parts;
            parts.headers.remove(header::CONTENT_LENGTH);
            Response::from_parts(parts, body.into())
        }
    };
    (call_id_header(finished.id), response).into_response()
}
