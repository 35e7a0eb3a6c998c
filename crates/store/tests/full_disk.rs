//! Rule: on a full disk, callers get `Full` with the path, background entries arrive later, reads
//! continue, and writes resume without a restart.

mod common;

use std::path::Path;
use std::time::Duration;

use common::{all, db, entry, open};
use sa_core::store::{Log, Records};
use sa_store::{OpenOptions, Store, StoreErrorKind};

#[test]
fn a_full_disk_is_survived() {
    sa_test_needs::run_on_small_disk("4m", "inside");
}

#[tokio::test]
#[ignore = "runs on the small disk that the other test makes"]
async fn inside() {
    let Some(dir) = sa_test_needs::small_disk() else { return };
    let dir = dir.as_path();
    let options = OpenOptions { retain_bytes: 256 << 10, ..OpenOptions::new(db(dir)) };
    let store = Store::open(options).expect("the store opens");
    fill(dir, 1 << 20);
    let kept = append_until_full(&store).await;

    // Reads of the log and of documents continue.
    assert_eq!(all(&store, "a").await.len(), kept);
    assert!(store.get("b", "k").await.expect("read").is_none());

    // Background entries are kept in memory up to the limit, and the others are counted as lost.
    for n in 0..1000 {
        store.record("background", Some(&format!("k{n}")), &[1; 1000]);
    }
    eventually(|| store.stats().retained + store.stats().lost == 1000).await;
    let stats = store.stats();
    assert!(stats.retained > 100 && stats.lost > 100, "{stats:?}");

    // With free space, the retained entries arrive without a restart and in order, and appends
    // succeed.
    std::fs::remove_file(dir.join("ballast")).expect("removed");
    let mut last = store.follow("background");
    last.wait_for(|last| *last == stats.retained).await.expect("open");
    eventually(|| store.stats().retained == 0).await;
    let arrived = all(&store, "background").await;
    assert_eq!(arrived.len() as u64, stats.retained);
    assert!(store.find("background", "k0").await.expect("found").is_some_and(|e| e.seq == 1));
    assert_eq!(store.append(entry("a", None, "room")).await.expect("kept").seq, kept as u64 + 1);
    assert_eq!(store.stats().lost, stats.lost);
    store.verify().await.expect("intact");
    store.shutdown().await.expect("a clean end");
    full_from_the_start(dir, kept + 1).await;
}

/// A store on a disk that is already full can be read, and can be written once there is space.
async fn full_from_the_start(dir: &Path, kept: usize) {
    fill(dir, 0);
    let store = open(dir);
    assert_eq!(all(&store, "a").await.len(), kept);
    let error = store.append(entry("a", None, vec![0; 50_000])).await.expect_err("full");
    assert_eq!(error.kind, StoreErrorKind::Full, "{error}");
    std::fs::remove_file(dir.join("ballast")).expect("removed");
    store.append(entry("a", None, vec![0; 50_000])).await.expect("kept");
    store.shutdown().await.expect("a clean end");
    let store = open(dir);
    assert_eq!(all(&store, "a").await.len(), kept + 1);
    store.verify().await.expect("intact");
    assert!(store.stats().lost == 0);
    fill(dir, 0);
    store.record("a", None, &vec![0; 50_000]);
    let error = store.shutdown().await.expect_err("an entry is lost, which is said");
    assert_eq!(error.kind, StoreErrorKind::Full, "{error}");
    assert_eq!(store.stats().lost, 1);
}

async fn append_until_full(store: &Store) -> usize {
    for n in 0.. {
        match store.append(entry("a", None, vec![n as u8; 10_000])).await {
            Ok(appended) => assert_eq!(appended.seq, n + 1),
            Err(error) => {
                assert_eq!(error.kind, StoreErrorKind::Full, "{error}");
                assert!(error.message.contains("store.db"), "{error}");
                assert!(error.message.contains("free space"), "{error}");
                return n as usize;
            }
        }
    }
    unreachable!("the disk is small")
}

/// Fills the disk with a file and leaves `leave` bytes free.
fn fill(dir: &Path, leave: u64) {
    use std::io::Write;
    let mut file = std::fs::File::create(dir.join("ballast")).expect("a file");
    let mut size = 0;
    while file.write_all(&[0; 4096]).is_ok() {
        size += 4096;
    }
    file.set_len(size - leave.min(size)).expect("cut");
}

async fn eventually(condition: impl Fn() -> bool) {
    let wait = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), wait).await.expect("it comes true");
}
