//! Calls that outlive their request, as tasks (the extension `io.modelcontextprotocol/tasks`).
//!
//! A call that takes long, of a client that knows tasks, is answered with a handle and goes on by itself. The handle is
//! written down before the client gets it, and so is how the call ends before anybody is told: it outlives the client's
//! connection and the gateway. What was under way when the gateway stopped is a failed task that says so.
//!
//! Results have a bucket of their own, because they may be large: whoever goes through all tasks reads only what is small.
//! A result is written before its task says that it ended, and deleted before its task is. There is therefore no result
//! without a task.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use rmcp::ErrorData;
use rmcp::model::{
    CreateTaskResult, DetailedTask, ErrorCode, InputResponses, JsonObject, Task, TaskPayload, TaskStatus,
};
use sa_core::budget::{Holder, Limit, Permit, SharedBudget};
use sa_core::retention::round_limit;
use sa_core::router::Finished;
use sa_core::store::{Expect, Records, StoreError, Trimmed};
use sa_core::{CallError, CallErrorKind, Principal, Trimmer, clock};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::call::{Running, Turn};
use crate::convert;
use crate::questions::{self, Asked};
use crate::service::Options;

/// Where tasks are kept, and where their results are, by the same ids.
const BUCKET: &str = "mcp_tasks";
const RESULTS: &str = "mcp_task_results";
/// A task without its result is smaller than this. Earlier versions wrote results into the task.
const TASK_BYTES: usize = 8 * 1024;
/// Tasks that may be under way at once, and that are remembered in all.
const MOST_RUNNING: usize = 1_000;
const MOST: usize = 10_000;
/// How long a task is remembered.
const TTL: Duration = Duration::from_secs(24 * 3_600);
/// How often a client should ask.
const POLL: Duration = Duration::from_secs(2);

pub(crate) struct Tasks {
    records: Arc<dyn Records>,
    trimmer: Arc<Trimmer>,
    running: Mutex<HashMap<String, Arc<Live>>>,
    budget: Arc<SharedBudget>,
    /// What the results take from the budget, by the ids of their tasks.
    stored: Mutex<HashMap<String, Permit>>,
    closing: CancellationToken,
}

/// A task under way.
struct Live {
    kept: Kept,
    /// For whom the result counts.
    holder: Holder,
    cancelled: CancellationToken,
    asked: Mutex<BTreeMap<String, Asked>>,
}

/// What is written down of a task.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Kept {
    principal: Arc<str>,
    tool: String,
    created_ms: i64,
    updated_ms: i64,
    state: State,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum State {
    Working,
    /// The result is in its own bucket.
    Ended,
    Completed(JsonObject),
    /// It failed as a request does, by an error of the protocol.
    Failed(JsonObject),
    Cancelled,
}

impl Tasks {
    pub(crate) fn new(records: Arc<dyn Records>, options: &Options, closing: CancellationToken) -> Self {
        let budget = SharedBudget::new(Limit {
            name: "task_results",
            what: "bytes of results of MCP tasks",
            key: "mcp.task_result_bytes",
            remedy: "ask for less at once, or wait until older results are deleted (they are kept for a day)",
            total: options.task_result_bytes,
        });
        let trimmer = Arc::clone(&options.trimmer);
        Self { records, trimmer, running: Mutex::default(), budget, stored: Mutex::default(), closing }
    }

    /// What bounds the results.
    pub(crate) fn budget(&self) -> &Arc<SharedBudget> {
        &self.budget
    }

    /// Whether one more may be under way; a call that finds no place stays a call.
    pub(crate) fn has_room(&self) -> bool {
        self.running().len() < MOST_RUNNING
    }

    /// Makes a task of a call. `count` questions of it were asked before.
    pub(crate) async fn adopt(
        self: &Arc<Self>,
        principal: &Principal,
        tool: &str,
        running: Running,
        count: usize,
    ) -> Result<CreateTaskResult, CallError> {
        let id = Uuid::now_v7().to_string();
        let now = clock::now_ms();
        let kept = Kept {
            principal: Arc::clone(&principal.id),
            tool: tool.to_owned(),
            created_ms: now,
            updated_ms: now,
            state: State::Working,
        };
        // It goes on while the handle is on its way to the disk.
        let running = running.set_aside();
        self.write(&id, &kept).await.map_err(|error| {
            CallError::new(CallErrorKind::Failed, format!("the task cannot be written down: {error}"))
        })?;
        let task = kept.task(&id);
        let live =
            Live { kept, holder: Holder::of(principal), cancelled: CancellationToken::new(), asked: Mutex::default() };
        let live = Arc::new(live);
        self.running().insert(id.clone(), Arc::clone(&live));
        tokio::spawn(Arc::clone(self).follow(id, live, running, count));
        Ok(CreateTaskResult::new(task))
    }

    async fn follow(self: Arc<Self>, id: String, live: Arc<Live>, mut running: Running, mut count: usize) {
        let state = loop {
            tokio::select! {
                turn = running.alone() => match turn {
                    Turn::Asks(asked) => live.asked().extend(questions::name(asked, &mut count)),
                    Turn::Ended(finished) => break finished.told(move |finished| completed(&running, finished)).await,
                    Turn::Cancelled => break State::Cancelled,
                },
                // Dropping the call tells the provider.
                () = live.cancelled.cancelled() => break State::Cancelled,
                // The record says that it was under way, which is the truth.
                () = self.closing.cancelled() => return,
            }
        };
        let state = self.store_result(&id, &live.holder, state).await;
        let kept = Kept { state, updated_ms: clock::now_ms(), ..live.kept.clone() };
        if let Err(error) = self.write(&id, &kept).await {
            tracing::error!(task = %id, %error, "how an MCP task ended cannot be written down");
        }
        self.running().remove(&id);
    }

    /// Writes down a result, if there is room for it. Returns what the task says of it.
    async fn store_result(&self, id: &str, holder: &Holder, state: State) -> State {
        if !matches!(state, State::Completed(_) | State::Failed(_)) {
            return state;
        }
        let value = Bytes::from(serde_json::to_vec(&state).unwrap_or_default());
        drop(state);
        let permit = match self.budget.acquire(holder, value.len()) {
            Ok(permit) => permit,
            Err(refused) => return State::Failed(lost(&format!("{}; {}", refused.message, refused.hint))),
        };
        match self.records.put(RESULTS, id, value, Expect::Anything).await {
            Ok(_) => {
                self.stored().insert(id.to_owned(), permit);
                State::Ended
            }
            Err(error) => State::Failed(lost(&error.to_string())),
        }
    }

    /// How a task is doing.
    pub(crate) async fn get(&self, id: &str, principal: &Principal) -> Result<DetailedTask, ErrorData> {
        let running = self.running().get(id).cloned();
        if let Some(live) = running {
            live.of(principal)?;
            let requests = questions::requests(&live.asked());
            let payload = if requests.is_empty() {
                TaskPayload::Working
            } else {
                TaskPayload::InputRequired { input_requests: requests }
            };
            return Ok(DetailedTask::new(live.kept.task(id), payload));
        }
        let kept = self.records.get(BUCKET, id).await.map_err(unavailable)?;
        let kept: Option<Kept> = kept.and_then(|record| serde_json::from_slice(&record.value).ok());
        let kept = kept.filter(|kept| kept.principal == principal.id).ok_or_else(unknown)?;
        let task = kept.task(id);
        let state = match kept.state {
            // A gateway that was killed may have written down the result, and not yet that there is one.
            State::Ended | State::Working => self.result(id).await.map_err(unavailable)?,
            state => Some(state),
        };
        let payload = match state {
            Some(State::Completed(result)) => TaskPayload::Completed { result },
            Some(State::Failed(error)) => TaskPayload::Failed { error },
            Some(State::Cancelled) => TaskPayload::Cancelled,
            Some(State::Ended | State::Working) | None => TaskPayload::Failed { error: interrupted(&kept.tool) },
        };
        Ok(DetailedTask::new(task, payload))
    }

    /// Passes on the client's answers to what a task asked.
    pub(crate) async fn update(
        &self,
        id: &str,
        principal: &Principal,
        mut answers: InputResponses,
    ) -> Result<(), ErrorData> {
        let running = self.running().get(id).cloned();
        match running {
            Some(live) => {
                live.of(principal)?;
                questions::answer(&mut live.asked(), &mut answers);
                Ok(())
            }
            // One that has ended wants no answers, and one that is not there is not there.
            None => self.get(id, principal).await.map(drop),
        }
    }

    pub(crate) async fn cancel(&self, id: &str, principal: &Principal) -> Result<(), ErrorData> {
        let running = self.running().get(id).cloned();
        match running {
            Some(live) => {
                live.of(principal)?;
                live.cancelled.cancel();
                Ok(())
            }
            None => self.get(id, principal).await.map(drop),
        }
    }

    /// Deletes tasks whose time is over, and the oldest where there are too many. Counts the results of an earlier run. Reads
    /// no results: all of them together may be larger than the memory.
    pub(crate) async fn sweep(&self) -> Result<(), StoreError> {
        self.move_results().await?;
        let sizes: HashMap<_, _> = self.records.sizes(RESULTS).await?.into_iter().collect();
        let mut all = self.records.list(BUCKET).await?;
        let since_ms = self.trimmer.since_ms(TTL);
        // Ids begin with the time at which they were made, so that the oldest come first.
        let too_many = all.len().saturating_sub(MOST);
        let at_most = round_limit(all.len() as u64);
        all.retain(|(id, _)| !self.running().contains_key(id));
        let mut deleted = Trimmed::default();
        for (number, (id, record)) in all.into_iter().enumerate() {
            let kept: Option<Kept> = serde_json::from_slice(&record.value).ok();
            let aged = |kept: &Kept| since_ms.is_some_and(|since_ms| kept.created_ms < since_ms);
            if number < too_many {
                deleted.over_limit += 1;
            } else if kept.as_ref().is_none_or(aged) && deleted.aged < at_most {
                deleted.aged += 1;
            } else {
                if let (Some(size), Some(kept)) = (sizes.get(&id), kept) {
                    let charge = || self.budget.charge(&Holder::named(kept.principal), *size);
                    self.stored().entry(id).or_insert_with(charge);
                }
                continue;
            }
            if sizes.contains_key(&id) {
                self.records.delete(RESULTS, &id).await?;
            }
            self.records.delete(BUCKET, &id).await?;
            self.stored().remove(&id);
        }
        self.trimmer.report("mcp_task", deleted);
        Ok(())
    }

    /// Takes results out of the tasks of earlier versions, one at a time.
    async fn move_results(&self) -> Result<(), StoreError> {
        let large = self.records.sizes(BUCKET).await?.into_iter().filter(|(_, size)| *size > TASK_BYTES);
        for (id, _) in large {
            let Some(record) = self.records.get(BUCKET, &id).await? else { continue };
            let Ok(mut kept) = serde_json::from_slice::<Kept>(&record.value) else { continue };
            let value = serde_json::to_vec(&kept.state).unwrap_or_default().into();
            self.records.put(RESULTS, &id, value, Expect::Anything).await?;
            kept.state = State::Ended;
            self.write(&id, &kept).await?;
        }
        Ok(())
    }

    async fn result(&self, id: &str) -> Result<Option<State>, StoreError> {
        let result = self.records.get(RESULTS, id).await?;
        Ok(result.and_then(|record| serde_json::from_slice(&record.value).ok()))
    }

    async fn write(&self, id: &str, kept: &Kept) -> Result<(), StoreError> {
        let value = serde_json::to_vec(kept).unwrap_or_default().into();
        self.records.put(BUCKET, id, value, Expect::Anything).await.map(drop)
    }

    fn stored(&self) -> std::sync::MutexGuard<'_, HashMap<String, Permit>> {
        self.stored.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn running(&self) -> std::sync::MutexGuard<'_, HashMap<String, Arc<Live>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Live {
    /// To everybody else it does not exist.
    fn of(&self, principal: &Principal) -> Result<(), ErrorData> {
        if self.kept.principal == principal.id { Ok(()) } else { Err(unknown()) }
    }

    fn asked(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Asked>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn task(&self, id: &str) -> Task {
        let time = |ms| Timestamp::from_millisecond(ms).unwrap_or_default().to_string();
        Task::new(id, TaskStatus::Working, time(self.created_ms), time(self.updated_ms))
            .with_ttl_ms(TTL.as_millis() as u64)
            .with_poll_interval_ms(POLL.as_millis() as u64)
    }
}

fn completed(running: &Running, finished: &Finished) -> State {
    let error = convert::protocol_error(&finished.outcome).and_then(|error| serde_json::to_value(error).ok());
    if let Some(Value::Object(error)) = error {
        return State::Failed(error);
    }
    match serde_json::to_value(convert::result_of(&finished.outcome, || running.lists_output())) {
        Ok(Value::Object(result)) => State::Completed(result),
        _ => State::Cancelled,
    }
}

/// The call has had its effect, so that nobody should simply repeat it.
fn lost(why: &str) -> JsonObject {
    let message = format!("the call ended, and its result cannot be kept: {why}");
    let error = json!({ "code": ErrorCode::INTERNAL_ERROR.0, "message": message });
    error.as_object().cloned().unwrap_or_default()
}

fn interrupted(tool: &str) -> JsonObject {
    let message = format!("the gateway restarted while {tool} ran; it may have had an effect");
    let error = json!({ "code": ErrorCode::INTERNAL_ERROR.0, "message": message });
    error.as_object().cloned().unwrap_or_default()
}

fn unknown() -> ErrorData {
    ErrorData::invalid_params("there is no such task", None)
}

fn unavailable(error: StoreError) -> ErrorData {
    ErrorData::internal_error(format!("the task cannot be read: {error}"), None)
}

#[cfg(test)]
mod tests {
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
            trimmer: Arc::new(Trimmer::new(TrustedClock::new(None), move || Reading { wall_ms, uptime_ms: 1_000 })),
        };
        (Arc::new(Tasks::new(Arc::new(store.clone()), &options, CancellationToken::new())), store)
    }

    /// Writes down a task as it is when its call has ended with a text of this size.
    async fn end(tasks: &Tasks, id: &str, principal: &Principal, created_ms: i64, bytes: usize) {
        let result = json!({ "text": "x".repeat(bytes) }).as_object().cloned().unwrap();
        let state = tasks.store_result(id, &Holder::of(principal), State::Completed(result)).await;
        let kept =
            Kept { principal: Arc::clone(&principal.id), tool: "t".into(), created_ms, updated_ms: created_ms, state };
        tasks.write(id, &kept).await.unwrap();
    }

    async fn text(tasks: &Tasks, id: &str, principal: &Principal) -> Result<usize, String> {
        match tasks.get(id, principal).await.unwrap().payload {
            TaskPayload::Completed { result } => Ok(result["text"].as_str().unwrap().len()),
            TaskPayload::Failed { error } => Err(error["message"].as_str().unwrap().to_owned()),
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn results_share_a_budget_and_one_that_finds_no_room_fails_its_task() {
        let dir = tempfile::tempdir().unwrap();
        let now = 400 * DAY_MS;
        let (greedy, modest) = (Principal::new("g", "g", Role::Agent), Principal::new("m", "m", Role::Agent));
        let (first, store) = tasks(dir.path(), now, 1_000_000);
        for number in 0..20 {
            end(&first, &format!("g{number}"), &greedy, now, 70_000).await;
        }
        let kept = first.budget().used();
        assert!((700_000..750_000).contains(&kept), "{kept}: above three quarters it gets no more");
        assert_eq!(text(&first, "g9", &greedy).await, Ok(70_000));
        let refused = text(&first, "g10", &greedy).await.unwrap_err();
        assert!(
            refused.contains("its result cannot be kept") && refused.contains("mcp.task_result_bytes"),
            "{refused}"
        );
        end(&first, "m0", &modest, now, 70_000).await;
        assert_eq!(text(&first, "m0", &modest).await, Ok(70_000), "another principal has its share");
        let used = first.budget().used();
        drop(first);
        store.shutdown().await.unwrap();

        // The next run counts what is there, and gives it back with the tasks.
        let (second, store) = tasks(dir.path(), now, 1_000_000);
        second.sweep().await.unwrap();
        assert_eq!((second.budget().used(), second.budget().held_by(&Holder::of(&greedy))), (used, kept));
        drop(second);
        store.shutdown().await.unwrap();
        let (third, store) = tasks(dir.path(), now + 2 * DAY_MS, 1_000_000);
        // One round deletes ten for their age.
        for _ in 0..3 {
            third.sweep().await.unwrap();
        }
        assert_eq!(third.budget().used(), 0);
        assert_eq!((store.sizes(BUCKET).await.unwrap(), store.sizes(RESULTS).await.unwrap()), (vec![], vec![]));
    }

    /// Records that count the bytes that are read of them.
    struct Counted(Store, AtomicUsize);

    impl Records for Counted {
        fn get(&self, bucket: &str, key: &str) -> sa_core::store::StoreFuture<'_, Option<sa_core::store::Record>> {
            let read = self.0.get(bucket, key);
            Box::pin(async move {
                let found = read.await?;
                let bytes = found.as_ref().map_or(0, |record| record.value.len());
                self.1.fetch_max(bytes, Ordering::Relaxed);
                Ok(found)
            })
        }

        fn list(&self, bucket: &str) -> sa_core::store::StoreFuture<'_, Vec<(String, sa_core::store::Record)>> {
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

        fn put(&self, bucket: &str, key: &str, value: Bytes, expect: Expect) -> sa_core::store::StoreFuture<'_, u64> {
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
            let kept = Kept { principal: "p".into(), tool: "t".into(), created_ms: now, updated_ms: now, state };
            before.write(&format!("old{number}"), &kept).await.unwrap();
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
        let most = counted.1.load(Ordering::Relaxed);
        assert!(most < 60_000, "{most} bytes were read at once");
        let used = sweeper.budget().used();
        assert!(used > 1_500_000, "{used}");
        assert_eq!(text(&sweeper, "old3", &owner).await, Ok(50_000));
        assert_eq!(text(&sweeper, "new3", &owner).await, Ok(100_000));
    }

    proptest! {
        /// Whatever is in the store, a task is read as it was written down, or is not there.
        #[test]
        fn a_task_that_was_kept_is_read_or_is_not_there(text in sa_hostile::nearly(json!({
            "principal": "p", "tool": "t", "created_ms": 1_700_000_000_000_i64, "updated_ms": 5, "state": { "completed": { "content": [] } },
        })), ms: i64) {
            if let Ok(mut kept) = serde_json::from_str::<Kept>(&text) {
                kept.updated_ms = ms;
                let again: Kept = serde_json::from_slice(&serde_json::to_vec(&kept).unwrap()).unwrap();
                prop_assert_eq!(format!("{again:?}"), format!("{kept:?}"));
                let task = serde_json::to_value(kept.task("id")).unwrap();
                prop_assert!(task["createdAt"].as_str().is_some_and(|time| time.parse::<Timestamp>().is_ok()), "{task}");
            }
        }
    }
}
