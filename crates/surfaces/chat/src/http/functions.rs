//! Tools for clients that run a model themselves: definitions in several formats, and execution of
//! a reply's calls.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Query, State};
use axum::http::HeaderMap;
use axum::response::Response;
use sa_http::{Identity, Payload, Problem};
use serde::Deserialize;

use super::{Routes, caller, failed, json};
use crate::{ChatError, Execute, Format, Functions, unknown_format};

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct FunctionsQuery {
    /// `openai` (default), `openai-legacy`, `anthropic`, `gemini` or `mcp`.
    format: Option<String>,
    /// Only these tools: names separated by commas. `*` matches any characters.
    tools: Option<String>,
    /// Also list the caller's tools of this session, which must belong to the token.
    session: Option<String>,
    /// Also list the methods of this channel's participants.
    channel: Option<String>,
}

type ChatRequest = Result<Query<FunctionsQuery>, axum::extract::rejection::QueryRejection>;

/// Lists the definitions of the tools that the token may use, for a request to a model.
#[utoipa::path(get, path = "/v1/functions", tag = "chat", params(FunctionsQuery),
    responses((status = 200, body = Object), (status = 400, description = "The format is unknown"), (status = 401, body = Problem)))]
pub(crate) async fn list(
    State(Routes { http, .. }): State<Routes>,
    Extension(identity): Extension<Identity>,
    headers: HeaderMap,
    query: ChatRequest,
) -> Response {
    let listed = async {
        let query = read(query)?;
        let caller = caller(
            &http,
            &identity,
            (query.session.as_deref(), query.channel.as_deref()),
            &headers,
        )?;
        let format = format(query.format.as_deref())?.unwrap_or(Format::OpenAi);
        Ok(Functions::new(Arc::clone(&http.router))
            .list(format, &caller.view, query.tools.as_deref())
            .await)
    };
    listed.await.map_or_else(|error: ChatError| failed(&error), json)
}

/// Executes the calls of a model's reply, and returns the messages to append.
///
/// The response is `{"format", "messages", "calls"}`. The body is the reply, or `{"reply",
/// "format", "leave", "session", "channel"}`. A failed call is a result like any other.
#[utoipa::path(post, path = "/v1/functions/execute", tag = "chat", request_body = Object,
    params(("format" = Option<String>, Query, description = "The reply's format; detected by default")),
    responses((status = 200, body = Object), (status = 400, description = "The reply cannot be read"), (status = 401, body = Problem)))]
pub(crate) async fn execute(
    State(Routes { http, .. }): State<Routes>,
    Extension(identity): Extension<Identity>,
    headers: HeaderMap,
    query: ChatRequest,
    Payload(body): Payload,
) -> Response {
    let executed = async {
        let format = format(read(query)?.format.as_deref())?;
        let chat_request = Execute::read(&body, format)?;
        let caller = caller(&http, &identity, chat_request.scopes(), &headers)?;
        Functions::new(Arc::clone(&http.router)).execute(chat_request, &caller).await
    };
    executed.await.map_or_else(|error| failed(&error), json)
}

fn read(query: ChatRequest) -> Result<FunctionsQuery, ChatError> {
    query.map(|Query(query)| query).map_err(|error| ChatError::invalid("", error.body_text()))
}

fn format(name: Option<&str>) -> Result<Option<Format>, ChatError> {
    name.map(|name| Format::parse(name).ok_or_else(|| unknown_format(name))).transpose()
}
