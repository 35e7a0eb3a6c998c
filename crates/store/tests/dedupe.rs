//! Rule: a key is stored once per stream; a repeated append returns the first entry's number,
//! across transactions and restarts.

mod common;

use common::{all, entry, open};
use futures_util::future::join_all;
use sa_core::store::{Log, Retention};

const UUID: &str = "0190a5b2-7f5e-7cc3-98a1-0123456789ab";

#[tokio::test]
async fn a_key_is_stored_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    for key in ["k", UUID] {
        let first = store.append(entry("a", Some(key), "first")).await.expect("kept");
        let again = store.append(entry("a", Some(key), "again")).await.expect("answered");
        assert!(!first.duplicate && again.duplicate);
        assert_eq!((again.seq, again.at_ms), (first.seq, first.at_ms));
        let other = store.append(entry("b", Some(key), "other")).await.expect("kept");
        assert!(!other.duplicate, "another stream has keys of its own");
        assert_eq!(store.find("a", key).await.expect("found").expect("there").body, "first");
    }
    assert!(store.find("a", &UUID.to_uppercase()).await.expect("found").is_none());
    store.shutdown().await.expect("a clean end");
    let store = open(dir.path());
    let again = store.append(entry("a", Some(UUID), "again")).await.expect("answered");
    assert!(again.duplicate && again.seq == 2);
    assert_eq!(
        store.append(entry("a", Some("new"), "")).await.expect("kept").seq,
        3,
        "no number is wasted"
    );
}

#[tokio::test]
async fn within_one_batch_the_first_wins() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    let appends =
        (0..200).map(|n| store.append(entry("a", Some(&format!("k{}", n % 50)), format!("{n}"))));
    let appended = join_all(appends).await;
    assert!(store.stats().commits < 100, "some of them shared a transaction");
    for (n, appended) in appended.into_iter().enumerate() {
        let appended = appended.expect("answered");
        assert_eq!((appended.seq, appended.duplicate), ((n % 50) as u64 + 1, n >= 50));
    }
    let bodies: Vec<_> = all(&store, "a").await.into_iter().map(|e| e.body).collect();
    assert_eq!(bodies, (0..50).map(|n| n.to_string()).collect::<Vec<_>>());
}

#[tokio::test]
async fn entries_that_nobody_waits_for_are_stored_once_too() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    for _ in 0..3 {
        store.record("a", Some("k"), b"");
        store.record("a", None, b"without a key");
    }
    assert_eq!(store.append(entry("a", Some("k"), "")).await.expect("answered").seq, 1);
    assert_eq!(all(&store, "a").await.len(), 4);
    store.trim("a", Retention { entries: Some(0), ..Retention::default() }).await.expect("trimmed");
    assert!(!store.append(entry("a", Some("k"), "")).await.expect("kept").duplicate);
}
