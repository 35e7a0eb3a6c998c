//! Compares two builds of the gateway under the same load, in alternation, to measure the cost of a
//! change.
//!
//! Both builds have the same providers and get the same requests, on the same half of the
//! processors. The decisive figure is the CPU time of the gateway per call. It depends far less on
//! other work on the machine than a rate does.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::json;

use super::{Bench, chat, mcp, median, plugins, ratio};
use crate::child::Child;
use crate::gateway::Gateway;
use crate::halves::Halves;
use crate::helper::TOOL;
use crate::load::channel::{self, What};
use crate::load::{ARGS, Target, calls_socket, http};
use crate::report::{Report, Row};

const ROUNDS: usize = 10;

/// The highest CPU time per call of a new build, as a multiple of the old build's.
const BUDGET: f64 = 1.03;

/// Measures the rows one after the other; within a row the two builds alternate.
pub(crate) async fn measure(
    bench: &Bench<'_>,
    old: &Path,
    report: &mut Report,
) -> anyhow::Result<()> {
    anyhow::ensure!(
        old.is_file(),
        "{} does not exist; build or copy the gateway to compare with",
        old.display()
    );
    let halves = Halves::new(bench.args.anywhere)?;
    let peers = Peers::start(bench, &halves).await?;
    let new = Side::start(bench, &halves, &peers, &bench.args.switchboard, "new").await?;
    let old = Side::start(bench, &halves, &peers, old, "old").await?;
    let length = Duration::from_millis(if bench.args.quick { 200 } else { 700 });
    for (target, old_target) in new.targets.iter().zip(&old.targets) {
        for &in_flight in target.in_flight {
            for target in [target, old_target] {
                target.load.load(in_flight, length / 2).await?;
            }
            let (mut ours, mut theirs) = (Round::default(), Round::default());
            for round in 0..ROUNDS {
                // The first build in a round runs with the caches of the other one. So the order
                // alternates too.
                if round % 2 == 0 {
                    ours.add(&new.gateway, &target.load, in_flight, length).await?;
                    theirs.add(&old.gateway, &old_target.load, in_flight, length).await?;
                } else {
                    theirs.add(&old.gateway, &old_target.load, in_flight, length).await?;
                    ours.add(&new.gateway, &target.load, in_flight, length).await?;
                }
            }
            let cpu = ratio(&ours.cpu_us, &theirs.cpu_us);
            let row = Row::new(
                format!("{}, {in_flight} in flight", target.name),
                median(ours.rates.clone()),
                "/s",
            )
            .cpu_us(median(ours.cpu_us))
            .beside("the old rate", ratio(&ours.rates, &theirs.rates))
            .beside("the old CPU time", cpu)
            .note(format!("old: {:.1} µs", median(theirs.cpu_us)));
            report.row(row.at_most(cpu, BUDGET, "of the old CPU time"));
        }
    }
    new.gateway.stop().await?;
    old.gateway.stop().await
}

/// The rate and the CPU time per call of each round.
#[derive(Default)]
struct Round {
    rates: Vec<f64>,
    cpu_us: Vec<f64>,
}

impl Round {
    async fn add(
        &mut self,
        gateway: &Gateway,
        target: &Target,
        in_flight: usize,
        length: Duration,
    ) -> anyhow::Result<()> {
        let before = gateway.cpu_time()?;
        let sample = target.load(in_flight, length).await?;
        let cpu = gateway.cpu_time()?.saturating_sub(before);
        self.rates.push(sample.rate());
        self.cpu_us.push(cpu.as_secs_f64() * 1e6 / sample.latencies.count().max(1) as f64);
        Ok(())
    }
}

/// The servers behind both gateways.
struct Peers {
    _running: [Child; 3],
    model: SocketAddr,
    mcp: SocketAddr,
    plugin: SocketAddr,
}

impl Peers {
    async fn start(bench: &Bench<'_>, halves: &Halves) -> anyhow::Result<Self> {
        halves.with_its_users()?;
        let mut model = Child::helper(&["model"], &bench.dir.join("against-model.log"))?;
        let mut mcp = Child::helper(&["mcp-echo"], &bench.dir.join("against-mcp.log"))?;
        let mut plugin = Child::helper(&["echo"], &bench.dir.join("against-plugin.log"))?;
        let addresses =
            [model.line("ready ").await?, mcp.line("ready ").await?, plugin.line("ready ").await?];
        let [model_address, mcp_address, plugin_address] = addresses;
        Ok(Self {
            model: model_address.parse()?,
            mcp: mcp_address.parse()?,
            plugin: plugin_address.parse()?,
            _running: [model, mcp, plugin],
        })
    }
}

/// A request path through the gateway.
struct Way {
    name: &'static str,
    load: Target,
    in_flight: &'static [usize],
}

/// One build with one provider of each kind.
struct Side {
    gateway: Gateway,
    _providers: [Child; 2],
    targets: Vec<Way>,
}

impl Side {
    async fn start(
        bench: &Bench<'_>,
        halves: &Halves,
        peers: &Peers,
        program: &Path,
        name: &str,
    ) -> anyhow::Result<Self> {
        let config = bench.dir.join(format!("against-{name}.toml"));
        std::fs::write(
            &config,
            format!(
                "[sessions]\nenabled = false\n[models.bench]\nbase_url = \"http://{}/v1\"\n[plugins]\n\
                 calls_per_second = 1000000\nmax_running = 64\nallow_private = [\"{}\"]\n",
                peers.model, peers.plugin
            ),
        )?;
        halves.with_what_is_measured()?;
        let gateway =
            Gateway::configured(program, &bench.dir.join(format!("against-{name}")), Some(&config))
                .await?;
        halves.with_its_users()?;
        let (address, token) = (gateway.address, gateway.token.clone());
        let log = |what: &str| bench.dir.join(format!("against-{name}-{what}.log"));
        let node = Child::helper(&["node", &address.to_string()], &log("node"))?;
        let tool = gateway.wait_for_tool(TOOL).await?;

        let program = std::env::current_exe().context("cannot find this program itself")?;
        let stdio =
            json!({ "name": "stdio", "command": [program, "mcp-echo-stdio"], "max_running": 64 });
        let url = format!("http://{}/mcp", peers.mcp);
        for server in [stdio, json!({ "name": "http", "url": url, "max_running": 64 })] {
            http::post(address, "/v1/upstream", &token, server.to_string()).await?;
        }
        let stdio = gateway.wait_for_tool("stdio__echo").await?;
        let over_http = gateway.wait_for_tool("http__echo").await?;
        plugins::add(&gateway, json!({ "manifest": plugins::manifest(peers.plugin) })).await?;
        let plugin = json!({ "identifier": "bench-plugin", "apiName": "echo", "arguments": ARGS });

        let provider_token = gateway.participant("provider").await?;
        let arguments = ["provider", &address.to_string(), &provider_token, "room"];
        let mut provider = Child::helper(&arguments, &log("provider"))?;
        provider.line("ready").await?;
        let participant = gateway.participant("caller").await?;
        let channel = |what| {
            let (gateway, token, channel) = (address, participant.clone(), "room".to_owned());
            Target::Channel(channel::Target { gateway, token, channel, what })
        };
        let body = format!("{{\"args\":{ARGS}}}").into();
        let path = format!("/v1/tools/{tool}/call");
        let rest =
            http::Target { server: address, path, token: token.clone(), body, headers: Vec::new() };
        let socket =
            calls_socket::Target { gateway: address, token: token.clone(), tool: tool.clone() };
        let way = |name, load, in_flight| Way { name, load, in_flight };
        let targets = vec![
            way("call socket", Target::CallsSocket(socket), &[1, 256]),
            way("HTTP", Target::Http(rest), &[1, 32]),
            way("MCP to a node", mcp::call(address, &token, &tool)?, &[1, 32]),
            way("MCP to an upstream by stdio", mcp::call(address, &token, &stdio)?, &[1, 32]),
            way("MCP to an upstream by HTTP", mcp::call(address, &token, &over_http)?, &[1, 32]),
            way("chat with one tool call", chat::question(address, &token), &[32]),
            way("plugin call", plugins::target(address, &token, &plugin), &[32]),
            way("channel, stored", channel(What::Note { persist: true }), &[128]),
            way("channel, not stored", channel(What::Note { persist: false }), &[128]),
            way(
                "channel method call",
                channel(What::Call { provider: "provider".into(), persist: false }),
                &[64],
            ),
        ];
        Ok(Self { gateway, _providers: [node, provider], targets })
    }
}
