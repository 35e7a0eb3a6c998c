//! The three tools of `sa-hello-node`, written with the SDK. The SDK adds the features that a node
//! for daily use needs: it reconnects, limits running tools, truncates large results, and survives
//! a panic.
//!
//! ```text
//! SA_NODE_TOKEN=… SA_ALLOWED_DIR=/srv/texts cargo run -p sa-node-sdk --example hello_node [ws://…/v1/nodes/ws]
//! ```

use std::path::PathBuf;

use sa_node_sdk::{
    NodeClientBuilder, NodeInfo, NodeTool, ToolContext, ToolError, ToolRegistry, ToolResult,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

struct Ping;

#[async_trait::async_trait]
impl NodeTool for Ping {
    async fn call(&self, _ctx: ToolContext, _args: Value) -> ToolResult {
        Ok(json!({ "pong": true, "timestamp": jiff::Timestamp::now().as_millisecond() }))
    }
}

struct Echo;

#[async_trait::async_trait]
impl NodeTool for Echo {
    async fn call(&self, _ctx: ToolContext, args: Value) -> ToolResult {
        Ok(args)
    }
}

/// Reads a text file below one directory.
///
/// Checking a path before opening it prevents mistakes, but not attacks that swap links in between.
/// `sa-hello-node` shows how to let the kernel enforce it.
struct ReadText {
    allowed_dir: PathBuf,
}

#[async_trait::async_trait]
impl NodeTool for ReadText {
    async fn call(&self, _ctx: ToolContext, args: Value) -> ToolResult {
        let path = args["path"]
            .as_str()
            .ok_or_else(|| ToolError::InvalidArgs("'path' must be a string".into()))?;
        let file = tokio::fs::canonicalize(self.allowed_dir.join(path))
            .await
            .map_err(|error| ToolError::NotFound(format!("`{path}`: {error}")))?;
        if !file.starts_with(tokio::fs::canonicalize(&self.allowed_dir).await?) {
            return Err(ToolError::NotAllowed(format!(
                "`{path}` is outside of the allowed directory"
            )));
        }
        let content = tokio::fs::read_to_string(&file).await?;
        Ok(json!({ "path": file.display().to_string(), "content": content }))
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().init();
    let allowed_dir = PathBuf::from(std::env::var("SA_ALLOWED_DIR").unwrap_or_else(|_| ".".into()));

    let mut registry = ToolRegistry::new();
    registry
        .register("node.ping", Ping)
        .register("node.echo", Echo)
        .register("node.fs.read_text", ReadText { allowed_dir });
    registry.derive_capabilities_from_tools();

    let shutdown = CancellationToken::new();
    let on_ctrl_c = shutdown.clone();
    tokio::spawn(async move {
        tokio::signal::ctrl_c().await.ok();
        on_ctrl_c.cancel();
    });

    let mut builder = NodeClientBuilder::new()
        .node_info(NodeInfo::from_env("reference", env!("CARGO_PKG_VERSION")))
        .token(std::env::var("SA_NODE_TOKEN").unwrap_or_default());
    if let Some(url) = std::env::args().nth(1) {
        builder = builder.gateway_ws_url(url);
    }
    builder.build()?.run(registry, shutdown).await?;
    Ok(())
}
