//! Measures calls to an upstream MCP server through `/mcp`, compared with a direct connection to
//! the same server.

use anyhow::Context as _;
use serde_json::json;

use super::Bench;
use super::mcp::call;
use crate::child::Child;
use crate::gateway::Gateway;
use crate::helper::TOOL;
use crate::load::{Target, http, stdio};
use crate::report::Report;

pub(super) async fn measure(bench: &Bench<'_>, report: &mut Report) -> anyhow::Result<()> {
    let program =
        std::env::current_exe().context("cannot find this program itself")?.display().to_string();
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
    let gateway =
        Gateway::start(&bench.args.switchboard, &bench.dir.join(format!("upstream-{name}")))
            .await?;
    spec["name"] = json!("up");
    // As many as are in flight, so that no call waits for a slot.
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
    for in_flight in [1, 32] {
        let compared = bench.compare(&gateway, in_flight, &routed, Some(direct)).await?;
        let row = compared.ours(format!("MCP to an upstream by {name}, {in_flight} in flight"));
        report.row(row.beside("the upstream directly", compared.ratio()));
        report.row(
            compared.theirs(format!("the upstream by {name} directly, {in_flight} in flight")),
        );
    }
    gateway.stop().await
}
