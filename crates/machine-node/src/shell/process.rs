//! `Process`: the background sessions of `Bash`.

use std::sync::Arc;
use std::time::Duration;

use sa_node_sdk::{NodeTool, ToolContext, ToolError, ToolResult};
use sa_process::Order;
use serde::Deserialize;
use serde_json::{Number, Value, json};

use super::Shell;
use super::arguments::{clamped, whole};
use super::input::MAX_BYTES;
use super::session::Session;
use super::sessions::Access;

const DEFAULT_LIMIT: u64 = 200;
/// The time that a killed session has to end.
const FAREWELL: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Process {
    pub(super) shell: Arc<Shell>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Arguments {
    action: Action,
    session_id: Option<String>,
    data: Option<String>,
    offset: Option<Number>,
    limit: Option<Number>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Action {
    List,
    Poll,
    Log,
    Write,
    Submit,
    Kill,
}

#[async_trait::async_trait]
impl NodeTool for Process {
    async fn call(&self, ctx: ToolContext, args: Value) -> ToolResult {
        let args: Arguments = serde_json::from_value(args)?;
        let access = Access::of(&ctx);
        if args.action == Action::List {
            let sessions: Vec<Value> = self
                .shell
                .sessions
                .visible(&access)
                .iter()
                .map(|session| session.listed())
                .collect();
            return Ok(json!({ "count": sessions.len(), "sessions": sessions }));
        }
        let Some(id) = args.session_id.as_deref().map(str::trim).filter(|id| !id.is_empty()) else {
            return Err(ToolError::InvalidArgs(
                "sessionId is required for all actions except list".to_owned(),
            ));
        };
        let session = self.shell.sessions.get(id, &access)?;
        match args.action {
            Action::List | Action::Poll => Ok(session.polled()),
            Action::Log => {
                let offset =
                    args.offset.as_ref().map_or(Ok(0), |offset| whole("offset", offset))?;
                let limit =
                    args.limit.as_ref().map_or(DEFAULT_LIMIT, |limit| clamped(limit, 1, u64::MAX));
                let size = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
                Ok(session.logged(size(offset), size(limit)))
            }
            Action::Write => write(&session, args.data.unwrap_or_default()).await,
            Action::Submit => {
                let mut data = args.data.unwrap_or_default();
                data.push(session.stdin.enter);
                write(&session, data).await
            }
            Action::Kill => {
                check_running(&session)?;
                session.order(Order::Kill);
                let _ = tokio::time::timeout(FAREWELL, session.ended.cancelled()).await;
                Ok(session.polled())
            }
        }
    }

    fn title(&self) -> Option<String> {
        Some("Manage background commands".to_owned())
    }

    fn description(&self) -> Option<String> {
        Some(
            "Manages your background sessions, which are commands that Bash left running. list: show all sessions that are \
             running or ended in the last 30 minutes, newest first; poll: show whether a session is running, how it ended, and \
             the end of its output; log: show lines of its output; write: write data to its stdin; submit: write data and press \
             Enter; kill: send SIGKILL to the command and to all processes that it started."
                .to_owned(),
        )
    }

    fn input_schema(&self) -> Option<Value> {
        Some(json!({
            "type": "object",
            "required": ["action"],
            "properties": {
                "action": {
                    "type": "string", "enum": ["list", "poll", "log", "write", "submit", "kill"],
                    "description": "Action to perform."
                },
                "sessionId": {
                    "type": ["string", "null"],
                    "description": "Session ID. Required for all actions except list."
                },
                "data": {
                    "type": ["string", "null"], "default": "",
                    "description": "Data to send for write and submit."
                },
                "offset": {
                    "type": ["number", "null"], "minimum": 0, "default": 0,
                    "description": "Log line offset for log."
                },
                "limit": {
                    "type": ["number", "null"], "default": DEFAULT_LIMIT,
                    "description": "Maximum log lines for log. Minimum 1."
                }
            }
        }))
    }

    fn output_schema(&self) -> Option<Value> {
        let session = json!({
            "sessionId": { "type": "string" },
            "status": { "enum": ["completed", "failed", "running"] },
            "pid": { "type": "integer" },
            "running": { "type": "boolean" },
            "exitCode": { "type": ["integer", "null"] },
            "signal": { "type": ["string", "null"] },
            "timedOut": { "type": "boolean" },
            "startedAt": { "type": "integer" },
            "endedAt": { "type": ["integer", "null"] },
            "durationMs": { "type": "integer" },
            "tail": { "type": "string" },
            "truncated": { "type": "boolean" },
            "workdir": { "type": "string" },
            "command": { "type": "string" }
        });
        let mut properties = session.clone();
        let more = json!({
            "sessions": { "type": "array", "items": { "type": "object", "properties": session }, "description": "list: newest first" },
            "count": { "type": "integer", "description": "list: number of sessions" },
            "log": { "type": "string", "description": "log: the lines" },
            "offset": { "type": "integer", "description": "log: offset of the first returned line" },
            "lines": { "type": "integer", "description": "log: number of returned lines" },
            "totalLines": { "type": "integer", "description": "log: number of lines in the kept output" },
            "droppedLines": { "type": "integer", "description": "log: number of dropped lines before the kept output, which starts at offset 0" },
            "totalChars": { "type": "integer", "description": "log: number of characters in the kept output" },
            "bytesWritten": { "type": "integer", "description": "write and submit: number of bytes written" }
        });
        for (name, schema) in more.as_object().into_iter().flatten() {
            properties[name] = schema.clone();
        }
        Some(json!({ "type": "object", "properties": properties }))
    }

    fn annotations(&self) -> Option<Value> {
        Some(
            json!({ "readOnlyHint": false, "destructiveHint": true, "idempotentHint": false, "openWorldHint": false }),
        )
    }

    fn capabilities(&self) -> Vec<String> {
        vec!["shell.exec".to_owned()]
    }
}

async fn write(session: &Session, data: String) -> ToolResult {
    check_running(session)?;
    if data.len() > MAX_BYTES {
        let length = data.len();
        return Err(ToolError::InvalidArgs(format!(
            "data has {length} bytes, but at most {MAX_BYTES} can be written at once; send it in parts"
        )));
    }
    session.stdin.write(&session.id, data.as_bytes()).await?;
    Ok(
        json!({ "status": "running", "sessionId": session.id, "running": true, "bytesWritten": data.len() }),
    )
}

fn check_running(session: &Session) -> Result<(), ToolError> {
    match session.end() {
        Some(_) => Err(ToolError::Failed(format!("session {} has already exited", session.id))),
        None => Ok(()),
    }
}
