//! The gateway under test.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;

use crate::child::Child;
use crate::{load, proc};

pub(crate) struct Gateway {
    child: Child,
    pub(crate) address: SocketAddr,
    pub(crate) token: String,
    /// The time from the process start to the "listening on" line.
    pub(crate) ready_after: Duration,
}

impl Gateway {
    /// Starts the program with its own data directory.
    pub(crate) async fn start(program: &Path, data_dir: &Path) -> anyhow::Result<Self> {
        Self::configured(program, data_dir, None).await
    }

    /// Starts the program with a configuration file, if there is one.
    pub(crate) async fn configured(
        program: &Path,
        data_dir: &Path,
        config: Option<&Path>,
    ) -> anyhow::Result<Self> {
        let log = data_dir.with_extension("log");
        let set_up = |command: &mut tokio::process::Command| {
            command.args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(data_dir);
            if let Some(config) = config {
                command.arg("--config").arg(config);
            }
            // All 256 calls in flight go to one node.
            command.env("SWITCHBOARD_LIMITS_PENDING_PER_NODE", "1024");
            // One node offers 5,000 tools.
            command.env("SWITCHBOARD_NODES_MAX_TOOLS", "10000");
            // One connection publishes as fast as it can.
            command.env("SWITCHBOARD_CHANNELS_MAX_MESSAGES_PER_SECOND", "1000000");
            // The tool lists must contain only the node's tools.
            command.env("SWITCHBOARD_SESSIONS_ENABLED", "false");
            command.env_remove("SA_NODE_TOKEN").env_remove("SA_NODE_TOKENS");
        };
        let start = Instant::now();
        let mut child = Child::spawn(program, set_up, &log)?;
        let url = child.line("listening on ").await.with_context(|| tail(&log))?;
        let ready_after = start.elapsed();
        let address = url.strip_prefix("http://").and_then(|address| address.parse().ok());
        let address = address.with_context(|| format!("cannot read the address in \"{url}\""))?;
        let token = std::fs::read_to_string(data_dir.join("operator.token"))
            .context("no operator token")?;
        Ok(Self { child, address, token: token.trim().to_owned(), ready_after })
    }

    pub(crate) fn cpu_time(&self) -> anyhow::Result<Duration> {
        proc::cpu_time(self.child.pid())
    }

    pub(crate) fn resident(&self) -> anyhow::Result<u64> {
        proc::resident(self.child.pid())
    }

    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        self.child.stop().await
    }

    /// Creates a token for a participant with this name.
    pub(crate) async fn participant(&self, name: &str) -> anyhow::Result<String> {
        let body = serde_json::json!({ "name": name, "role": "participant" }).to_string();
        let (server, path, token) = (self.address, "/v1/tokens".to_owned(), self.token.clone());
        let request =
            load::http::Target { server, path, token, body: body.into(), headers: Vec::new() };
        let answer: serde_json::Value = serde_json::from_str(&request.send(1).await?)?;
        answer["token"]
            .as_str()
            .map(Into::into)
            .with_context(|| format!("no token for {name}: {answer}"))
    }

    /// Waits until a tool with this name is online, and returns its exposed name.
    pub(crate) async fn wait_for_tool(&self, own_name: &str) -> anyhow::Result<String> {
        let until = Instant::now() + Duration::from_secs(20);
        while Instant::now() < until {
            let list = load::http::get(self.address, "/v1/tools", &self.token).await?;
            let tools = list["tools"].as_array().map(Vec::as_slice).unwrap_or_default();
            let names = tools.iter().filter_map(|tool| tool["name"].as_str());
            if let Some(name) = names.into_iter().find(|name| name.ends_with(own_name)) {
                return Ok(name.to_owned());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        anyhow::bail!("no node with the tool \"{own_name}\" connected in time")
    }
}

fn tail(log: &PathBuf) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    format!(
        "the gateway did not start; the end of its log:\n{}",
        lines[lines.len().saturating_sub(10)..].join("\n")
    )
}
