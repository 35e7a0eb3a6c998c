//! A node learns from its welcome which of its names are invalid.

use sa_testkit::{FakeNode, Gateway, Hello, Setup};
use serde_json::Value;

/// Connects a node and returns the notice in its welcome.
async fn welcomed(gateway: &Gateway, hello: Hello) -> (FakeNode, Value) {
    let mut node = hello.greet(gateway).await.unwrap();
    let welcome = node.recv().await;
    assert_eq!(welcome["type"], "gateway_welcome", "{welcome}");
    node.settle().await;
    (node, welcome["notice"].clone())
}

#[track_caller]
fn has(text: &str, words: &[&str]) {
    assert!(words.iter().all(|word| text.contains(word)), "{words:?} in {text}");
}

#[tokio::test]
async fn a_name_that_cannot_be_used_is_told_to_the_node() {
    let gateway = Setup::new().start().await;
    let (_node, notice) = welcomed(&gateway, Hello::new("mine").tool("a b").tool("a.b")).await;
    has(notice.as_str().unwrap_or_default(), &["a b: "]);
    let (_other, notice) = welcomed(&gateway, Hello::new("other").tool("c.d")).await;
    assert_eq!(notice, Value::Null, "nothing is wrong with this one");
}
