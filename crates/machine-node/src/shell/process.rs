//! `Process`: the sessions that `Bash` has left in the background.

use std::sync::Arc;
use std::time::Duration;

use sa_node_sdk::{NodeTool, ToolContext, ToolError, ToolResult};
use serde::Deserialize;
use serde_json::{Number, Value, json};

use super::Shell;
use super::arguments::{clamped, whole};
use super::input::MAX_BYTES;
use super::session::{Order, Session};
use super::sessions::Access;

const DEFAULT_LIMIT: u64 = 200;
/// How long a session that is killed may take to be gone.
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
            let sessions: Vec<Value> =
                self.shell.sessions.visible(&access).iter().map(|session| session.listed()).collect();
            return Ok(json!({ "count": sessions.len(), "sessions": sessions }));
        }
        let Some(id) = args.session_id.as_deref().map(str::trim).filter(|id| !id.is_empty()) else {
            return Err(ToolError::InvalidArgs("sessionId is required for every action but list".to_owned()));
        };
        let session = self.shell.sessions.get(id, &access)?;
        match args.action {
            Action::List | Action::Poll => Ok(session.polled()),
            Action::Log => {
                let offset = args.offset.as_ref().map_or(Ok(0), |offset| whole("offset", offset))?;
                let limit = args.limit.as_ref().map_or(DEFAULT_LIMIT, |limit| clamped(limit, 1, u64::MAX));
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
            "Manages the sessions that you have left in the background with Bash. list: all that run or ended in the last \
             30 minutes, newest first; poll: whether one runs, how it ended, the end of its output; log: lines of its output; write: \
             data for its stdin; submit: the same and Enter; kill: SIGKILL to it and all that it started."
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
            "count": { "type": "integer", "description": "list: how many there are" },
            "log": { "type": "string", "description": "log: the lines" },
            "offset": { "type": "integer", "description": "log: where they begin" },
            "lines": { "type": "integer", "description": "log: how many they are" },
            "totalLines": { "type": "integer", "description": "log: lines of the output that is kept" },
            "droppedLines": { "type": "integer", "description": "log: lines before the first one that is kept, at offset 0" },
            "totalChars": { "type": "integer", "description": "log: characters of the output that is kept" },
            "bytesWritten": { "type": "integer", "description": "write and submit" }
        });
        for (name, schema) in more.as_object().into_iter().flatten() {
            properties[name] = schema.clone();
        }
        Some(json!({ "type": "object", "properties": properties }))
    }

    fn annotations(&self) -> Option<Value> {
        Some(json!({ "readOnlyHint": false, "destructiveHint": true, "idempotentHint": false, "openWorldHint": false }))
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
            "data has {length} bytes, and no more than {MAX_BYTES} are written at once; send it in parts"
        )));
    }
    session.stdin.write(&session.id, data.as_bytes()).await?;
    Ok(json!({ "status": "running", "sessionId": session.id, "running": true, "bytesWritten": data.len() }))
}

fn check_running(session: &Session) -> Result<(), ToolError> {
    match session.end() {
        Some(_) => Err(ToolError::Failed(format!("session {} has already exited", session.id))),
        None => Ok(()),
    }
}
