//! Other people's MCP clients list and call the tools of a node: the official Python and TypeScript SDKs, and MCP
//! Inspector's command line. `cargo xtask test` installs them.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use sa_testkit::{Gateway, Hello, Setup};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::mcp_conformance::{node_path, peers};

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mcp-peers").join(name)
}

async fn with_node() -> (Gateway, tokio::task::JoinHandle<()>) {
    let gateway = Setup::new().config("[sessions]\nenabled = false").start().await;
    let tool = json!({ "name": "notes.search", "description": "Searches notes.", "input_schema": {
        "type": "object", "properties": { "query": { "type": "string" } }, "required": ["query"] } });
    let node = Hello::new("mac").describe(tool).connect(&gateway).await.echo();
    (gateway, node)
}

/// Runs a program and reads what it prints as JSON.
async fn run(gateway: &Gateway, command: &mut Command) -> Value {
    let home = gateway.dir.path();
    command
        .env("PATH", node_path(&peers()))
        .env("HOME", home)
        .current_dir(home)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = command.output().await.unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{complaint}");
    serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}\n{complaint}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_python_sdk_in_both_eras() {
    let (gateway, _node) = with_node().await;
    for mode in ["legacy", "auto"] {
        let mut command = Command::new(peers().join("venv/bin/python"));
        command.arg(script("client.py")).args([&format!("{}/mcp", gateway.url), &gateway.operator, mode]);
        let said = run(&gateway, &mut command).await;
        assert_eq!(said, json!({ "tools": ["notes_search"], "result": { "query": "python" } }), "{mode}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_typescript_sdk() {
    let (gateway, _node) = with_node().await;
    let mut command = Command::new(peers().join("node_modules/node/bin/node"));
    command.arg(script("client.mjs")).arg(peers()).args([&format!("{}/mcp", gateway.url), &gateway.operator]);
    let said = run(&gateway, &mut command).await;
    assert_eq!(said, json!({ "tools": ["notes_search"], "result": { "query": "typescript" } }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_inspectors_command_line() {
    let (gateway, _node) = with_node().await;
    let inspector = || {
        let mut command = Command::new(peers().join("node_modules/node/bin/node"));
        command.arg(peers().join("node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js"));
        command.args(["--cli", &format!("{}/mcp", gateway.url), "--transport", "http"]);
        command.args(["--header", &format!("Authorization: Bearer {}", gateway.operator)]);
        command
    };
    let list = run(&gateway, inspector().args(["--method", "tools/list"])).await;
    assert_eq!(list["tools"][0]["name"], "notes_search", "{list}");
    let call = ["--method", "tools/call", "--tool-name", "notes_search", "--tool-arg", "query=inspector"];
    let result = run(&gateway, inspector().args(call)).await;
    assert_eq!(result["structuredContent"], json!({ "query": "inspector" }), "{result}");
}
