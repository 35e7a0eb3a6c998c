//! The demo node: a few harmless tools to call when trying out the gateway.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sa_node_sdk::{
    Network, NodeClientBuilder, NodeTool, ToolContext, ToolError, ToolRegistry, ToolResult,
};
use serde_json::{Value, json};
use tokio::io::DuplexStream;

use sa_gateway::assemble::Gateway;
use sa_gateway::serve;
use sa_http::Ends;

/// Connects the demo node to the gateway that listens at this address. It connects in memory,
/// because over TLS it could not know the name in the certificate.
pub(crate) fn spawn(
    gateway: &Arc<Gateway>,
    address: SocketAddr,
    token: &str,
) -> Result<(), sa_node_sdk::NodeSdkError> {
    let mut registry = ToolRegistry::new();
    registry
        .register("demo.echo", Echo)
        .register("demo.time", Time)
        .register("demo.countdown", Countdown);
    registry.derive_capabilities_from_tools();
    let client = NodeClientBuilder::new()
        .node_id("demo")
        .name("Demo node")
        .node_type("demo")
        .version(sa_gateway::VERSION)
        .gateway_ws_url(format!("ws://{address}/v1/nodes/ws"))
        .token(token)
        .build()?;
    let way = Within { gateway: Arc::clone(gateway), address };
    // The node stays connected during the shutdown, so that running calls can finish.
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

/// The in-memory connection to the gateway in the same process.
struct Within {
    gateway: Arc<Gateway>,
    address: SocketAddr,
}

impl Network for Within {
    type Stream = DuplexStream;

    async fn dial(&self, _: &str, _: u16) -> io::Result<DuplexStream> {
        let here = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
        Ok(serve::from_within(
            &self.gateway,
            Ends { local: self.address, remote: here, tls: false },
        ))
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
        Some("Returns its arguments.".into())
    }

    fn input_schema(&self) -> Option<Value> {
        Some(json!({
            "type": "object",
            "properties": { "text": { "type": "string", "description": "Any text" } },
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
        Some("Returns the current time of the gateway's machine.".into())
    }

    fn input_schema(&self) -> Option<Value> {
        Some(json!({ "type": "object", "additionalProperties": false }))
    }
}

/// Demonstrates a long call: progress, chunks and cancellation.
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
        Some("Counts down to zero and reports progress. Can be cancelled.".into())
    }

    fn input_schema(&self) -> Option<Value> {
        Some(json!({
            "type": "object",
            "properties": { "from": { "type": "integer", "minimum": 1, "maximum": 100, "description": "The number to start from" } },
            "required": ["from"],
            "additionalProperties": false
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use sa_core::{Role, clock};
    use sa_gateway::journal::store_options;
    use sa_store::Store;

    use super::*;
    use sa_core::store::{Expect, Records as _};
    use sa_gateway::assemble::assemble;
    use sa_gateway::config::Config;
    use sa_gateway::config::layers::Layers;
    use sa_gateway::tokens::NewToken;

    const MINUTE_MS: i64 = 60_000;
    /// After this time, a gateway does not trust the clock when it starts.
    const YEAR_MS: i64 = 365 * 24 * 60 * MINUTE_MS;

    /// Starts a gateway with the store of a process that ended this long ago.
    async fn start_after(dir: &Path, ms: i64) -> Arc<Gateway> {
        let flags = [("data.dir", dir.as_os_str().to_owned())];
        let layers = Layers::read(None, std::iter::empty(), &flags).unwrap();
        let config = Config::resolve(&layers).unwrap();
        let store = Store::open(store_options(config.store_file())).unwrap();
        let clock = json!({ "trusted_ms": clock::now_ms() - ms });
        let clock = clock.to_string().into();
        store.put("retention", "clock", clock, Expect::Absent).await.unwrap();
        store.shutdown().await.unwrap();
        assemble(config).await.unwrap()
    }

    #[tokio::test]
    async fn a_connected_node_keeps_its_names_if_its_token_expired_by_a_wrong_clock() {
        for (ms, keeps_names) in [(MINUTE_MS, false), (YEAR_MS, true)] {
            let dir = tempfile::tempdir().unwrap();
            let gateway = start_after(dir.path(), ms).await;
            let expires_ms = Some(clock::now_ms() + 1_000);
            let new = NewToken { expires_ms, ..NewToken::new("n", Role::Node) };
            let (_, token) = gateway.tokens.create(new).await.unwrap();
            let directory = gateway.router.directory();
            let mut changes = directory.subscribe();
            spawn(&gateway, "127.0.0.1:9".parse().unwrap(), &token).unwrap();
            while directory.online(sa_nodes::KIND) == 0 {
                changes.changed().await.unwrap();
            }
            while directory.online(sa_nodes::KIND) == 1 {
                changes.changed().await.unwrap();
            }
            let members = directory.members(sa_nodes::KIND);
            assert_eq!(!members.is_empty(), keeps_names, "after {ms} ms");
            gateway.shut_down().await;
            gateway.store.shutdown().await.unwrap();
        }
    }
}
