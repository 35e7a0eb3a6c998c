//! Rule: after any sequence of operations and restarts, the store answers like a simple model in
//! memory.

mod common;

use std::collections::BTreeMap;

use common::{all, count, entry, open};
use proptest::prelude::*;
use sa_core::store::{Bounds, Expect, Log, Records, Retention};
use sa_store::{Store, StoreErrorKind};

#[derive(Debug, Clone)]
enum Step {
    Append { stream: u8, key: Option<u8>, size: usize, wait: bool },
    Trim { stream: u8, entries: Option<u64>, bytes: Option<u64> },
    Put { bucket: u8, key: u8, expect: u8 },
    Delete { bucket: u8, key: u8 },
    Page { stream: u8, from: u64, limit: usize },
    Restart { clean: bool },
}

fn step() -> impl Strategy<Value = Step> {
    let size = prop_oneof![6 => 0..500_usize, 1 => 3_000..20_000_usize];
    prop_oneof![
        12 => (0..3_u8, prop::option::of(0..20_u8), size, any::<bool>())
            .prop_map(|(stream, key, size, wait)| Step::Append { stream, key, size, wait }),
        2 => (0..3_u8, prop::option::of(0..10_u64), prop::option::of(0..4_000_u64))
            .prop_map(|(stream, entries, bytes)| Step::Trim { stream, entries, bytes }),
        4 => (0..2_u8, 0..5_u8, 0..4_u8).prop_map(|(bucket, key, expect)| Step::Put { bucket, key, expect }),
        2 => (0..2_u8, 0..5_u8).prop_map(|(bucket, key)| Step::Delete { bucket, key }),
        3 => (0..3_u8, 0..60_u64, 0..20_usize)
            .prop_map(|(stream, from, limit)| Step::Page { stream, from, limit }),
        1 => any::<bool>().prop_map(|clean| Step::Restart { clean }),
    ]
}

#[derive(Default)]
struct Stream {
    first: u64,
    entries: Vec<(Option<u8>, Vec<u8>)>,
}

#[derive(Default)]
struct Model {
    streams: BTreeMap<u8, Stream>,
    buckets: BTreeMap<(u8, u8), (Vec<u8>, u64)>,
    revision: u64,
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: count("SWITCHBOARD_MODEL_CASES", 40) as u32, failure_persistence: None, ..Default::default()
    })]

    #[test]
    fn the_store_answers_as_the_model(steps in prop::collection::vec(step(), 1..80)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(run(steps));
    }
}

async fn run(steps: Vec<Step>) {
    let dir = tempfile::tempdir().expect("a directory");
    let mut store = open(dir.path());
    let mut model = Model::default();
    for (n, step) in steps.into_iter().enumerate() {
        if let Step::Restart { clean } = step {
            if clean {
                store.shutdown().await.expect("a clean end");
            }
            drop(store);
            store = open(dir.path());
        } else {
            apply(&store, &mut model, step, n).await;
        }
    }
    compare(&store, &model).await;
    store.verify().await.expect("intact");
}

async fn apply(store: &Store, model: &mut Model, step: Step, n: usize) {
    match step {
        Step::Append { stream, key, size, wait } => {
            let body = vec![n as u8; size];
            let new =
                entry(&format!("s{stream}"), key.map(|k| format!("k{k}")).as_deref(), body.clone());
            let known = model.streams.entry(stream).or_insert(Stream { first: 1, entries: vec![] });
            let held = key.and_then(|key| known.entries.iter().position(|(k, _)| *k == Some(key)));
            let seq = known.first + held.unwrap_or(known.entries.len()) as u64;
            if held.is_none() {
                known.entries.push((key, body));
            }
            if wait {
                let appended = store.append(new).await.expect("kept");
                assert_eq!((appended.seq, appended.duplicate), (seq, held.is_some()));
            } else {
                store.record(&new.stream, new.key.as_deref(), &new.body);
            }
        }
        Step::Trim { stream, entries, bytes } => {
            let retention = Retention { entries, bytes, aged: None };
            let gone = store.trim(&format!("s{stream}"), retention).await.expect("trimmed");
            let known = model.streams.entry(stream).or_insert(Stream { first: 1, entries: vec![] });
            let mut size = 0;
            let fits = known.entries.iter().rev().enumerate().take_while(|(number, (_, body))| {
                size += body.len() as u64;
                *number == 0 || bytes.is_none_or(|bytes| size <= bytes)
            });
            let kept = (fits.count() as u64).min(entries.unwrap_or(u64::MAX));
            let expected = known.entries.len() as u64 - kept;
            assert_eq!(gone.total(), expected);
            known.entries.drain(..expected as usize);
            known.first += expected;
        }
        Step::Put { bucket, key, expect } => {
            let old = model.buckets.get(&(bucket, key)).map(|(_, revision)| *revision);
            let expect = match expect {
                0 => Expect::Absent,
                1 => Expect::Revision(old.unwrap_or(7)),
                2 => Expect::Revision(old.unwrap_or(0) + 1),
                _ => Expect::Anything,
            };
            let fits = match expect {
                Expect::Anything => true,
                Expect::Absent => old.is_none(),
                Expect::Revision(r) => old == Some(r),
            };
            let value = vec![n as u8; n];
            let name = format!("b{bucket}");
            match store.put(&name, &format!("k{key}"), value.clone().into(), expect).await {
                Ok(revision) => {
                    assert!(fits && revision > old.unwrap_or(0));
                    model.revision = model.revision.max(revision);
                    model.buckets.insert((bucket, key), (value, revision));
                }
                Err(error) => assert!(!fits && error.kind == StoreErrorKind::Conflict, "{error}"),
            }
        }
        Step::Delete { bucket, key } => {
            let was =
                store.delete(&format!("b{bucket}"), &format!("k{key}")).await.expect("deleted");
            assert_eq!(was, model.buckets.remove(&(bucket, key)).is_some());
        }
        Step::Page { stream, from, limit } => page(store, model, stream, from, limit).await,
        Step::Restart { .. } => unreachable!("handled by the caller"),
    }
}

async fn page(store: &Store, model: &Model, stream: u8, from: u64, limit: usize) {
    // An awaited operation completes after all earlier background entries.
    store.delete("none", "none").await.expect("deleted");
    let name = format!("s{stream}");
    let numbers: Vec<u64> = model
        .streams
        .get(&stream)
        .map_or(vec![], |known| (known.first..).take(known.entries.len()).collect());
    let after: Vec<u64> = numbers.iter().copied().filter(|n| *n > from).take(limit).collect();
    assert_eq!(common::seqs(&store.read(&name, from, limit).await.expect("read")), after);
    let before: Vec<u64> =
        numbers.iter().rev().copied().filter(|n| *n < from).take(limit).collect();
    assert_eq!(common::seqs(&store.read_back(&name, from, limit).await.expect("read")), before);
}

async fn compare(store: &Store, model: &Model) {
    store.delete("none", "none").await.expect("deleted");
    for (stream, known) in &model.streams {
        let name = format!("s{stream}");
        let last = known.first + known.entries.len() as u64 - 1;
        assert_eq!(store.bounds(&name).await.expect("bounds"), Bounds { first: known.first, last });
        let bodies: Vec<_> = all(store, &name).await.into_iter().map(|e| e.body.to_vec()).collect();
        assert_eq!(bodies, known.entries.iter().map(|(_, body)| body.clone()).collect::<Vec<_>>());
        for key in 0..20 {
            let found = store.find(&name, &format!("k{key}")).await.expect("found");
            let expected = known.entries.iter().position(|(k, _)| *k == Some(key));
            assert_eq!(found.map(|e| e.seq), expected.map(|at| known.first + at as u64));
        }
    }
    for bucket in 0..2 {
        let listed = store.list(&format!("b{bucket}")).await.expect("listed");
        let listed: Vec<_> =
            listed.into_iter().map(|(key, r)| (key, r.value.to_vec(), r.revision)).collect();
        let expected: Vec<_> = model
            .buckets
            .range((bucket, 0)..=(bucket, u8::MAX))
            .map(|((_, key), (value, revision))| (format!("k{key}"), value.clone(), *revision))
            .collect();
        assert_eq!(listed, expected);
    }
}
