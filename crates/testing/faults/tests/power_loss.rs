//! Rule: acknowledged data survives a power loss, in order and without duplicates. The power fails
//! at any write or sync, unsynced data is lost or torn, and earlier syncs may have failed.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use sa_core::store::{Expect, Log, NewEntry, Records, Retention};
use sa_store::{OpenOptions, Store};
use sa_store_faults::{Dice, Disk, VFS};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_survives_a_power_loss() {
    for seed in 0..count("SWITCHBOARD_POWER_LOSSES", 100) {
        run(seed, 0).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn also_on_a_disk_that_fails_now_and_then() {
    for seed in 0..count("SWITCHBOARD_POWER_LOSSES", 100) {
        run(1_000_000 + seed, 40).await;
    }
}

fn count(variable: &str, ordinary: u64) -> u64 {
    std::env::var(variable).map_or(ordinary, |n| n.parse().expect("a number"))
}

/// Positions by key, and the revision and value of the only document.
#[derive(Default)]
struct Acknowledged {
    places: HashMap<String, u64>,
    document: Option<(u64, String)>,
}

async fn run(seed: u64, failing: u64) {
    let mut dice = Dice(seed);
    let before = tempfile::tempdir().expect("a directory");
    let disk = Disk::mount(before.path(), seed);
    let options = OpenOptions {
        vfs: VFS.to_owned(),
        // Small values test checkpoints and restarts of the WAL more often.
        checkpoint_frames: 20 + dice.roll(200) as u32,
        ..OpenOptions::new(before.path().join("store.db"))
    };
    let store = Store::open(options).expect("opened");
    disk.die_after(20 + dice.roll(3000));
    disk.fail_one_in(failing);
    let mut tasks = tokio::task::JoinSet::new();
    let store = Arc::new(store);
    for writer in 0..4 {
        let store = store.clone();
        tasks.spawn(write(store, writer, Dice(seed * 10 + writer)));
    }
    let mut acknowledged = Acknowledged::default();
    for one in tasks.join_all().await {
        acknowledged.places.extend(one.places);
        acknowledged.document = acknowledged.document.or(one.document);
    }
    drop(Arc::into_inner(store));
    let after = tempfile::tempdir().expect("a directory");
    disk.after_power_loss(after.path());
    // The witness file is not synced: it is either unchanged or missing.
    if dice.roll(4) > 0 {
        std::fs::copy(
            before.path().join("store.db.witness"),
            after.path().join("store.db.witness"),
        )
        .expect("copied");
    }
    check(seed, after.path(), &acknowledged).await;
}

/// Appends until the disk is dead.
async fn write(store: Arc<Store>, writer: u64, mut dice: Dice) -> Acknowledged {
    let mut acknowledged = Acknowledged::default();
    let mut failures = 0;
    for n in 0.. {
        let key = format!("{writer}-{n}");
        let mut body = key.clone().into_bytes();
        body.resize(body.len() + dice.roll(3000) as usize, b' ');
        let entry =
            NewEntry { stream: "log".into(), key: Some(key.as_str().into()), body: body.into() };
        match store.append(entry).await {
            Ok(appended) => {
                failures = 0;
                acknowledged.places.insert(key, appended.seq);
            }
            // A disk with occasional errors recovers; a dead one does not.
            Err(_) => failures += 1,
        }
        if writer == 0 && n % 3 == 0 {
            let value = format!("{n}");
            if let Ok(revision) = store.put("b", "k", value.clone().into(), Expect::Anything).await
            {
                acknowledged.document = Some((revision, value));
            }
        }
        store.record("noise", None, &[1; 300]);
        if n % 20 == 0 {
            let _ =
                store.trim("noise", Retention { entries: Some(20), ..Retention::default() }).await;
        }
        if failures > 10 {
            break;
        }
    }
    acknowledged
}

async fn check(seed: u64, dir: &Path, acknowledged: &Acknowledged) {
    let store = match Store::open(OpenOptions::new(dir.join("store.db"))) {
        Ok(store) => store,
        Err(error) => panic!("seed {seed}: {error}"),
    };
    let entries =
        store.read("log", 0, usize::MAX).await.unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    let mut found = HashMap::new();
    for entry in &entries {
        let key = String::from_utf8_lossy(&entry.body).trim().to_owned();
        assert_eq!(found.insert(key.clone(), entry.seq), None, "seed {seed}: {key} is there twice");
    }
    for (key, seq) in &acknowledged.places {
        assert_eq!(found.get(key), Some(seq), "seed {seed}: {key} was acknowledged");
        let by_key = store.find("log", key).await.expect("found").map(|entry| entry.seq);
        assert_eq!(by_key, Some(*seq), "seed {seed}: {key} is findable");
    }
    if let Some((revision, value)) = &acknowledged.document {
        let record =
            store.get("b", "k").await.expect("read").unwrap_or_else(|| panic!("seed {seed}"));
        assert!(record.revision >= *revision, "seed {seed}");
        assert!(record.revision > *revision || record.value == value.as_bytes(), "seed {seed}");
    }
    store.verify().await.unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    store.shutdown().await.expect("a clean end");
}
