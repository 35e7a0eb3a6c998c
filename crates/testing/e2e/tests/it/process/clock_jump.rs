//! A clock that is set 400 days forward deletes nothing, even after a restart, until an operator
//! confirms it. The test uses real time: libfaketime shifts the gateway's clock with a file that
//! changes during the run.

use std::path::{Path, PathBuf};

use sa_gateway_kit::{Gateway, Hello, Setup, eventually};
use serde_json::json;

use crate::SWITCHBOARD;

const CALLS: usize = 25;

#[tokio::test]
async fn history_survives_a_clock_that_is_set_forward_and_back() {
    let dir = tempfile::tempdir().unwrap();
    let clock = dir.path().join("clock");
    set(&clock, "+0");
    let mut gateway = with_clock(Setup::new(), &clock).await;
    let node = Hello::new("n").tool("a.b").connect(&gateway).await.echo();
    for _ in 0..CALLS {
        assert_eq!(gateway.operator().call("a.b", json!({})).await.status, 200);
    }
    round_done(&gateway).await;
    assert!(paused(&gateway).await.is_null());

    set(&clock, "+400d");
    assert_eq!(paused(&gateway).await["cause"], "jumped");
    set(&clock, "+0");
    assert!(paused(&gateway).await.is_null(), "it is right again");
    set(&clock, "+400d");
    assert_eq!(paused(&gateway).await["cause"], "jumped");
    // Records written now have a wrong time. The next process must not trust the clock because of
    // them.
    assert_eq!(gateway.operator().call("a.b", json!({})).await.status, 200);
    assert_eq!(calls(&gateway).await, CALLS + 1, "it is on disk");
    gateway.kill().await;
    drop(node);
    let gateway = with_clock(Setup::new().on(&gateway), &clock).await;
    round_done(&gateway).await;
    assert_eq!(paused(&gateway).await["cause"], "apart");
    assert_eq!(calls(&gateway).await, CALLS + 1);
    assert_eq!(gateway.metric("switchboard_retention_paused").await, 1);
    for (command, code) in [("status", 0), ("doctor", 1), ("retention", 0)] {
        let shown = gateway.cli(&[command]).run().await;
        let shown = shown.assert_code(code).stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            shown.contains("days ahead") && shown.contains("retention confirm"),
            "{command}: {shown}"
        );
    }

    gateway.cli(&["retention", "confirm"]).run().await.assert_code(0);
    assert!(paused(&gateway).await.is_null());
    let deleted = r#"switchboard_records_deleted_total{kind="call",reason="age"}"#;
    eventually("a round", || async { (gateway.metric(deleted).await == 1).then_some(()) }).await;
    assert_eq!(calls(&gateway).await, CALLS, "not all at once");
    let audit = gateway.operator().get("/v1/audit").await.body;
    assert!(
        audit["events"]
            .as_array()
            .unwrap()
            .iter()
            .any(|event| event["what"] == "retention.confirmed"),
        "{audit}"
    );
    gateway.cli(&["retention", "confirm"]).run().await.assert_code(9);
    gateway.stop().await;
}

async fn with_clock(setup: Setup, clock: &Path) -> Gateway {
    setup
        .env("LD_PRELOAD", library().to_str().unwrap())
        .env("FAKETIME_TIMESTAMP_FILE", clock.to_str().unwrap())
        .env("FAKETIME_NO_CACHE", "1")
        // Only the wall clock is shifted. The two names are for older and newer versions.
        .env("DONT_FAKE_MONOTONIC", "1")
        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
        .spawn(SWITCHBOARD)
        .await
}

fn library() -> PathBuf {
    let folders = std::fs::read_dir("/usr/lib").unwrap().flatten().map(|entry| entry.path());
    let found =
        folders.map(|folder| folder.join("faketime/libfaketimeMT.so.1")).find(|file| file.exists());
    found.expect("libfaketime is installed; run: apt-get install faketime")
}

/// Replaces the file atomically, because the gateway reads it at every clock access.
fn set(clock: &Path, offset: &str) {
    let draft = clock.with_extension("new");
    std::fs::write(&draft, offset).unwrap();
    std::fs::rename(draft, clock).unwrap();
}

async fn round_done(gateway: &Gateway) {
    eventually("a round", || async {
        (gateway.metric("switchboard_retention_rounds_total").await > 0).then_some(())
    })
    .await;
}

async fn paused(gateway: &Gateway) -> serde_json::Value {
    gateway.operator().get("/v1/retention").await.body["paused"].clone()
}

async fn calls(gateway: &Gateway) -> usize {
    let list = gateway.operator().get("/v1/calls?limit=500").await.body;
    list["calls"].as_array().unwrap().len()
}
