//! The MCP surface: every tool of the gateway, for every MCP client, over Streamable HTTP.
//!
//! It keeps no sessions: each request brings its own principal, so that what a client sees depends on its token alone, and
//! an abandoned client leaves nothing behind. The protocol itself, in all its revisions, is rmcp's.

mod convert;
mod handler;
mod passthrough;

use std::sync::Arc;

use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use sa_core::Router;
use tokio_util::sync::CancellationToken;

pub use handler::{Caller, McpHandler};

/// The service behind `/mcp`. The caller has checked Host, Origin and token, and put a [`Caller`] into the
/// request's extensions.
pub fn service(
    router: Arc<Router>,
    version: &'static str,
    max_body_bytes: usize,
    closing: CancellationToken,
) -> StreamableHttpService<McpHandler, NeverSessionManager> {
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .with_max_request_body_bytes(max_body_bytes)
        .with_cancellation_token(closing)
        .disable_allowed_hosts()
        .disable_allowed_origins();
    let make = move || Ok(McpHandler::new(Arc::clone(&router), version));
    StreamableHttpService::new(make, Arc::new(NeverSessionManager::default()), config)
}
