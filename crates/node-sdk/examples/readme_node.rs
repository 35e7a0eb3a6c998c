//! The node in the README, to the letter; a test compares them.

use sa_node_sdk::{NodeClientBuilder, NodeInfo, NodeTool, ToolContext, ToolRegistry, ToolResult};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

struct Greet;

#[async_trait::async_trait]
impl NodeTool for Greet {
    async fn call(&self, _ctx: ToolContext, args: Value) -> ToolResult {
        Ok(json!({ "greeting": format!("Hello, {}!", args["name"].as_str().unwrap_or("you")) }))
    }

    fn description(&self) -> Option<String> {
        Some("Greets somebody by name.".into())
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt::init(); // says when it connects, and why not
    let mut tools = ToolRegistry::new();
    tools.register("office.greet", Greet).derive_capabilities_from_tools();
    let client = NodeClientBuilder::new()
        .gateway_ws_url("ws://localhost:3210/v1/nodes/ws")
        .node_info(NodeInfo::from_env("office", env!("CARGO_PKG_VERSION")))
        .token(std::env::var("SA_NODE_TOKEN").unwrap_or_default())
        .build()?;
    Ok(client.run(tools, CancellationToken::new()).await?)
}
