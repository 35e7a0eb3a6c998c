//! A gateway with a full disk reports this to load balancers, and becomes ready again by itself
//! once there is free space.

use std::path::Path;

use sa_gateway_kit::{Hello, Setup, eventually};
use serde_json::json;

use crate::SWITCHBOARD;

#[test]
fn a_full_disk_is_not_ready_until_there_is_room() {
    sa_test_needs::run_on_small_disk("16m", "process::full_disk::inside");
}

#[tokio::test]
#[ignore = "runs on the small disk that the other test makes"]
async fn inside() {
    let Some(dir) = sa_test_needs::small_disk() else { return };
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let _node = Hello::new("n").tool("a.b").connect(&gateway).await.echo();
    let operator = gateway.operator();
    assert_eq!(operator.get("/readyz").await.status, 200);
    let ballast = dir.join("ballast");
    fill(&ballast);
    eventually("a gateway without any call that says so", || async {
        Some(operator.get("/readyz").await).filter(|reply| reply.status == 503)
    })
    .await
    .assert_problem(503, "store");
    let problem = eventually("a record that finds no room", || async {
        // The call itself needs no disk space.
        assert_eq!(operator.call("a.b", json!({ "text": "x".repeat(50_000) })).await.status, 200);
        Some(operator.get("/readyz").await).filter(|reply| reply.status == 503)
    })
    .await;
    problem.assert_problem(503, "store");
    assert!(problem.detail().contains("disk is full"), "{}", problem.detail());
    assert_eq!(operator.get("/healthz").await.status, 200, "nothing is gained by restarting it");
    for (command, code) in [("status", 0), ("doctor", 1)] {
        let told = eventually("a command that tells of it", || async {
            // Queued records may have filled the last free space meanwhile.
            operator.call("a.b", json!({ "text": "x".repeat(50_000) })).await;
            Some(gateway.cli(&[command]).run().await)
                .filter(|told| told.stdout.contains("disk is full"))
        });
        let told = told.await;
        assert!(told.assert_code(code).stdout.contains("free some disk space"), "{}", told.stdout);
    }
    std::fs::remove_file(&ballast).unwrap();
    eventually("ready again", || async {
        (operator.get("/readyz").await.status == 200).then_some(())
    })
    .await;
    let status = operator.get("/v1/status").await.body;
    assert_eq!(
        (&status["lost_records"], &status["unwritten"]),
        (&json!(0), &json!(null)),
        "and what waited is there"
    );
    gateway.stop().await;
}

/// Fills the disk completely.
fn fill(file: &Path) {
    use std::io::Write as _;
    let mut file = std::fs::File::create(file).unwrap();
    for size in [1 << 16, 1 << 10] {
        while file.write_all(&vec![0; size]).is_ok() {}
    }
}
