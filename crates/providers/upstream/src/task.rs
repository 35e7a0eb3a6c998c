//! Runs a tool that its server supports only as a task (2025-11-25, `taskSupport: required`).
//! Callers see no difference.
//!
//! `tasks/result` waits for the end of the task, and the server's questions arrive meanwhile, so
//! no polling is needed.

use rmcp::model::{CallToolRequestParams, ClientRequest, CustomRequest, ErrorData, ServerResult};
use rmcp::service::{Peer, RoleClient};
use serde_json::{Value, json};

use crate::connection::{Connection, Failure};
use crate::table::{Asker, Running};

/// How long the server may keep the task, in milliseconds. Without a limit some servers keep it
/// for ever.
const KEEP_MS: u64 = 24 * 60 * 60 * 1_000;

impl Connection {
    /// Starts the task and waits for its result. Dropping the future cancels the task.
    pub(crate) async fn run_task(
        &self,
        params: &CallToolRequestParams,
        asker: Asker,
    ) -> Result<ServerResult, Failure> {
        let running = Running::new(asker);
        let unreadable =
            |error: serde_json::Error| ErrorData::internal_error(error.to_string(), None);
        let mut params =
            serde_json::to_value(params).map_err(unreadable).map_err(Failure::Answered)?;
        params["task"] = json!({ "ttl": KEEP_MS });
        let started = self.once(request("tools/call", params), &running).await?;
        // A server may return the result immediately.
        let ServerResult::CustomResult(handle) = &started else { return Ok(started) };
        let Some(id) = handle.0["task"]["taskId"].as_str() else { return Ok(started) };
        let mut guard = CancelTask { peer: &self.peer, id: Some(id.to_owned()) };
        let result = self.once(request("tasks/result", json!({ "taskId": id })), &running).await;
        guard.id = None;
        result.map_err(|failure| match failure {
            // The server has already received the call.
            Failure::Unsent => Failure::Lost,
            failure => failure,
        })
    }
}

fn request(method: &str, params: Value) -> ClientRequest {
    ClientRequest::CustomRequest(CustomRequest::new(method, Some(params)))
}

/// Cancels the task when the caller's future is dropped.
struct CancelTask<'a> {
    peer: &'a Peer<RoleClient>,
    id: Option<String>,
}

impl Drop for CancelTask<'_> {
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
