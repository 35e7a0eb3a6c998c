//! A node: the product's SDK with one tool, which follows its arguments.

use std::io;
use std::time::Duration;

use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use sa_node_sdk::{
    Network, NodeClient, NodeSdkError, NodeTool, ReconnectBackoff, ToolContext, ToolError,
    ToolRegistry, ToolResult,
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};
use turmoil::net::TcpStream;

use crate::GATEWAY;
use crate::gateway::PORT;
use crate::world::{RunEnd, World, number_in};

pub(crate) async fn run(world: World, id: &'static str, seed: u64) -> turmoil::Result {
    world.note(id, "starts");
    let mut registry = ToolRegistry::new();
    registry
        .register(format!("{id}.work"), Work { world: world.clone(), id })
        .derive_capabilities_from_tools();
    let backoff = ReconnectBackoff {
        initial_delay: Duration::from_millis(500),
        max_delay: Duration::from_secs(8),
        ..ReconnectBackoff::default()
    };
    let client = NodeClient::builder()
        .node_id(id)
        .gateway_ws_url(format!("ws://{GATEWAY}:{PORT}/v1/nodes/ws"))
        .heartbeat_interval(Duration::from_secs(5))
        .reconnect_backoff(backoff)
        .max_concurrent_tools(5)
        .cancel_grace(Duration::from_secs(2))
        .build()?;
    let network = Simulated { chance: Mutex::new(StdRng::seed_from_u64(seed)) };
    match client.run_over(network, registry, world.stopping(id)).await {
        Err(NodeSdkError::Shutdown) => world.note(id, "has said goodbye"),
        ended => world.broken(format!("the node {id} gave up: {ended:?}")),
    }
    Ok(())
}

struct Simulated {
    chance: Mutex<StdRng>,
}

impl Network for Simulated {
    type Stream = TcpStream;

    async fn dial(&self, host: &str, port: u16) -> io::Result<TcpStream> {
        TcpStream::connect((host, port)).await
    }

    fn jitter(&self) -> f64 {
        self.chance.lock().random()
    }
}

struct Work {
    world: World,
    id: &'static str,
}

#[async_trait::async_trait]
impl NodeTool for Work {
    async fn call(&self, ctx: ToolContext, args: Value) -> ToolResult {
        let number = number_in(&args.to_string());
        let run = self.world.run_begins(self.id, number, &ctx.request_id);
        let began = Instant::now();
        let after = |ms: &Value| ms.as_u64().map(Duration::from_millis);
        let (work, every) = (after(&args["work_ms"]), after(&args["progress_ms"]));
        let mut said = 0;
        let mut told = false;
        loop {
            tokio::select! {
                biased;
                () = ctx.cancel.cancelled(), if !told => {
                    told = true;
                    run.told_to_stop();
                    if args["stubborn"] == false {
                        run.ends(RunEnd::Obeyed);
                        return Err(ToolError::Cancelled("it was told to stop".to_owned()));
                    }
                }
                () = sleep_until(began + work.unwrap_or_default()), if work.is_some() => {
                    run.ends(RunEnd::Answered);
                    return Ok(json!({ "number": number, "by": self.id }));
                }
                () = sleep_until(began + every.unwrap_or_default() * (said + 1)), if every.is_some() => {
                    said += 1;
                    ctx.progress(f64::from(said), None, None);
                }
                // A stubborn tool without an end waits to be dropped.
                () = std::future::pending() => {}
            }
        }
    }
}
