//! OpenAI's own clients for Python and JavaScript work with only the address and the key changed.
//! This covers chat completions and responses, streamed or not, with the gateway's tools and their
//! own. `cargo xtask test` installs the clients.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use sa_gateway_kit::chat::result;
use sa_gateway_kit::{Gateway, Hello, ModelReply, ScriptedModel, Setup};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::mcp::conformance::peers;

/// Returns the directory where `cargo xtask test` installs the clients.
fn clients() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let clients = program.ancestors().nth(3).unwrap().join("openai-clients");
    assert!(
        clients.join("venv").is_dir(),
        "{} is missing; run: cargo xtask test",
        clients.display()
    );
    clients
}

/// Scripts a conversation in which the model calls a tool of the gateway and then a tool of the
/// client.
fn script(model: &ScriptedModel) {
    model
        .then(|_| {}, ModelReply::calls(&[("c1", "notes_search", json!({ "query": "ä" }))]))
        .then(
            |request| assert_eq!(result(request, "c1"), "{\"query\":\"ä\"}"),
            ModelReply::calls(&[
                ("c2", "notes_search", json!({ "query": "b" })),
                ("c3", "get_time", json!({ "zone": "UTC" })),
            ]),
        )
        .then(
            |request| {
                assert_eq!(result(request, "c2"), "{\"query\":\"b\"}");
                let last = request["messages"].as_array().unwrap().last().unwrap();
                assert_eq!(last["content"], "12:00", "{request}");
            },
            ModelReply::text("It is noon."),
        );
}

async fn converse(program: &Path, arguments: &[&Path], mode: &[&str], gateway: &Gateway) -> Value {
    let mut command = Command::new(program);
    command.args(arguments).args([&format!("{}/v1", gateway.url), &gateway.operator]).args(mode);
    command
        .env("HOME", gateway.dir.path())
        .current_dir(gateway.dir.path())
        .stdin(Stdio::null())
        .kill_on_drop(true);
    for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"]
    {
        command.env_remove(name);
    }
    let output = command.output().await.unwrap();
    let (said, complaint) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}\n{complaint}");
    serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}\n{complaint}"))
}

async fn check(program: &Path, arguments: &[&Path]) {
    let tool = json!({ "name": "notes.search", "input_schema": { "type": "object", "properties": { "query": { "type": "string" } } } });
    for mode in ["whole", "stream"] {
        let model = ScriptedModel::start().await;
        let gateway = Setup::new().config(&model.config("")).start().await;
        let _node = Hello::new("mac").describe(tool.clone()).connect(&gateway).await.echo();
        script(&model);
        let said = converse(program, arguments, &[mode], &gateway).await;
        let expected = json!({
            "models": ["scripted"],
            "calls": [{ "name": "get_time", "arguments": "{\"zone\":\"UTC\"}" }],
            "answer": "It is noon.",
            "error": [404, "model_not_found"],
        });
        assert_eq!(said, expected, "{mode}");
        model.finish();
    }
}

/// Scripts the same conversation over the Responses API. The model server still receives chat
/// completions.
fn responses_script(model: &ScriptedModel, mode: &str) {
    // The clients have two ways to stream, and use both for their first request.
    for _ in 0..if mode == "stream" { 2 } else { 1 } {
        model
            .then(
                |request| {
                    let asked = json!([
                        { "role": "system", "content": "Be short." },
                        { "role": "user", "content": "What time is it?" },
                    ]);
                    assert_eq!(request["messages"], asked, "{request}");
                    let tools = request["tools"].as_array().unwrap();
                    let names: Vec<&Value> =
                        tools.iter().map(|tool| &tool["function"]["name"]).collect();
                    assert_eq!(names, ["get_time", "notes_search"], "{request}");
                    assert_eq!(request["max_completion_tokens"], 500, "{request}");
                    assert!(
                        request.get("store").is_none() && request.get("input").is_none(),
                        "{request}"
                    );
                },
                ModelReply::calls(&[("c1", "notes_search", json!({ "query": "ä" }))]),
            )
            .then(
                |request| assert_eq!(result(request, "c1"), "{\"query\":\"ä\"}"),
                ModelReply::calls(&[
                    ("c2", "notes_search", json!({ "query": "b" })),
                    ("c3", "get_time", json!({ "zone": "UTC" })),
                ])
                .saying("Let me look."),
            );
    }
    model.then(
        |request| {
            assert_eq!(
                result(request, "c2"),
                "{\"query\":\"b\"}",
                "the gateway's calls are put back in"
            );
            let messages = request["messages"].as_array().unwrap();
            assert_eq!(messages.last().unwrap()["content"], "12:00", "{request}");
            let called = messages.iter().rfind(|message| message["role"] == "assistant").unwrap();
            assert_eq!(called["content"], "Let me look.", "{request}");
            assert_eq!(called["tool_calls"].as_array().unwrap().len(), 2, "{request}");
        },
        ModelReply::text("It is noon."),
    );
}

async fn check_responses(program: &Path, arguments: &[&Path]) {
    let tool = json!({ "name": "notes.search", "input_schema": { "type": "object", "properties": { "query": { "type": "string" } } } });
    for mode in ["whole", "stream"] {
        let model = ScriptedModel::start().await;
        let gateway = Setup::new().config(&model.config("")).start().await;
        let _node = Hello::new("mac").describe(tool.clone()).connect(&gateway).await.echo();
        responses_script(&model, mode);
        let (_, barred) = gateway.token(json!({ "name": "barred", "role": "monitor" })).await;
        let printed = converse(program, arguments, &[mode, &barred], &gateway).await;
        let expected = json!({
            "text": "Let me look.",
            "calls": [{ "name": "get_time", "arguments": "{\"zone\":\"UTC\"}" }],
            "answer": "It is noon.",
            "errors": [
                [404, "model_not_found", "model", true],
                [400, "unsupported_parameter", "previous_response_id", true],
                [404, "not_found", null, true],
                [401, "unauthorized", null, true],
                [403, "not_allowed", null, true],
            ],
        });
        assert_eq!(printed, expected, "{mode}");
        model.finish();
    }
}

fn here(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/openai-clients").join(name)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_python_client() {
    check(&clients().join("venv/bin/python"), &[&here("client.py")]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_javascript_client() {
    // The client needs a newer Node.js than Debian's. That version was installed with the other
    // packages.
    check(&peers().join("node_modules/node/bin/node"), &[&here("client.mjs"), &clients()]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_python_client_over_the_responses_api() {
    check_responses(&clients().join("venv/bin/python"), &[&here("responses.py")]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_javascript_client_over_the_responses_api() {
    check_responses(
        &peers().join("node_modules/node/bin/node"),
        &[&here("responses.mjs"), &clients()],
    )
    .await;
}
