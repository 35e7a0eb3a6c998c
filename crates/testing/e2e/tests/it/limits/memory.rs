//! A gateway under a memory limit survives more large requests at once than its memory can hold,
//! more large answers to small requests, and messages that would take a hundred times their text if
//! they were parsed.

use std::time::Duration;

use axum::Json;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use reqwest::Method;
use sa_gateway_kit::upstream::until;
use sa_gateway_kit::{Agent, FakeNode, Gateway, Hello, Message, Setup};
use sa_test_needs::MemoryGroup;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::SWITCHBOARD;

const LIMIT: u64 = 1_000_000_000;
const REQUESTS: usize = 120;
const BYTES: usize = 3_900_000;
/// The test takes seconds, but minutes on a busy machine.
const TIME: Duration = Duration::from_secs(240);

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_large_requests_of_one_token_leave_the_gateway_alive_and_its_operator_served() {
    let Some(group) = MemoryGroup::new(LIMIT) else { return };
    let scripts = tempfile::tempdir().unwrap();
    let program = group.wrapping(SWITCHBOARD, scripts.path());
    let config = "[limits]\npending_per_node = 200\nqueue_wait_ms = 60_000";
    let gateway = Setup::new().config(config).spawn(program.to_str().unwrap()).await;
    let status = gateway.operator().get("/v1/status").await.body;
    assert_eq!(
        status["memory_limit_bytes"].as_u64().map(|bytes| bytes / 1_000_000),
        Some(LIMIT / 1_000_000 - 1)
    );

    // The node accepts every request, and sends equally large answers once no more requests arrive.
    let mut node = Hello::new("n").capability("a").connect(&gateway).await;
    let answers = tokio::spawn(async move {
        let large = json!("y".repeat(BYTES));
        loop {
            let mut taken = vec![node.request().await];
            while let Ok(next) = tokio::time::timeout(Duration::from_secs(2), node.request()).await
            {
                taken.push(next);
            }
            for request in taken {
                node.answer(&request.id, large.clone()).await;
            }
        }
    });
    let greedy = gateway.new_agent("greedy").await;
    let body = format!("{{\"args\":{{\"x\":\"{}\"}}}}", "x".repeat(BYTES));
    let values = vec!["0123456789"; BYTES / 16].join("\",\"");
    let message = format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{{\"name\":\"a.b\",\"arguments\":{{\"x\":[\"{values}\"]}}}}}}"
    );
    let mut storm = JoinSet::new();
    for (path, body) in
        [("/v1/tools/a.b/call", &body), ("/mcp", &message)].into_iter().cycle().take(REQUESTS)
    {
        let request = greedy.request(Method::POST, path).body(body.clone()).timeout(TIME);
        let request = request
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream");
        storm.spawn(async move {
            let reply = request.send().await.ok()?;
            let status = reply.status().as_u16();
            reply.text().await.ok().map(|text| (status, text))
        });
    }
    let (mut served, mut refused) = (0, 0);
    while let Some(reply) = storm.join_next().await {
        match reply.unwrap() {
            Some((200, _)) => served += 1,
            Some((429 | 503, text)) => {
                refused += 1;
                assert!(text.contains("overloaded") && text.contains("bytes"), "{text}");
            }
            // A client that is refused while it is still sending may miss the answer.
            other => assert!(other.is_none_or(|(status, _)| status == 408), "an unexpected answer"),
        }
    }
    assert!(served > 0 && refused > 0, "{served} served, {refused} refused");

    assert_free(&gateway).await;
    answers.abort();
    gateway.stop().await;
}

/// Checks that the process is the same, all budgets are free again, and the operator is served.
async fn assert_free(gateway: &Gateway) {
    let status = gateway.operator().get("/v1/status").await;
    assert_eq!(status.status, 200, "{}", status.text);
    let used = status.body["budgets"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|budget| budget["name"] != "node_hellos");
    let used: Vec<_> = used.filter(|budget| budget["used"].as_u64() > Some(1_000)).collect();
    assert!(used.is_empty(), "{used:?}");
}

/// The number of small calls, and the size of each answer.
const CALLS: usize = 60;
const ANSWER: usize = 15_000_000;

/// An upstream server whose tools return a large text, as JSON or as an event.
async fn large(Json(message): Json<Value>) -> Response {
    let tool = message["params"]["name"].as_str().unwrap_or_default();
    let result = match message["method"].as_str().unwrap_or_default() {
        _ if message["id"].is_null() => return StatusCode::ACCEPTED.into_response(),
        "initialize" => json!({
            "protocolVersion": "2025-11-25", "serverInfo": { "name": "large", "version": "1" },
            "capabilities": { "tools": {} },
        }),
        "tools/list" => {
            let tool = |name: &str| json!({ "name": name, "inputSchema": { "type": "object" } });
            let tools = ["json", "event", "small"].map(tool);
            json!({ "tools": tools })
        }
        "tools/call" => {
            let text = if tool == "small" { "small".to_owned() } else { "x".repeat(ANSWER) };
            json!({ "content": [{ "type": "text", "text": text }] })
        }
        _ => {
            let error = json!({ "code": -32601, "message": "Method not found" });
            let answer = json!({ "jsonrpc": "2.0", "id": message["id"], "error": error });
            return Json(answer).into_response();
        }
    };
    let answer = json!({ "jsonrpc": "2.0", "id": message["id"], "result": result });
    if tool != "event" {
        return Json(answer).into_response();
    }
    let event = format!("event: message\ndata: {answer}\n\n");
    ([(CONTENT_TYPE, "text/event-stream")], event).into_response()
}

#[tokio::test(flavor = "multi_thread")]
async fn small_calls_with_large_answers_leave_the_gateway_alive_and_others_served() {
    let Some(group) = MemoryGroup::new(LIMIT) else { return };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = axum::Router::new().route("/mcp", post(large));
    let server = tokio::spawn(async move { axum::serve(listener, app).await });
    let scripts = tempfile::tempdir().unwrap();
    let program = group.wrapping(SWITCHBOARD, scripts.path());
    let config = format!(
        "[limits]\nqueue_wait_ms = 60_000\n[upstream.web]\nurl = \"http://{address}/mcp\"\n"
    );
    let gateway = Setup::new().config(&config).spawn(program.to_str().unwrap()).await;
    until(&gateway, "web", "ready").await;

    let (greedy, modest) = (gateway.new_agent("greedy").await, gateway.new_agent("modest").await);
    let mut storm = JoinSet::new();
    for (path, tool) in [("rest", "json"), ("mcp", "json"), ("rest", "event"), ("mcp", "event")]
        .into_iter()
        .cycle()
        .take(CALLS)
    {
        let request = if path == "rest" {
            greedy.request(Method::POST, &format!("/v1/tools/web__{tool}/call")).body("{}")
        } else {
            let params = json!({ "name": format!("web__{tool}"), "arguments": {} });
            let call =
                json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
            greedy.request(Method::POST, "/mcp").body(call.to_string())
        };
        let request = request
            .timeout(TIME)
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream");
        storm.spawn(async move { request.send().await.unwrap().text().await.unwrap() });
    }
    let (mut served, mut refused) = (0, 0);
    while let Some(answer) = storm.join_next().await {
        let answer = answer.unwrap();
        if answer.len() > ANSWER {
            served += 1;
        } else {
            refused += 1;
            assert!(answer.contains("overloaded") && answer.contains("bytes"), "{answer}");
            // Others are served meanwhile. The connection is new, because the gateway may close
            // an idle one at the same moment.
            let other = Agent::new(&modest.base, &modest.token);
            other.call("web__small", json!({})).await.result();
        }
    }
    assert!(served > 0 && refused > 0, "{served} served, {refused} refused");
    let answer = Agent::new(&modest.base, &modest.token).call("web__json", json!({})).await;
    assert!(answer.text.len() > ANSWER);
    assert_free(&gateway).await;
    gateway.stop().await;
    server.abort();
}

/// JSON of this length in which every value is small, so that a parsed value takes a hundred times
/// the bytes of its text.
fn small_values(bytes: usize) -> String {
    let item = r#"{"":0},"#;
    format!("[{}0]", item.repeat(bytes / item.len()))
}

/// Answers the next request with a list of small values of this length.
async fn answer(node: &mut FakeNode, bytes: usize) {
    let id = node.request().await.id;
    let result = format!("{{\"list\":{}}}", small_values(bytes));
    let frame = format!(
        "{{\"type\":\"tool_response\",\"request_id\":\"{id}\",\"ok\":true,\"result\":{result}}}"
    );
    node.send_raw(Message::text(frame)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_very_many_small_values_leave_the_gateway_alive_and_others_served() {
    let Some(group) = MemoryGroup::new(LIMIT) else { return };
    let scripts = tempfile::tempdir().unwrap();
    let program = group.wrapping(SWITCHBOARD, scripts.path());
    let config = "[limits]\nmax_body_bytes = 16_777_216\n";
    let gateway = Setup::new().config(config).spawn(program.to_str().unwrap()).await;
    let list = json!({ "type": "object", "properties": { "list": { "type": "array" } } });
    let tool = json!({ "name": "a.b", "input_schema": list, "output_schema": list });
    let mut node = Hello::new("n").capability("a").describe(tool).connect(&gateway).await;
    let agent = gateway.new_agent("agent").await;
    let send = async |path: &str, body: String| {
        let request = agent.request(Method::POST, path).body(body).timeout(TIME);
        let request = request
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream");
        request.send().await.unwrap().text().await.unwrap()
    };
    let bodies = |list: &str| {
        let args = format!("{{\"list\":{list}}}");
        let params = format!("{{\"name\":\"a.b\",\"arguments\":{args}}}");
        let message = format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{params}}}"
        );
        [("/v1/tools/a.b/call", format!("{{\"args\":{args}}}")), ("/mcp", message)]
    };
    let is_served = async |node: &mut FakeNode| {
        tokio::join!(async { agent.call("a.b", json!({})).await.result() }, answer(node, 0));
    };
    for (path, body) in bodies(&small_values(16_000_000)) {
        let text = send(path, body).await;
        assert!(text.contains("values"), "{path}: {text}");
        is_served(&mut node).await;
    }
    for (path, body) in bodies("[]") {
        let (text, ()) = tokio::join!(send(path, body), answer(&mut node, 15_000_000));
        assert!(text.contains("values") || text.len() > 15_000_000, "{path}: {text}");
        is_served(&mut node).await;
    }
    assert_free(&gateway).await;
    gateway.stop().await;
}
