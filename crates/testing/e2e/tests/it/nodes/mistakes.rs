//! Mistakes in a node are reported before a call fails. They are in the node's welcome, the
//! gateway's log, the output of `doctor`, and the lists of nodes and tools.

use sa_gateway_kit::{FakeNode, Gateway, Hello, Message, Setup, eventually};
use serde_json::{Value, json};

use crate::SWITCHBOARD;

/// Returns the gateway's warnings about one node.
fn warnings(gateway: &Gateway, node: &str) -> Vec<Value> {
    let lines = gateway.stderr();
    let lines = lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter(|line| line["level"] == "WARN" && line["node"] == node).collect()
}

/// Waits for the warnings, because a thread writes the log a moment after the event.
async fn warned_at_least(gateway: &Gateway, node: &str, least: usize) -> Vec<Value> {
    eventually("the warnings", || async {
        Some(warnings(gateway, node)).filter(|lines| lines.len() >= least)
    })
    .await
}

/// Connects a node and returns the notice in its welcome.
async fn welcomed(gateway: &Gateway, hello: Hello) -> (FakeNode, Value) {
    let mut node = hello.greet(gateway).await.unwrap();
    let welcome = node.recv().await;
    assert_eq!(welcome["type"], "gateway_welcome", "{welcome}");
    node.settle().await;
    (node, welcome["notice"].clone())
}

async fn node_doc(gateway: &Gateway) -> Value {
    gateway.operator().get("/v1/nodes").await.body["nodes"][0].clone()
}

/// Returns the problems that `doctor` finds.
async fn found_wrong(gateway: &Gateway) -> Vec<Value> {
    let report = gateway.cli(&["doctor", "--json"]).run().await;
    let findings = report.assert_code(1).json()["findings"].as_array().unwrap().clone();
    findings.into_iter().filter(|finding| finding["ok"] == false).collect()
}

#[track_caller]
fn has(text: &str, words: &[&str]) {
    assert!(words.iter().all(|word| text.contains(word)), "{words:?} in {text}");
}

#[tokio::test]
async fn a_schema_that_cannot_be_used_is_told_before_anybody_calls() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let hello = Hello::new("mine")
        .describe(json!({ "name": "g.x", "input_schema": { "type": "objekt" } }))
        .describe(json!({ "name": "g.ref", "input_schema": { "$ref": "#/$defs/none" } }))
        .describe(json!({ "name": "g.fine", "input_schema": { "type": "object", "properties": { "a": { "pattern": "(" } } } }));
    let (_node, notice) = welcomed(&gateway, hello).await;
    let notice = notice.as_str().unwrap_or_default();
    has(notice, &["g.x", "\"objekt\" is not a type", "g.ref", "has no target"]);
    assert!(!notice.contains("g.fine"), "{notice}");
    let warned = format!("{:?}", warned_at_least(&gateway, "mine", 1).await);
    has(&warned, &["g.x", "objekt", "g.ref"]);

    let flaws = node_doc(&gateway).await["unusable_schemas"].clone();
    let named: Vec<&Value> =
        flaws.as_array().into_iter().flatten().map(|flaw| &flaw["tool"]).collect();
    assert_eq!(named, ["g_ref", "g_x"], "{flaws}");
    let tools = gateway.operator().get("/v1/tools").await.body["tools"].clone();
    for tool in tools.as_array().unwrap() {
        let flawed = tool["name"] == "g_x" || tool["name"] == "g_ref";
        assert_eq!(tool["schema_problem"].is_string(), flawed, "{tool}");
    }
    let shown = gateway.cli(&["tools", "g_x"]).run().await;
    has(&shown.assert_code(0).stdout, &["cannot be used", "\"objekt\" is not a type"]);
    assert!(!shown.stdout.contains("does not declare them"), "{}", shown.stdout);
    let wrong = found_wrong(&gateway).await;
    assert_eq!(wrong.len(), 2, "{wrong:?}");
    has(&wrong[1]["what"].to_string(), &["mine", "g_x", "is not a type"]);
    gateway.stop().await;
}

#[tokio::test]
async fn many_mistakes_are_told_in_few_words() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let names = (0..500).map(|n| format!("bad name {n}"));
    let (_node, notice) =
        welcomed(&gateway, names.fold(Hello::new("mine"), |hello, name| hello.tool(&name))).await;
    let notice = notice.as_str().unwrap_or_default();
    has(notice, &["bad name 0", "492 more"]);
    assert!(notice.len() < 4_000, "{} bytes", notice.len());
    assert!(
        (1..=9).contains(&warned_at_least(&gateway, "mine", 1).await.len()),
        "{}",
        gateway.stderr()
    );
    gateway.stop().await;
}

#[tokio::test]
async fn frames_that_cannot_be_read_are_warned_of_and_counted() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let (mut node, _) = welcomed(&gateway, Hello::new("mine").tool("a.b")).await;
    assert_eq!(node_doc(&gateway).await["bad_frames"], Value::Null);
    gateway.cli(&["doctor"]).run().await.assert_code(0);
    node.send_raw(Message::text("{nope")).await;
    node.send_raw(Message::text("{\"type\":\"tool_response\"}")).await;
    node.settle().await;
    let doc = node_doc(&gateway).await;
    assert_eq!(doc["bad_frames"]["count"], 2, "{doc}");
    has(&doc["bad_frames"]["last"].to_string(), &["tool_response", "request_id"]);
    let wrong = found_wrong(&gateway).await;
    assert_eq!(wrong.len(), 1, "{wrong:?}");
    has(&wrong[0]["what"].to_string(), &["mine", "2 frames", "request_id"]);

    // The count makes a flood visible.
    for _ in 0..50 {
        node.send_raw(Message::text("{nope")).await;
    }
    node.settle().await;
    assert_eq!(node_doc(&gateway).await["bad_frames"]["count"], 52);
    let warned = warned_at_least(&gateway, "mine", 2).await;
    assert!((2..=4).contains(&warned.len()), "{warned:?}");
    gateway.stop().await;
}
