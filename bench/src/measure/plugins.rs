//! Measures plugin calls through `POST /api/gateway`, compared with the JavaScript plugin gateway.
//! Both get the same payload and use the same plugin server.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::{Value, json};

use super::Bench;
use crate::child::Child;
use crate::gateway::Gateway;
use crate::halves::Halves;
use crate::load::http::{Target, post};
use crate::load::{ARGS, Target as Load};
use crate::report::Report;

const SERVER: &str = include_str!("plugin_gateway.mjs");
const PEER: &str = "the JavaScript gateway";

pub(super) async fn measure(bench: &Bench<'_>, report: &mut Report) -> anyhow::Result<()> {
    let halves = Halves::new(bench.args.anywhere)?;
    halves.with_its_users()?;
    let mut echo = Child::helper(&["echo"], &bench.dir.join("plugin-server.log"))?;
    let server: SocketAddr = echo.line("ready ").await?.parse()?;
    halves.with_what_is_measured()?;
    let config = bench.dir.join("plugins.toml");
    // The limits stop hosts that call too often, and this benchmark does exactly that.
    let limits = "calls_per_second = 1000000\nmax_running = 64\n";
    std::fs::write(
        &config,
        format!("[sessions]\nenabled = false\n[plugins]\n{limits}allow_private = [\"{server}\"]\n"),
    )?;
    let gateway =
        Gateway::configured(&bench.args.switchboard, &bench.dir.join("plugins"), Some(&config))
            .await?;
    add(&gateway, json!({ "manifest": manifest(server) })).await?;
    add(&gateway, json!({ "text": document(server).to_string() })).await?;

    // The JavaScript gateway has no registry. A manifest in the payload saves it two requests per
    // call.
    let payload = json!({ "identifier": "bench-plugin", "apiName": "echo", "arguments": ARGS, "manifest": manifest(server) });
    let ours = target(gateway.address, &gateway.token, &payload);
    let theirs = match peer(bench).await {
        Ok((child, address)) => Some((child, target(address, "", &payload))),
        Err(error) => {
            report.note(format!(
                "the JavaScript plugin gateway is not available, so it is not measured: {error:#}"
            ));
            None
        }
    };
    halves.with_its_users()?;
    for in_flight in [1, 32] {
        let theirs = theirs.as_ref().map(|(_, target)| target);
        beside(bench, report, &gateway, in_flight, &ours, theirs).await?;
    }

    let arguments =
        json!({ "id": 7, "_requestBody": serde_json::from_str::<Value>(ARGS)? }).to_string();
    let payload =
        json!({ "identifier": "bench-document", "apiName": "put", "arguments": arguments });
    let operation = target(gateway.address, &gateway.token, &payload);
    for in_flight in [1, 32] {
        let what = format!("plugin call of an OpenAPI operation, {in_flight} in flight");
        report.row(bench.compare(&gateway, in_flight, &operation, None).await?.ours(what));
    }

    let arguments = json!({ "text": format!("{}!", "a".repeat(4_096)) }).to_string();
    let payload =
        json!({ "identifier": "bench-plugin", "apiName": "hostile", "arguments": arguments });
    let hostile = target(gateway.address, &gateway.token, &payload);
    let compared = bench.compare(&gateway, 1, &hostile, None).await?;
    let row = compared.ours("plugin call with a catastrophic pattern".to_owned());
    report.row(row.at_most(compared.our_times.at(0.99).as_secs_f64() * 1e3, 5.0, "ms at p99"));
    gateway.stop().await
}

async fn beside(
    bench: &Bench<'_>,
    report: &mut Report,
    gateway: &Gateway,
    in_flight: usize,
    ours: &Load,
    theirs: Option<&Load>,
) -> anyhow::Result<()> {
    let compared = bench.compare(gateway, in_flight, ours, theirs).await?;
    let row = compared.ours(format!("plugin call, {in_flight} in flight"));
    if theirs.is_none() {
        report.row(row);
        return Ok(());
    }
    let ratio = compared.ratio();
    let row = row.beside(PEER, ratio);
    // With one call at a time, most of the time is spent in the plugin server, which both share.
    let rate_counts = in_flight > 1;
    report.row(if rate_counts { row.at_least(ratio, 10.0, &format!("of {PEER}")) } else { row });
    report.row(compared.theirs(format!("{PEER}, {in_flight} in flight")));
    Ok(())
}

pub(super) fn target(server: SocketAddr, token: &str, payload: &Value) -> Load {
    Load::Http(Target {
        server,
        path: "/api/gateway".into(),
        token: token.to_owned(),
        body: payload.to_string().into(),
        headers: Vec::new(),
    })
}

pub(super) async fn add(gateway: &Gateway, source: Value) -> anyhow::Result<()> {
    let added = post(gateway.address, "/v1/plugins", &gateway.token, source.to_string()).await?;
    anyhow::ensure!(
        added["plugins"][0]["api"][0]["tool"].is_string(),
        "the plugin was rejected: {added}"
    );
    Ok(())
}

pub(super) fn manifest(server: SocketAddr) -> Value {
    let url = format!("http://{server}/plugin");
    let text = json!({ "type": "string", "maxLength": 10_000 });
    let count = json!({ "type": "integer", "minimum": 0 });
    // A backtracking matcher would practically never finish the first pattern. The second one lets
    // the call pass.
    let hostile = json!({ "anyOf": [{ "pattern": "^(a+)+$" }, { "type": "string" }] });
    json!({
        "identifier": "bench-plugin",
        "version": "1",
        "meta": { "title": "Bench", "avatar": "-", "tags": [] },
        "api": [
            { "name": "echo", "description": "Returns its arguments.", "url": url,
                "parameters": { "type": "object", "properties": { "text": text, "count": count }, "required": ["text"] } },
            { "name": "hostile", "description": "The same.", "url": url,
                "parameters": { "type": "object", "properties": { "text": hostile } } },
        ],
    })
}

fn document(server: SocketAddr) -> Value {
    let body = json!({ "type": "object", "properties": { "text": { "type": "string" } }, "required": ["text"] });
    json!({
        "openapi": "3.1.0",
        "info": { "title": "bench-document", "version": "1" },
        "servers": [{ "url": format!("http://{server}") }],
        "paths": { "/plugin/{id}": { "post": {
            "operationId": "put",
            "parameters": [{ "name": "id", "in": "path", "required": true, "schema": { "type": "integer" } }],
            "requestBody": { "required": true, "content": { "application/json": { "schema": body } } },
        } } },
    })
}

/// Starts the JavaScript gateway, if it is installed.
async fn peer(bench: &Bench<'_>) -> anyhow::Result<(Child, SocketAddr)> {
    let place = match &bench.args.plugin_gateway {
        Some(place) => place.clone(),
        None => beside_profile()?,
    };
    let package = place.join("node_modules/@lobehub/chat-plugins-gateway");
    anyhow::ensure!(
        package.is_dir(),
        "{} does not exist; run `cargo xtask bench` to install it",
        package.display()
    );
    let script = bench.dir.join("plugin-gateway.mjs");
    std::fs::write(&script, SERVER)?;
    let set_up = |command: &mut tokio::process::Command| {
        command.arg(&script).arg(&place).env("NODE_ENV", "production");
    };
    let mut child = Child::spawn(Path::new("node"), set_up, &bench.dir.join("plugin-gateway.log"))?;
    let address = child.line("ready ").await?.parse()?;
    Ok((child, address))
}

/// Returns the directory next to the build profile's directory, in target/.
fn beside_profile() -> anyhow::Result<PathBuf> {
    let program = std::env::current_exe()?;
    Ok(program.ancestors().nth(2).context("no target directory")?.join("plugin-gateway"))
}
