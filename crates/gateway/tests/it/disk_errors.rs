//! A gateway whose disk fails with I/O errors reports this to load balancers without a path, and
//! becomes ready again by itself.

use std::sync::Arc;

use sa_gateway_kit::{Setup, eventually};
use sa_store_faults::{Disk, VFS};

#[tokio::test(flavor = "multi_thread")]
async fn io_errors_are_not_ready_until_the_disk_works_and_show_no_path() {
    let dir = Arc::new(tempfile::tempdir().unwrap());
    let disk = Disk::mount(&dir.path().join("data"), 1);
    let gateway = Setup::new().in_dir(&dir).vfs(VFS).start().await;
    let (anyone, operator) = (gateway.agent(""), gateway.operator());
    assert_eq!(anyone.get("/readyz").await.status, 200);
    disk.set_broken(true);
    let problem = eventually("a failed test write", || async {
        Some(anyone.get("/readyz").await).filter(|reply| reply.status == 503)
    })
    .await;
    problem.assert_problem(503, "store");
    assert!(problem.detail().contains("writing to the disk fails"), "{}", problem.text);
    let path = dir.path().to_str().unwrap();
    assert!(!problem.text.contains(path), "{}", problem.text);
    assert_eq!(anyone.get("/healthz").await.status, 200);
    let status = operator.get("/v1/status").await.body;
    let message = status["unwritten"]["message"].as_str().unwrap();
    assert!(message.contains(path) && message.contains("I/O"), "{message}");
    disk.set_broken(false);
    eventually("ready again", || async {
        (anyone.get("/readyz").await.status == 200).then_some(())
    })
    .await;
    gateway.stop().await;
}
