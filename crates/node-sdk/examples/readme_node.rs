//! The node in the README, to the letter; a test compares them, and runs it.

use sa_node_sdk::{NodeClientBuilder, NodeInfo, NodeTool, ToolContext, ToolRegistry, ToolResult};
use serde_json::{Value, json};

struct Greet;

#[async_trait::async_trait]
impl NodeTool for Greet {
    async fn call(&self, _ctx: ToolContext, args: Value) -> ToolResult {
        Ok(json!({ "greeting": format!("Hello, {}!", args["name"].as_str().unwrap_or("you")) }))
    }

    fn description(&self) -> Option<String> {
        Some("Greets somebody by name.".into())
    }

    fn input_schema(&self) -> Option<Value> {
        Some(json!({
            "type": "object",
            "properties": { "name": { "type": "string", "description": "Whom to greet" } },
            "required": ["name"],
        }))
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().init(); // says when it connects, and why not
    let mut tools = ToolRegistry::new();
    tools.register("office.greet", Greet).derive_capabilities_from_tools();
    let gateway =
        std::env::var("SA_GATEWAY_WS_URL").unwrap_or("ws://localhost:3210/v1/nodes/ws".into());
    let client = NodeClientBuilder::new()
        .gateway_ws_url(gateway)
        .node_info(NodeInfo::from_env("office", env!("CARGO_PKG_VERSION"))) // its id is SA_NODE_ID, else office:HOSTNAME
        .token(std::env::var("SA_NODE_TOKEN").unwrap_or_default())
        .build()?;
    Ok(client.run_until_stopped(tools).await?) // by Ctrl-C
}
