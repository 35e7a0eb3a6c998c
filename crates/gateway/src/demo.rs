//! A node with a few harmless tools, so that there is something to call on the first day.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sa_node_sdk::{Network, NodeClientBuilder, NodeTool, ToolContext, ToolError, ToolRegistry, ToolResult};
use serde_json::{Value, json};
use tokio::io::DuplexStream;

use crate::assemble::Gateway;
use crate::serve::{self, Ends};

/// Connects the demo node to its gateway, which listens at this address. It is a node like any other, but for the way: over TLS
/// it could not know whom the certificate is for.
pub fn spawn(gateway: &Arc<Gateway>, address: SocketAddr, token: &str) -> anyhow::Result<()> {
    let mut registry = ToolRegistry::new();
    registry.register("demo.echo", Echo).register("demo.time", Time).register("demo.countdown", Countdown);
    registry.derive_capabilities_from_tools();
    let client = NodeClientBuilder::new()
        .node_id("demo")
        .name("Demo node")
        .node_type("demo")
        .version(crate::VERSION)
        .gateway_ws_url(format!("ws://{address}/v1/nodes/ws"))
        .token(token)
        .build()?;
    let way = Within { gateway: Arc::clone(gateway), address };
    // Calls that run when the gateway is told to stop may still end, and so the node stays until they have.
    let stop = gateway.closing.clone();
    tokio::spawn(async move {
        if let Err(error) = client.run_over(way, registry, stop.clone()).await
            && !stop.is_cancelled()
        {
            tracing::warn!(%error, "the demo node stopped");
        }
    });
    Ok(())
}

/// The way to the gateway in the same process.
struct Within {
    gateway: Arc<Gateway>,
    address: SocketAddr,
}

impl Network for Within {
    type Stream = DuplexStream;

    async fn dial(&self, _: &str, _: u16) -> io::Result<DuplexStream> {
        let here = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
        Ok(serve::from_within(&self.gateway, Ends { local: self.address, remote: here, tls: false }))
    }

    fn jitter(&self) -> f64 {
        rand::random()
    }
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
