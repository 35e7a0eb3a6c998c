//! Third-party MCP clients can list and call the tools of a node, a plugin and an upstream server.
//! They are the official Python, TypeScript and Rust SDKs, the first two in two major versions, and
//! MCP Inspector's command line. `cargo xtask test` installs them.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use rmcp::model::CallToolRequestParams;
use sa_core::{Output, RawJson, Scope, Tool};
use sa_gateway_kit::mcp::{ERAS, attach, connect, names};
use sa_gateway_kit::plugins::add;
use sa_gateway_kit::upstream::until;
use sa_gateway_kit::{Gateway, Hello, PluginAnswer, PluginServer, Setup};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use crate::mcp::conformance::{node_path, peers};
use crate::upstream::server::stdio;

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mcp-peers").join(name)
}

/// The providers behind the gateway, which stop when this value is dropped.
type Behind = (tokio::task::JoinHandle<()>, PluginServer, TempDir);

/// Starts a gateway with tools of three kinds.
async fn start() -> (Gateway, Behind) {
    let dir = tempfile::tempdir().unwrap();
    let plugin = PluginServer::start(|request| {
        PluginAnswer::json(
            &serde_json::from_slice(&request.body).expect("it is sent the arguments"),
        )
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

/// Returns calls of tools that each return their arguments.
fn calls(word: &str) -> Value {
    json!([
        ["notes_search", { "query": word }],
        ["weather__run", { "city": word }],
        ["server__echo", { "text": word }],
    ])
}

#[track_caller]
fn check(said: &Value, word: &str) {
    let names = said["tools"].as_array().unwrap();
    for (call, result) in
        calls(word).as_array().unwrap().iter().zip(said["results"].as_array().unwrap())
    {
        assert!(names.contains(&call[0]), "{said}");
        assert_eq!(result["structured"], call[1], "{said}");
    }
}

/// Returns the official clients in old and new major versions, without their last argument.
pub(crate) fn clients(gateway: &Gateway) -> Vec<(&'static str, Command)> {
    clients_of(&format!("{}/mcp", gateway.url), &gateway.operator)
}

/// The same with another address.
pub(crate) fn clients_of(url: &str, token: &str) -> Vec<(&'static str, Command)> {
    let client = |program: &str, args: &[&str]| {
        let mut command = Command::new(peers().join(program));
        command.args(args);
        command
    };
    let peers = peers().display().to_string();
    let scripts =
        ["client.py", "client1.py", "client.mjs"].map(|name| script(name).display().to_string());
    let [python, python1, typescript] = scripts.each_ref().map(String::as_str);
    let (python_2, python_1, node) =
        ("venv/bin/python", "venv1/bin/python", "node_modules/node/bin/node");
    vec![
        ("Python 2, older era", client(python_2, &[python, url, token, "legacy"])),
        ("Python 2", client(python_2, &[python, url, token, "auto"])),
        ("Python 1", client(python_1, &[python1, url, token])),
        ("TypeScript 2", client(node, &[typescript, &peers, "2", url, token])),
        ("TypeScript 1", client(node, &[typescript, &peers, "1", url, token])),
    ]
}

/// Runs a program and parses its output as JSON.
pub(crate) async fn run(gateway: &Gateway, command: &mut Command) -> Value {
    let home = gateway.dir.path();
    command
        .env("PATH", node_path(&peers()))
        .env("HOME", home)
        .current_dir(home)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"]
    {
        command.env_remove(name);
    }
    let output = command.output().await.unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{complaint}");
    serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}\n{complaint}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_python_and_typescript_sdks_in_two_major_versions() {
    let (gateway, _behind) = start().await;
    for (name, mut client) in clients(&gateway) {
        let said = run(&gateway, client.arg(calls(name).to_string())).await;
        check(&said, name);
    }
}

/// Python 2 rejects a stream event above 1 MiB.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_above_1_mib_reaches_every_client() {
    let gateway = Setup::new().config("[sessions]\nenabled = false").start().await;
    let large = json!({ "text": "x".repeat(3 << 19) });
    let output = Output::json(RawJson::of(&large));
    let _large = attach(
        &gateway.inner().router,
        "large",
        Scope::Everyone,
        vec![Tool::named("large")],
        move |_, _| Box::pin(std::future::ready(Ok(output.clone()))),
    );
    for (name, mut client) in clients(&gateway) {
        let said = run(&gateway, client.arg(json!([["large", {}]]).to_string())).await;
        assert!(said["results"][0]["structured"] == large, "{name}: {said:.300}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rust_sdk_in_both_eras() {
    let (gateway, _behind) = start().await;
    for era in ERAS {
        let client = connect(&gateway, &gateway.operator, "", era, ()).await.unwrap();
        let mut results = Vec::new();
        for call in calls("rust").as_array().unwrap() {
            let mut request = CallToolRequestParams::new(call[0].as_str().unwrap().to_owned());
            request.arguments = call[1].as_object().cloned();
            results.push(json!({ "structured": client.call_tool(request).await.unwrap().structured_content }));
        }
        check(&json!({ "tools": names(&client).await, "results": results }), "rust");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_inspectors_command_line() {
    let (gateway, _behind) = start().await;
    let inspector =
        || {
            let mut command = Command::new(peers().join("node_modules/node/bin/node"));
            command.arg(peers().join(
                "node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js",
            ));
            command.args(["--cli", &format!("{}/mcp", gateway.url), "--transport", "http"]);
            command.args(["--header", &format!("Authorization: Bearer {}", gateway.operator)]);
            command
        };
    let list = run(&gateway, inspector().args(["--method", "tools/list"])).await;
    let listed: Vec<_> =
        list["tools"].as_array().unwrap().iter().map(|tool| tool["name"].clone()).collect();
    let mut results = Vec::new();
    for call in calls("inspector").as_array().unwrap() {
        let (name, word) = call[1].as_object().unwrap().iter().next().unwrap();
        let argument = format!("{name}={}", word.as_str().unwrap());
        let call = [
            "--method",
            "tools/call",
            "--tool-name",
            call[0].as_str().unwrap(),
            "--tool-arg",
            &argument,
        ];
        let result = run(&gateway, inspector().args(call)).await;
        results.push(json!({ "structured": result["structuredContent"] }));
    }
    check(&json!({ "tools": listed, "results": results }), "inspector");
    // Also runs as a stdio program, as described in docs/mcp.md.
    let mut by_stdio = Command::new(peers().join("node_modules/node/bin/node"));
    by_stdio.arg(
        peers()
            .join("node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js"),
    );
    by_stdio.args(["--cli", "-e", &format!("SWITCHBOARD_TOKEN={}", gateway.operator)]);
    by_stdio.args(["-e", &format!("SWITCHBOARD_URL={}", gateway.url), crate::SWITCHBOARD, "mcp"]);
    let list = run(&gateway, by_stdio.args(["--method", "tools/list"])).await;
    let names: Vec<_> =
        list["tools"].as_array().unwrap().iter().map(|tool| tool["name"].clone()).collect();
    assert_eq!(names, listed);
}
