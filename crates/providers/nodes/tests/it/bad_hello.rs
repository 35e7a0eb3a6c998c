//! An unusable hello is answered with a close that names the error, and a node that sends no hello
//! is disconnected.

use sa_testkit::{FakeNode, Gateway, Hello, Message, Setup, Traffic};
use serde_json::{Value, json};

async fn gateway() -> Gateway {
    Setup::new().config("[limits]\nmax_frame_bytes = 1_000_000").start().await
}

#[track_caller]
fn named(closed: &(u16, String), code: u16, words: &str) {
    assert!(
        closed.0 == code && closed.1.contains(words),
        "{closed:?} should be {code} and name {words:?}"
    );
}

#[tokio::test]
async fn each_mistake_is_named() {
    let gateway = gateway().await;
    let traffic = Traffic::start(&gateway).await;
    let mut tools = Vec::new();
    for number in 0..10_000 {
        tools.push(json!({ "name": format!("t.n{number}") }));
    }
    let node = |id: Value| json!({ "id": id, "name": "n", "node_type": "t", "version": "1" });
    let cases = [
        (Hello::new("n").with("protocol_version", json!(2)), 4406, "2"),
        (Hello::new("n").with("protocol_version", json!(0)), 4406, "0"),
        (Hello::new("n").with("node", node(json!(""))), 4400, "node.id"),
        (Hello::new("n").with("node", node(json!("a\nb"))), 4400, "node.id"),
        (Hello::new("n").with("node", node(json!("x".repeat(200)))), 4400, "node.id"),
        (Hello::new("n").with("node", node(json!("n\u{202e}"))), 4400, "node.id"),
        (Hello::new("n").with("node", node(json!("n\u{200b}"))), 4400, "node.id"),
        (Hello::new("n").with("node", node(json!("n\u{61c}"))), 4400, "node.id"),
        (Hello::new("n").with("node", node(json!("n\u{3164}"))), 4400, "node.id"),
        (Hello::new("n").with("node", node(json!("n\u{200d}"))), 4400, "U+200D at position 2"),
        (Hello::new("n").with("node", node(json!("my laptop"))), 4400, "U+0020 at position 3"),
        (Hello::new("n").with("node", node(json!("l\u{430}ptop"))), 4400, "U+0430 at position 2"),
        (Hello::new("n").with("node", node(json!(5))), 4400, "node_hello"),
        (Hello::new("n").with("node", json!(null)), 4400, "node"),
        (Hello::new("n").with("tools", json!(tools)), 4400, "at most"),
        (Hello::new("n").with("tools", json!("all of them")), 4400, "tools"),
        (Hello::new("n").with("capabilities", json!({})), 4400, "capabilities"),
    ];
    let count = cases.len() as u64;
    for (hello, code, words) in cases {
        let mut node = hello.greet(&gateway).await.unwrap();
        named(&node.closed().await, code, words);
    }
    assert_eq!(gateway.refused("node", "refused").await, count);
    traffic.end().await;
}

#[tokio::test]
async fn a_first_frame_that_is_too_deep_or_too_large_is_refused() {
    let gateway = gateway().await;
    let traffic = Traffic::start(&gateway).await;
    let deep =
        format!("{{\"type\":\"node_hello\",\"x\":{}{}}}", "[".repeat(10_000), "]".repeat(10_000));
    let cases = [(Message::text(deep), 4400), (Message::text("x".repeat(1_000_001)), 1009)];
    for (message, code) in cases {
        let mut node = FakeNode::upgrade(&gateway, "").await.unwrap();
        node.try_send(message).await;
        assert_eq!(node.closed().await.0, code);
    }
    traffic.end().await;
}

#[tokio::test]
async fn frames_before_the_hello_are_skipped() {
    let gateway = Setup::new().config("[nodes]\nhello_timeout_ms = 1_000").start().await;
    let early = || {
        [
            Message::text(r#"{"type":"ping","timestamp":1}"#),
            Message::text("nonsense"),
            Message::binary(vec![1]),
        ]
    };
    let mut node = FakeNode::upgrade(&gateway, "").await.unwrap();
    for message in early() {
        node.try_send(message).await;
    }
    node.send(Hello::new("n").capability("a").frame()).await;
    assert_eq!(node.recv().await["type"], "gateway_welcome");
    let mut silent = FakeNode::upgrade(&gateway, "").await.unwrap();
    for message in early() {
        silent.try_send(message).await;
    }
    named(&silent.closed().await, 4408, "3 other frames");
}

#[tokio::test]
async fn names_that_cannot_be_used_are_left_out_and_shown() {
    let gateway = gateway().await;
    let long = "x".repeat(200);
    let names = ["", "with space", "tab\tbed", "a\u{1b}[31m", "fine.one\u{3164}", &long];
    let mut hello = Hello::new("n").tool("fine.one").capability("bad prefix").capability("ok");
    for name in names {
        hello = hello.tool(name);
    }
    let _node = hello.connect(&gateway).await;
    assert_eq!(gateway.operator().tool_names().await, ["fine_one", "ok"]);
    let nodes = gateway.operator().get("/v1/nodes").await;
    assert_eq!(
        nodes.body["nodes"][0]["about"]["ignored"].as_array().unwrap().len(),
        names.len() + 1
    );
    assert_eq!(nodes.body["nodes"][0]["capabilities"], json!(["ok"]));
}

#[tokio::test]
async fn a_node_that_never_says_hello_is_let_go() {
    let gateway = Setup::new().config("[nodes]\nhello_timeout_ms = 150").start().await;
    let traffic = Traffic::start(&gateway).await;
    let mut silent = FakeNode::upgrade(&gateway, "").await.unwrap();
    assert_eq!(silent.closed().await.0, 4408);
    // Pings do not count as a hello.
    let mut pinging = FakeNode::upgrade(&gateway, "").await.unwrap();
    let closed = loop {
        if !pinging.try_send(Message::Ping(Vec::new().into())).await {
            break pinging.closed().await;
        }
        let wait = tokio::time::timeout(std::time::Duration::from_millis(20), pinging.closed());
        if let Ok(closed) = wait.await {
            break closed;
        }
    };
    assert_eq!(closed.0, 4408);
    assert_eq!(gateway.refused("node", "refused").await, 2);
    traffic.end().await;
}
