//! `/mcp`: the MCP endpoint. Adds the caller and its scopes to each request.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::Query;
use axum::http::Request;
use axum::http::header::{CONTENT_TYPE, HeaderValue};
use axum::response::Response;
use futures_util::StreamExt as _;
use sa_core::{Role, Scope};
use sa_http::{
    DirectRequest, DirectRoute, Http, Identity, KnownChannels, Problem, body, no_such_scope,
};
use sa_limits::budget::Permit;
use serde::Deserialize;
use utoipa::OpenApi as _;

use crate::{Caller, Mcp};

/// The maximum number of values in a message. Arguments are parsed into a tree, and each value
/// takes a hundred bytes or more.
const MAX_VALUES: usize = 250_000;

pub const PATH: &str = "/mcp";

/// Returns the route, which is direct because most requests of an agent are calls.
pub fn route(endpoint: &Arc<Endpoint>) -> DirectRoute {
    let endpoint = Arc::clone(endpoint);
    DirectRoute::any(PATH, move |DirectRequest { identity, request, .. }| {
        let endpoint = Arc::clone(&endpoint);
        async move { endpoint.answer(identity, request).await }
    })
}

/// The MCP endpoint.
#[derive(Debug)]
pub struct Endpoint {
    pub http: Http,
    pub mcp: Mcp,
    pub channels: Arc<dyn KnownChannels>,
}

impl Endpoint {
    /// Answers one request.
    pub async fn answer(
        &self,
        identity: Identity,
        request: Request<Body>,
    ) -> Result<Response, Problem> {
        let (caller, request, _tree) = self.prepare(&identity, request).await?;
        Ok(while_valid(identity, self.mcp.handle(caller, request).await))
    }

    /// Reads the whole body with the common limits. The MCP service would wait for the body without
    /// a timeout.
    async fn prepare(
        &self,
        identity: &Identity,
        request: Request<Body>,
    ) -> Result<(Caller, Request<Bytes>, Option<Permit>), Problem> {
        let (parts, body) = request.into_parts();
        let holder = identity.principal.holder();
        let body = body::whole(&self.http, &holder, body, self.http.max_body_bytes).await?;
        if sa_lines::has_more_values(&body, MAX_VALUES) {
            return Err(Problem::new(
                413,
                "too_large",
                format!("the message contains more than {MAX_VALUES} values"),
            )
            .hint("send less at once, or call the tool over REST"));
        }
        let tree = body::count_tree(&self.http, &holder, &body)?;
        let mut caller = Caller::new(Arc::clone(&identity.principal), identity.revoked.clone());
        caller.scopes = identity.view().scopes;
        if parts.uri.query().is_some_and(|query| !query.is_empty()) {
            let Query(choice) = Query::<Choice>::try_from_uri(&parts.uri)
                .map_err(|error| Problem::bad_request(error.body_text()))?;
            caller.search = choice.search.as_deref().map(is_yes).transpose()?;
            let session = choice.session.map(|id| Scope::Session(id.into()));
            let channel = choice.channel.map(|name| Scope::Channel(name.into()));
            for scope in session.into_iter().chain(channel) {
                if !self.may_enter(identity, &scope).await? {
                    return Err(no_such_scope(&scope));
                }
                if !caller.scopes.contains(&scope) {
                    caller.scopes.push(scope);
                }
            }
        }
        Ok((caller, Request::from_parts(parts, body), tree))
    }

    /// Whether the principal may use a scope.
    ///
    /// A session is open to its owner, and a channel to tokens that may call in it. Operators may
    /// use every scope that exists.
    async fn may_enter(&self, identity: &Identity, scope: &Scope) -> Result<bool, Problem> {
        Ok(match scope {
            Scope::Session(id) => self.http.view(identity, Some(id)).scopes.contains(scope),
            // A token for a channel may connect before the channel exists. An operator may use any
            // channel, so a typing error would remain unnoticed.
            Scope::Channel(name) if identity.principal.role == Role::Operator => {
                self.channels.exists(name).await?
            }
            Scope::Channel(name) => identity.rights(name).call,
            Scope::User(_) | Scope::Everyone => false,
        })
    }
}

/// The query parameters.
#[derive(Debug, Deserialize)]
struct Choice {
    session: Option<String>,
    channel: Option<String>,
    search: Option<String>,
}

fn is_yes(text: &str) -> Result<bool, Problem> {
    match text {
        "1" | "true" | "" => Ok(true),
        "0" | "false" => Ok(false),
        _ => Err(Problem::bad_request("search must be 1 or 0")),
    }
}

/// Ends a stream when its token is no longer valid.
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

/// Handles one message of the Model Context Protocol (Streamable HTTP, without batches).
#[utoipa::path(post, path = "/mcp", tag = "mcp", request_body = Object,
    params(
        ("session" = Option<String>, Query, description = "Also list the tools of this session"),
        ("channel" = Option<String>, Query, description = "Also list the tools of this channel"),
        ("search" = Option<String>, Query, description = "1 to list find_tools and call_tool instead of all tools, 0 to list all tools")),
    responses((status = 200, description = "The response, as JSON or as a stream of events"),
        (status = 202, description = "The notification was accepted"), (status = 401, body = Problem),
        (status = 404, description = "The session does not exist, or belongs to another caller")))]
#[expect(dead_code, reason = "describes a direct route")]
fn describe() -> Response {
    Response::default()
}

#[derive(utoipa::OpenApi)]
#[openapi(paths(describe))]
struct Described;

/// Returns the OpenAPI description of the endpoint.
pub fn described() -> utoipa::openapi::OpenApi {
    Described::openapi()
}
