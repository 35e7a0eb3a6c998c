//! A call of a tool from a server that has not listed its tools yet waits while the server starts.
//! Otherwise the error reports the server's state, and never that the tool does not exist.

use sa_testkit::upstream::{noted, until};
use sa_testkit::{Setup, eventually, soon};
use serde_json::json;

use crate::serve::Serve as _;
use crate::server::{server_program, stdio};

#[tokio::test]
async fn a_call_waits_for_a_server_that_is_being_started() {
    let dir = tempfile::tempdir().unwrap();
    let gate = dir.path().join("gate");
    let script =
        format!("until [ -e {} ]; do sleep 0.05; done; exec {}", gate.display(), server_program());
    let config = format!("[upstream.test]\ncommand = {}\n", json!(["sh", "-c", script]));
    let gateway = Setup::new().config(&config).serve().await;
    let agent = gateway.operator();
    let (known, unknown) = (
        agent.call_later("test__echo", json!({ "args": { "text": "late" } })),
        agent.call_later("test__nothing", json!({ "args": {} })),
    );
    eventually("both calls to run", || async {
        let calls = agent.get("/v1/calls?state=running").await.body;
        (calls["calls"].as_array().map(Vec::len) == Some(2)).then_some(())
    })
    .await;
    assert!(!known.is_finished() && !unknown.is_finished());
    std::fs::write(gate, "").unwrap();
    assert_eq!(soon(known).await.unwrap().result()["text"], "late");
    let unknown = soon(unknown).await.unwrap();
    unknown.assert_problem(404, "not_found");
    assert!(!unknown.text.contains("Bash"), "{}", unknown.text);
}

#[tokio::test]
async fn a_call_that_has_no_more_time_is_told_that_the_server_starts() {
    let dir = tempfile::tempdir().unwrap();
    let gateway = Setup::new().config(&stdio("test", &["hang"], dir.path(), "")).serve().await;
    noted(dir.path(), "pid").await;
    let reply =
        gateway.operator().call_with("test__echo", json!({ "args": {}, "timeout_ms": 100 })).await;
    assert_eq!(reply.assert_problem(503, "offline").detail(), "the upstream \"test\" is starting");
    let other = gateway.operator().call("other__echo", json!({})).await;
    other.assert_problem(404, "not_found");
    assert!(!other.text.contains("Bash"), "{}", other.text);
}

#[tokio::test]
async fn a_call_is_told_why_a_server_does_not_start() {
    let gateway =
        Setup::new().config("[upstream.test]\ncommand = [\"/no/such/program\"]\n").serve().await;
    // Both before and after the first attempt to start.
    for _ in 0..2 {
        let reply = soon(gateway.operator().call("test__echo", json!({}))).await;
        assert!(
            reply.assert_problem(503, "offline").detail().contains("/no/such/program"),
            "{}",
            reply.text
        );
        until(&gateway, "test", "offline").await;
    }
    assert_eq!(gateway.operator().tool_names().await, Vec::<String>::new());
}
