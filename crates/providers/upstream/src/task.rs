//! Runs a tool that its server supports only as a task (2025-11-25, `taskSupport: required`).
//! Callers see no difference.
//!
//! `tasks/result` waits for the end of the task, and the server's questions arrive meanwhile, so
//! no polling is needed.

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{CallToolRequestParams, ClientRequest, CustomRequest, ErrorData, ServerResult};
use rmcp::service::{Peer, RoleClient};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::connection::{Connection, Failure};
use crate::table::Running;

/// How long the server may keep the task, in milliseconds. Without a limit some servers keep it
/// for ever.
const KEEP_MS: u64 = 24 * 60 * 60 * 1_000;

/// How long to wait for the handle of a task whose caller is gone.
const LATE_HANDLE: Duration = Duration::from_secs(30);

/// The server's answer to the call: a running task, or the result.
enum Started {
    Running(Task),
    Ended(Box<ServerResult>),
}

impl Connection {
    /// Starts the task and waits for its result. Dropping the future cancels the task.
    pub(crate) async fn run_task(
        self: &Arc<Self>,
        params: &CallToolRequestParams,
        running: &Arc<Running>,
    ) -> Result<ServerResult, Failure> {
        let unreadable =
            |error: serde_json::Error| ErrorData::internal_error(error.to_string(), None);
        let mut params =
            serde_json::to_value(params).map_err(unreadable).map_err(Failure::Answered)?;
        params["task"] = json!({ "ttl": KEEP_MS });
        let (caller, started) = oneshot::channel();
        tokio::spawn(Arc::clone(self).start_task(params, Arc::clone(running), caller));
        let mut task = match started.await.map_err(|_| Failure::Lost)?? {
            Started::Running(task) => task,
            Started::Ended(result) => return Ok(*result),
        };
        let result =
            self.once(request("tasks/result", json!({ "taskId": task.id })), running).await;
        task.id = None;
        result.map_err(|failure| match failure {
            // The server has already received the call.
            Failure::Unsent => Failure::Lost,
            failure => failure,
        })
    }

    /// Sends the call. It continues without its caller, because only the handle in the answer can
    /// cancel the task. The protocol forbids to cancel the request itself.
    async fn start_task(
        self: Arc<Self>,
        params: Value,
        running: Arc<Running>,
        mut caller: oneshot::Sender<Result<Started, Failure>>,
    ) {
        let late = async {
            caller.closed().await;
            tokio::time::sleep(LATE_HANDLE).await;
        };
        let answer = tokio::select! {
            answer = self.once(request("tools/call", params), &running) => answer,
            () = late => return,
        };
        // If the caller is gone, the task is dropped with the message.
        let _ = caller.send(answer.map(|result| match task_id(&result) {
            Some(id) => Started::Running(Task { peer: self.peer.clone(), id: Some(id) }),
            // A server may return the result immediately.
            None => Started::Ended(Box::new(result)),
        }));
    }
}

fn request(method: &str, params: Value) -> ClientRequest {
    ClientRequest::CustomRequest(CustomRequest::new(method, Some(params)))
}

fn task_id(answer: &ServerResult) -> Option<String> {
    let ServerResult::CustomResult(handle) = answer else { return None };
    handle.0["task"]["taskId"].as_str().map(str::to_owned)
}

/// A running task. Dropping it cancels the task, until it has ended.
struct Task {
    peer: Peer<RoleClient>,
    id: Option<String>,
}

impl Drop for Task {
    fn drop(&mut self) {
        let (Some(id), Ok(runtime)) = (self.id.take(), tokio::runtime::Handle::try_current())
        else {
            return;
        };
        let peer = self.peer.clone();
        runtime.spawn(async move {
            peer.send_request(request("tasks/cancel", json!({ "taskId": id }))).await
        });
    }
}
