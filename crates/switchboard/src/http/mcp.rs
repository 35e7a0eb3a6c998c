//! `/mcp`: the MCP surface, told who asks.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::{MethodRouter, any};

use super::body;
use super::{App, Problem};
use crate::tokens::Identity;

/// The route, with the one service behind it.
pub(super) fn route(gateway: &App) -> MethodRouter<App> {
    let max = gateway.config.settings.limits.max_body_bytes;
    let service = sa_mcp::service(Arc::clone(&gateway.router), crate::VERSION, max, gateway.closing.clone());
    any(move |app, identity, request| {
        let service = service.clone();
        async move {
            let request = prepare(app, identity, request).await?;
            Ok::<_, Problem>(service.handle(request).await.map(Body::new))
        }
    })
}

/// Reads the whole body here, with the bounds that all bodies have: the service behind would wait for it for ever.
async fn prepare(
    State(app): State<App>,
    Extension(identity): Extension<Identity>,
    request: Request,
) -> Result<Request, Problem> {
    let (mut parts, body) = request.into_parts();
    let body = body::whole(body, app.config.settings.limits.max_body_bytes).await?;
    parts.extensions.insert(sa_mcp::Caller::new(Arc::clone(&identity.principal), identity.revoked.clone()));
    Ok(Request::from_parts(parts, body.into()))
}

/// One message of the Model Context Protocol (Streamable HTTP, without sessions and batches).
#[utoipa::path(post, path = "/mcp", tag = "mcp", request_body = Object,
    responses((status = 200, description = "The answer, as JSON or as a stream of events"),
        (status = 202, description = "A notification was taken"), (status = 401, body = Problem)))]
#[expect(dead_code, reason = "the description of a route whose handler is a closure")]
pub(super) fn describe() -> Response {
    Response::default()
}
