//! Rule: concurrent writers and readers all see the same order.

mod common;

use common::{entry, open, seqs};
use sa_core::store::Log;

const WRITERS: u64 = 8;
const EACH: u64 = 200;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn eight_writers_and_eight_followers_agree() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    let mut followers = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let store = store.clone();
        followers.spawn(async move {
            let mut last = store.follow("a");
            let mut seen = Vec::new();
            while (seen.len() as u64) < WRITERS * EACH {
                last.wait_for(|last| *last > seen.len() as u64).await.expect("open");
                seen.extend(store.read("a", seen.len() as u64, 64).await.expect("read"));
            }
            seen
        });
    }
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..WRITERS {
        let store = store.clone();
        writers.spawn(async move {
            let mut places = Vec::new();
            for n in 0..EACH {
                let new = entry("a", None, format!("{writer} {n}"));
                places.push(store.append(new).await.expect("kept").seq);
            }
            (writer, places)
        });
    }
    let places = writers.join_all().await;
    let seen = followers.join_all().await;
    assert!(seen.iter().all(|one| *one == seen[0]), "all see the same");
    assert_eq!(seqs(&seen[0]), (1..=WRITERS * EACH).collect::<Vec<_>>());
    for (writer, places) in places {
        assert!(places.is_sorted(), "a writer's entries are in the order of its calls");
        for (n, seq) in places.into_iter().enumerate() {
            assert_eq!(seen[0][seq as usize - 1].body, format!("{writer} {n}"));
        }
    }
}
