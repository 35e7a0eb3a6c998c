//! A node is asked about its programs once for all concurrent requests. Only the connection that
//! was asked can answer, and only once. A node that does not answer costs a bounded time.

use sa_testkit::{FakeNode, Gateway, Hello, Reply, Setup, eventually};
use serde_json::{Value, json};

fn host(id: &str) -> Hello {
    Hello::new(id).tool("Bash").with("features", json!(["bin_probe"]))
}

fn ask(gateway: &Gateway, bins: Value) -> tokio::task::JoinHandle<Reply> {
    let operator = gateway.operator();
    tokio::spawn(
        async move { operator.post("/v1/nodes/laptop/probe", &json!({ "bins": bins })).await },
    )
}

async fn question(node: &mut FakeNode) -> (String, Value) {
    let frame = node.recv().await;
    assert_eq!(frame["type"], "bin_probe", "{frame}");
    (frame["probe_id"].as_str().unwrap().to_owned(), frame["bins"].clone())
}

async fn reply(node: &mut FakeNode, id: &str, bins: Value) {
    node.send(json!({ "type": "bin_probe_result", "probe_id": id, "bins": bins })).await;
}

async fn shown(gateway: &Gateway) -> Value {
    gateway.operator().get("/v1/nodes").await.body["nodes"][0].clone()
}

#[tokio::test]
async fn the_answer_is_given_and_remembered_with_its_time() {
    let gateway = Setup::new().start().await;
    let mut node = host("laptop").connect(&gateway).await;
    assert!(shown(&gateway).await.get("hostBinStatus").is_none());
    let asked = ask(&gateway, json!(["git", "docker", "git"]));
    let (id, bins) = question(&mut node).await;
    assert_eq!(bins, json!(["docker", "git"]), "each once");
    // Additional programs in the answer are ignored, and missing ones count as not installed.
    reply(&mut node, &id, json!({ "git": true, "rm": true })).await;
    let answer = asked.await.unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(answer.body["hostBinStatus"], json!({ "docker": false, "git": true }));
    let at = answer.body["hostBinStatusUpdatedAt"].as_i64().unwrap();
    assert!(at > 1_700_000_000_000, "{at}");
    let node_shown = shown(&gateway).await;
    assert_eq!(node_shown["hostBinStatus"], json!({ "docker": false, "git": true }));
    assert_eq!(node_shown["hostBinStatusUpdatedAt"], at);
    // A new request probes again, because the answer may have changed.
    let asked = ask(&gateway, json!(["docker"]));
    let (id, _) = question(&mut node).await;
    reply(&mut node, &id, json!({ "docker": true })).await;
    assert_eq!(asked.await.unwrap().body["hostBinStatus"], json!({ "docker": true }));
    assert_eq!(shown(&gateway).await["hostBinStatus"], json!({ "docker": true, "git": true }));
}

#[tokio::test]
async fn those_who_ask_together_are_one_question() {
    let gateway = Setup::new().start().await;
    let mut node = host("laptop").connect(&gateway).await;
    let first = ask(&gateway, json!(["a", "b"]));
    let (id, bins) = question(&mut node).await;
    assert_eq!(bins, json!(["a", "b"]));
    let second = ask(&gateway, json!(["b", "c"]));
    // Only the programs without a running probe.
    let (other, bins) = question(&mut node).await;
    assert_eq!(bins, json!(["c"]));
    reply(&mut node, &other, json!({ "c": false })).await;
    reply(&mut node, &id, json!({ "a": false, "b": true })).await;
    assert_eq!(first.await.unwrap().body["hostBinStatus"], json!({ "a": false, "b": true }));
    assert_eq!(second.await.unwrap().body["hostBinStatus"], json!({ "b": true, "c": false }));
}

#[tokio::test]
async fn nobody_answers_for_another_and_nobody_twice() {
    let gateway = Setup::new().start().await;
    let mut node = host("laptop").connect(&gateway).await;
    let mut other = host("other").connect(&gateway).await;
    let asked = ask(&gateway, json!(["git"]));
    let (id, _) = question(&mut node).await;
    reply(&mut other, &id, json!({ "git": true })).await;
    other.settle().await;
    reply(&mut node, "no number", json!({ "git": true })).await;
    reply(&mut node, &id, json!({ "git": false })).await;
    reply(&mut node, &id, json!({ "git": true })).await;
    node.settle().await;
    assert_eq!(asked.await.unwrap().body["hostBinStatus"], json!({ "git": false }));
    assert_eq!(shown(&gateway).await["hostBinStatus"], json!({ "git": false }));
    assert_eq!(gateway.refused("node", "stray_probe").await, 3);
}

#[tokio::test]
async fn a_node_that_leaves_ends_the_question_at_once() {
    let gateway = Setup::new().start().await;
    let mut node = host("laptop").connect(&gateway).await;
    let asked = ask(&gateway, json!(["git"]));
    question(&mut node).await;
    drop(node);
    asked.await.unwrap().assert_problem(503, "offline");
    eventually("it gone", || async { (shown(&gateway).await["online"] == false).then_some(()) })
        .await;
    ask(&gateway, json!(["git"])).await.unwrap().assert_problem(503, "offline");
}

#[tokio::test]
async fn what_cannot_be_asked_is_refused_with_the_reason() {
    let gateway = Setup::new().start().await;
    let _node = Hello::new("laptop").tool("Bash").connect(&gateway).await;
    let unsupported = ask(&gateway, json!(["git"])).await.unwrap();
    unsupported.assert_problem(409, "unsupported");
    assert!(unsupported.detail().contains("bin_probe"), "{}", unsupported.text);
    let mut many: Vec<String> = (0..65).map(|n| format!("b{n}")).collect();
    for bins in [
        json!([]),
        json!(["a/b"]),
        json!([""]),
        json!(["a b"]),
        json!([".."]),
        json!(["x".repeat(129)]),
        json!(many),
    ] {
        ask(&gateway, bins).await.unwrap().assert_problem(400, "bad_request");
    }
    many.clear();
    let operator = gateway.operator();
    for body in [
        json!({}),
        json!({ "bins": "git" }),
        json!({ "bins": [1] }),
        json!([["git"]]),
        json!({ "bins": ["a"], "x": 1 }),
    ] {
        operator.post("/v1/nodes/laptop/probe", &body).await.assert_problem(400, "bad_request");
    }
    operator
        .post("/v1/nodes/nobody/probe", &json!({ "bins": ["git"] }))
        .await
        .assert_problem(404, "not_found");
    let agent = gateway.new_agent("a").await;
    agent
        .post("/v1/nodes/laptop/probe", &json!({ "bins": ["git"] }))
        .await
        .assert_problem(403, "not_allowed");
}
