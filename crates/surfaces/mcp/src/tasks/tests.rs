use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;
use sa_core::Role;
use sa_core::retention::{Reading, TrustedClock};
use sa_store::{OpenOptions, Store};

use super::*;

const DAY_MS: i64 = 86_400_000;

fn tasks(dir: &std::path::Path, wall_ms: i64, bytes: usize) -> (Arc<Tasks>, Store) {
    let store = Store::open(OpenOptions::new(dir.join("store.db"))).unwrap();
    let options = Options {
        version: "0",
        max_body_bytes: 1 << 20,
        max_outbox_bytes: 1 << 20,
        session_idle: TTL,
        max_sessions: 1,
        resume: TTL,
        search: false,
        task_after: TTL,
        task_result_bytes: bytes,
        trimmer: Arc::new(Trimmer::new(TrustedClock::new(None), move || Reading {
            wall_ms,
            uptime_ms: 1_000,
        })),
    };
    (Arc::new(Tasks::new(Arc::new(store.clone()), &options, CancellationToken::new())), store)
}

/// Stores a task that has ended with a text of this size.
async fn end(tasks: &Tasks, id: &str, principal: &Principal, created_ms: i64, bytes: usize) {
    let result = json!({ "text": "x".repeat(bytes) }).as_object().cloned().unwrap();
    let state = tasks.store_result(id, &principal.holder(), State::Completed(result)).await;
    let record = Record {
        principal: Arc::clone(&principal.id),
        tool: "t".into(),
        created_ms,
        updated_ms: created_ms,
        state,
    };
    tasks.write(id, &record).await.unwrap();
}

async fn text(tasks: &Tasks, id: &str, principal: &Principal) -> Result<usize, String> {
    match tasks.get(id, principal).await.unwrap().payload {
        TaskPayload::Completed { result } => Ok(result["text"].as_str().unwrap().len()),
        TaskPayload::Failed { error } => Err(error["message"].as_str().unwrap().to_owned()),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn results_share_a_budget_and_a_task_fails_beyond_it() {
    let dir = tempfile::tempdir().unwrap();
    let now = 400 * DAY_MS;
    let (greedy, modest) =
        (Principal::new("g", "g", Role::Agent), Principal::new("m", "m", Role::Agent));
    let (first, store) = tasks(dir.path(), now, 1_000_000);
    for number in 0..20 {
        end(&first, &format!("g{number}"), &greedy, now, 70_000).await;
    }
    let record = first.budget().used();
    assert!((700_000..750_000).contains(&record), "{record}: above three quarters it gets no more");
    assert_eq!(text(&first, "g9", &greedy).await, Ok(70_000));
    let refused = text(&first, "g10", &greedy).await.unwrap_err();
    assert!(
        refused.contains("its result cannot be stored")
            && refused.contains("mcp.task_result_bytes"),
        "{refused}"
    );
    end(&first, "m0", &modest, now, 70_000).await;
    assert_eq!(text(&first, "m0", &modest).await, Ok(70_000), "another principal has its share");
    let used = first.budget().used();
    drop(first);
    store.shutdown().await.unwrap();

    // The next run charges the existing results, and releases them with the tasks.
    let (second, store) = tasks(dir.path(), now, 1_000_000);
    second.sweep().await.unwrap();
    assert_eq!((second.budget().used(), second.budget().held_by(&greedy.holder())), (used, record));
    drop(second);
    store.shutdown().await.unwrap();
    let (third, store) = tasks(dir.path(), now + 2 * DAY_MS, 1_000_000);
    // One round deletes only a few expired tasks.
    for _ in 0..30 {
        third.sweep().await.unwrap();
    }
    assert_eq!(third.budget().used(), 0);
    assert_eq!(
        (store.sizes(BUCKET).await.unwrap(), store.sizes(RESULTS).await.unwrap()),
        (vec![], vec![])
    );
}

#[tokio::test]
async fn above_the_limit_the_principal_with_the_most_tasks_loses_its_oldest() {
    let dir = tempfile::tempdir().unwrap();
    let now = 400 * DAY_MS;
    let (greedy, modest) =
        (Principal::new("g", "g", Role::Agent), Principal::new("m", "m", Role::Agent));
    let (tasks, store) = tasks(dir.path(), now, 1_000_000);
    // The tasks of the modest principal are the oldest.
    for (id, owner) in [("0", &modest), ("1", &modest), ("2", &greedy), ("3", &greedy)] {
        end(&tasks, id, owner, now, 10).await;
    }
    for id in ["4", "5", "6"] {
        end(&tasks, id, &greedy, now, 10).await;
    }
    tasks.sweep_to(4).await.unwrap();
    let ids = |sizes: Vec<(String, usize)>| sizes.into_iter().map(|(id, _)| id).collect::<Vec<_>>();
    for bucket in [BUCKET, RESULTS] {
        assert_eq!(ids(store.sizes(bucket).await.unwrap()), ["0", "1", "5", "6"], "{bucket}");
    }
    assert_eq!(text(&tasks, "0", &modest).await, Ok(10));
}

/// Records that count the bytes read from them.
struct Counted(Store, AtomicUsize);

impl Records for Counted {
    fn get(
        &self,
        bucket: &str,
        key: &str,
    ) -> sa_core::store::StoreFuture<'_, Option<sa_core::store::Record>> {
        let read = self.0.get(bucket, key);
        Box::pin(async move {
            let found = read.await?;
            let bytes = found.as_ref().map_or(0, |record| record.value.len());
            self.1.fetch_max(bytes, Ordering::Relaxed);
            Ok(found)
        })
    }

    fn list(
        &self,
        bucket: &str,
    ) -> sa_core::store::StoreFuture<'_, Vec<(String, sa_core::store::Record)>> {
        let read = self.0.list(bucket);
        Box::pin(async move {
            let found = read.await?;
            let bytes = found.iter().map(|(_, record)| record.value.len()).sum();
            self.1.fetch_max(bytes, Ordering::Relaxed);
            Ok(found)
        })
    }

    fn sizes(&self, bucket: &str) -> sa_core::store::StoreFuture<'_, Vec<(String, usize)>> {
        self.0.sizes(bucket)
    }

    fn put(
        &self,
        bucket: &str,
        key: &str,
        value: Bytes,
        expect: Expect,
    ) -> sa_core::store::StoreFuture<'_, u64> {
        self.0.put(bucket, key, value, expect)
    }

    fn delete(&self, bucket: &str, key: &str) -> sa_core::store::StoreFuture<'_, bool> {
        self.0.delete(bucket, key)
    }
}

#[tokio::test]
async fn a_sweep_reads_no_results_and_those_of_earlier_versions_one_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let now = 400 * DAY_MS;
    let owner = Principal::new("p", "p", Role::Agent);
    let (before, store) = tasks(dir.path(), now, 100_000_000);
    for number in 0..10 {
        end(&before, &format!("new{number}"), &owner, now, 100_000).await;
        let result = json!({ "text": "y".repeat(50_000) }).as_object().cloned().unwrap();
        let state = State::Completed(result);
        let record = Record {
            principal: "p".into(),
            tool: "t".into(),
            created_ms: now,
            updated_ms: now,
            state,
        };
        before.write(&format!("old{number}"), &record).await.unwrap();
    }
    let counted = Arc::new(Counted(store, AtomicUsize::default()));
    let trimmer = Arc::clone(&before.trimmer);
    let sweeper = Tasks {
        records: Arc::clone(&counted) as _,
        trimmer,
        running: Mutex::default(),
        budget: SharedBudget::new(*before.budget().limit()),
        stored: Mutex::default(),
        closing: CancellationToken::new(),
    };
    sweeper.sweep().await.unwrap();
    let max = counted.1.load(Ordering::Relaxed);
    assert!(max < 60_000, "{max} bytes were read at once");
    let used = sweeper.budget().used();
    assert!(used > 1_500_000, "{used}");
    assert_eq!(text(&sweeper, "old3", &owner).await, Ok(50_000));
    assert_eq!(text(&sweeper, "new3", &owner).await, Ok(100_000));
}

proptest! {
    /// For any stored bytes, a task is read as it was written, or does not exist.
    #[test]
    fn a_stored_task_is_read_or_missing(text in sa_hostile::nearly(json!({
        "principal": "p", "tool": "t", "created_ms": 1_700_000_000_000_i64, "updated_ms": 5, "state": { "completed": { "content": [] } },
    })), ms: i64) {
        if let Ok(mut record) = serde_json::from_str::<Record>(&text) {
            record.updated_ms = ms;
            let again: Record = serde_json::from_slice(&serde_json::to_vec(&record).unwrap()).unwrap();
            prop_assert_eq!(format!("{again:?}"), format!("{record:?}"));
            let task = serde_json::to_value(record.task("id")).unwrap();
            prop_assert!(task["createdAt"].as_str().is_some_and(|time| time.parse::<Timestamp>().is_ok()), "{task}");
        }
    }
}
