//! The smallest node: one tool, one gateway.
//!
//! ```text
//! SA_NODE_TOKEN=… cargo run -p sa-node-sdk --example ping_node [ws://…/v1/nodes/ws]
//! ```

use sa_node_sdk::{NodeClientBuilder, NodeInfo, NodeTool, ToolContext, ToolRegistry, ToolResult};
use serde_json::{Value, json};

struct Ping;

#[async_trait::async_trait]
impl NodeTool for Ping {
    async fn call(&self, _ctx: ToolContext, _args: Value) -> ToolResult {
        Ok(json!({ "pong": true }))
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().init(); // logs connections and errors
    let mut registry = ToolRegistry::new();
    registry.register("example.ping", Ping);
    registry.derive_capabilities_from_tools();

    let gateway =
        std::env::args().nth(1).unwrap_or_else(|| "ws://localhost:3210/v1/nodes/ws".into());
    NodeClientBuilder::new()
        .node_info(NodeInfo::from_env("example", env!("CARGO_PKG_VERSION")))
        .gateway_ws_url(gateway)
        .token(std::env::var("SA_NODE_TOKEN").unwrap_or_default())
        .build()?
        .run_until_stopped(registry)
        .await?;
    Ok(())
}
