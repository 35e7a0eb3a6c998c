//! Rule: after one flipped bit or a truncated file, all data is intact or an error names the file;
//! nothing panics.

mod common;

use std::collections::BTreeMap;
use std::path::Path;

use common::{Dice, all, count, db, entry, open};
use sa_core::store::{Bounds, Entry, Expect, Log, Record, Records, Retention};
use sa_store::{OpenOptions, Store, StoreError, StoreErrorKind};

/// The whole content of a store, including lookups of absent keys.
#[derive(Debug, PartialEq, Default)]
struct Content {
    streams: BTreeMap<String, Stream>,
    buckets: BTreeMap<String, Bucket>,
}

#[derive(Debug, PartialEq)]
struct Stream {
    bounds: Bounds,
    entries: Vec<Entry>,
    found: Vec<Option<Entry>>,
}

#[derive(Debug, PartialEq)]
struct Bucket {
    listed: Vec<(String, Record)>,
    got: Vec<Option<Record>>,
}

const STREAMS: [&str; 4] = ["calls", "chat", "audit", "trimmed"];
const BUCKETS: [&str; 2] = ["tokens", "settings"];

fn key_of(stream: &str, n: u64) -> String {
    match n % 3 {
        0 => format!("0190a5b2-7f5e-7cc3-98a1-{:012x}", n * 7919 % 1000),
        1 => format!("{stream}-key-{n}"),
        _ => format!("{}-{n}", n * 31 % 97),
    }
}

/// Creates a store with data in the database and in the WAL, like after a crash.
async fn make(dir: &Path) -> Content {
    let live = tempfile::tempdir().expect("a directory");
    for phase in 0..3 {
        // The data of the last phase must stay in the WAL.
        let options =
            OpenOptions { checkpoint_frames: u32::MAX / 2, ..OpenOptions::new(db(live.path())) };
        let store = Store::open(options).expect("opened");
        for n in phase * 100..(phase + 1) * 100 {
            for stream in STREAMS {
                let size = if n % 40 == 7 { 9000 } else { n as usize * 7 % 400 };
                store.record(stream, Some(&key_of(stream, n)), &vec![n as u8; size]);
            }
            for bucket in BUCKETS {
                let value = vec![n as u8; n as usize % 100];
                store
                    .put(bucket, &format!("doc-{}", n % 70), value.into(), Expect::Anything)
                    .await
                    .expect("put");
            }
        }
        store.delete("tokens", "doc-13").await.expect("deleted");
        let keep = Retention { entries: Some(120), ..Retention::default() };
        store.trim("trimmed", keep).await.expect("trimmed");
        if phase < 2 {
            store.shutdown().await.expect("a clean end");
            continue;
        }
        let content = read(&store).await.expect("intact");
        for suffix in ["", "-wal", ".witness"] {
            let from = live.path().join(format!("store.db{suffix}"));
            std::fs::copy(from, dir.join(format!("store.db{suffix}"))).expect("copied");
        }
        return content;
    }
    unreachable!("the last phase returns")
}

async fn read(store: &Store) -> Result<Content, StoreError> {
    let mut content = Content::default();
    for stream in STREAMS {
        let bounds = store.bounds(stream).await?;
        let mut entries = store.read(stream, 0, 170).await?;
        let rest = store.read(stream, entries.last().map_or(0, |e| e.seq), usize::MAX).await?;
        entries.extend(rest);
        let mut back = store.read_back(stream, u64::MAX, usize::MAX).await?;
        back.reverse();
        assert_eq!(back, entries, "both ways are the same");
        let mut found = Vec::new();
        for n in 0..310 {
            found.push(store.find(stream, &key_of(stream, n)).await?);
        }
        let stream_content = Stream { bounds, entries, found };
        content.streams.insert(stream.to_owned(), stream_content);
    }
    for bucket in BUCKETS {
        let listed = store.list(bucket).await?;
        let mut got = Vec::new();
        for n in 0..75 {
            got.push(store.get(bucket, &format!("doc-{n}")).await?);
        }
        content.buckets.insert(bucket.to_owned(), Bucket { listed, got });
    }
    Ok(content)
}

#[tokio::test]
async fn damage_is_never_silent() {
    let base = tempfile::tempdir().expect("a directory");
    let content = make(base.path()).await;
    let (mut refused, mut unharmed) = (0, 0);
    let first = count("SWITCHBOARD_DAMAGE_SEED", 0);
    for seed in first..first + count("SWITCHBOARD_DAMAGE_PLACES", 150) {
        let dir = tempfile::tempdir().expect("a directory");
        for file in std::fs::read_dir(base.path()).expect("files") {
            let file = file.expect("a file");
            std::fs::copy(file.path(), dir.path().join(file.file_name())).expect("copied");
        }
        let what = damage(dir.path(), seed);
        match examine(dir.path(), &content).await {
            Ok(()) => unharmed += 1,
            Err(error) => {
                assert!(error.message.contains("store.db"), "{what}: names no file: {error}");
                refused += 1;
            }
        }
        // Printed to help with the analysis of a failure.
        println!("seed {seed}: {what}");
    }
    println!("{refused} refused, {unharmed} without consequence");
    assert!(refused > 0 && unharmed > 0);
}

fn damage(dir: &Path, seed: u64) -> String {
    let mut dice = Dice(seed);
    let name =
        ["store.db", "store.db", "store.db", "store.db-wal", "store.db-wal", "store.db.witness"]
            [dice.roll(6) as usize];
    let path = dir.join(name);
    let mut bytes = std::fs::read(&path).expect("read");
    let at = dice.roll(bytes.len() as u64) as usize;
    let cut = dice.roll(5) == 0;
    let bit = dice.roll(8);
    if cut {
        bytes.truncate(at);
    } else {
        bytes[at] ^= 1 << bit;
    }
    std::fs::write(&path, bytes).expect("written");
    if cut { format!("{name} cut at {at}") } else { format!("{name} byte {at} bit {bit} flipped") }
}

/// Reads all data, makes changes, and reads all data again. Returns an error if the store detects
/// damage.
async fn examine(dir: &Path, content: &Content) -> Result<(), StoreError> {
    let store = Store::open(OpenOptions::new(db(dir)))?;
    let result = use_it(&store, content).await;
    let _ = store.shutdown().await;
    result
}

async fn use_it(store: &Store, content: &Content) -> Result<(), StoreError> {
    assert!(read(store).await? == *content, "silently other data");
    for n in [10, 150, 299] {
        let appended = store.append(entry("calls", Some(&key_of("calls", n)), "again")).await?;
        assert!(appended.duplicate, "a known key was taken for a new one");
    }
    let appended = store.append(entry("calls", Some("new"), "new")).await?;
    assert_eq!(appended.seq, 301);
    store.put("tokens", "new", "new".into(), Expect::Absent).await?;
    let new = store.find("calls", "new").await?.expect("just appended");
    assert_eq!((new.seq, &new.body[..]), (301, &b"new"[..]));
    assert!(store.delete("tokens", "new").await?);
    assert_eq!(store.read("calls", 0, 300).await?, content.streams["calls"].entries);
    Ok(())
}

#[tokio::test]
async fn a_lost_wal_is_refused_and_the_loss_can_be_accepted() {
    let base = tempfile::tempdir().expect("a directory");
    make(base.path()).await;
    std::fs::remove_file(base.path().join("store.db-wal")).expect("removed");
    let error = Store::open(OpenOptions::new(db(base.path()))).expect_err("refused");
    assert_eq!(error.kind, StoreErrorKind::Behind, "{error}");
    assert!(error.message.contains("store.db-wal") && error.message.contains("backup"), "{error}");
    assert!(error.message.contains("switchboard doctor --accept-loss"), "{error}");
    let accept = OpenOptions { accept_loss: true, ..OpenOptions::new(db(base.path())) };
    let store = Store::open(accept).expect("accepted");
    let entries = all(&store, "calls").await;
    assert_eq!(entries.len(), 200, "what the database file had");
    assert_eq!(store.append(entry("calls", None, "")).await.expect("kept").seq, 201);
    store.shutdown().await.expect("a clean end");
    assert_eq!(
        all(&open(base.path()), "calls").await.len(),
        201,
        "and it opens as ever afterwards"
    );
}

#[tokio::test]
async fn an_older_copy_under_the_witness_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    store.append(entry("a", None, "")).await.expect("kept");
    store.shutdown().await.expect("a clean end");
    let old = std::fs::read(db(dir.path())).expect("read");
    let store = open(dir.path());
    store.append(entry("a", None, "")).await.expect("kept");
    store.shutdown().await.expect("a clean end");
    std::fs::write(db(dir.path()), old).expect("written");
    let error = Store::open(OpenOptions::new(db(dir.path()))).expect_err("refused");
    assert_eq!(error.kind, StoreErrorKind::Behind, "{error}");
    std::fs::remove_file(dir.path().join("store.db.witness")).expect("removed");
    assert_eq!(all(&open(dir.path()), "a").await.len(), 1, "on purpose, without the witness");
    std::fs::remove_file(db(dir.path())).expect("removed");
    let error =
        Store::open(OpenOptions::new(db(dir.path()))).expect_err("a missing file is a loss, too");
    assert_eq!(error.kind, StoreErrorKind::Behind, "{error}");
}

#[tokio::test]
async fn a_file_that_was_cut_anywhere_is_refused_before_anything_is_read() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    for n in 0..200 {
        store
            .append(entry("calls", None, format!("{n}{}", "x".repeat(1_000))))
            .await
            .expect("kept");
    }
    store.shutdown().await.expect("a clean end");
    let whole = std::fs::read(db(dir.path())).expect("read");
    for cut in [1, 4_096, 8_192, 16_384, 100_000, whole.len() - 100] {
        std::fs::write(db(dir.path()), &whole[..whole.len() - cut]).expect("written");
        let error = Store::open(OpenOptions::new(db(dir.path()))).expect_err("refused");
        assert_eq!(error.kind, StoreErrorKind::Damaged, "{cut}: {error}");
        let lengths = [whole.len() - cut, whole.len()]
            .map(|length| error.message.contains(&length.to_string()));
        assert_eq!(lengths, [true; 2], "{cut}: {error}");
    }
    std::fs::write(db(dir.path()), &whole).expect("written");
    assert_eq!(all(&open(dir.path()), "calls").await.len(), 200);
}

#[tokio::test]
async fn what_is_damaged_is_remembered_for_whoever_asks_how_the_store_is() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    store.append(entry("calls", None, "mark-of-one-entry")).await.expect("kept");
    store.shutdown().await.expect("a clean end");
    let mut bytes = std::fs::read(db(dir.path())).expect("read");
    let at = bytes.windows(17).position(|seen| seen == b"mark-of-one-entry").expect("in the file");
    bytes[at] ^= 1;
    std::fs::write(db(dir.path()), bytes).expect("written");
    let store = open(dir.path());
    assert_eq!(store.file_problem(), None);
    // A refused request is no problem with the file.
    store.append(entry("", None, "")).await.expect_err("no name");
    assert_eq!(store.file_problem(), None);
    let error = store.read("calls", 0, 10).await.expect_err("damaged");
    let file_problem = store.file_problem().expect("remembered");
    assert_eq!(file_problem.message, error.message);
    assert!(file_problem.at_ms > 0);
}
