//! The programs that show how to write a node work against the gateway as it is.

use std::process::Stdio;

use sa_testkit::{Gateway, Setup, eventually};
use serde_json::json;
use tokio::process::{Child, Command};

use crate::SWITCHBOARD;

async fn run(gateway: &Gateway, program: &str, id: &str) -> Child {
    std::fs::write(gateway.dir.path().join("outside.txt"), "not for you").unwrap();
    let allowed = gateway.dir.path().join("allowed");
    std::fs::create_dir_all(&allowed).unwrap();
    std::fs::write(allowed.join("a.txt"), "one two\nthree").unwrap();
    let _ = std::os::unix::fs::symlink("../outside.txt", allowed.join("link.txt"));
    let child = Command::new(program)
        .arg(gateway.nodes_url())
        .env("SA_NODE_TOKEN", "s3cret")
        .env("SA_NODE_ID", id)
        .env("SA_ALLOWED_DIR", &allowed)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let operator = gateway.operator();
    eventually("the node online", || async {
        let nodes = operator.get("/v1/nodes").await.body;
        nodes["nodes"].as_array()?.iter().any(|node| node["id"] == id && node["online"] == true).then_some(())
    })
    .await;
    child
}

#[tokio::test]
async fn hello_node_pings_echoes_and_reads_what_it_may() {
    let gateway = Setup::new().env("SA_NODE_TOKEN", "s3cret").spawn(SWITCHBOARD).await;
    let mut child = run(&gateway, env!("CARGO_BIN_EXE_e2e-hello-node"), "hello:1").await;
    let operator = gateway.operator();
    assert_eq!(operator.tool_names().await, ["node_echo", "node_fs_read_text", "node_ping"]);
    assert_eq!(operator.call("node.ping", json!({})).await.result()["pong"], true);
    let args = json!({ "any": ["thing", null, 1.5] });
    assert_eq!(operator.call("node_echo", args.clone()).await.result(), args);
    let read = operator.call("node.fs.read_text", json!({ "path": "a.txt" })).await.result();
    assert_eq!(read["content"], "one two\nthree");
    for path in ["../outside.txt", "/etc/passwd", "link.txt", "x/../../outside.txt"] {
        let reply = operator.call("node.fs.read_text", json!({ "path": path })).await;
        assert!(matches!(reply.body["kind"].as_str(), Some("not_allowed" | "not_found")), "{path}: {}", reply.text);
        assert!(!reply.text.contains("not for you"));
    }
    operator.call("node.fs.read_text", json!({})).await.assert_problem(422, "invalid_args");
    gateway.stop().await;
    assert_eq!(sa_testkit::soon(child.wait()).await.unwrap().code(), Some(1), "it says that the gateway left");
}

#[tokio::test]
async fn the_sdks_example_counts_words() {
    let gateway = Setup::new().env("SA_NODE_TOKEN", "s3cret").spawn(SWITCHBOARD).await;
    let _child = run(&gateway, env!("CARGO_BIN_EXE_e2e-text-node"), "text-1").await;
    let operator = gateway.operator();
    let counted = operator.call("text.words.count", json!({ "path": "a.txt" })).await.result();
    assert_eq!((&counted["words"], &counted["lines"]), (&json!(3), &json!(2)), "{counted}");
    operator.call("text.words.count", json!({ "path": "../outside.txt" })).await.assert_problem(403, "not_allowed");
    operator.call("text_words_count", json!({})).await.assert_problem(422, "invalid_args");
    assert!(operator.call("text.clock", json!({})).await.result()["now"].is_string());
    gateway.stop().await;
}

#[tokio::test]
async fn the_guides_tool_reports_sends_parts_and_a_file_and_stops_when_cancelled() {
    let gateway = Setup::new().env("SA_NODE_TOKEN", "s3cret").spawn(SWITCHBOARD).await;
    let _child = run(&gateway, env!("CARGO_BIN_EXE_e2e-report-node"), "report-1").await;
    let operator = gateway.operator();
    let mut events = operator.stream("office_report", json!({ "args": { "pages": 2 } })).await;
    let progress = events.wait_for("progress").await;
    assert_eq!((&progress["progress"], &progress["total"]), (&json!(1.0), &json!(2.0)), "{progress}");
    assert_eq!(events.wait_for("chunk").await["content"]["page"], 1);
    let done = events.wait_for("done").await;
    assert_eq!((&done["result"]["pages"], &done["attachments"][0]["name"]), (&json!(2), &json!("report.md")), "{done}");
    for args in [json!({}), json!({ "pages": 0 }), json!({ "pages": "two" }), json!({ "pages": 1, "more": 1 })] {
        operator.call("office_report", args).await.assert_problem(422, "invalid_args");
    }
    let mut events = operator.stream("office_report", json!({ "args": { "pages": 1000 } })).await;
    events.wait_for("chunk").await;
    assert_eq!(operator.delete(&format!("/v1/calls/{}", events.call_id())).await.status, 200);
    assert_eq!(events.wait_for("error").await["kind"], "cancelled");
    gateway.stop().await;
}
