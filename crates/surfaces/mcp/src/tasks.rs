//! Calls that outlive their request, as tasks (the extension `io.modelcontextprotocol/tasks`).
//!
//! A long call of a client that supports tasks is answered with a handle and continues. The handle
//! is stored before the client receives it, and the outcome is stored before any client can read
//! it. So a task outlives the client's connection and the gateway. A task that was running when the
//! gateway stopped has failed, and its error reports that.
//!
//! Results have their own bucket because they may be large: a scan of all tasks then reads only
//! small records. A result is written before its task is marked as ended, and deleted before its
//! task. There is therefore no result without a task.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use parking_lot::Mutex;
use rmcp::ErrorData;
use rmcp::model::{
    CreateTaskResult, DetailedTask, ErrorCode, InputResponses, JsonObject, Task, TaskPayload,
    TaskStatus,
};
use sa_core::retention::round_limit;
use sa_core::router::Finished;
use sa_core::store::{Expect, Records, StoreError, Trimmed};
use sa_core::{CallError, CallErrorKind, Principal, Trimmer, clock};
use sa_limits::budget::{Holder, Limit, Permit, SharedBudget};
use sa_limits::eviction::to_evict;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::call::{CallStep, Running};
use crate::convert;
use crate::questions::{self, PendingQuestion};
use crate::service::Options;

/// The buckets of tasks and of their results, by the same ids.
const BUCKET: &str = "mcp_tasks";
const RESULTS: &str = "mcp_task_results";
/// The maximum size of a task without its result. Earlier versions stored results in the task.
const TASK_BYTES: usize = 8 * 1024;
/// The maximum number of running tasks, and of all stored tasks.
const MAX_RUNNING: usize = 1_000;
const MAX: usize = 10_000;
/// The time for which a task is stored.
const TTL: Duration = Duration::from_secs(24 * 3_600);
/// The interval at which a client should poll.
const POLL: Duration = Duration::from_secs(2);

pub(crate) struct Tasks {
    records: Arc<dyn Records>,
    trimmer: Arc<Trimmer>,
    running: Mutex<HashMap<String, Arc<Live>>>,
    budget: Arc<SharedBudget>,
    /// The shares of the results in the budget, by the ids of their tasks.
    stored: Mutex<HashMap<String, Permit>>,
    closing: CancellationToken,
}

/// A running task.
struct Live {
    record: Record,
    /// The holder to which the result's size is charged.
    holder: Holder,
    cancelled: CancellationToken,
    pending: Mutex<BTreeMap<String, PendingQuestion>>,
}

/// The stored record of a task.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Record {
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
    /// The call failed like a request, with a protocol error.
    Failed(JsonObject),
    Cancelled,
}

impl Tasks {
    pub(crate) fn new(
        records: Arc<dyn Records>,
        options: &Options,
        closing: CancellationToken,
    ) -> Self {
        let budget = SharedBudget::new(Limit {
            name: "task_results",
            what: "bytes of results of MCP tasks",
            key: "mcp.task_result_bytes",
            remedy: "request less data at once, or wait until older results are deleted (after one day)",
            total: options.task_result_bytes,
        });
        let trimmer = Arc::clone(&options.trimmer);
        Self {
            records,
            trimmer,
            running: Mutex::default(),
            budget,
            stored: Mutex::default(),
            closing,
        }
    }

    /// Returns the budget of results.
    pub(crate) fn budget(&self) -> &Arc<SharedBudget> {
        &self.budget
    }

    /// Returns whether another task may run; otherwise a call stays a call.
    pub(crate) fn has_capacity(&self) -> bool {
        self.running().len() < MAX_RUNNING
    }

    /// Converts a call into a task. `count` is the number of its earlier questions.
    pub(crate) async fn adopt(
        self: &Arc<Self>,
        principal: &Principal,
        tool: &str,
        running: Running,
        count: usize,
    ) -> Result<CreateTaskResult, CallError> {
        let id = Uuid::now_v7().to_string();
        let now = clock::now_ms();
        let record = Record {
            principal: Arc::clone(&principal.id),
            tool: tool.to_owned(),
            created_ms: now,
            updated_ms: now,
            state: State::Working,
        };
        // The call continues while the handle is being stored.
        let running = running.detach();
        self.write(&id, &record).await.map_err(|error| {
            CallError::new(CallErrorKind::Failed, format!("the task cannot be stored: {error}"))
        })?;
        let task = record.task(&id);
        let live = Live {
            record,
            holder: principal.holder(),
            cancelled: CancellationToken::new(),
            pending: Mutex::default(),
        };
        let live = Arc::new(live);
        self.running().insert(id.clone(), Arc::clone(&live));
        tokio::spawn(Arc::clone(self).follow(id, live, running, count));
        Ok(CreateTaskResult::new(task))
    }

    async fn follow(
        self: Arc<Self>,
        id: String,
        live: Arc<Live>,
        mut running: Running,
        mut count: usize,
    ) {
        let state = loop {
            tokio::select! {
                next_step = running.next_step_detached() => match next_step {
                    CallStep::Asks(pending) => live.pending().extend(questions::name(pending, &mut count)),
                    CallStep::Ended(finished) => break finished.render(move |finished| completed(&running, finished)).await,
                    CallStep::Cancelled => break State::Cancelled,
                },
                // Dropping the call cancels it at the provider.
                () = live.cancelled.cancelled() => break State::Cancelled,
                // The record still has the state "working", which is correct.
                () = self.closing.cancelled() => return,
            }
        };
        let state = self.store_result(&id, &live.holder, state).await;
        let record = Record { state, updated_ms: clock::now_ms(), ..live.record.clone() };
        if let Err(error) = self.write(&id, &record).await {
            tracing::error!(task = %id, %error, "cannot store the outcome of an MCP task");
        }
        self.running().remove(&id);
    }

    /// Stores a result if the budget allows it. Returns the state for the task's record.
    async fn store_result(&self, id: &str, holder: &Holder, state: State) -> State {
        if !matches!(state, State::Completed(_) | State::Failed(_)) {
            return state;
        }
        let value = Bytes::from(serde_json::to_vec(&state).unwrap_or_default());
        drop(state);
        let permit = match self.budget.acquire(holder, value.len()) {
            Ok(permit) => permit,
            Err(refused) => {
                return State::Failed(lost(&format!("{}; {}", refused.message, refused.hint)));
            }
        };
        match self.records.put(RESULTS, id, value, Expect::Anything).await {
            Ok(_) => {
                self.stored().insert(id.to_owned(), permit);
                State::Ended
            }
            Err(error) => State::Failed(lost(&error.to_string())),
        }
    }

    /// Returns the state of a task.
    pub(crate) async fn get(
        &self,
        id: &str,
        principal: &Principal,
    ) -> Result<DetailedTask, ErrorData> {
        let running = self.running().get(id).cloned();
        if let Some(live) = running {
            live.of(principal)?;
            let requests = questions::requests(&live.pending());
            let payload = if requests.is_empty() {
                TaskPayload::Working
            } else {
                TaskPayload::InputRequired { input_requests: requests }
            };
            return Ok(DetailedTask::new(live.record.task(id), payload));
        }
        let record = self.records.get(BUCKET, id).await.map_err(unavailable)?;
        let record: Option<Record> =
            record.and_then(|record| serde_json::from_slice(&record.value).ok());
        let record =
            record.filter(|record| record.principal == principal.id).ok_or_else(unknown)?;
        let task = record.task(id);
        let state = match record.state {
            // A gateway that was killed may have stored the result, but not yet the end of the
            // task.
            State::Ended | State::Working => self.result(id).await.map_err(unavailable)?,
            state => Some(state),
        };
        let payload = match state {
            Some(State::Completed(result)) => TaskPayload::Completed { result },
            Some(State::Failed(error)) => TaskPayload::Failed { error },
            Some(State::Cancelled) => TaskPayload::Cancelled,
            Some(State::Ended | State::Working) | None => {
                TaskPayload::Failed { error: interrupted(&record.tool) }
            }
        };
        Ok(DetailedTask::new(task, payload))
    }

    /// Forwards the client's answers to the questions of a task.
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
                questions::answer(&mut live.pending(), &mut answers);
                Ok(())
            }
            // A task that has ended ignores answers, and a missing task is an error.
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

    /// Deletes expired tasks. If there are too many, deletes tasks of the principal with the most.
    /// Charges the results of an earlier run. It reads no results, because all of them together may
    /// exceed the memory.
    pub(crate) async fn sweep(&self) -> Result<(), StoreError> {
        self.sweep_to(MAX).await
    }

    async fn sweep_to(&self, max: usize) -> Result<(), StoreError> {
        self.move_results().await?;
        let sizes: HashMap<_, _> = self.records.sizes(RESULTS).await?.into_iter().collect();
        let all = self.records.list(BUCKET).await?;
        let since_ms = self.trimmer.since_ms(TTL);
        let (count, at_most) = (all.len(), round_limit(all.len() as u64));
        // Ids begin with their creation time, so that the oldest come first.
        let ended: Vec<(String, Option<Record>)> = all
            .into_iter()
            .filter(|(id, _)| !self.running().contains_key(id))
            .map(|(id, record)| (id, serde_json::from_slice(&record.value).ok()))
            .collect();
        let owner =
            |record: &Option<Record>| record.as_ref().map(|record| Arc::clone(&record.principal));
        let owners: Vec<_> =
            ended.iter().map(|(_, record)| owner(record).unwrap_or_default()).collect();
        let running = count - ended.len();
        let evicted: HashSet<usize> =
            to_evict(owners.iter().map(|owner| (&**owner, 1)), max.saturating_sub(running))
                .into_iter()
                .collect();
        let mut deleted = Trimmed::default();
        for (position, (id, record)) in ended.into_iter().enumerate() {
            let aged =
                |record: &Record| since_ms.is_some_and(|since_ms| record.created_ms < since_ms);
            if evicted.contains(&position) {
                deleted.over_limit += 1;
            } else if record.as_ref().is_none_or(aged) && deleted.aged < at_most {
                deleted.aged += 1;
            } else {
                if let (Some(size), Some(record)) = (sizes.get(&id), record) {
                    let charge = || self.budget.charge(&Holder::named(record.principal), *size);
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

    /// Moves results out of the tasks of earlier versions, one at a time.
    async fn move_results(&self) -> Result<(), StoreError> {
        let large =
            self.records.sizes(BUCKET).await?.into_iter().filter(|(_, size)| *size > TASK_BYTES);
        for (id, _) in large {
            let Some(record) = self.records.get(BUCKET, &id).await? else { continue };
            let Ok(mut record) = serde_json::from_slice::<Record>(&record.value) else { continue };
            let value = serde_json::to_vec(&record.state).unwrap_or_default().into();
            self.records.put(RESULTS, &id, value, Expect::Anything).await?;
            record.state = State::Ended;
            self.write(&id, &record).await?;
        }
        Ok(())
    }

    async fn result(&self, id: &str) -> Result<Option<State>, StoreError> {
        let result = self.records.get(RESULTS, id).await?;
        Ok(result.and_then(|record| serde_json::from_slice(&record.value).ok()))
    }

    async fn write(&self, id: &str, record: &Record) -> Result<(), StoreError> {
        let value = serde_json::to_vec(record).unwrap_or_default().into();
        self.records.put(BUCKET, id, value, Expect::Anything).await.map(drop)
    }

    fn stored(&self) -> parking_lot::MutexGuard<'_, HashMap<String, Permit>> {
        self.stored.lock()
    }

    fn running(&self) -> parking_lot::MutexGuard<'_, HashMap<String, Arc<Live>>> {
        self.running.lock()
    }
}

impl Live {
    /// Returns an error if the task belongs to another principal: for that one it does not exist.
    fn of(&self, principal: &Principal) -> Result<(), ErrorData> {
        if self.record.principal == principal.id { Ok(()) } else { Err(unknown()) }
    }

    fn pending(&self) -> parking_lot::MutexGuard<'_, BTreeMap<String, PendingQuestion>> {
        self.pending.lock()
    }
}

impl Record {
    fn task(&self, id: &str) -> Task {
        let time = |ms| Timestamp::from_millisecond(ms).unwrap_or_default().to_string();
        Task::new(id, TaskStatus::Working, time(self.created_ms), time(self.updated_ms))
            .with_ttl_ms(TTL.as_millis() as u64)
            .with_poll_interval_ms(POLL.as_millis() as u64)
    }
}

fn completed(running: &Running, finished: &Finished) -> State {
    let error = convert::protocol_error(&finished.outcome)
        .and_then(|error| serde_json::to_value(error).ok());
    if let Some(Value::Object(error)) = error {
        return State::Failed(error);
    }
    match serde_json::to_value(running.result(finished)) {
        Ok(Value::Object(result)) => State::Completed(result),
        _ => State::Cancelled,
    }
}

/// Returns the error for a result that could not be stored. The call has had its effect, so it
/// should not simply be repeated.
fn lost(why: &str) -> JsonObject {
    let message = format!("the call ended, but its result cannot be stored: {why}");
    let error = json!({ "code": ErrorCode::INTERNAL_ERROR.0, "message": message });
    error.as_object().cloned().unwrap_or_default()
}

fn interrupted(tool: &str) -> JsonObject {
    let message = format!("the gateway restarted while {tool} ran; it may have had an effect");
    let error = json!({ "code": ErrorCode::INTERNAL_ERROR.0, "message": message });
    error.as_object().cloned().unwrap_or_default()
}

fn unknown() -> ErrorData {
    ErrorData::invalid_params("the task does not exist", None)
}

fn unavailable(error: StoreError) -> ErrorData {
    ErrorData::internal_error(format!("the task cannot be read: {error}"), None)
}

#[cfg(test)]
mod tests;
