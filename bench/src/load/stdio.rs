//! An MCP server over stdin and stdout, called directly: one process, and all calls on its one
//! pipe.

use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rmcp::ServiceExt as _;
use rmcp::model::{CallToolRequestParams, JsonObject};
use rmcp::service::{Peer, RoleClient};
use tokio::process::Command;

use super::{ARGS, Latencies, Sample};
use crate::helper::TOOL;

#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) command: Vec<String>,
}

impl Target {
    pub(super) async fn load(&self, in_flight: usize, length: Duration) -> anyhow::Result<Sample> {
        let mut command = Command::new(&self.command[0]);
        command
            .args(&self.command[1..])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true);
        let mut server = command.spawn().context("cannot start the MCP server")?;
        let pipes = server.stdout.take().zip(server.stdin.take()).context("no pipes")?;
        let client = ().serve(pipes).await?;
        let lanes = (0..in_flight).map(|_| client.peer().clone()).collect();
        let sample = super::run(lanes, length, drive).await;
        client.cancel().await?;
        sample
    }
}

async fn drive(peer: Peer<RoleClient>, end: Instant) -> anyhow::Result<Latencies> {
    let args: JsonObject = serde_json::from_str(ARGS)?;
    let mut latencies = Latencies::new();
    loop {
        let start = Instant::now();
        if start >= end {
            return Ok(latencies);
        }
        let mut request = CallToolRequestParams::new(TOOL);
        request.arguments = Some(args.clone());
        let result = peer.call_tool(request).await?;
        anyhow::ensure!(result.is_error != Some(true), "a call failed");
        latencies.record(start);
    }
}
