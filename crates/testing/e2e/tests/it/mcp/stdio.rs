//! `switchboard mcp` serves the gateway's MCP API on stdin and stdout, with old and new revisions.

use std::process::Stdio;
use std::sync::Arc;

use rmcp::model::ProtocolVersion;
use rmcp::{ClientLifecycleMode, ClientServiceExt as _};
use sa_gateway_kit::mcp::{Client, ERAS, Era, names, request, value};
use sa_gateway_kit::{Gateway, Hello, PluginAnswer, PluginServer, Setup, soon};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, Command};

use crate::SWITCHBOARD;

fn program(gateway: &Gateway, args: &[&str]) -> Command {
    let mut command = Command::new(SWITCHBOARD);
    command
        .arg("mcp")
        .args(args)
        .args(["--url", &gateway.url])
        .env("SWITCHBOARD_TOKEN", &gateway.operator);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

async fn start(gateway: &Gateway, args: &[&str], era: Era) -> (Child, Client<()>) {
    connect(program(gateway, args), era).await
}

async fn connect(mut program: Command, era: Era) -> (Child, Client<()>) {
    let mut child = program.spawn().unwrap();
    let streams = (child.stdout.take().unwrap(), child.stdin.take().unwrap());
    let lifecycle = match era {
        Era::Sessions => ClientLifecycleMode::Initialize,
        Era::Stateless => ClientLifecycleMode::Discover {
            preferred_versions: vec![ProtocolVersion::V_2026_07_28],
        },
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
        let first = tokio::spawn(async move {
            calling.call_tool(request("notes_search", json!({ "q": 1 }))).await
        });
        let asked = node.request().await;
        node.answer(&asked.id, asked.args.clone()).await;
        assert_eq!(
            value(&first.await.unwrap().unwrap())["structuredContent"],
            json!({ "q": 1 }),
            "{era:?}"
        );
        let second = client.peer().clone();
        let second =
            tokio::spawn(async move { second.call_tool(request("notes_search", json!({}))).await });
        let asked = node.request().await;
        // The client that started the program exits, and its calls are cancelled.
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

#[tokio::test]
async fn whoever_listens_once_its_gateway_is_gone_gets_no_token() {
    for era in ERAS {
        let gateway = Setup::new().spawn(SWITCHBOARD).await;
        let (dir, address) = (Arc::clone(&gateway.dir), gateway.address().to_string());
        let mut program = Command::new(SWITCHBOARD);
        program.arg("mcp").arg("--data-dir").arg(gateway.data_dir());
        program
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let (mut child, client) = connect(program, era).await;
        names(&client).await;
        gateway.stop().await;
        let stranger =
            PluginServer::start_at(&address, |_| PluginAnswer::text(200, "text/html", "hello"))
                .await;
        soon(client.call_tool(request("session_list", json!({})))).await.unwrap_err();
        drop(client);
        soon(child.wait()).await.unwrap();
        assert!(stranger.asked().is_empty(), "{era:?}: {:?}", stranger.asked());
        drop(dir);
    }
}

fn initialize() -> Value {
    let params = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
    json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params })
}

#[tokio::test]
async fn a_session_or_a_channel_that_is_not_there_is_an_error_for_the_client_and_on_stderr() {
    let gateway = Setup::new().start().await;
    for option in ["--session", "--channel"] {
        let mut child = program(&gateway, &[option, "nope"]).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(format!("{}\n", initialize()).as_bytes()).await.unwrap();
        // The program ends although its client is still connected.
        let output = soon(child.wait_with_output()).await.unwrap();
        drop(stdin);
        let (out, err) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(5), "{option}: {err}");
        let answer: Value =
            serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}"));
        assert_eq!(
            (&answer["id"], &answer["error"]["code"]),
            (&json!(1), &json!(-32600)),
            "{answer}"
        );
        for said in [answer["error"]["message"].as_str().unwrap(), &*err] {
            assert!(said.contains("\"nope\""), "{option}: {said}");
        }
        assert!(err.contains("hint: ") && err.contains("switchboard "), "{option}: {err}");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_session_that_ends_meanwhile_ends_the_program_when_it_is_asked_for_again() {
    let gateway = Setup::new().start().await;
    let session =
        gateway.operator().call("session_message", json!({ "message": "hello" })).await.result();
    let id = session["session_id"].as_str().unwrap().to_owned();
    for era in ERAS {
        let session = gateway
            .operator()
            .call("session_message", json!({ "message": "hello" }))
            .await
            .result();
        let open = session["session_id"].as_str().unwrap().to_owned();
        let (mut child, client) = start(&gateway, &["--session", &open], era).await;
        assert!(!names(&client).await.is_empty());
        gateway.operator().delete(&format!("/v1/sessions/{open}")).await;
        let refused =
            soon(client.peer().call_tool(request("session_list", json!({})))).await.unwrap_err();
        assert!(refused.to_string().contains(&open), "{era:?}: {refused}");
        assert_eq!(soon(child.wait()).await.unwrap().code(), Some(5), "{era:?}");
    }
    // The other session is still open.
    assert_eq!(gateway.operator().get(&format!("/v1/sessions/{id}")).await.body["state"], "idle");
    gateway.stop().await;
}

/// Returns the program's output for this input.
async fn answers(gateway: &Gateway, said: &[Value]) -> Vec<Value> {
    let lines: Vec<String> = said.iter().map(|message| format!("{message}\n")).collect();
    answers_to_bytes(gateway, lines.concat().into_bytes()).await
}

async fn answers_to_bytes(gateway: &Gateway, said: Vec<u8>) -> Vec<Value> {
    let mut child = program(gateway, &[]).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    tokio::spawn(async move { stdin.write_all(&said).await.unwrap() });
    let output = soon(child.wait_with_output()).await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = std::str::from_utf8(&output.stdout).unwrap().lines();
    lines.map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn everything_that_was_asked_before_the_end_of_the_input_is_answered() {
    let gateway = Setup::new().config("[sessions]\nenabled = false").start().await;
    let _node = Hello::new("mac").tool("notes.search").connect(&gateway).await.echo();
    let info = json!({ "name": "t", "version": "1" });
    let params = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info });
    let initialize = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params });
    let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    let params = json!({ "name": "notes_search", "arguments": { "q": 7 } });
    let call = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params });
    let ids = |answers: &[Value]| {
        answers.iter().filter_map(|answer| answer["id"].as_i64()).collect::<Vec<_>>()
    };

    assert_eq!(answers(&gateway, &[]).await, Vec::<Value>::new());
    let greeted = answers(&gateway, std::slice::from_ref(&initialize)).await;
    assert_eq!(ids(&greeted), [1], "{greeted:?}");
    // With the complete handshake, and without its last message.
    for said in [vec![initialize.clone(), initialized, call.clone()], vec![initialize, call]] {
        let heard = answers(&gateway, &said).await;
        assert_eq!(ids(&heard), [1, 2], "{heard:?}");
        assert_eq!(
            heard.last().unwrap()["result"]["structuredContent"],
            json!({ "q": 7 }),
            "{heard:?}"
        );
    }
}

#[tokio::test]
async fn what_is_no_request_is_refused_and_spoils_nothing() {
    let gateway = Setup::new().config("[sessions]\nenabled = false").start().await;
    let _node = Hello::new("mac").tool("notes.search").connect(&gateway).await.echo();
    let info = json!({ "name": "t", "version": "1" });
    let params = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info });
    let initialize = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params });
    let params = json!({ "name": "notes_search", "arguments": { "q": 7 } });
    let call = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params });
    let huge = json!({ "jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": { "x": "y".repeat(17 << 20) } });
    let batch = json!([call, call]);
    // The last line has no line break.
    let mut said = format!("hello\n{initialize}\n{batch}\n{huge}\n\"\n").into_bytes();
    said.extend(b"\xff\xfe\n");
    said.extend(call.to_string().into_bytes());
    let heard = answers_to_bytes(&gateway, said).await;
    let mut codes: Vec<(Option<i64>, i64)> = heard
        .iter()
        .filter_map(|answer| Some((answer["id"].as_i64(), answer["error"]["code"].as_i64()?)))
        .collect();
    codes.sort_unstable();
    let (parse, invalid) = (-32700, -32600);
    assert_eq!(
        codes,
        [(None, parse), (None, parse), (None, parse), (None, invalid), (Some(3), invalid)],
        "{heard:?}"
    );
    let answer =
        heard.iter().find(|answer| answer["id"] == 2).unwrap_or_else(|| panic!("{heard:?}"));
    assert_eq!(answer["result"]["structuredContent"], json!({ "q": 7 }));
}
