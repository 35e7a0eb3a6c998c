//! Rule: a stream has one order without gaps, also for followers, after a trim and after a
//! restart, and no number is reused.

mod common;

use common::{all, db, entry, open, seqs};
use sa_core::store::{Aged, Bounds, Log, Retention, Trimmed};

const NO_LIMIT: Retention = Retention { entries: None, bytes: None, aged: None };

#[tokio::test]
async fn numbers_start_at_one_and_have_no_holes() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    assert_eq!(store.bounds("a").await.expect("bounds"), Bounds { first: 1, last: 0 });
    for n in 1..=5 {
        let appended = store.append(entry("a", None, format!("{n}"))).await.expect("kept");
        assert_eq!((appended.seq, appended.duplicate), (n, false));
        store.record("b", None, b"x");
    }
    store.record("a", None, b"6");
    assert_eq!(store.append(entry("a", None, "7")).await.expect("kept").seq, 7);
    assert_eq!(seqs(&store.read("a", 0, 100).await.expect("read")), [1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(seqs(&store.read("a", 2, 3).await.expect("read")), [3, 4, 5]);
    assert_eq!(seqs(&store.read_back("a", 100, 3).await.expect("read")), [7, 6, 5]);
    assert_eq!(seqs(&store.read_back("a", 3, 100).await.expect("read")), [2, 1]);
    assert_eq!(seqs(&store.read_back("a", u64::MAX, usize::MAX).await.expect("read")).len(), 7);
    assert!(store.read("a", u64::MAX, 5).await.expect("read").is_empty());
    assert!(store.read("a", 7, 5).await.expect("read").is_empty());
    assert!(store.read_back("a", 0, 5).await.expect("read").is_empty());
    assert!(store.read("a", 0, 0).await.expect("read").is_empty());
    assert!(store.read("nowhere", 0, 5).await.expect("read").is_empty());
    let bodies: Vec<_> = all(&store, "a").await.into_iter().map(|e| e.body).collect();
    assert_eq!(bodies, ["1", "2", "3", "4", "5", "6", "7"]);
}

#[tokio::test]
async fn a_follower_hears_of_commits_also_of_a_stream_that_is_yet_to_come() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    let mut last = store.follow("a");
    assert_eq!(*last.borrow_and_update(), 0);
    store.append(entry("a", None, "1")).await.expect("kept");
    last.wait_for(|last| *last == 1).await.expect("open");
    store.record("a", None, b"2");
    last.wait_for(|last| *last == 2).await.expect("open");
    assert_eq!(*store.follow("a").borrow(), 2);
    store.shutdown().await.expect("a clean end");
    assert!(last.changed().await.is_err(), "followers end with the store");
}

#[tokio::test]
async fn a_trim_takes_the_oldest_and_their_keys_and_no_number_comes_back() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    for n in 1..=2000 {
        store.record("a", Some(&format!("k{n}")), format!("{n}").as_bytes());
    }
    store.append(entry("a", None, "2001")).await.expect("kept");
    let keep = Retention { entries: Some(10), ..NO_LIMIT };
    assert_eq!(store.trim("a", keep).await.expect("trimmed").total(), 1991);
    assert_eq!(store.trim("a", keep).await.expect("trimmed").total(), 0);
    assert_eq!(store.trim("a", NO_LIMIT).await.expect("trimmed").total(), 0);
    assert_eq!(store.trim("nowhere", keep).await.expect("trimmed").total(), 0);
    assert_eq!(store.bounds("a").await.expect("bounds"), Bounds { first: 1992, last: 2001 });
    assert_eq!(all(&store, "a").await.len(), 10);
    assert!(store.find("a", "k1991").await.expect("found").is_none());
    assert_eq!(store.find("a", "k1992").await.expect("found").expect("there").seq, 1992);
    // A key is new again after its entry was deleted.
    assert_eq!(store.append(entry("a", Some("k1"), "")).await.expect("kept").seq, 2002);
    let gone = store.trim("a", Retention { entries: Some(0), ..NO_LIMIT }).await.expect("trimmed");
    assert_eq!(gone, Trimmed { over_limit: 11, aged: 0 });
    assert_eq!(store.bounds("a").await.expect("bounds"), Bounds { first: 2003, last: 2002 });
    store.shutdown().await.expect("a clean end");
    let store = open(dir.path());
    assert_eq!(store.bounds("a").await.expect("bounds"), Bounds { first: 2003, last: 2002 });
    assert_eq!(store.append(entry("a", None, "")).await.expect("kept").seq, 2003);
    store.verify().await.expect("intact");
}

#[tokio::test]
async fn a_trim_by_time_keeps_what_is_young_enough() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    let mut times = Vec::new();
    while times.last() < times.first().map(|first: &i64| first + 3).as_ref() || times.len() < 10 {
        times.push(store.append(entry("a", None, "")).await.expect("kept").at_ms);
    }
    let since_ms = times[times.len() - 1];
    let older = times.iter().filter(|at| **at < since_ms).count() as u64;
    let keep = |at_most| Retention { aged: Some(Aged { since_ms, at_most }), ..NO_LIMIT };
    assert_eq!(
        store.trim("a", keep(2)).await.expect("trimmed"),
        Trimmed { over_limit: 0, aged: 2 }
    );
    assert_eq!(store.trim("a", keep(u64::MAX)).await.expect("trimmed").aged, older - 2);
    assert!(all(&store, "a").await.iter().all(|e| e.at_ms >= since_ms));
}

#[tokio::test]
async fn a_limit_by_count_holds_whatever_a_round_may_delete_by_age() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    for _ in 0..2_000 {
        store.record("a", None, b"x");
    }
    store.append(entry("b", None, "")).await.expect("kept");
    assert!(store.newest_ms().await.expect("read").is_some());
    // More entries than one transaction deletes.
    let aged = Some(Aged { since_ms: i64::MAX, at_most: 700 });
    let trimmed = store
        .trim("a", Retention { entries: Some(1_000), aged, ..NO_LIMIT })
        .await
        .expect("trimmed");
    assert_eq!(trimmed, Trimmed { over_limit: 1_000, aged: 700 });
    assert_eq!(all(&store, "a").await.len(), 300);
}

#[tokio::test]
async fn a_limit_by_bytes_keeps_the_newest_entries_and_always_the_last() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    let at_most = |bytes| Retention { bytes: Some(bytes), ..NO_LIMIT };
    assert_eq!(
        store.trim("a", at_most(0)).await.expect("trimmed").total(),
        0,
        "there is no such stream"
    );
    // More than one transaction deletes, by count and by size. The larger bodies use their own
    // pages.
    for _ in 0..1_500 {
        store.record("a", None, &[b'x'; 10]);
    }
    for _ in 0..100 {
        store.record("a", None, &vec![b'x'; 100_000]);
    }
    for _ in 0..99 {
        store.record("a", None, &[b'x'; 100]);
    }
    store.append(entry("a", None, [b'x'; 100].to_vec())).await.expect("kept");
    store.append(entry("b", None, [b'x'; 100].to_vec())).await.expect("kept");
    let mut left = 1_700;
    for (bytes, expected) in
        [(u64::MAX, 1_700), (10_025_000, 1_700), (10_024_999, 1_699), (10_010_000, 200)]
    {
        let trimmed = store.trim("a", at_most(bytes)).await.expect("trimmed");
        assert_eq!(trimmed, Trimmed { over_limit: left - expected, aged: 0 }, "{bytes}");
        left = expected;
    }
    assert_eq!(store.trim("a", at_most(110_000)).await.expect("trimmed").over_limit, 99);
    assert_eq!(store.trim("a", at_most(109_999)).await.expect("trimmed").over_limit, 1);
    // The lower limit counts. Entries that are too old are deleted after both limits.
    let aged = Some(Aged { since_ms: i64::MAX, at_most: 5 });
    let trimmed = store
        .trim("a", Retention { entries: Some(90), bytes: Some(8_000), aged })
        .await
        .expect("trimmed");
    assert_eq!(trimmed, Trimmed { over_limit: 20, aged: 5 });
    let trimmed =
        store.trim("a", Retention { entries: Some(60), bytes: Some(8_000), aged: None }).await;
    assert_eq!(trimmed.expect("trimmed").over_limit, 15);
    assert_eq!(store.trim("a", at_most(0)).await.expect("trimmed").over_limit, 59);
    assert_eq!(store.bounds("a").await.expect("bounds"), Bounds { first: 1_700, last: 1_700 });
    let none = Retention { entries: Some(0), bytes: Some(0), aged: None };
    assert_eq!(store.trim("a", none).await.expect("trimmed").over_limit, 1);
    assert_eq!(store.trim("a", none).await.expect("trimmed").over_limit, 0);
    assert_eq!(all(&store, "b").await.len(), 1, "another stream keeps its entries");
    store.verify().await.expect("intact");
}

#[tokio::test]
async fn a_restart_changes_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut before = Vec::new();
    for round in 0..4 {
        let store = open(dir.path());
        assert_eq!(all(&store, "a").await, before);
        for n in 0..50 {
            store.record("a", None, format!("{round}-{n}").as_bytes());
        }
        if round % 2 == 0 {
            store.shutdown().await.expect("a clean end");
            assert!(!dir.path().join("store.db-wal").exists(), "a clean end leaves no WAL");
        } else {
            drop(store);
        }
        let store = open(dir.path());
        before = all(&store, "a").await;
        assert_eq!(before.len(), (round + 1) * 50);
    }
}

#[tokio::test]
async fn after_the_shutdown_everything_is_closed() {
    use sa_store::{Records, StoreErrorKind};
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    store.append(entry("a", None, "")).await.expect("kept");
    store.shutdown().await.expect("a clean end");
    store.shutdown().await.expect("once is enough");
    let kinds = [
        store.append(entry("a", None, "")).await.expect_err("closed").kind,
        store.read("a", 0, 1).await.expect_err("closed").kind,
        store.read("b", 0, 1).await.expect_err("closed").kind,
        store.get("b", "k").await.expect_err("closed").kind,
        store.delete("b", "k").await.expect_err("closed").kind,
    ];
    assert_eq!(kinds, [StoreErrorKind::Closed; 5]);
    store.record("a", None, b"");
    assert_eq!(store.stats().lost, 1, "counted, not dropped in silence");
}

#[tokio::test]
async fn only_the_owner_can_read_the_files() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    store.append(entry("a", None, "")).await.expect("kept");
    let mut names = Vec::new();
    for file in std::fs::read_dir(dir.path()).expect("a directory") {
        let file = file.expect("a file");
        let mode = file.metadata().expect("metadata").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{:?}", file.path());
        names.push(file.file_name().into_string().expect("a name"));
    }
    names.sort();
    assert_eq!(names, ["store.db", "store.db-wal", "store.db.lock", "store.db.witness"]);
    assert!(db(dir.path()).exists());
}
