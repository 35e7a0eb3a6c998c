//! Rule: when some writes and syncs fail, no failed write is acknowledged and reads continue.
//! Queued writes arrive once and in order, and the store recovers by itself.

use sa_core::store::{Log, NewEntry};
use sa_store::{OpenOptions, Store};
use sa_store_faults::{Disk, VFS};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failing_disk_is_survived_without_a_restart() {
    for seed in 0..10 {
        run(seed).await;
    }
}

async fn run(seed: u64) {
    let dir = tempfile::tempdir().expect("a directory");
    let disk = Disk::mount(dir.path(), seed);
    let path = dir.path().join("store.db");
    let options =
        OpenOptions { vfs: VFS.to_owned(), checkpoint_frames: 100, ..OpenOptions::new(&path) };
    let store = Store::open(options).expect("opened");
    disk.fail_one_in(30);
    let mut acknowledged = Vec::new();
    for n in 0..150_u32 {
        let body = n.to_le_bytes().to_vec();
        store.record("background", None, body.as_ref());
        let entry = NewEntry { stream: "log".into(), key: None, body: body.into() };
        if let Ok(appended) = store.append(entry).await {
            acknowledged.push((appended.seq, n));
        }
        if n % 10 == 0 {
            store.read("log", 0, 10).await.expect("reads go on");
        }
    }
    disk.fail_one_in(0);
    let mut last = store.follow("background");
    last.wait_for(|last| *last == 150).await.expect("all of them arrive");
    let entry = NewEntry { stream: "log".into(), key: None, body: "end".into() };
    store.append(entry).await.expect("the store has recovered");
    let (operations, failed) = disk.operations();
    assert!(failed > 10 && !acknowledged.is_empty(), "{failed} of {operations} failed");
    store.shutdown().await.expect("a clean end");

    let store = Store::open(OpenOptions::new(&path)).expect("opened");
    let background = store.read("background", 0, usize::MAX).await.expect("read");
    let numbers: Vec<u32> = background
        .iter()
        .map(|e| u32::from_le_bytes(e.body[..].try_into().expect("a number")))
        .collect();
    assert_eq!(numbers, (0..150).collect::<Vec<_>>(), "seed {seed}: once, and in order");
    let log = store.read("log", 0, usize::MAX).await.expect("read");
    for (seq, n) in acknowledged {
        assert_eq!(log[seq as usize - 1].body, n.to_le_bytes()[..], "seed {seed}");
    }
    store.verify().await.expect("intact");
}
