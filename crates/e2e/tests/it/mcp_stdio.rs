//! `switchboard mcp` is the gateway's MCP surface on stdin and stdout, in both eras.

use std::process::Stdio;

use rmcp::model::ProtocolVersion;
use rmcp::{ClientLifecycleMode, ClientServiceExt as _};
use sa_testkit::{Gateway, Hello, Setup, soon};
use serde_json::json;
use tokio::process::{Child, Command};

use crate::SWITCHBOARD;
use crate::mcp_support::{Client, ERAS, Era, names, request, value};

fn program(gateway: &Gateway, args: &[&str]) -> Command {
    let mut command = Command::new(SWITCHBOARD);
    command.arg("mcp").args(args).args(["--url", &gateway.url]).env("SWITCHBOARD_TOKEN", &gateway.operator);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

async fn start(gateway: &Gateway, args: &[&str], era: Era) -> (Child, Client<()>) {
    let mut child = program(gateway, args).spawn().unwrap();
    let streams = (child.stdout.take().unwrap(), child.stdin.take().unwrap());
    let lifecycle = match era {
        Era::Sessions => ClientLifecycleMode::Initialize,
        Era::Stateless => ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] },
    };
    (child, soon(().serve_with_lifecycle(streams, lifecycle)).await.unwrap())
}

#[tokio::test]
async fn a_client_on_stdio_lists_calls_and_cancels() {
    for era in ERAS {
        let gateway = Setup::new().config("[sessions]\nenabled = false").start().await;
        let mut node = Hello::new("mac").tool("notes.search").connect(&gateway).await;
        let (mut child, client) = start(&gateway, &[], era).await;
        assert_eq!(names(&client).await, ["notes_search"]);
        let calling = client.peer().clone();
        let first = tokio::spawn(async move { calling.call_tool(request("notes_search", json!({ "q": 1 }))).await });
        let asked = node.request().await;
        node.answer(&asked.id, asked.args.clone()).await;
        assert_eq!(value(&first.await.unwrap().unwrap())["structuredContent"], json!({ "q": 1 }), "{era:?}");
        let second = client.peer().clone();
        let second = tokio::spawn(async move { second.call_tool(request("notes_search", json!({}))).await });
        let asked = node.request().await;
        // Whoever started the program leaves, and with it what it wanted.
        drop(client);
        node.cancelled(&asked).await;
        second.abort();
        assert!(soon(child.wait()).await.unwrap().success());
    }
}

#[tokio::test]
async fn its_options_choose_what_is_listed() {
    let gateway = Setup::new().start().await;
    let (_child, client) = start(&gateway, &["--search"], Era::Sessions).await;
    assert_eq!(names(&client).await, ["call_tool", "find_tools"]);
}

#[tokio::test]
async fn it_says_that_no_gateway_runs_and_writes_nothing_to_stdout() {
    let gateway = Setup::new().start().await;
    let command = program(&gateway, &[]);
    gateway.stop().await;
    let mut command = command;
    let output = soon(command.output()).await.unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(output.stdout.is_empty());
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot reach the gateway"));
}
