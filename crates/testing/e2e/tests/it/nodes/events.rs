//! `tail` shows the events of nodes, and their text cannot control the terminal.

use rustix::process::Signal;
use sa_gateway_kit::{Hello, Setup};
use serde_json::{Value, json};

use crate::SWITCHBOARD;

fn event(name: &str, data: Value) -> Value {
    json!({ "type": "node_event", "event": name, "data": data })
}

#[tokio::test]
async fn tail_shows_what_a_node_says_and_is_not_steered_by_it() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let mut node = Hello::new("laptop").tool("Bash").connect(&gateway).await;
    let tail = gateway.cli(&["tail"]).start();
    tail.warns("watching").await;
    let data = json!({ "command": "cargo test \u{1b}[31m", "exitCode": 0, "durationMs": 3_200 });
    node.send(event("process.finished", data)).await;
    let said = tail.says("process finished").await;
    let said = said.lines().find(|line| line.contains("process finished")).unwrap();
    assert!(
        said.ends_with("process finished   laptop  cargo test \\u{1b}[31m  exit 0  3.20 s"),
        "{said}"
    );
    tail.signal(Signal::INT);
    tail.end().await.assert_code(0);
    gateway.stop().await;
}
