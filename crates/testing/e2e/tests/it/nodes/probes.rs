//! The command line asks a node about its programs.

use sa_gateway_kit::{FakeNode, Hello, Setup};
use serde_json::{Value, json};

use crate::SWITCHBOARD;

fn host(id: &str) -> Hello {
    Hello::new(id).tool("Bash").with("features", json!(["bin_probe"]))
}

async fn question(node: &mut FakeNode) -> (String, Value) {
    let frame = node.recv().await;
    assert_eq!(frame["type"], "bin_probe", "{frame}");
    (frame["probe_id"].as_str().unwrap().to_owned(), frame["bins"].clone())
}

async fn reply(node: &mut FakeNode, id: &str, bins: Value) {
    node.send(json!({ "type": "bin_probe_result", "probe_id": id, "bins": bins })).await;
}

#[tokio::test]
async fn the_command_line_asks_as_well() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let mut node = host("laptop").connect(&gateway).await;
    let probe = gateway.cli(&["nodes", "probe", "laptop", "git", "docker"]).start();
    let (id, _) = question(&mut node).await;
    reply(&mut node, &id, json!({ "git": true, "docker": false })).await;
    let ended = probe.end().await;
    ended.assert_code(0);
    let lines: Vec<Vec<&str>> =
        ended.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines, [["PROGRAM", "INSTALLED"], ["docker", "no"], ["git", "yes"]]);
    gateway.cli(&["nodes", "probe", "nobody", "git"]).run().await.assert_code(5);
    gateway.cli(&["nodes", "probe", "laptop"]).run().await.assert_code(2);
    gateway.stop().await;
}
