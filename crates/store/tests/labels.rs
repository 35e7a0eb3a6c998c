//! Rule: a search by labels returns the same as a scan, in few steps, also after trims, restarts
//! and a migration.

mod common;

use common::{db, entry};
use proptest::prelude::*;
use sa_core::store::{Label, Log, Retention, Search};
use sa_store::{Labelled, OpenOptions, Store};

/// The body of an entry consists of its labels as words.
const LABELLED: Labelled = Labelled { stream: "a", of: labels };

fn labels(body: &[u8], labels: &mut Vec<Label>) {
    labels.extend(
        String::from_utf8_lossy(body).split_whitespace().map(|word| Label::new("word", word)),
    );
}

fn open(dir: &std::path::Path) -> Store {
    Store::open(OpenOptions { labelled: Some(LABELLED), ..OpenOptions::new(db(dir)) })
        .expect("the store opens")
}

fn words(all_of: &[&[&str]]) -> Search {
    let label = |word: &&str| Label::new("word", word);
    Search {
        all_of: all_of.iter().map(|any_of| any_of.iter().map(label).collect()).collect(),
        uuid_prefix: None,
    }
}

#[tokio::test]
async fn a_rare_match_among_many_is_found_in_few_steps() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    for n in 0..30_000 {
        let word = if n == 7 || n == 15_000 { "rare common" } else { "common usual" };
        store.record("a", None, word.as_bytes());
    }
    store.append(entry("b", None, "rare common")).await.expect("kept");
    for search in [
        words(&[&["rare"]]),
        words(&[&["common"], &["rare"]]),
        words(&[&["rare", "absent"], &["common"]]),
    ] {
        let found = store.search("a", search, u64::MAX, 10).await.expect("searched");
        assert_eq!(common::seqs(&found.entries), [15_001, 8]);
        assert_eq!(found.next, None);
        assert!(found.steps <= 360, "{} steps", found.steps);
    }
    let found =
        store.search("a", words(&[&["usual"], &["rare"]]), u64::MAX, 10).await.expect("searched");
    assert_eq!((found.entries.len(), found.next), (0, None));
    assert!(found.steps <= 360, "{} steps", found.steps);
    store.verify().await.expect("intact");
}

#[tokio::test]
async fn entries_are_found_by_the_beginning_of_their_key() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    let keys = [
        "0190a5b2-7f5e-7cc3-98a1-000000000001",
        "0190a5b2-7f5e-7cc3-98a1-000000000002",
        "0190a5b3-0000-7000-8000-000000000000",
    ];
    for key in keys {
        store.append(entry("a", Some(key), "x")).await.expect("kept");
        store.append(entry("b", Some(key), "x")).await.expect("kept");
    }
    store.append(entry("a", Some("0190a5b2"), "x")).await.expect("kept");
    for (prefix, expected) in [
        ("", vec![3, 2, 1]),
        ("0190A5B", vec![3, 2, 1]),
        ("0190a5b2", vec![2, 1]),
        ("0190a5b2-", vec![2, 1]),
        (keys[1], vec![2]),
        ("0190a5b27f5e", vec![]),
        ("0190a5b2--", vec![]),
        ("g", vec![]),
    ] {
        let search = Search { uuid_prefix: Some(prefix.to_owned()), all_of: Vec::new() };
        let found = store.search("a", search.clone(), u64::MAX, 10).await.expect("searched");
        assert_eq!(common::seqs(&found.entries), expected, "{prefix}");
        let search = Search { all_of: words(&[&["y"]]).all_of, ..search };
        assert!(
            store.search("a", search, u64::MAX, 10).await.expect("searched").entries.is_empty()
        );
    }
}

#[tokio::test]
async fn a_store_of_an_older_layout_gets_its_index() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    for n in 0..500 {
        store.record("a", None, format!("n{} all", n % 100).as_bytes());
    }
    store.append(entry("b", None, "n7 all")).await.expect("kept");
    store.shutdown().await.expect("a clean end");
    // Restores the layout of the previous version.
    let conn = rusqlite::Connection::open(db(dir.path())).expect("opened");
    conn.execute_batch("DROP TABLE label; PRAGMA user_version = 1;").expect("taken back");
    drop(conn);
    let store = open(dir.path());
    let found = store.search("a", words(&[&["n7"]]), u64::MAX, 10).await.expect("searched");
    assert_eq!(common::seqs(&found.entries), [408, 308, 208, 108, 8]);
    store.verify().await.expect("intact");
    assert!(dir.path().join("store.db.layout-1.backup").exists());
}

#[tokio::test]
async fn an_index_that_lost_a_row_is_found_out() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    store.append(entry("a", None, "x y")).await.expect("kept");
    store.verify().await.expect("intact");
    store.shutdown().await.expect("a clean end");
    let conn = rusqlite::Connection::open(db(dir.path())).expect("opened");
    conn.execute("UPDATE label SET a = 0 WHERE label = ?1", [Label::new("word", "x").0])
        .expect("deleted");
    drop(conn);
    open(dir.path()).verify().await.expect_err("a label is missing");
}

#[derive(Debug, Clone)]
enum Step {
    Append(Vec<u8>),
    Trim(u64),
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => prop::collection::vec(0..5_u8, 0..4).prop_map(Step::Append),
        1 => (0..30_u64).prop_map(Step::Trim),
        1 => Just(Step::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: common::count("SWITCHBOARD_STORE_CASES", 24) as u32, ..ProptestConfig::default() })]

    #[test]
    fn a_search_gives_what_a_scan_gives(
        steps in prop::collection::vec(step(), 1..80),
        wanted in prop::collection::vec(prop::collection::vec(0..5_u8, 1..3), 1..4),
        limit in 1..7_usize,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let dir = tempfile::tempdir().unwrap();
            let mut store = open(dir.path());
            for step in steps {
                match step {
                    Step::Append(words) => {
                        let body = words.iter().map(|word| format!("w{word}")).collect::<Vec<_>>().join(" ");
                        store.record("a", None, body.as_bytes());
                    }
                    Step::Trim(keep) => {
                        let keep = Retention { entries: Some(keep), ..Retention::default() };
                        store.trim("a", keep).await.unwrap();
                    }
                    Step::Restart => {
                        store.shutdown().await.unwrap();
                        store = open(dir.path());
                    }
                }
            }
            store.trim("a", Retention::default()).await.unwrap();
            let mut scanned = common::all(&store, "a").await;
            scanned.reverse();
            scanned.retain(|entry| {
                let body = String::from_utf8_lossy(&entry.body).into_owned();
                let has = |word: &u8| body.split_whitespace().any(|found| *found == format!("w{word}"));
                wanted.iter().all(|any_of| any_of.iter().any(has))
            });
            let label = |word: &u8| Label::new("word", &format!("w{word}"));
            let all_of: Vec<Vec<Label>> = wanted.iter().map(|any_of| any_of.iter().map(label).collect()).collect();
            let (mut before, mut searched) = (u64::MAX, Vec::new());
            loop {
                let search = Search { all_of: all_of.clone(), uuid_prefix: None };
                let found = store.search("a", search, before, limit).await.unwrap();
                assert!(found.entries.len() == limit || found.next.is_none(), "a page is full, or the last one");
                searched.extend(found.entries);
                match found.next {
                    Some(next) => before = next,
                    None => break,
                }
                // New entries appear on no page after the first.
                store.record("a", None, b"w0 w1 w2 w3 w4");
            }
            assert_eq!(searched, scanned);
            store.verify().await.unwrap();
        });
    }
}
