//! `/mcp`: the MCP surface, told who asks and in which scope.

use std::sync::Arc;

use axum::BoxError;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Query;
use axum::http::Request;
use axum::http::header::{CONTENT_TYPE, HeaderValue};
use axum::response::Response;
use futures_util::StreamExt as _;
use sa_core::budget::{Holder, Permit};
use sa_core::{Role, Scope};
use sa_mcp::Caller;
use serde::Deserialize;

use super::body;
use super::{App, Problem};
use crate::journal::MAX_SUBJECT;
use crate::redact::printable;
use crate::tokens::Identity;

/// How many values a message may hold. Arguments are read into a tree here, in which each takes a hundred bytes and more.
const MAX_VALUES: usize = 250_000;

pub(super) const PATH: &str = "/mcp";

/// Answers one request. The front door comes straight here, as it does for calls over REST: the routes would cost each
/// request as much as the call behind it.
pub(super) async fn answer<B>(app: &App, identity: Identity, request: Request<B>) -> Result<Response, Problem>
where
    B: HttpBody<Data = Bytes, Error: Into<BoxError>>,
{
    let (caller, request, _tree) = prepare(app, &identity, request).await?;
    Ok(while_valid(identity, app.mcp.handle(caller, request).await))
}

/// What the address may say beside its path.
#[derive(Debug, Deserialize)]
struct Choice {
    session: Option<String>,
    channel: Option<String>,
    search: Option<String>,
}

/// Reads the whole body here, with the bounds that all bodies have: the service behind would wait for it for ever.
async fn prepare<B>(
    app: &App,
    identity: &Identity,
    request: Request<B>,
) -> Result<(Caller, Request<Bytes>, Option<Permit>), Problem>
where
    B: HttpBody<Data = Bytes, Error: Into<BoxError>>,
{
    let (parts, body) = request.into_parts();
    let holder = Holder::of(&identity.principal);
    let body = body::whole(app, &holder, body, app.config.settings.limits.max_body_bytes).await?;
    if sa_lines::has_more_values(&body, MAX_VALUES) {
        return Err(Problem::new(413, "too_large", format!("the message holds more than {MAX_VALUES} values"))
            .hint("send less at once, or call the tool over REST"));
    }
    let tree = body::count_tree(app, &holder, &body)?;
    let mut caller = Caller::new(Arc::clone(&identity.principal), identity.revoked.clone());
    caller.scopes = identity.view().scopes;
    if parts.uri.query().is_some_and(|query| !query.is_empty()) {
        let Query(choice) =
            Query::<Choice>::try_from_uri(&parts.uri).map_err(|error| Problem::bad_request(error.body_text()))?;
        caller.search = choice.search.as_deref().map(is_yes).transpose()?;
        let session = choice.session.map(|id| Scope::Session(id.into()));
        let channel = choice.channel.map(|name| Scope::Channel(name.into()));
        for scope in session.into_iter().chain(channel) {
            if !may_enter(app, identity, &scope).await? {
                return Err(no_such_scope(&scope));
            }
            if !caller.scopes.contains(&scope) {
                caller.scopes.push(scope);
            }
        }
    }
    Ok((caller, Request::from_parts(parts, body), tree))
}

/// A session is open to its owner, a channel to those who may call there, and to operators whatever there is.
async fn may_enter(app: &App, identity: &Identity, scope: &Scope) -> Result<bool, Problem> {
    Ok(match scope {
        Scope::Session(id) => app.view(identity, Some(id)).scopes.contains(scope),
        // Those who were given a channel may be there first; an operator may everywhere, and so mistypes unnoticed.
        Scope::Channel(name) if identity.principal.role == Role::Operator => app.channels.exists(name).await?,
        Scope::Channel(name) => identity.rights(name).call,
        Scope::User(_) | Scope::Everyone => false,
    })
}

pub(super) fn no_such_scope(scope: &Scope) -> Problem {
    let problem = |what: &str, name: &str| {
        let name: String = name.chars().take(MAX_SUBJECT).collect();
        Problem::new(404, "not_found", format!("there is no {what} \"{}\" that this token may use", printable(&name)))
    };
    match scope {
        Scope::Session(id) => {
            problem("open session", id).hint("switchboard sessions lists them, session_list for agents")
        }
        Scope::Channel(name) => problem("channel", name).hint("GET /v1/channels lists them"),
        Scope::User(name) => problem("user", name),
        Scope::Everyone => problem("scope", ""),
    }
}

fn is_yes(text: &str) -> Result<bool, Problem> {
    match text {
        "1" | "true" | "" => Ok(true),
        "0" | "false" => Ok(false),
        _ => Err(Problem::bad_request("search is 1 or 0")),
    }
}

/// Ends a stream when the token that it was opened with does not count any more.
fn while_valid(identity: Identity, response: Response) -> Response {
    let is_stream = |kind: &HeaderValue| kind.as_bytes().starts_with(b"text/event-stream");
    if !response.headers().get(CONTENT_TYPE).is_some_and(is_stream) {
        return response;
    }
    response.map(|body| {
        let over = Box::pin(async move { identity.over().await });
        Body::from_stream(body.into_data_stream().take_until(over))
    })
}

/// One message of the Model Context Protocol (Streamable HTTP, without batches).
#[utoipa::path(post, path = "/mcp", tag = "mcp", request_body = Object,
    params(
        ("session" = Option<String>, Query, description = "Show the tools of this session, too"),
        ("channel" = Option<String>, Query, description = "Show the tools of this channel, too"),
        ("search" = Option<String>, Query, description = "1 lists find_tools and call_tool instead of all tools, 0 all tools")),
    responses((status = 200, description = "The answer, as JSON or as a stream of events"),
        (status = 202, description = "A notification was taken"), (status = 401, body = Problem),
        (status = 404, description = "There is no such session of yours")))]
#[expect(dead_code, reason = "the description of a route whose handler is a closure")]
pub(super) fn describe() -> Response {
    Response::default()
}
