//! A node that describes its tools, reports progress, can be cancelled, and stops on Ctrl-C.
//!
//! ```text
//! SA_NODE_TOKEN=… SA_ALLOWED_DIR=/srv/texts cargo run -p sa-node-sdk --example text_node [ws://…/v1/nodes/ws]
//! ```

use std::path::PathBuf;
use std::time::Duration;

use sa_node_sdk::{
    NodeClient, NodeInfo, NodeSdkError, NodeTool, ToolContext, ToolError, ToolRegistry, ToolResult,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

struct Clock;

#[async_trait::async_trait]
impl NodeTool for Clock {
    async fn call(&self, _ctx: ToolContext, _args: Value) -> ToolResult {
        Ok(json!({ "now": jiff::Timestamp::now().to_string() }))
    }

    fn description(&self) -> Option<String> {
        Some("Tells the time of the node's machine, in UTC.".into())
    }
}

/// Counts the words of a file below one directory.
///
/// Checking a path before it is opened keeps mistakes out, not attackers who can swap links
/// meanwhile: `sa-hello-node` shows how to let the kernel do it.
struct WordCount {
    allowed_dir: PathBuf,
}

#[async_trait::async_trait]
impl NodeTool for WordCount {
    async fn call(&self, ctx: ToolContext, args: Value) -> ToolResult {
        let path = args["path"]
            .as_str()
            .ok_or_else(|| ToolError::InvalidArgs("'path' must be a string".into()))?;
        let file = tokio::fs::canonicalize(self.allowed_dir.join(path)).await?;
        if !file.starts_with(tokio::fs::canonicalize(&self.allowed_dir).await?) {
            return Err(ToolError::NotAllowed(format!(
                "`{path}` is outside of the allowed directory"
            )));
        }
        let text = tokio::fs::read_to_string(&file).await?;

        let lines: Vec<&str> = text.lines().collect();
        let mut words = 0;
        for (number, line) in lines.iter().enumerate() {
            if ctx.cancel.is_cancelled() {
                return Err(ToolError::Cancelled(format!("stopped after {number} lines")));
            }
            words += line.split_whitespace().count();
            if number % 10_000 == 0 {
                ctx.progress(number as f64, Some(lines.len() as f64), Some("counting"));
                tokio::task::yield_now().await;
            }
        }
        Ok(json!({ "words": words, "lines": lines.len() }))
    }

    fn description(&self) -> Option<String> {
        Some("Counts the words and lines of a text file.".into())
    }

    fn input_schema(&self) -> Option<Value> {
        Some(json!({
            "type": "object",
            "properties": { "path": { "type": "string" } },
            "required": ["path"],
        }))
    }

    fn timeout(&self) -> Option<Duration> {
        Some(Duration::from_secs(30))
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().init();
    let allowed_dir = PathBuf::from(std::env::var("SA_ALLOWED_DIR").unwrap_or_else(|_| ".".into()));

    let mut registry = ToolRegistry::new();
    registry
        .register("text.clock", Clock)
        .register("text.words.count", WordCount { allowed_dir })
        .derive_capabilities_from_tools();

    let shutdown = CancellationToken::new();
    let on_ctrl_c = shutdown.clone();
    tokio::spawn(async move {
        tokio::signal::ctrl_c().await.ok();
        on_ctrl_c.cancel();
    });

    let mut builder = NodeClient::builder()
        .node_info(NodeInfo::from_env("text", env!("CARGO_PKG_VERSION")))
        .token(std::env::var("SA_NODE_TOKEN").unwrap_or_default());
    if let Some(url) = std::env::args().nth(1) {
        builder = builder.gateway_ws_url(url);
    }
    let client = builder.build()?;
    match client.run(registry, shutdown).await {
        Err(NodeSdkError::Shutdown) => Ok(()),
        other => Ok(other?),
    }
}
