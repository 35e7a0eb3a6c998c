//! When the store's file is deleted under a running gateway, nothing is stored any more, and the
//! gateway reports that in every view.

use sa_gateway_kit::{Gateway, Setup, eventually};

use crate::SWITCHBOARD;

/// Checks that the gateway reports the missing file.
async fn not_ready(gateway: &Gateway) {
    let reply = gateway.operator().get("/readyz").await;
    reply.assert_problem(503, "store");
    assert!(reply.detail().contains("deleted or replaced"), "{}", reply.detail());
}

#[tokio::test]
async fn a_data_directory_that_is_deleted_is_missed() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    assert_eq!(gateway.operator().get("/readyz").await.status, 200);
    eventually("an empty place", || async { std::fs::remove_dir_all(gateway.data_dir()).ok() })
        .await;
    not_ready(&gateway).await;
}

#[tokio::test]
async fn a_store_that_is_replaced_is_missed_by_everybody_who_asks() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let file = gateway.data_dir().join("switchboard.db");
    std::fs::copy(&file, file.with_extension("copy")).unwrap();
    std::fs::rename(file.with_extension("copy"), &file).unwrap();
    not_ready(&gateway).await;
    for (command, code) in [("status", 0), ("doctor", 1)] {
        let told = gateway.cli(&[command]).run().await;
        told.assert_code(code);
        assert!(told.stdout.contains("deleted or replaced"), "{}", told.stdout);
    }
}
