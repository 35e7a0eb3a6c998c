//! A minimal MCP server with the same SDK.

use std::sync::Arc;

use axum::Router;
use axum::serve::ListenerExt as _;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ListToolsResult,
    PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceExt as _};
use serde_json::{Value, json};

use super::TOOL;

struct Echo;

impl ServerHandler for Echo {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let schema = json!({ "type": "object", "required": ["text"],
            "properties": { "text": { "type": "string" }, "count": { "type": "integer" } } });
        let schema = schema.as_object().cloned().unwrap_or_default();
        let tool = Tool::new(TOOL, "Returns its arguments.", Arc::new(schema));
        Ok(ListToolsResult { tools: vec![tool], ..ListToolsResult::default() })
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let args = Value::Object(request.arguments.unwrap_or_default());
        let mut result = CallToolResult::success(vec![ContentBlock::text(args.to_string())]);
        result.structured_content = Some(args);
        Ok(result.into())
    }
}

pub(super) async fn run() -> anyhow::Result<()> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("ready {}", listener.local_addr()?);
    let listener = listener.tap_io(|stream| {
        let _ = stream.set_nodelay(true);
    });
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true);
    let service =
        StreamableHttpService::new(|| Ok(Echo), Arc::new(NeverSessionManager::default()), config);
    axum::serve(listener, Router::new().route_service("/mcp", service)).await?;
    Ok(())
}

pub(super) async fn stdio() -> anyhow::Result<()> {
    let service = Echo.serve((tokio::io::stdin(), tokio::io::stdout())).await?;
    service.waiting().await?;
    Ok(())
}
