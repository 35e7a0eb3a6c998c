//! A node with a few harmless tools, so that there is something to call on the first day.

use std::time::Duration;

use async_trait::async_trait;
use sa_node_sdk::{NodeClientBuilder, NodeTool, ToolContext, ToolError, ToolRegistry, ToolResult};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// Connects the demo node to a gateway, as any other node would.
pub fn spawn(ws_url: &str, token: Option<&str>, stop: CancellationToken) -> anyhow::Result<()> {
    let mut registry = ToolRegistry::new();
    registry.register("demo.echo", Echo).register("demo.time", Time).register("demo.countdown", Countdown);
    registry.derive_capabilities_from_tools();
    let client = NodeClientBuilder::new()
        .node_id("demo")
        .name("Demo node")
        .node_type("demo")
        .version(crate::VERSION)
        .gateway_ws_url(ws_url)
        .token(token.unwrap_or_default())
        .build()?;
    tokio::spawn(async move {
        if let Err(error) = client.run(registry, stop.clone()).await
            && !stop.is_cancelled()
        {
            tracing::warn!(%error, "the demo node stopped");
        }
    });
    Ok(())
}

struct Echo;

#[async_trait]
impl NodeTool for Echo {
    async fn call(&self, _: ToolContext, args: Value) -> ToolResult {
        Ok(args)
    }

    fn description(&self) -> Option<String> {
        Some("Gives back what it is given.".into())
    }

    fn input_schema(&self) -> Option<Value> {
        Some(json!({
            "type": "object",
            "properties": { "text": { "type": "string", "description": "Anything" } },
            "required": ["text"]
        }))
    }
}

struct Time;

#[async_trait]
impl NodeTool for Time {
    async fn call(&self, _: ToolContext, _: Value) -> ToolResult {
        let now = jiff::Timestamp::now();
        Ok(json!({ "utc": now.to_string(), "unix_ms": now.as_millisecond() }))
    }

    fn description(&self) -> Option<String> {
        Some("Tells the time of the machine that the gateway runs on.".into())
    }

    fn input_schema(&self) -> Option<Value> {
        Some(json!({ "type": "object", "additionalProperties": false }))
    }
}

/// Shows what a long call looks like: progress, chunks, and that it can be cancelled.
struct Countdown;

#[async_trait]
impl NodeTool for Countdown {
    async fn call(&self, ctx: ToolContext, args: Value) -> ToolResult {
        let from = args["from"].as_u64().unwrap_or(5);
        for left in (1..=from).rev() {
            ctx.progress((from - left) as f64, Some(from as f64), Some(&format!("{left} to go")));
            ctx.chunk(json!(left)).await?;
            tokio::select! {
                () = tokio::time::sleep(Duration::from_millis(400)) => {}
                () = ctx.cancel.cancelled() => return Err(ToolError::Cancelled(format!("stopped at {left}"))),
            }
        }
        Ok(json!({ "counted_from": from }))
    }

    fn description(&self) -> Option<String> {
        Some("Counts down to zero, reporting progress on the way. Can be cancelled.".into())
    }

    fn input_schema(&self) -> Option<Value> {
        Some(json!({
            "type": "object",
            "properties": { "from": { "type": "integer", "minimum": 1, "maximum": 100, "description": "Where to begin" } },
            "required": ["from"],
            "additionalProperties": false
        }))
    }
}
