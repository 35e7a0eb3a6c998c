//! A third-party server with another library: the reference server of the protocol's authors.

use std::path::PathBuf;
use std::process::Stdio;

use sa_gateway_kit::mcp::{ERAS, Era, Knows, connect, request, value};
use sa_gateway_kit::upstream::until;
use sa_gateway_kit::{Gateway, Setup, soon};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

/// Returns the path where `cargo xtask test` installs it.
fn program() -> PathBuf {
    let target = std::env::current_exe().unwrap().ancestors().nth(3).unwrap().to_owned();
    let script =
        "upstream-servers/node_modules/@modelcontextprotocol/server-everything/dist/index.js";
    let program = target.join(script);
    assert!(program.is_file(), "{} is missing; run: cargo xtask test", program.display());
    program
}

async fn start(how: &str) -> Gateway {
    let gateway = Setup::new().config(&format!("[upstream.everything]\n{how}\n")).start().await;
    until(&gateway, "everything", "ready").await;
    gateway
}

fn over_stdio() -> String {
    format!("command = {}", json!(["node", program(), "stdio"]))
}

/// Starts the same server over Streamable HTTP. It takes its port from the environment and cannot
/// choose a free one itself.
async fn over_http() -> (Child, String) {
    loop {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new("node");
        command.arg(program()).arg("streamableHttp").env("PORT", port.to_string());
        let mut server = command
            .stderr(Stdio::piped())
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(server.stderr.take().unwrap()).lines();
        while let Some(line) = soon(lines.next_line()).await.unwrap() {
            if line.contains("listening on port") {
                // It logs each request, and would stop if its output were not read.
                tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
                return (server, format!("url = \"http://127.0.0.1:{port}/mcp\""));
            }
        }
    }
}

/// Checks that clients with old and new revisions can answer the questions of the server's tools.
async fn check_questions(gateway: &Gateway) {
    for era in ERAS {
        let client = connect(gateway, &gateway.operator, "", era, Knows).await.unwrap();
        let sampling = request(
            "everything__trigger-sampling-request",
            json!({ "prompt": "Hi", "maxTokens": 10 }),
        );
        let sampled = value(&client.call_tool(sampling).await.unwrap());
        let text = sampled["content"][0]["text"].as_str().unwrap();
        assert!(
            text.contains("\"text\": \"Hello\"") && text.contains("\"model\": \"small\""),
            "{era:?}: {text}"
        );
        let elicitation = request("everything__trigger-elicitation-request", json!({}));
        let elicited = value(&client.call_tool(elicitation).await.unwrap());
        let text = elicited["content"][1]["text"].as_str().unwrap();
        assert!(text.contains("- Name: Ada"), "{era:?}: {elicited}");
    }
}

#[tokio::test]
async fn a_client_answers_its_questions_over_stdio() {
    check_questions(&start(&over_stdio()).await).await;
}

#[tokio::test]
async fn a_client_answers_its_questions_over_http() {
    let (_server, url) = over_http().await;
    check_questions(&start(&url).await).await;
}

#[tokio::test]
async fn its_tool_that_requires_a_task_runs_as_one() {
    let (_server, url) = over_http().await;
    for how in [over_stdio(), url] {
        let gateway = start(&how).await;
        let client = connect(&gateway, &gateway.operator, "", Era::Sessions, Knows).await.unwrap();
        // "ambiguous" makes it ask a question while the task runs.
        for ambiguous in [false, true] {
            let args = json!({ "topic": "python", "ambiguous": ambiguous });
            let result = client
                .call_tool(request("everything__simulate-research-query", args))
                .await
                .unwrap();
            let result = value(&result);
            let text = result["content"][0]["text"].as_str().unwrap();
            assert!(text.contains("# Research Report: python"), "{how}: {result}");
            assert_eq!(text.contains("Clarification"), ambiguous, "{how}: {result}");
        }
    }
}

#[tokio::test]
async fn the_reference_server_works_behind_the_gateway() {
    let gateway = start(&over_stdio()).await;
    let agent = gateway.operator();
    let said = agent.call("everything__echo", json!({ "message": "hello" })).await.body;
    assert_eq!(said["blocks"][0]["text"], "Echo: hello", "{said}");
    let picture = agent.call("everything__get-tiny-image", json!({})).await.body;
    assert!(
        picture["blocks"].as_array().unwrap().iter().any(|block| block["type"] == "image"),
        "{picture}"
    );
    let structured = agent
        .call("everything__get-structured-content", json!({ "location": "Chicago" }))
        .await
        .body;
    assert!(structured["result"]["temperature"].is_number(), "{structured}");
    let args = json!({ "args": { "duration": 0.3, "steps": 3 } });
    let mut events = agent.stream("everything__trigger-long-running-operation", args).await;
    let mut steps = 0;
    while let Some((name, _)) = events.next().await {
        steps += usize::from(name == "progress");
    }
    assert_eq!(steps, 3);
    agent
        .call("everything__echo", json!({ "message": 1 }))
        .await
        .assert_problem(422, "invalid_args");
}
