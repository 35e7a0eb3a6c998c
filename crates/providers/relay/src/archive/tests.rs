//! Rule: a session has a stream of its own, and its events count for its owner, also after a
//! restart. A principal loses sessions to another one only above its share.

use sa_core::retention::{Reading, TrustedClock};
use sa_core::store::NewEntry;
use sa_limits::budget::STEP;
use sa_store::{OpenOptions, Store};

use super::*;
use crate::record::{Owner, SessionView};
use crate::turn::State;

const TOTAL: usize = 64 * STEP;

async fn load(store: &Arc<Store>) -> Arc<Archive> {
    let trimmer = Trimmer::new(TrustedClock::new(None), || Reading { wall_ms: 0, uptime_ms: 0 });
    let limits = Limits { ended: 4, keep: Duration::from_secs(60), bytes: TOTAL };
    Archive::load(store.clone(), store.clone(), Arc::new(trimmer), limits).await.unwrap().0
}

fn open_store(dir: &tempfile::TempDir) -> Arc<Store> {
    Arc::new(Store::open(OpenOptions::new(dir.path().join("store.db"))).unwrap())
}

/// Stores a session that ended at this time, with events of this size.
async fn ended(archive: &Archive, id: &str, owner: &str, at_ms: i64, bytes: usize) {
    let space = grown(archive, id, &Holder::named(owner), bytes).await;
    archive.write(&record(id, owner, Some(at_ms), &space)).await.unwrap();
}

/// Opens a session with events of this size.
async fn grown(archive: &Archive, id: &str, owner: &Holder, bytes: usize) -> Arc<Space> {
    let space = archive.create(&id.into(), owner).await.unwrap();
    space.grow(bytes);
    archive.make_space(&space, u64::MAX).await;
    space
}

fn record(id: &str, owner: &str, ended_ms: Option<i64>, space: &Space) -> Record {
    let view = SessionView {
        session_id: id.into(),
        state: "ended".into(),
        reason: None,
        owner: Owner { id: owner.into(), name: owner.into() },
        caller_id: String::new(),
        caller: None,
        caller_tools: Vec::new(),
        agent: None,
        parent: None,
        socket: None,
        pending: 0,
        timeout_ms: 1,
        created_ms: 0,
        ended_ms,
    };
    Record {
        view,
        turn: State::default(),
        stream: space.number,
        event_bytes: space.bytes(),
        by_operator: space.owner().is_operator(),
    }
}

async fn write_event(store: &Store, stream: &Arc<str>) -> u64 {
    let body = Bytes::from_static(b"{}");
    store.append(NewEntry { stream: Arc::clone(stream), key: None, body }).await.unwrap().seq
}

async fn ids(archive: &Archive) -> Vec<String> {
    let stored = archive.list().await.unwrap();
    stored.into_iter().map(|record| record.view.session_id).collect()
}

#[tokio::test]
async fn a_principal_loses_its_own_oldest_sessions_and_no_others() {
    let dir = tempfile::tempdir().unwrap();
    let store = open_store(&dir);
    let archive = load(&store).await;
    ended(&archive, "other", "other", 0, 4 * STEP).await;
    for n in 1..8 {
        ended(&archive, &format!("greedy-{n}"), "greedy", n, 10 * STEP).await;
    }
    assert_eq!(ids(&archive).await, ["greedy-4", "greedy-5", "greedy-6", "greedy-7", "other"]);
    let held = |archive: &Archive, name: &str| archive.budget().held_by(&Holder::named(name));
    assert_eq!((held(&archive, "greedy"), held(&archive, "other")), (40 * STEP, 4 * STEP));
    let after = load(&store).await;
    assert_eq!((held(&after, "greedy"), held(&after, "other")), (40 * STEP, 4 * STEP));
}

#[tokio::test]
async fn a_modest_principal_gets_space_from_the_largest_and_a_greedy_one_from_itself() {
    let dir = tempfile::tempdir().unwrap();
    let archive = load(&open_store(&dir)).await;
    ended(&archive, "modest-1", "modest", 1, 4 * STEP).await;
    for n in 2..6 {
        ended(&archive, &format!("larger-{n}"), "larger", n, 10 * STEP).await;
    }
    ended(&archive, "large-6", "large", 6, 12 * STEP).await;
    ended(&archive, "modest-7", "modest", 7, 4 * STEP).await;
    // All that is not reserved is now in use.
    assert_eq!(archive.budget().used(), archive.budget().largest());
    ended(&archive, "modest-8", "modest", 8, 2 * STEP).await;
    let after = ["large-6", "larger-3", "larger-4", "larger-5", "modest-1", "modest-7", "modest-8"];
    assert_eq!(ids(&archive).await, after);
    ended(&archive, "large-9", "large", 9, 8 * STEP).await;
    let after = ["large-9", "larger-3", "larger-4", "larger-5", "modest-1", "modest-7", "modest-8"];
    assert_eq!(ids(&archive).await, after);
}

#[tokio::test]
async fn a_principal_within_its_share_loses_no_session() {
    let dir = tempfile::tempdir().unwrap();
    let archive = load(&open_store(&dir)).await;
    ended(&archive, "empty", "writer", 0, STEP / 2).await;
    for n in 1..8 {
        ended(&archive, &format!("other-{n}"), &format!("other-{n}"), n, 8 * STEP).await;
    }
    ended(&archive, "old", "writer", 8, 4 * STEP).await;
    assert_eq!(archive.budget().used(), archive.budget().largest());
    ended(&archive, "writer", "writer", 9, 2 * STEP).await;
    let ids = ids(&archive).await;
    assert!(ids.len() == 9 && !ids.contains(&"old".to_owned()), "{ids:?}");
}

#[tokio::test]
async fn an_operator_keeps_its_reserve_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let store = open_store(&dir);
    let archive = load(&store).await;
    let space = grown(&archive, "own", &Holder::operator("boss"), 4 * STEP).await;
    archive.write(&record("own", "boss", None, &space)).await.unwrap();
    for n in 1..8 {
        ended(&archive, &format!("other-{n}"), &format!("other-{n}"), n, 8 * STEP).await;
    }
    let after = load(&store).await;
    assert_eq!(after.budget().used(), after.budget().largest());
    let space = after.space("own").unwrap();
    space.grow(2 * STEP);
    assert_eq!(after.make_space(&space, u64::MAX).await, u64::MAX);
    assert_eq!(ids(&after).await.len(), 8);
}

#[tokio::test]
async fn a_session_of_an_older_version_is_deleted_with_its_events() {
    let dir = tempfile::tempdir().unwrap();
    let store = open_store(&dir);
    let archive = load(&store).await;
    let space = grown(&archive, "new", &Holder::named("a"), STEP).await;
    archive.write(&record("new", "a", Some(1), &space)).await.unwrap();
    let mut old = serde_json::to_value(record("old", "a", Some(1), &space)).unwrap();
    old.as_object_mut().unwrap().remove("stream");
    let old = serde_json::to_vec(&old).unwrap();
    store.put(BUCKET, "old", old.into(), Expect::Anything).await.unwrap();
    let (of_old, of_other) = ("session:77".into(), "session:x".into());
    for stream in [&space.stream, &of_old, &of_other] {
        write_event(&store, stream).await;
    }
    let after = load(&store).await;
    assert_eq!(ids(&after).await, ["new"]);
    assert_eq!(store.list(BUCKET).await.unwrap().len(), 1);
    for (stream, events) in [(&space.stream, 1), (&of_old, 0), (&of_other, 1)] {
        assert_eq!(store.read(stream, 0, 10).await.unwrap().len(), events, "{stream}");
    }
}

#[tokio::test]
async fn without_ended_sessions_the_events_of_the_open_one_are_limited() {
    let dir = tempfile::tempdir().unwrap();
    let archive = load(&open_store(&dir)).await;
    let greedy = Holder::named("greedy");
    let mut spaces = Vec::new();
    for n in 0..4 {
        let space = archive.create(&format!("s{n}").as_str().into(), &greedy).await.unwrap();
        space.grow(16 * STEP);
        spaces.push(space);
    }
    let limit = 32 * STEP as u64;
    assert_eq!(archive.make_space(&spaces[0], limit).await, limit, "it fits");
    let least = archive.make_space(&spaces[3], limit).await;
    assert_eq!(least, 4 * STEP as u64, "a little is always allowed");
    spaces[3].reduced(least);
    assert_eq!((spaces[3].bytes(), archive.budget().used()), (least, 48 * STEP));
    // Others may still take their share.
    let other = archive.create(&"other".into(), &Holder::named("other")).await.unwrap();
    other.grow(8 * STEP);
    assert_eq!(archive.make_space(&other, limit).await, limit);
}

#[tokio::test]
async fn above_the_limit_the_principal_with_the_most_sessions_loses_its_oldest() {
    let dir = tempfile::tempdir().unwrap();
    let archive = load(&open_store(&dir)).await;
    ended(&archive, "other-1", "other", 1, 0).await;
    for n in 2..8 {
        ended(&archive, &format!("greedy-{n}"), "greedy", n, 0).await;
    }
    archive.expire().await.unwrap();
    assert_eq!(ids(&archive).await, ["greedy-5", "greedy-6", "greedy-7", "other-1"]);
}

#[tokio::test]
async fn a_stream_is_empty_for_its_next_session_and_used_by_one_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let store = open_store(&dir);
    let archive = load(&store).await;
    let holder = Holder::named("a");
    let first = archive.create(&"first".into(), &holder).await.unwrap();
    let write = async |space: &Space| write_event(&store, &space.stream).await;
    write(&first).await;
    archive.write(&record("first", "a", Some(1), &first)).await.unwrap();
    archive.delete("first").await.unwrap();
    assert_eq!(store.read(&first.stream, 0, 10).await.unwrap(), []);
    // Its agent is still writing.
    write(&first).await;
    let second = archive.create(&"second".into(), &holder).await.unwrap();
    assert_ne!(first.number, second.number);
    let (number, last) = (first.number, write(&first).await);
    drop(first);
    let third = archive.create(&"third".into(), &holder).await.unwrap();
    assert_eq!(third.number, number);
    assert_eq!(store.read(&third.stream, 0, 10).await.unwrap(), []);
    assert_eq!(write(&third).await, last + 1);
    // A record is not written again after its deletion.
    archive.write(&record("first", "a", Some(1), &third)).await.unwrap();
    assert!(archive.read("first").await.unwrap().is_none());
    // The next process knows which streams are in use.
    archive.write(&record("third", "a", None, &third)).await.unwrap();
    let after = load(&store).await;
    let next = after.create(&"next".into(), &holder).await.unwrap();
    assert_ne!(next.number, third.number);
}
