//! Servers of the configuration file can be changed only there. The processes of a server end with
//! it, and a restart resets its counters.

use std::path::Path;

use sa_testkit::upstream::{kill, noted, until, upstream};
use sa_testkit::{Setup, eventually};
use serde_json::{Value, json};

use crate::serve::Serve as _;
use crate::server::stdio;

#[tokio::test]
async fn what_is_in_the_file_is_changed_there_alone_and_mistakes_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let gateway = Setup::new().config(&stdio("test", &[], dir.path(), "")).serve().await;
    let operator = gateway.operator();
    operator.delete("/v1/upstream/test").await.assert_problem(409, "conflict");
    let add = async |body: Value| operator.post("/v1/upstream", &body).await;
    let taken = add(json!({ "name": "test", "command": ["x"] })).await;
    assert!(
        taken.assert_problem(409, "conflict").detail().contains("in the configuration file"),
        "{}",
        taken.text
    );
    assert!(!taken.text.contains("remove it"), "{}", taken.text);
    add(json!({ "name": "a__b", "command": ["x"] })).await.assert_problem(400, "bad_request");
    add(json!({ "name": "a", "url": "http://a/", "bearer": "in clear" }))
        .await
        .assert_problem(400, "bad_request");
    add(json!({ "name": "a", "comand": ["x"] })).await.assert_problem(400, "bad_request");
    operator.post("/v1/upstream/none/restart", &json!({})).await.assert_problem(404, "not_found");
    let agent = gateway.new_agent("a").await;
    agent.get("/v1/upstream").await.assert_problem(403, "not_allowed");
    agent
        .post("/v1/upstream", &json!({ "name": "a", "command": ["x"] }))
        .await
        .assert_problem(403, "not_allowed");
}

#[tokio::test]
async fn processes_and_what_they_started_end_with_their_server() {
    let dir = tempfile::tempdir().unwrap();
    let gateway = Setup::new().config(&stdio("test", &[], dir.path(), "")).serve().await;
    until(&gateway, "test", "ready").await;
    let left = gateway.operator().call("test__leave_child", json!({})).await.result();
    let child = left["content"][0]["text"].as_str().unwrap().to_owned();
    sa_testkit::upstream::kill(&noted(dir.path(), "pid").await);
    eventually("its end", || async { (!runs(&child)).then_some(()) }).await;
}

/// Returns whether a process is running and not a zombie.
fn runs(pid: &str) -> bool {
    let stat =
        std::fs::read_to_string(Path::new("/proc").join(pid).join("stat")).unwrap_or_default();
    stat.rsplit(')')
        .next()
        .is_some_and(|rest| !rest.trim().is_empty() && !rest.trim_start().starts_with('Z'))
}

#[tokio::test]
async fn a_restart_by_hand_starts_anew_and_counts_from_there() {
    let dir = tempfile::tempdir().unwrap();
    let gateway = Setup::new().config(&stdio("test", &[], dir.path(), "")).serve().await;
    until(&gateway, "test", "ready").await;
    let pid = noted(dir.path(), "pid").await;
    kill(&pid);
    eventually("the first restart", || async {
        let server = upstream(&gateway, "test").await;
        (server["restarts"] == 1 && server["state"] == "ready").then_some(())
    })
    .await;
    gateway.operator().post("/v1/upstream/test/restart", &json!({})).await;
    eventually("a clean slate", || async {
        let server = upstream(&gateway, "test").await;
        (server["restarts"] == 0 && server["state"] == "ready").then_some(())
    })
    .await;
    gateway.stop().await;
}
