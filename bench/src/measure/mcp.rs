//! Measures the MCP API: calls to a node and to other servers, compared with direct calls to an MCP
//! server; long lists; abandoned sessions.

use std::net::SocketAddr;
use std::time::Instant;

use serde_json::json;

use super::{Bench, median};
use crate::child::Child;
use crate::gateway::Gateway;
use crate::helper::TOOL;
use crate::load::http::Target;
use crate::load::{ARGS, Target as Load};
use crate::report::{Report, Row};

const KB: f64 = 1024.0;

pub(super) async fn measure(bench: &Bench<'_>, report: &mut Report) -> anyhow::Result<()> {
    calls(bench, report).await?;
    super::upstream::measure(bench, report).await?;
    lists(bench, report).await?;
    sessions(bench, report).await
}

/// Builds a self-contained request of the revision of 2026-07-28.
fn request(
    server: SocketAddr,
    token: &str,
    method: &str,
    name: Option<&str>,
    params: serde_json::Value,
) -> Target {
    let mut params = params;
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "bench", "version": "0" },
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
    let mut headers = vec![
        ("accept", "application/json, text/event-stream".to_owned()),
        ("mcp-protocol-version", "2026-07-28".to_owned()),
        ("mcp-method", method.to_owned()),
    ];
    headers.extend(name.map(|name| ("mcp-name", name.to_owned())));
    Target { server, path: "/mcp".into(), token: token.to_owned(), body: body.into(), headers }
}

pub(super) fn call(server: SocketAddr, token: &str, tool: &str) -> anyhow::Result<Load> {
    let args: serde_json::Value = serde_json::from_str(ARGS)?;
    let params = json!({ "name": tool, "arguments": args });
    Ok(Load::Http(request(server, token, "tools/call", Some(tool), params)))
}

async fn calls(bench: &Bench<'_>, report: &mut Report) -> anyhow::Result<()> {
    let gateway = Gateway::start(&bench.args.switchboard, &bench.dir.join("mcp")).await?;
    let _node =
        Child::helper(&["node", &gateway.address.to_string()], &bench.dir.join("mcp-node.log"))?;
    let tool = gateway.wait_for_tool(TOOL).await?;
    let mut echo = Child::helper(&["mcp-echo"], &bench.dir.join("mcp-echo.log"))?;
    let echo_address = echo.line("ready ").await?.parse()?;
    let (routed, direct) =
        (call(gateway.address, &gateway.token, &tool)?, call(echo_address, "", TOOL)?);
    for in_flight in [1, 32] {
        let compared = bench.compare(&gateway, in_flight, &routed, Some(&direct)).await?;
        let (ratio, cpu_us) = (compared.ratio(), compared.cpu_us);
        let row = compared
            .ours(format!("MCP tools/call, {in_flight} in flight"))
            .beside("rmcp echo", ratio);
        report.row(if in_flight == 1 {
            let slower = compared.our_times.at(0.5).as_secs_f64()
                / compared.their_times.at(0.5).as_secs_f64();
            row.at_most(slower, 1.5, "of rmcp echo's p50")
        } else {
            row.at_least(ratio, 0.5, "of rmcp echo")
        });
        report.row(compared.theirs(format!("rmcp echo, {in_flight} in flight")));
        if in_flight == 32 {
            let row = Row::new("gateway CPU of an MCP call, 32 in flight", cpu_us, "µs");
            report.row(row.at_most(cpu_us, 110.0, "µs"));
        }
    }
    gateway.stop().await
}

/// Measures reading the whole list, page by page.
async fn lists(bench: &Bench<'_>, report: &mut Report) -> anyhow::Result<()> {
    for tools in [10_usize, 5_000] {
        let gateway =
            Gateway::start(&bench.args.switchboard, &bench.dir.join(format!("mcp-list-{tools}")))
                .await?;
        let arguments = ["offer", &gateway.address.to_string(), &tools.to_string()];
        let _node = Child::helper(&arguments, &bench.dir.join("mcp-offer.log"))?;
        gateway.wait_for_tool("").await?;
        let mut times = Vec::new();
        for _ in 0..if bench.args.quick { 5 } else { 20 } {
            let start = Instant::now();
            let (mut cursor, mut listed) = (serde_json::Value::Null, 0);
            loop {
                let params = if cursor.is_null() { json!({}) } else { json!({ "cursor": cursor }) };
                let target = request(gateway.address, &gateway.token, "tools/list", None, params);
                let answer: serde_json::Value = serde_json::from_str(&target.send(1).await?)?;
                listed += answer["result"]["tools"].as_array().map_or(0, Vec::len);
                cursor = answer["result"]["nextCursor"].clone();
                if cursor.is_null() {
                    break;
                }
            }
            anyhow::ensure!(listed == tools, "{listed} of {tools} tools were listed");
            times.push(start.elapsed().as_secs_f64() * 1e3);
        }
        report.row(Row::new(format!("MCP tools/list, {tools} tools"), median(times), "ms"));
        gateway.stop().await?;
    }
    Ok(())
}

/// Measures clients of older revisions that open a session and never return.
async fn sessions(bench: &Bench<'_>, report: &mut Report) -> anyhow::Result<()> {
    let count = if bench.args.quick { 1_000 } else { 10_000 };
    let gateway = Gateway::start(&bench.args.switchboard, &bench.dir.join("mcp-sessions")).await?;
    let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "b", "version": "0" } });
    let body =
        json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params }).to_string();
    let open = Target {
        server: gateway.address,
        path: "/mcp".into(),
        token: gateway.token.clone(),
        body: body.into(),
        headers: vec![("accept", "application/json, text/event-stream".to_owned())],
    };
    // Opens some sessions first, so that one-time costs of the gateway are not counted.
    open.send(100).await?;
    let before = gateway.resident()?;
    open.send(count).await?;
    let more = gateway.resident()?.saturating_sub(before) as f64;
    let row = Row::new(
        format!("memory after {count} abandoned MCP sessions, more than before"),
        more / KB / KB,
        "MB",
    );
    report.row(row.note(format!("{:.1} KB each", more / KB / count as f64)));
    gateway.stop().await
}
