//! Rule: a document changes only if it matches the expectation, its revision always grows, and a
//! bucket lists keys in byte order.

mod common;

use bytes::Bytes;
use common::open;
use sa_core::store::{Expect, Records};
use sa_store::{MAX_BODY_BYTES, StoreErrorKind};

#[tokio::test]
async fn a_document_is_compared_before_it_changes() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    let put = |value: &'static str, expect| store.put("b", "k", value.into(), expect);
    let conflict = StoreErrorKind::Conflict;
    assert_eq!(put("0", Expect::Revision(1)).await.expect_err("absent").kind, conflict);
    let first = put("1", Expect::Absent).await.expect("put");
    assert_eq!(put("x", Expect::Absent).await.expect_err("there").kind, conflict);
    assert_eq!(put("x", Expect::Revision(first + 1)).await.expect_err("other").kind, conflict);
    let second = put("2", Expect::Revision(first)).await.expect("put");
    let third = put("3", Expect::Anything).await.expect("put");
    assert!(first < second && second < third);
    let record = store.get("b", "k").await.expect("read").expect("there");
    assert_eq!((record.value, record.revision), (Bytes::from("3"), third));
    assert!(store.delete("b", "k").await.expect("deleted"));
    assert!(!store.delete("b", "k").await.expect("deleted"));
    assert!(!store.delete("nowhere", "k").await.expect("deleted"));
    assert!(store.get("b", "k").await.expect("read").is_none());
    let fourth = put("4", Expect::Absent).await.expect("put");
    assert!(fourth > third, "a revision is not given twice, also after a deletion");
}

#[tokio::test]
async fn a_bucket_lists_in_byte_order_also_after_a_restart() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    let mut keys = ["b", "B", "a", "ä", "aa", "z", "~", "€", "𝄞", "a\u{0}"];
    for key in keys {
        store.put("b", key, Bytes::from(key), Expect::Anything).await.expect("put");
        store.put("c", key, "other".into(), Expect::Absent).await.expect("put");
    }
    keys.sort_unstable();
    for _ in 0..2 {
        let store = open_again(&store, dir.path()).await;
        let listed = store.list("b").await.expect("listed");
        assert_eq!(listed.iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>(), keys);
        assert!(listed.iter().all(|(key, record)| record.value == key.as_bytes()));
        assert!(store.list("nowhere").await.expect("listed").is_empty());
        let sizes: Vec<_> = keys.iter().map(|key| ((*key).to_owned(), key.len())).collect();
        assert_eq!(store.sizes("b").await.expect("sizes"), sizes);
        assert!(store.sizes("nowhere").await.expect("sizes").is_empty());
        store.shutdown().await.expect("a clean end");
    }
}

async fn open_again(store: &sa_store::Store, dir: &std::path::Path) -> sa_store::Store {
    store.shutdown().await.expect("a clean end");
    open(dir)
}

#[tokio::test]
async fn what_is_over_a_limit_is_refused_with_the_limit() {
    use sa_core::store::Log;
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    let big = Bytes::from(vec![0; MAX_BODY_BYTES + 1]);
    let long = "x".repeat(600);
    let errors = [
        store.put("b", "k", big.clone(), Expect::Anything).await.expect_err("too big"),
        store.put("b", "", "".into(), Expect::Anything).await.expect_err("no key"),
        store.put(&long, "k", "".into(), Expect::Anything).await.expect_err("too long"),
        store.append(common::entry("a", None, big.clone())).await.expect_err("too big"),
        store.append(common::entry("a", Some(&long), "")).await.expect_err("too long"),
        store.append(common::entry("", None, "")).await.expect_err("no name"),
    ];
    for error in errors {
        assert_eq!(error.kind, StoreErrorKind::Invalid, "{error}");
    }
    store.record("a", None, &big);
    assert_eq!(store.stats().lost, 1);
    let largest = big.slice(1..);
    store.append(common::entry("a", None, largest.clone())).await.expect("the largest fits");
    assert_eq!(store.read("a", 0, 1).await.expect("read")[0].body, largest);
}
