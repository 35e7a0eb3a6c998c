//! Rule: overwriting one document shows whether the disk accepts writes, and leaves no other data.

use sa_core::store::{Expect, Records};
use sa_store::{OpenOptions, Store};
use sa_store_faults::{Disk, VFS};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_small_write_fails_while_the_disk_does_and_leaves_one_document() {
    let dir = tempfile::tempdir().expect("a directory");
    let disk = Disk::mount(dir.path(), 7);
    let path = dir.path().join("store.db");
    let store = Store::open(OpenOptions { vfs: VFS.to_owned(), ..OpenOptions::new(&path) })
        .expect("opened");
    let probe = || store.put("readiness", "probe", "ok".into(), Expect::Anything);
    for _ in 0..3 {
        probe().await.expect("a disk that works");
        disk.fail_one_in(1);
        probe().await.expect_err("every write and sync fails");
        probe().await.expect_err("and goes on to");
        disk.fail_one_in(0);
        while probe().await.is_err() {}
    }
    let size = std::fs::metadata(&path).expect("the file").len();
    for _ in 0..500 {
        probe().await.expect("written");
    }
    assert_eq!(store.list("readiness").await.expect("read").len(), 1);
    store.verify().await.expect("intact");
    store.shutdown().await.expect("a clean end");
    assert!(
        std::fs::metadata(&path).expect("the file").len() <= size.max(1 << 20),
        "the file does not grow"
    );
}
