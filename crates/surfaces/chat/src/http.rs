//! The OpenAI-compatible routes: model responses that can use the gateway's tools.

mod functions;

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::Bytes;
use axum::extract::{FromRef, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use sa_core::TraceContext;
use sa_http::body::count_tree;
use sa_http::events::{event, response_of, unnamed};
use sa_http::{ErrorFormat, Http, Identity, JSON, Payload, Problem, SHOULD_RETRY, Segment};
use sa_limits::budget::Permit;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use utoipa::OpenApi as _;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::{Api, Caller, Chat, ChatError, ChatRequest, Event};

/// The state of the handlers.
#[derive(Debug, Clone, FromRef)]
pub struct Routes {
    pub http: Http,
    pub chat: Arc<Chat>,
    /// Cancelled when the gateway shuts down.
    pub closing: CancellationToken,
}

/// The errors of the routes.
pub const ERRORS: ErrorFormat = ErrorFormat {
    paths: &[
        "/v1/chat/completions",
        "/v1/responses",
        "/v1/models",
        "/v1/models/{name}",
        "/v1/functions",
        "/v1/functions/execute",
    ],
    schemas: &[("application/json", "ChatFailed"), ("application/problem+json", "Problem")],
};

#[derive(utoipa::OpenApi)]
#[openapi(components(schemas(ChatFailed)))]
struct Schemas;

pub fn router() -> OpenApiRouter<Routes> {
    OpenApiRouter::with_openapi(Schemas::openapi())
        .routes(routes!(completions))
        .routes(routes!(responses))
        .routes(routes!(models))
        .routes(routes!(model))
        .routes(routes!(functions::list))
        .routes(routes!(functions::execute))
}

/// The error response of the OpenAI-compatible routes.
#[derive(utoipa::ToSchema)]
#[expect(dead_code, reason = "describes the output of `ChatError`")]
pub(crate) struct ChatFailed {
    error: ChatFailedError,
}

#[derive(utoipa::ToSchema)]
#[expect(dead_code, reason = "describes the output of `ChatError`")]
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
    State(routes): State<Routes>,
    Extension(identity): Extension<Identity>,
    headers: HeaderMap,
    Payload(body): Payload,
) -> Result<Response, Problem> {
    answer(Api::ChatCompletions, routes, identity, &headers, body).await
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
    State(routes): State<Routes>,
    Extension(identity): Extension<Identity>,
    headers: HeaderMap,
    Payload(body): Payload,
) -> Result<Response, Problem> {
    answer(Api::Responses, routes, identity, &headers, body).await
}

async fn answer(
    api: Api,
    routes: Routes,
    identity: Identity,
    headers: &HeaderMap,
    body: Bytes,
) -> Result<Response, Problem> {
    let tree = count_tree(&routes.http, &identity.principal.holder(), &body)?;
    let chat_request =
        ChatRequest::read(api, &body, headers.get(TOOLS).and_then(|value| value.to_str().ok()));
    drop(body);
    let answer = async { run(routes, identity, headers, chat_request?, tree).await };
    Ok(answer.await.unwrap_or_else(|error| failed(&error)))
}

/// Lists the models that the token may use.
#[utoipa::path(get, path = "/v1/models", tag = "chat", responses((status = 200, body = Object), (status = 401, body = Problem)))]
pub(crate) async fn models(
    State(Routes { chat, .. }): State<Routes>,
    Extension(identity): Extension<Identity>,
) -> Response {
    json(chat.list(&identity.principal))
}

/// Shows one model.
#[utoipa::path(get, path = "/v1/models/{name}", tag = "chat", params(("name" = String, Path, description = "The model's name")),
    responses((status = 200, body = Object), (status = 401, body = Problem), (status = 404, description = "The model does not exist")))]
pub(crate) async fn model(
    State(Routes { chat, .. }): State<Routes>,
    Extension(identity): Extension<Identity>,
    Segment(name): Segment,
) -> Response {
    chat.show(&name, &identity.principal).map_or_else(|error| failed(&error), json)
}

async fn run(
    Routes { http, chat, closing }: Routes,
    identity: Identity,
    headers: &HeaderMap,
    chat_request: ChatRequest,
    tree: Option<Permit>,
) -> Result<Response, ChatError> {
    let caller = caller(&http, &identity, chat_request.scopes(), headers)?;
    if !chat_request.is_stream() {
        return tokio::select! {
            answer = chat.complete(chat_request, &caller) => answer.map(|(answer, left_out)| counted(json(answer), left_out)),
            error = ended(&closing, &identity) => Err(error),
        };
    }
    // Holds one event, so the reader sets the pace and a disconnect is noticed at once.
    let (events, mut receiver) = mpsc::channel(1);
    tokio::spawn(async move {
        let _tree = tree;
        let error = tokio::select! {
            () = chat.stream(chat_request, &caller, &events) => return,
            // Dropping the stream cancels its calls.
            () = events.closed() => return,
            error = ended(&closing, &identity) => error,
        };
        let _ = events.send(Event::Failed(error)).await;
    });
    match receiver.recv().await {
        Some(Event::Started { left_out }) => Ok(counted(sse(receiver), left_out)),
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
async fn ended(closing: &CancellationToken, identity: &Identity) -> ChatError {
    tokio::select! {
        () = identity.over() => ChatError::new(401, "authentication_error", "token_over", "the token is no longer valid"),
        () = closing.cancelled() => ChatError::new(503, "server_error", "shutting_down", "the gateway is shutting down"),
    }
}

pub(super) fn caller(
    http: &Http,
    identity: &Identity,
    (session, channel): (Option<&str>, Option<&str>),
    headers: &HeaderMap,
) -> Result<Caller, ChatError> {
    let view = http.view_in(identity, session, channel).ok_or_else(|| {
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
