//! The OpenAI-compatible routes: model responses that can use the gateway's tools.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use sa_chat::{Api, Asked, Caller, ChatError, Event};
use sa_core::TraceContext;
use sa_limits::budget::Permit;
use tokio::sync::mpsc;

use super::App;
use sa_http::Identity;
use sa_http::JSON;
use sa_http::Payload;
use sa_http::SHOULD_RETRY;
use sa_http::body::count_tree;
use sa_http::events::event;
use sa_http::events::response_of;
use sa_http::events::unnamed;
use sa_http::{Problem, Segment};

/// The error response of the OpenAI-compatible routes.
#[derive(utoipa::ToSchema)]
#[expect(dead_code, reason = "describes what sa-chat writes")]
pub(crate) struct ChatFailed {
    error: ChatFailedError,
}

#[derive(utoipa::ToSchema)]
#[expect(dead_code, reason = "describes what sa-chat writes")]
pub(crate) struct ChatFailedError {
    message: String,
    /// Such as `invalid_request_error`.
    #[schema(rename = "type")]
    kind: String,
    /// The field that is invalid.
    param: Option<String>,
    code: Option<String>,
}

/// Selects the gateway's tools for the model: `none`, or names separated by commas.
const TOOLS: HeaderName = HeaderName::from_static("x-switchboard-tools");
/// The number of tools that were left out, because the model's server has a limit.
const LEFT_OUT: HeaderName = HeaderName::from_static("x-switchboard-tools-left-out");
/// The idle time after which a stream sends a keep-alive comment. Tools may take longer than the
/// timeout of a proxy.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Returns a chat completion from a model that can use the gateway's tools.
///
/// The format is OpenAI's, with `switchboard` as the only additional field.
#[utoipa::path(post, path = "/v1/chat/completions", tag = "chat", request_body = Object,
    params(("x-switchboard-tools" = Option<String>, Header, description = "The gateway's tools that are offered to the model: `none`, or a comma-separated list of names")),
    responses((status = 200, description = "The response, as JSON, or as a stream of events when the request has \"stream\": true"),
        (status = 400, description = "The request is invalid"), (status = 401, body = Problem),
        (status = 403, description = "The token may not use this model"), (status = 404, description = "The model does not exist"), (status = 429, description = "The model's server is overloaded"),
        (status = 502, description = "The model's server failed"), (status = 504, description = "The model's server did not respond in time"),
        (status = "default", description = "The model's server refused the request with this status")))]
pub(crate) async fn completions(
    State(app): State<App>,
    Extension(identity): Extension<Identity>,
    headers: HeaderMap,
    Payload(body): Payload,
) -> Result<Response, Problem> {
    answer(Api::ChatCompletions, app, identity, &headers, body).await
}

/// Returns a model response in the format of OpenAI's Responses API.
///
/// The gateway stores no responses, so each request must contain the whole conversation.
#[utoipa::path(post, path = "/v1/responses", tag = "chat", request_body = Object,
    params(("x-switchboard-tools" = Option<String>, Header, description = "The gateway's tools that are offered to the model: `none`, or a comma-separated list of names")),
    responses((status = 200, description = "The response, as JSON, or as a stream of events when the request has \"stream\": true"),
        (status = 404, description = "The model does not exist"), (status = 429, description = "The model's server is overloaded"),
        (status = 502, description = "The model's server failed"), (status = 504, description = "The model's server did not respond in time"),
        (status = "default", description = "The model's server refused the request with this status")))]
pub(crate) async fn responses(
    State(app): State<App>,
    Extension(identity): Extension<Identity>,
    headers: HeaderMap,
    Payload(body): Payload,
) -> Result<Response, Problem> {
    answer(Api::Responses, app, identity, &headers, body).await
}

async fn answer(
    api: Api,
    app: App,
    identity: Identity,
    headers: &HeaderMap,
    body: Bytes,
) -> Result<Response, Problem> {
    let tree = count_tree(&app.http, &identity.principal.holder(), &body)?;
    let asked = Asked::read(api, &body, headers.get(TOOLS).and_then(|value| value.to_str().ok()));
    drop(body);
    let answer = async { run(app, identity, headers, asked?, tree).await };
    Ok(answer.await.unwrap_or_else(|error| failed(&error)))
}

/// Lists the models that the token may use.
#[utoipa::path(get, path = "/v1/models", tag = "chat", responses((status = 200, body = Object), (status = 401, body = Problem)))]
pub(crate) async fn models(
    State(app): State<App>,
    Extension(identity): Extension<Identity>,
) -> Response {
    json(app.chat.list(&identity.principal))
}

/// Shows one model.
#[utoipa::path(get, path = "/v1/models/{name}", tag = "chat", params(("name" = String, Path, description = "The model's name")),
    responses((status = 200, body = Object), (status = 401, body = Problem), (status = 404, description = "The model does not exist")))]
pub(crate) async fn model(
    State(app): State<App>,
    Extension(identity): Extension<Identity>,
    Segment(name): Segment,
) -> Response {
    app.chat.show(&name, &identity.principal).map_or_else(|error| failed(&error), json)
}

async fn run(
    app: App,
    identity: Identity,
    headers: &HeaderMap,
    asked: Asked,
    tree: Option<Permit>,
) -> Result<Response, ChatError> {
    let caller = caller(&app, &identity, asked.scopes(), headers)?;
    if !asked.is_stream() {
        let chat = Arc::clone(&app.chat);
        return tokio::select! {
            answer = chat.complete(asked, &caller) => answer.map(|(answer, left_out)| counted(json(answer), left_out)),
            error = ended(&app, &identity) => Err(error),
        };
    }
    // Holds one event, so the reader sets the pace and a disconnect is noticed at once.
    let (events, mut news) = mpsc::channel(1);
    tokio::spawn(async move {
        let _tree = tree;
        let chat = Arc::clone(&app.chat);
        let error = tokio::select! {
            () = chat.stream(asked, &caller, &events) => return,
            // Dropping the stream cancels its calls.
            () = events.closed() => return,
            error = ended(&app, &identity) => error,
        };
        let _ = events.send(Event::Failed(error)).await;
    });
    match news.recv().await {
        Some(Event::Started { left_out }) => Ok(counted(sse(news), left_out)),
        Some(Event::Failed(error)) => Err(error),
        _ => Err(ChatError::new(
            500,
            "server_error",
            "internal",
            "the gateway failed to process this request",
        )),
    }
}

/// Completes when the token is no longer valid or the gateway shuts down.
async fn ended(app: &App, identity: &Identity) -> ChatError {
    tokio::select! {
        () = identity.over() => ChatError::new(401, "authentication_error", "token_over", "the token is no longer valid"),
        () = app.closing.cancelled() => ChatError::new(503, "server_error", "shutting_down", "the gateway is shutting down"),
    }
}

pub(super) fn caller(
    app: &App,
    identity: &Identity,
    (session, channel): (Option<&str>, Option<&str>),
    headers: &HeaderMap,
) -> Result<Caller, ChatError> {
    let view = app.http.view_in(identity, session, channel).ok_or_else(|| {
        ChatError::new(
            403,
            "invalid_request_error",
            "not_allowed",
            "the token may not call in this channel",
        )
    })?;
    let trace = TraceContext::continue_from(
        headers.get("traceparent").and_then(|value| value.to_str().ok()),
    );
    Ok(Caller { view, session_key: session.map(Into::into), trace })
}

pub(super) fn json(text: String) -> Response {
    ([(header::CONTENT_TYPE, JSON)], text).into_response()
}

pub(super) fn failed(error: &ChatError) -> Response {
    let status = StatusCode::from_u16(error.status).unwrap_or(StatusCode::BAD_GATEWAY);
    let mut response = (status, json(error.body())).into_response();
    let retry_after =
        error.retry_after.as_deref().and_then(|text| HeaderValue::from_str(text).ok());
    let should_retry =
        error.retry.map(|retry| HeaderValue::from_static(if retry { "true" } else { "false" }));
    for (name, value) in [(header::RETRY_AFTER, retry_after), (SHOULD_RETRY, should_retry)] {
        if let Some(value) = value {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

fn counted(mut response: Response, left_out: usize) -> Response {
    if left_out > 0 {
        response.headers_mut().insert(LEFT_OUT, HeaderValue::from(left_out));
    }
    response
}

fn sse(events: mpsc::Receiver<Event>) -> Response {
    response_of(futures_util::stream::unfold(events, |mut events| async move {
        let text = match tokio::time::timeout(KEEP_ALIVE, events.recv()).await {
            Err(_) => ": working\n\n".to_owned(),
            Ok(None | Some(Event::Started { .. })) => return None,
            Ok(Some(Event::Data(data))) => unnamed(&data),
            Ok(Some(Event::Named { name, data })) => event(name, &data),
            Ok(Some(Event::Failed(error))) => unnamed(&error.body()),
            Ok(Some(Event::Done)) => unnamed("[DONE]"),
        };
        Some((text, events))
    }))
}
