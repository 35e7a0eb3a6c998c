//! A typical node.

use std::net::SocketAddr;

use sa_node_sdk::{NodeClientBuilder, NodeTool, ToolContext, ToolRegistry, ToolResult};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

struct Echo;

#[async_trait::async_trait]
impl NodeTool for Echo {
    async fn call(&self, _ctx: ToolContext, args: Value) -> ToolResult {
        Ok(args)
    }

    fn description(&self) -> Option<String> {
        Some("Returns its arguments.".into())
    }

    /// A full schema, so that the gateway's validation is part of the measurement.
    fn input_schema(&self) -> Option<Value> {
        Some(json!({
            "type": "object",
            "properties": { "text": { "type": "string" }, "count": { "type": "integer", "minimum": 0 } },
            "required": ["text"],
        }))
    }
}

pub(super) async fn run(gateway: SocketAddr) -> anyhow::Result<()> {
    let mut registry = ToolRegistry::new();
    registry.register_host_tool(super::TOOL, Echo);
    connect(gateway, "bench", registry).await
}

/// Connects a node with many tools, each with the same description as the called one.
pub(super) async fn offer(gateway: SocketAddr, tools: usize) -> anyhow::Result<()> {
    let mut registry = ToolRegistry::new();
    for number in 0..tools {
        registry.register(format!("many.tool{number}"), Echo);
    }
    connect(gateway, "many", registry).await
}

async fn connect(gateway: SocketAddr, id: &str, registry: ToolRegistry) -> anyhow::Result<()> {
    NodeClientBuilder::new()
        .node_id(id)
        .name(id)
        .gateway_ws_url(format!("ws://{gateway}/v1/nodes/ws"))
        .max_concurrent_tools(1024)
        .build()?
        .run(registry, CancellationToken::new())
        .await?;
    Ok(())
}
