//! The example programs for nodes work with the gateway unchanged.

use std::process::Stdio;

use sa_gateway_kit::{Gateway, Setup, eventually};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, BufReader};
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
    online(gateway, id).await;
    child
}

async fn online(gateway: &Gateway, id: &str) {
    let operator = gateway.operator();
    eventually("the node online", || async {
        let nodes = operator.get("/v1/nodes").await.body;
        nodes["nodes"]
            .as_array()?
            .iter()
            .any(|node| node["id"] == id && node["online"] == true)
            .then_some(())
    })
    .await;
}

/// Checks the three tools that both example nodes have, with and without the SDK.
async fn pings_echoes_and_reads_what_it_may(gateway: &Gateway) {
    let operator = gateway.operator();
    assert_eq!(operator.tool_names().await, ["node_echo", "node_fs_read_text", "node_ping"]);
    let ping = operator.call("node.ping", json!({})).await.result();
    assert!(
        ping["pong"] == true && ping["timestamp"].as_i64().unwrap() > 1_700_000_000_000,
        "{ping}"
    );
    let args = json!({ "any": ["thing", null, 1.5] });
    assert_eq!(operator.call("node_echo", args.clone()).await.result(), args);
    let read = operator.call("node.fs.read_text", json!({ "path": "a.txt" })).await.result();
    assert_eq!(read["content"], "one two\nthree");
    assert!(read["path"].as_str().unwrap().ends_with("/allowed/a.txt"), "{read}");
    for path in ["../outside.txt", "/etc/passwd", "link.txt", "x/../../outside.txt"] {
        let reply = operator.call("node.fs.read_text", json!({ "path": path })).await;
        assert!(
            matches!(reply.body["kind"].as_str(), Some("not_allowed" | "not_found")),
            "{path}: {}",
            reply.text
        );
        assert!(!reply.text.contains("not for you"));
    }
    operator.call("node.fs.read_text", json!({})).await.assert_problem(422, "invalid_args");
}

#[tokio::test]
async fn hello_node_pings_echoes_and_reads_what_it_may() {
    let gateway = Setup::new().env("SA_NODE_TOKEN", "s3cret").spawn(SWITCHBOARD).await;
    let mut child = run(&gateway, env!("CARGO_BIN_EXE_e2e-hello-node"), "hello:1").await;
    pings_echoes_and_reads_what_it_may(&gateway).await;
    gateway.stop().await;
    assert_eq!(
        sa_gateway_kit::soon(child.wait()).await.unwrap().code(),
        Some(1),
        "it says that the gateway left"
    );
}

#[tokio::test]
async fn the_same_node_with_the_sdk_does_the_same_and_comes_back() {
    let gateway = Setup::new().env("SA_NODE_TOKEN", "s3cret").spawn(SWITCHBOARD).await;
    let mut child = run(&gateway, env!("CARGO_BIN_EXE_e2e-hello-sdk-node"), "hello:1").await;
    pings_echoes_and_reads_what_it_may(&gateway).await;

    let (dir, address) = (gateway.dir.clone(), gateway.address().to_owned());
    gateway.stop().await;
    let gateway = Setup::new()
        .env("SA_NODE_TOKEN", "s3cret")
        .in_dir(&dir)
        .at(&address)
        .spawn(SWITCHBOARD)
        .await;
    online(&gateway, "hello:1").await;
    pings_echoes_and_reads_what_it_may(&gateway).await;

    let pid = rustix::process::Pid::from_raw(child.id().unwrap().cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(
        sa_gateway_kit::soon(child.wait()).await.unwrap().code(),
        Some(1),
        "a shutdown is an error of `run`"
    );
    gateway.stop().await;
}

#[tokio::test]
async fn the_smallest_node_answers() {
    let gateway = Setup::new().env("SA_NODE_TOKEN", "s3cret").spawn(SWITCHBOARD).await;
    let _child = run(&gateway, env!("CARGO_BIN_EXE_e2e-ping-node"), "ping-1").await;
    let operator = gateway.operator();
    assert_eq!(operator.tool_names().await, ["example_ping"]);
    assert_eq!(operator.call("example.ping", json!({})).await.result(), json!({ "pong": true }));
    assert_eq!(operator.call("example_ping", json!(null)).await.result(), json!({ "pong": true }));
    gateway.stop().await;
}

#[tokio::test]
async fn the_examples_say_that_they_are_connected_and_end_with_a_signal() {
    let gateway = Setup::new().env("SA_NODE_TOKEN", "s3cret").spawn(SWITCHBOARD).await;
    for program in [
        env!("CARGO_BIN_EXE_e2e-ping-node"),
        env!("CARGO_BIN_EXE_e2e-readme-node"),
        env!("CARGO_BIN_EXE_e2e-report-node"),
    ] {
        let mut child = Command::new(program)
            .arg(gateway.nodes_url())
            .env("SA_GATEWAY_WS_URL", gateway.nodes_url())
            .env("SA_NODE_TOKEN", "s3cret")
            .env_remove("RUST_LOG")
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
        let connected = async {
            while let Some(line) = said.next_line().await.unwrap() {
                if line.contains("connected to the gateway") {
                    return;
                }
            }
            panic!("{program} has said nothing of it");
        };
        sa_gateway_kit::soon(connected).await;
        let pid = rustix::process::Pid::from_raw(child.id().unwrap().cast_signed()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        assert_eq!(sa_gateway_kit::soon(child.wait()).await.unwrap().code(), Some(0), "{program}");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn the_sdks_example_counts_words() {
    let gateway = Setup::new().env("SA_NODE_TOKEN", "s3cret").spawn(SWITCHBOARD).await;
    let _child = run(&gateway, env!("CARGO_BIN_EXE_e2e-text-node"), "text-1").await;
    let operator = gateway.operator();
    let counted = operator.call("text.words.count", json!({ "path": "a.txt" })).await.result();
    assert_eq!((&counted["words"], &counted["lines"]), (&json!(3), &json!(2)), "{counted}");
    operator
        .call("text.words.count", json!({ "path": "../outside.txt" }))
        .await
        .assert_problem(403, "not_allowed");
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
    assert_eq!(
        (&progress["progress"], &progress["total"]),
        (&json!(1.0), &json!(2.0)),
        "{progress}"
    );
    assert_eq!(events.wait_for("chunk").await["content"]["page"], 1);
    let done = events.wait_for("done").await;
    assert_eq!(
        (&done["result"]["pages"], &done["attachments"][0]["name"]),
        (&json!(2), &json!("report.md")),
        "{done}"
    );
    for args in [
        json!({}),
        json!({ "pages": 0 }),
        json!({ "pages": "two" }),
        json!({ "pages": 1, "more": 1 }),
    ] {
        operator.call("office_report", args).await.assert_problem(422, "invalid_args");
    }
    let mut events = operator.stream("office_report", json!({ "args": { "pages": 1000 } })).await;
    events.wait_for("chunk").await;
    assert_eq!(operator.delete(&format!("/v1/calls/{}", events.call_id())).await.status, 200);
    assert_eq!(events.wait_for("error").await["kind"], "cancelled");
    gateway.stop().await;
}
