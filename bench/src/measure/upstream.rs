//! Upstream MCP servers: calls through `/mcp` to one and back, beside a connection to the same one without the gateway.

use std::time::Duration;

use anyhow::Context as _;
use serde_json::json;

use super::mcp::call;
use super::{Bench, median, ratio};
use crate::child::Child;
use crate::gateway::Gateway;
use crate::helper::TOOL;
use crate::load::{Latencies, Target, http, stdio};
use crate::report::{Report, Row};

pub(super) async fn measure(bench: &Bench<'_>, report: &mut Report) -> anyhow::Result<()> {
    let program = std::env::current_exe().context("cannot find this program itself")?.display().to_string();
    let command = vec![program, "mcp-echo-stdio".to_owned()];
    let direct = Target::Stdio(stdio::Target { command: command.clone() });
    beside(bench, report, "stdio", json!({ "command": command }), &direct).await?;
    let mut echo = Child::helper(&["mcp-echo"], &bench.dir.join("upstream-echo.log"))?;
    let address = echo.line("ready ").await?;
    let direct = call(address.parse()?, "", TOOL)?;
    beside(bench, report, "HTTP", json!({ "url": format!("http://{address}/mcp") }), &direct).await
}

async fn beside(
    bench: &Bench<'_>,
    report: &mut Report,
    name: &str,
    mut spec: serde_json::Value,
    direct: &Target,
) -> anyhow::Result<()> {
    let gateway = Gateway::start(&bench.args.switchboard, &bench.dir.join(format!("upstream-{name}"))).await?;
    spec["name"] = json!("up");
    // As many as are in flight, so that none waits for a place.
    spec["max_running"] = json!(64);
    let add = http::Target {
        server: gateway.address,
        path: "/v1/upstream".into(),
        token: gateway.token.clone(),
        body: spec.to_string().into(),
        headers: Vec::new(),
    };
    add.send(1).await?;
    let tool = gateway.wait_for_tool(TOOL).await?;
    let routed = call(gateway.address, &gateway.token, &tool)?;
    let (rounds, length) = bench.rounds();
    for in_flight in [1, 32] {
        for target in [&routed, direct] {
            target.load(in_flight, length / 4).await?;
        }
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        let (mut our_times, mut their_times) = (Latencies::new(), Latencies::new());
        let mut cpu = Duration::ZERO;
        for _ in 0..rounds {
            let before = gateway.cpu_time()?;
            let sample = routed.load(in_flight, length).await?;
            cpu += gateway.cpu_time()?.saturating_sub(before);
            ours.push(sample.rate());
            our_times.add(&sample.latencies);
            let sample = direct.load(in_flight, length).await?;
            theirs.push(sample.rate());
            their_times.add(&sample.latencies);
        }
        let cpu_us = cpu.as_secs_f64() * 1e6 / our_times.count() as f64;
        let row = Row::new(format!("MCP to an upstream by {name}, {in_flight} in flight"), median(ours.clone()), "/s");
        report.row(row.latencies(&our_times).cpu_us(cpu_us).beside("the upstream directly", ratio(&ours, &theirs)));
        let row = Row::new(format!("the upstream by {name} directly, {in_flight} in flight"), median(theirs), "/s");
        report.row(row.latencies(&their_times));
    }
    gateway.stop().await
}
