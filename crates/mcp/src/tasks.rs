//! Calls that outlive their request, as tasks (the extension `io.modelcontextprotocol/tasks`).
//!
//! A call that takes long, of a client that knows tasks, is answered with a handle and goes on by itself. The handle is
//! written down before the client gets it, and so is how the call ends before anybody is told: it outlives the client's
//! connection and the gateway. What was under way when the gateway stopped is a failed task that says so.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use rmcp::ErrorData;
use rmcp::model::{
    CreateTaskResult, DetailedTask, ErrorCode, InputResponses, JsonObject, Task, TaskPayload, TaskStatus,
};
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

/// Where tasks are kept.
const BUCKET: &str = "mcp_tasks";
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
    closing: CancellationToken,
}

/// A task under way.
struct Live {
    kept: Kept,
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
    Completed(JsonObject),
    /// It failed as a request does, by an error of the protocol.
    Failed(JsonObject),
    Cancelled,
}

impl Tasks {
    pub(crate) fn new(records: Arc<dyn Records>, trimmer: Arc<Trimmer>, closing: CancellationToken) -> Self {
        Self { records, trimmer, running: Mutex::default(), closing }
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
        let live = Live { kept, cancelled: CancellationToken::new(), asked: Mutex::default() };
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
        let kept = Kept { state, updated_ms: clock::now_ms(), ..live.kept.clone() };
        if let Err(error) = self.write(&id, &kept).await {
            tracing::error!(task = %id, %error, "how an MCP task ended cannot be written down");
        }
        self.running().remove(&id);
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
        let payload = match &kept.state {
            State::Completed(result) => TaskPayload::Completed { result: result.clone() },
            State::Failed(error) => TaskPayload::Failed { error: error.clone() },
            State::Cancelled => TaskPayload::Cancelled,
            State::Working => TaskPayload::Failed { error: interrupted(&kept.tool) },
        };
        Ok(DetailedTask::new(kept.task(id), payload))
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

    /// Deletes tasks whose time is over, and the oldest where there are too many.
    pub(crate) async fn sweep(&self) -> Result<(), StoreError> {
        let mut all = self.records.list(BUCKET).await?;
        let since_ms = self.trimmer.since_ms(TTL);
        // Ids begin with the time at which they were made, so that the oldest come first.
        let too_many = all.len().saturating_sub(MOST);
        let at_most = round_limit(all.len() as u64);
        all.retain(|(id, _)| !self.running().contains_key(id));
        let mut deleted = Trimmed::default();
        for (number, (id, record)) in all.into_iter().enumerate() {
            let kept: Option<Kept> = serde_json::from_slice(&record.value).ok();
            let aged = |kept: Kept| since_ms.is_some_and(|since_ms| kept.created_ms < since_ms);
            if number < too_many {
                deleted.over_limit += 1;
            } else if kept.is_none_or(aged) && deleted.aged < at_most {
                deleted.aged += 1;
            } else {
                continue;
            }
            self.records.delete(BUCKET, &id).await?;
        }
        self.trimmer.report("mcp_task", deleted);
        Ok(())
    }

    async fn write(&self, id: &str, kept: &Kept) -> Result<(), StoreError> {
        let value = serde_json::to_vec(kept).unwrap_or_default().into();
        self.records.put(BUCKET, id, value, Expect::Anything).await.map(drop)
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
    use proptest::prelude::*;

    use super::*;

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
