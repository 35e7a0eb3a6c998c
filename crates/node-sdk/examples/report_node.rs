//! A node whose tool uses every feature: it checks its arguments, reports progress, sends chunks,
//! attaches a file, and stops when the call is cancelled. `docs/nodes.md` quotes this file; a test
//! compares both and runs it.
//!
//! ```text
//! cargo run -p sa-node-sdk --example report_node
//! ```

use std::time::Duration;

use sa_node_sdk::{
    NodeClient, NodeInfo, NodeTool, ToolContext, ToolError, ToolRegistry, ToolResult,
};
use serde_json::{Value, json};

struct Report;

#[async_trait::async_trait]
impl NodeTool for Report {
    async fn call(&self, ctx: ToolContext, args: Value) -> ToolResult {
        let pages = args["pages"]
            .as_u64()
            .ok_or_else(|| ToolError::InvalidArgs("'pages' must be a number".into()))?;
        let mut report = String::new();
        for page in 1..=pages {
            // Cancel: the caller cancelled or disconnected, or the timeout expired.
            let text = tokio::select! {
                text = write_page(page) => text,
                () = ctx.cancel.cancelled() => {
                    return Err(ToolError::Cancelled(format!("stopped at page {page}")));
                }
            };
            // Progress: each report restarts the timeout.
            ctx.progress(page as f64, Some(pages as f64), Some("writing"));
            // A chunk: a part of the result, sent before the rest is ready.
            ctx.chunk(json!({ "page": page, "text": text })).await?;
            report.push_str(&text);
        }
        // An attachment: a file beside the result, of any type.
        ctx.attach("text/markdown", Some("report.md"), report.as_bytes())?;
        Ok(json!({ "pages": pages, "bytes": report.len() }))
    }

    fn description(&self) -> Option<String> {
        Some("Writes a report of some pages.".into())
    }

    // The gateway checks arguments against this schema and refuses invalid ones with the reason.
    fn input_schema(&self) -> Option<Value> {
        Some(json!({
            "type": "object",
            "properties": { "pages": { "type": "integer", "minimum": 1, "maximum": 1000 } },
            "required": ["pages"],
            "additionalProperties": false,
        }))
    }

    // The longest time without progress. The default is 60 s.
    fn timeout(&self) -> Option<Duration> {
        Some(Duration::from_secs(30))
    }
}

async fn write_page(page: u64) -> String {
    tokio::time::sleep(Duration::from_millis(20)).await;
    format!("# Page {page}\n\n")
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().init();
    let mut tools = ToolRegistry::new();
    tools.register("office.report", Report).derive_capabilities_from_tools();
    let mut builder = NodeClient::builder()
        .node_info(NodeInfo::from_env("office", env!("CARGO_PKG_VERSION")))
        .token(std::env::var("SA_NODE_TOKEN").unwrap_or_default());
    if let Some(url) = std::env::args().nth(1) {
        builder = builder.gateway_ws_url(url);
    }
    Ok(builder.build()?.run_until_stopped(tools).await?)
}
