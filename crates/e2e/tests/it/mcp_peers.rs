//! Other people's MCP clients list and call the tools of a node, of a plugin and of an upstream server: the official Python, TypeScript and
//! Rust SDKs, and MCP Inspector's command line. `cargo xtask test` installs them.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use rmcp::model::CallToolRequestParams;
use sa_testkit::{Gateway, Hello, PluginAnswer, PluginServer, Setup};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use crate::mcp_conformance::{node_path, peers};
use crate::mcp_support::{ERAS, connect, names};
use crate::plugin_calls::add;
use crate::upstream::{stdio, until};

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mcp-peers").join(name)
}

/// What stands behind the gateway, for as long as it is kept.
type Behind = (tokio::task::JoinHandle<()>, PluginServer, TempDir);

/// A gateway with tools of three sorts.
async fn start() -> (Gateway, Behind) {
    let dir = tempfile::tempdir().unwrap();
    let plugin = PluginServer::start(|request| {
        PluginAnswer::json(&serde_json::from_slice(&request.body).expect("it is sent the arguments"))
    })
    .await;
    let upstream = stdio("server", &[], dir.path(), "");
    let config = format!("[sessions]\nenabled = false\n{}{upstream}", plugin.allowed());
    let gateway = Setup::new().config(&config).start().await;
    let tool = json!({ "name": "notes.search", "description": "Searches notes.", "input_schema": {
        "type": "object", "properties": { "query": { "type": "string" } }, "required": ["query"] } });
    let node = Hello::new("mac").describe(tool).connect(&gateway).await.echo();
    add(&gateway.operator(), &plugin.manifest("weather", json!({}))).await;
    until(&gateway, "server", "ready").await;
    (gateway, (node, plugin, dir))
}

/// Each tool gives back its arguments.
fn calls(word: &str) -> Value {
    json!({ "notes_search": { "query": word }, "weather__run": { "city": word }, "server__echo": { "text": word } })
}

#[track_caller]
fn check(said: &Value, word: &str) {
    let names = said["tools"].as_array().unwrap();
    for (tool, arguments) in calls(word).as_object().unwrap() {
        assert!(names.iter().any(|name| name == tool), "{said}");
        assert_eq!(said["results"][tool], *arguments, "{said}");
    }
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
    let (gateway, _behind) = start().await;
    for mode in ["legacy", "auto"] {
        let mut command = Command::new(peers().join("venv/bin/python"));
        command.arg(script("client.py")).args([&format!("{}/mcp", gateway.url), &gateway.operator, mode]);
        let said = run(&gateway, command.arg(calls("python").to_string())).await;
        check(&said, "python");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_typescript_sdk() {
    let (gateway, _behind) = start().await;
    let mut command = Command::new(peers().join("node_modules/node/bin/node"));
    command.arg(script("client.mjs")).arg(peers()).args([&format!("{}/mcp", gateway.url), &gateway.operator]);
    let said = run(&gateway, command.arg(calls("typescript").to_string())).await;
    check(&said, "typescript");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rust_sdk_in_both_eras() {
    let (gateway, _behind) = start().await;
    for era in ERAS {
        let client = connect(&gateway, &gateway.operator, "", era, ()).await.unwrap();
        let mut results = json!({});
        for (tool, arguments) in calls("rust").as_object().unwrap() {
            let mut request = CallToolRequestParams::new(tool.clone());
            request.arguments = arguments.as_object().cloned();
            results[tool] = client.call_tool(request).await.unwrap().structured_content.unwrap();
        }
        check(&json!({ "tools": names(&client).await, "results": results }), "rust");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_inspectors_command_line() {
    let (gateway, _behind) = start().await;
    let inspector = || {
        let mut command = Command::new(peers().join("node_modules/node/bin/node"));
        command.arg(peers().join("node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js"));
        command.args(["--cli", &format!("{}/mcp", gateway.url), "--transport", "http"]);
        command.args(["--header", &format!("Authorization: Bearer {}", gateway.operator)]);
        command
    };
    let list = run(&gateway, inspector().args(["--method", "tools/list"])).await;
    let listed: Vec<_> = list["tools"].as_array().unwrap().iter().map(|tool| tool["name"].clone()).collect();
    let mut results = json!({});
    for (tool, arguments) in calls("inspector").as_object().unwrap() {
        let (name, word) = arguments.as_object().unwrap().iter().next().unwrap();
        let argument = format!("{name}={}", word.as_str().unwrap());
        let call = ["--method", "tools/call", "--tool-name", tool, "--tool-arg", &argument];
        results[tool] = run(&gateway, inspector().args(call)).await["structuredContent"].clone();
    }
    check(&json!({ "tools": listed, "results": results }), "inspector");
    // And as a program that speaks over stdin and stdout, as docs/mcp.md has it.
    let mut by_stdio = Command::new(peers().join("node_modules/node/bin/node"));
    by_stdio.arg(peers().join("node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js"));
    by_stdio.args(["--cli", "-e", &format!("SWITCHBOARD_TOKEN={}", gateway.operator)]);
    by_stdio.args(["-e", &format!("SWITCHBOARD_URL={}", gateway.url), crate::SWITCHBOARD, "mcp"]);
    let list = run(&gateway, by_stdio.args(["--method", "tools/list"])).await;
    let names: Vec<_> = list["tools"].as_array().unwrap().iter().map(|tool| tool["name"].clone()).collect();
    assert_eq!(names, listed);
}
