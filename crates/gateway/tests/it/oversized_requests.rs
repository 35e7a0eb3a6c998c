//! A call with arguments above its node's limit fails alone, without effect on other calls of that
//! node.

use sa_gateway_kit::{Gateway, Hello, Message, SdkNode, Setup, gate};
use serde_json::{Value, json};

/// Above the limit of a node, below that of the WebSocket for calls.
fn six_megabytes() -> Value {
    json!({ "text": "x".repeat(6_000_000) })
}

async fn gateway() -> Gateway {
    Setup::new().start().await
}

#[tokio::test]
async fn a_large_call_of_one_agent_leaves_another_agents_call_alone() {
    let gateway = gateway().await;
    let (registry, mut tool) = gate("desk.wait");
    let node = SdkNode::start(&gateway, "desk", registry, |builder| builder).await;
    let (bystander, other) =
        (gateway.new_agent("bystander").await, gateway.new_agent("other").await);
    let (mut bystander, mut other) = (bystander.socket().await, other.socket().await);
    bystander.call("1", "desk.wait", json!({})).await;
    sa_gateway_kit::soon(tool.started.recv()).await.unwrap();

    other.call("large", "desk.wait", six_megabytes()).await;
    let refusal = other.wait_for("error", "large").await;
    assert_eq!(
        (&refusal["kind"], &refusal["retryable"]),
        (&json!("invalid_args"), &json!(false)),
        "{refusal}"
    );
    let words = refusal["message"].as_str().unwrap();
    assert!(words.contains("\"desk\"") && words.contains("262144"), "{words}");
    assert!(refusal["hint"].as_str().unwrap().contains("max_request_bytes"), "{refusal}");

    tool.go.add_permits(1);
    assert_eq!(bystander.wait_for("done", "1").await["result"], "let go");
    assert!(tool.started.try_recv().is_err(), "the tool ran for what was refused");
    node.stop().await;
    gateway.stop().await;
}

#[tokio::test]
async fn the_limit_is_the_nodes_own_and_counts_the_whole_request() {
    let gateway = gateway().await;
    let mut node = Hello::new("n")
        .capability("a")
        .with("max_request_bytes", json!(2_000))
        .connect(&gateway)
        .await;
    let operator = gateway.operator();
    let refused = operator.call("a.b", json!({ "text": "x".repeat(2_000) })).await;
    assert!(
        refused.assert_problem(422, "invalid_args").detail().contains("2000"),
        "{}",
        refused.text
    );
    node.settle().await;
    let call = operator.call_later("a.b", json!({ "args": { "text": "x".repeat(1_500) } }));
    let request = node.request().await;
    node.answer(&request.id, json!("taken")).await;
    assert_eq!(call.await.unwrap().result(), "taken");
    gateway.stop().await;
}

#[tokio::test]
async fn a_node_that_states_no_limit_gets_what_the_agent_sent() {
    let gateway = gateway().await;
    let mut node = Hello::old("n").capability("a").connect(&gateway).await;
    let mut socket = gateway.operator().socket().await;
    let frame = json!({ "type": "call", "id": "1", "tool": "a.b", "args": six_megabytes() });
    socket.send_raw(Message::text(frame.to_string())).await;
    let request = node.request().await;
    assert_eq!(request.args, six_megabytes());
    node.answer(&request.id, json!("taken")).await;
    assert_eq!(socket.wait_for("done", "1").await["result"], "taken");
    gateway.stop().await;
}
