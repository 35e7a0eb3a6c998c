//! The HTTP routes of sessions. Every change is a call of a session tool and is recorded like any
//! other call.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::{FromRef, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use sa_core::call::{CallRequest, TraceContext};
use sa_core::{RawJson, View};
use sa_http::events::{event, sse_response};
use sa_http::{Http, Identity, JSON, Params, Payload, Problem, Segment, call_id_header, parse};
use sa_text::json::to_json;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::{SessionItem, Sessions};

/// The state of the handlers.
#[derive(Debug, Clone, FromRef)]
pub struct Routes {
    pub http: Http,
    /// `None` if sessions are not configured.
    pub sessions: Option<Arc<Sessions>>,
    /// Cancelled when the gateway shuts down.
    pub closing: CancellationToken,
}

pub fn router() -> OpenApiRouter<Routes> {
    OpenApiRouter::new()
        .routes(routes!(list, message))
        .routes(routes!(show, end))
        .routes(routes!(events))
        .routes(routes!(respond))
}

/// The maximum number of queued events per reader.
const QUEUE: usize = 4;
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// A session as its owner and operators see it.
#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct SessionDoc {
    session_id: String,
    /// `idle` (no agent is connected), `running` or `ended`.
    state: String,
    /// Why it ended.
    reason: Option<String>,
    #[schema(value_type = Object)]
    owner: Value,
    caller_id: String,
    /// The caller's state: `listening`, `working` (on a request), `left`, `gone` (disconnected), or
    /// `unknown` (has never listened).
    caller: Option<String>,
    /// The tools that the caller provides, by the names under which they are called.
    caller_tools: Vec<String>,
    agent: Option<String>,
    parent: Option<String>,
    /// The address for an agent that connects by itself.
    socket: Option<String>,
    pending: usize,
    timeout_ms: u64,
    created_ms: i64,
    ended_ms: Option<i64>,
    /// In the response to a message: why no agent works on it.
    hint: Option<String>,
}

#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct SessionList {
    /// Newest first.
    sessions: Vec<SessionDoc>,
}

/// Lists sessions: all for an operator, otherwise the sessions of the token.
#[utoipa::path(get, path = "/v1/sessions", tag = "sessions", responses((status = 200, body = SessionList), (status = 404, body = Problem)))]
pub(crate) async fn list(
    State(routes): State<Routes>,
    Extension(identity): Extension<Identity>,
) -> Result<Response, Problem> {
    let views = sessions(&routes)?
        .list(&identity.principal)
        .await
        .map_err(|error| Problem::from(&error))?;
    Ok(json(&serde_json::json!({ "sessions": views })))
}

/// Shows one session, open or ended.
#[utoipa::path(get, path = "/v1/sessions/{id}", tag = "sessions", params(("id" = String, Path, description = "The session's id")),
    responses((status = 200, body = SessionDoc), (status = 404, body = Problem)))]
pub(crate) async fn show(
    State(routes): State<Routes>,
    Extension(identity): Extension<Identity>,
    Segment(id): Segment,
) -> Result<Response, Problem> {
    let view = sessions(&routes)?
        .show(&identity.principal, &id)
        .await
        .map_err(|error| Problem::from(&error))?;
    Ok(json(&view))
}

/// The arguments of the tool `session_message`.
#[derive(Deserialize, utoipa::ToSchema)]
#[expect(dead_code, reason = "describes a body that is passed on unchanged")]
pub(crate) struct MessageBody {
    /// The task for the agent.
    message: Option<String>,
    /// The session to continue; absent for a new one.
    session_id: Option<String>,
    /// The configured agent to use.
    agent: Option<String>,
    /// `caller_id` and `caller_tools[]` (`name`, `description`, `inputSchema`). Both may also be
    /// top-level fields.
    #[schema(value_type = Option<Object>)]
    context: Option<Value>,
    /// The timeout for a call of one of the caller's tools, in milliseconds.
    timeout_ms: Option<u64>,
    /// How long to wait for the agent to finish, in milliseconds.
    wait_ms: Option<u64>,
}

/// Starts or continues a session.
#[utoipa::path(post, path = "/v1/sessions", tag = "sessions", request_body = MessageBody,
    responses((status = 201, body = SessionDoc, description = "A new session"), (status = 200, body = SessionDoc), (status = 404, body = Problem, description = "The session or the agent does not exist"), (status = 409, body = Problem), (status = 422, body = Problem)))]
pub(crate) async fn message(
    State(routes): State<Routes>,
    Extension(identity): Extension<Identity>,
    headers: HeaderMap,
    Payload(body): Payload,
) -> Result<Response, Problem> {
    // A message without a session id, or with an empty one, starts a session.
    let is_new = parse::<Named<'_>>(&body)?.id().is_none_or(|id| id.is_empty());
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    call(&routes, identity, &headers, crate::MESSAGE, arguments(&body)?, status).await
}

/// The session that a body names. The rest of a body stays text, because parsed JSON takes many
/// times its size in memory.
#[derive(Deserialize)]
struct Named<'a> {
    #[serde(borrow)]
    session_id: Option<&'a RawValue>,
}

impl Named<'_> {
    fn id(&self) -> Option<String> {
        serde_json::from_str(self.session_id?.get()).ok()
    }
}

fn arguments(json: &[u8]) -> Result<RawJson, Problem> {
    let unreadable =
        |why: String| Problem::bad_request(format!("the request body cannot be read: {why}"));
    let text = std::str::from_utf8(json).map_err(|error| unreadable(error.to_string()))?;
    RawJson::parse(text).map_err(|error| unreadable(error.to_string()))
}

/// Returns the arguments with the session id of the path.
fn with_session(body: &[u8], id: &str) -> Result<RawJson, Problem> {
    let named: Named<'_> = parse(body)?;
    match named.session_id {
        Some(_) if named.id().is_some_and(|named| named == id) => arguments(body),
        Some(_) => Err(Problem::bad_request("the body names another session than the path")
            .hint("leave session_id out of the body")),
        None => {
            let rest = body.trim_ascii_start().strip_prefix(b"{").unwrap_or_default();
            let comma = if rest.trim_ascii_start().starts_with(b"}") { "" } else { "," };
            let first = format!("{{\"session_id\":{}{comma}", Value::from(id));
            arguments(&[first.as_bytes(), rest].concat())
        }
    }
}

/// The arguments of the tool `caller_tool_response`, without the session id.
#[derive(Deserialize, utoipa::ToSchema)]
#[expect(dead_code, reason = "describes a body that is passed on unchanged")]
pub(crate) struct ResponseBody {
    request_id: String,
    /// The result of the tool, any JSON.
    #[schema(value_type = Value, required = false)]
    result: Option<Value>,
    /// The error of the tool, a text or any other JSON.
    #[schema(value_type = Value, required = false)]
    error: Option<Value>,
    /// The progress so far, instead of an answer.
    progress: Option<f64>,
    total: Option<f64>,
    message: Option<String>,
    /// A part of the result, any JSON, instead of an answer.
    #[schema(value_type = Value, required = false)]
    chunk: Option<Value>,
}

/// The response to an answer.
#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct ReceivedDoc {
    /// Always true.
    received: bool,
    /// False if the answer has no effect, because it is late or names no open request. Only the
    /// owner of the session learns this; for others, and for an answer that counts, it is absent.
    #[schema(required = false)]
    counted: Option<bool>,
}

/// Answers a `caller_tool_request`.
///
/// An answer counts only from the session's owner, only once, and only in time. The response tells
/// the owner if it does not count. Other tokens receive the same response in all cases.
#[utoipa::path(post, path = "/v1/sessions/{id}/responses", tag = "sessions", request_body = ResponseBody,
    params(("id" = String, Path, description = "The session's id")),
    responses((status = 202, body = ReceivedDoc, description = "The message was received"), (status = 422, body = Problem)))]
pub(crate) async fn respond(
    State(routes): State<Routes>,
    Extension(identity): Extension<Identity>,
    Segment(id): Segment,
    headers: HeaderMap,
    Payload(body): Payload,
) -> Result<Response, Problem> {
    let args = with_session(&body, &id)?;
    call(&routes, identity, &headers, crate::RESPOND, args, StatusCode::ACCEPTED).await
}

/// Ends a session: its agent stops, and its calls fail.
#[utoipa::path(delete, path = "/v1/sessions/{id}", tag = "sessions", params(("id" = String, Path, description = "The session's id")),
    responses((status = 200, body = SessionDoc), (status = 404, body = Problem)))]
pub(crate) async fn end(
    State(routes): State<Routes>,
    Extension(identity): Extension<Identity>,
    Segment(id): Segment,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let args = RawJson::of(&serde_json::json!({ "session_id": id }));
    call(&routes, identity, &headers, crate::END, args, StatusCode::OK).await
}

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct EventsQuery {
    /// Only events after this one; 0 for all stored events. If absent, only new events.
    since: Option<u64>,
    /// Only watch. Otherwise the session's owner counts as listening, and as disconnected when the
    /// stream ends.
    #[serde(default)]
    watch: bool,
}

/// Streams the events of a session as server-sent events.
///
/// Each event is named by its `type` and has an id for `Last-Event-ID`. Every unanswered
/// `caller_tool_request` is sent first. The stream ends with the session.
#[utoipa::path(get, path = "/v1/sessions/{id}/events", tag = "sessions", params(EventsQuery, ("id" = String, Path, description = "The session's id")),
    responses((status = 200, body = String, content_type = "text/event-stream", description = "A stream of events"), (status = 404, body = Problem)))]
pub(crate) async fn events(
    State(routes): State<Routes>,
    Extension(identity): Extension<Identity>,
    Segment(id): Segment,
    headers: HeaderMap,
    Params(query): Params<EventsQuery>,
) -> Result<Response, Problem> {
    let last = headers
        .get("last-event-id")
        .and_then(|value| value.to_str().ok())
        .and_then(|text| text.trim().parse().ok());
    let after = last.or(query.since);
    let mut following = sessions(&routes)?
        .follow(&identity.principal, &id, after, query.watch)
        .await
        .map_err(|error| Problem::from(&error))?;
    let (lines, body) = mpsc::channel(QUEUE);
    tokio::spawn(async move {
        loop {
            let items = tokio::select! {
                () = routes.closing.cancelled() => return,
                () = identity.over() => return,
                () = lines.closed() => return,
                () = tokio::time::sleep(KEEP_ALIVE) => {
                    if lines.send(": still here\n\n".to_owned()).await.is_err() {
                        return;
                    }
                    continue;
                }
                items = following.next() => items,
            };
            let Ok(Some(items)) = items else { return };
            for item in items {
                let text = match item {
                    SessionItem::Request(request) => event("caller_tool_request", request.as_str()),
                    SessionItem::Event(event_item) => {
                        format!(
                            "id: {}\n{}",
                            event_item.id,
                            event(&event_item.kind, &event_item.json)
                        )
                    }
                };
                if lines.send(text).await.is_err() {
                    return;
                }
            }
        }
    });
    Ok(sse_response(body))
}

async fn call(
    routes: &Routes,
    identity: Identity,
    headers: &HeaderMap,
    tool: &str,
    args: RawJson,
    status: StatusCode,
) -> Result<Response, Problem> {
    sessions(routes)?;
    let request = CallRequest {
        tool: tool.into(),
        args,
        view: View::of(identity.principal),
        surface: "rest",
        session_key: None,
        timeout: None,
        idle_timeout: None,
        idempotency_key: None,
        trace: TraceContext::continue_from(
            headers.get("traceparent").and_then(|value| value.to_str().ok()),
        ),
    };
    let finished = routes.http.router.start(request, None).outcome().await;
    let body = match &finished.outcome {
        Ok(output) => (status, [(header::CONTENT_TYPE, JSON)], output.content.as_str().to_owned())
            .into_response(),
        Err(error) => Problem::call(error, finished.id).into_response(),
    };
    Ok((call_id_header(finished.id), body).into_response())
}

fn sessions(routes: &Routes) -> Result<&Arc<Sessions>, Problem> {
    routes.sessions.as_ref().ok_or_else(|| {
        Problem::new(404, "not_found", "sessions are disabled on this gateway")
            .hint("set sessions.enabled to true")
    })
}

fn json(value: &impl Serialize) -> Response {
    ([(header::CONTENT_TYPE, JSON)], to_json(value)).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_session_of_the_path_is_added_to_the_body() {
        for (body, expected) in [
            ("{}", Some(r#"{"session_id":"s\"1"}"#)),
            (" { } ", Some(r#"{"session_id":"s\"1" } "#)),
            (r#"{"result":[1]}"#, Some(r#"{"session_id":"s\"1","result":[1]}"#)),
            (r#"{"a":1,"session_id":"s\"1"}"#, Some(r#"{"a":1,"session_id":"s\"1"}"#)),
            (r#"{"session_id":"other"}"#, None),
            (r#"{"session_id":1}"#, None),
            ("[]", None),
            ("", None),
        ] {
            let found = with_session(body.as_bytes(), "s\"1").ok();
            let found = found.as_ref().map(|json| json.as_str().trim());
            assert_eq!(found, expected.map(str::trim), "{body}");
        }
    }
}
