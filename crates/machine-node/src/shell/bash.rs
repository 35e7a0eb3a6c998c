//! `Bash`: runs a command.

use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use sa_node_sdk::{NodeTool, ToolContext, ToolError, ToolResult};
use sa_process::Order;
use serde::Deserialize;
use serde_json::{Number, Value, json};
use tokio::time::{Instant, interval_at, sleep, timeout};

use super::Shell;
use super::arguments::{clamped, whole};
use super::launch::{Input, Plan};
use super::session::Session;

const DEFAULT_TIMEOUT_MS: u64 = 300_000;
const YIELD_MS: (u64, u64) = (10, 120_000);
const DEFAULT_COLUMNS: u64 = 80;
const DEFAULT_ROWS: u64 = 24;
const MAX_SIDE: u64 = 1_000;
/// The maximum length of a program's argument on Linux.
const MAX_COMMAND: usize = 128 * 1024 - 1;

/// The interval of progress reports. Each report restarts a time limit that the caller did not set.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// The time for which output is collected before it is sent.
const GATHER: Duration = Duration::from_millis(50);
/// The time that a cancelled command has to end, and to send its last output.
const FAREWELL: Duration = Duration::from_secs(2);
/// The time limit at a gateway without progress. At other gateways the heartbeat keeps a call
/// alive.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

#[derive(Debug)]
pub(super) struct Bash {
    pub(super) shell: Arc<Shell>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Arguments {
    command: String,
    workdir: Option<String>,
    timeout: Option<Number>,
    background: Option<bool>,
    yield_ms: Option<Number>,
    pty: Option<bool>,
    columns: Option<Number>,
    rows: Option<Number>,
}

#[async_trait::async_trait]
impl NodeTool for Bash {
    async fn call(&self, ctx: ToolContext, args: Value) -> ToolResult {
        let args: Arguments = serde_json::from_value(args)?;
        let background = args.background == Some(true);
        let window = args
            .yield_ms
            .as_ref()
            .map(|ms| Duration::from_millis(clamped(ms, YIELD_MS.0, YIELD_MS.1)));
        let limit = match args.timeout.as_ref().map(|ms| whole("timeout", ms)).transpose()? {
            Some(0) => None,
            given => Some(Duration::from_millis(given.unwrap_or(DEFAULT_TIMEOUT_MS))),
        };
        let (principal, may_continue) = (ctx.principal(), background || window.is_some());
        let mut plan = self.plan(args, may_continue)?;
        if may_continue {
            plan.slot = Some(self.shell.sessions.acquire(principal.as_ref())?);
        }
        plan.owner = principal.map(|principal| principal.id);
        let session = self.shell.start(plan, limit).await?;
        if background {
            return Ok(self.leave(&session));
        }
        let attended = Attended { session: &session, attended: true };
        attended.watch(&ctx, window).await?;
        Ok(match session.end() {
            Some(end) => session.completed(&end),
            None => self.leave(&session),
        })
    }

    fn title(&self) -> Option<String> {
        Some("Run a shell command".to_owned())
    }

    fn description(&self) -> Option<String> {
        Some(
            "Runs a command in the machine's login shell (-lc) and returns its exit code and its output, with stdout and \
             stderr in the order of their arrival. With background it returns at once with a sessionId; with yieldMs it \
             returns a sessionId if the command is still running after that time. The tool Process then shows the output of \
             the command, writes to its stdin and ends it; otherwise stdin is empty. When the command ends, the processes \
             that it left running end too. Only the last 200,000 characters of the output are kept."
                .to_owned(),
        )
    }

    fn input_schema(&self) -> Option<Value> {
        Some(json!({
            "type": "object",
            "required": ["command"],
            "properties": {
                "command": {
                    "type": "string", "minLength": 1,
                    "description": "Shell command to execute. Must not be empty."
                },
                "workdir": {
                    "type": ["string", "null"],
                    "description": "Working directory. Relative paths resolve against the node workspace, which is also the default."
                },
                "timeout": {
                    "type": ["number", "null"], "minimum": 0, "default": DEFAULT_TIMEOUT_MS,
                    "description": "Timeout in milliseconds. When exceeded, the process and all processes that it started receive SIGTERM, then SIGKILL after 250 ms. Also applies in the background. 0: no timeout."
                },
                "background": {
                    "type": ["boolean", "null"], "default": false,
                    "description": "Run in background immediately and return a sessionId."
                },
                "yieldMs": {
                    "type": ["number", "null"],
                    "description": "Wait this many milliseconds, then background the process if still running. Clamped to 10-120000."
                },
                "pty": {
                    "type": ["boolean", "null"], "default": false,
                    "description": "Run the command in a terminal, for programs that behave differently without one."
                },
                "columns": {
                    "type": ["number", "null"], "default": DEFAULT_COLUMNS,
                    "description": "Width of the terminal. Clamped to 1-1000."
                },
                "rows": {
                    "type": ["number", "null"], "default": DEFAULT_ROWS,
                    "description": "Height of the terminal. Clamped to 1-1000."
                }
            }
        }))
    }

    fn output_schema(&self) -> Option<Value> {
        Some(json!({
            "type": "object",
            "required": ["status", "sessionId", "startedAt", "tail", "workdir"],
            "properties": {
                "status": { "enum": ["completed", "failed", "running"], "description": "completed: exit code 0; running: the command continues in the background" },
                "sessionId": { "type": "string" },
                "pid": { "type": "integer", "description": "PID of the shell, while the command runs in the background" },
                "exitCode": { "type": ["integer", "null"], "description": "null if a signal ended the command" },
                "signal": { "type": ["string", "null"], "description": "The signal that ended the command, such as SIGKILL" },
                "timedOut": { "type": "boolean" },
                "startedAt": { "type": "integer", "description": "Unix time in milliseconds" },
                "endedAt": { "type": "integer", "description": "Unix time in milliseconds" },
                "durationMs": { "type": "integer" },
                "output": { "type": "string", "description": "The last 200,000 characters" },
                "tail": { "type": "string", "description": "The last 4,000 characters" },
                "truncated": { "type": "boolean", "description": "Whether the beginning of the output was dropped" },
                "workdir": { "type": "string" }
            }
        }))
    }

    fn annotations(&self) -> Option<Value> {
        Some(
            json!({ "readOnlyHint": false, "destructiveHint": true, "idempotentHint": false, "openWorldHint": true }),
        )
    }

    fn capabilities(&self) -> Vec<String> {
        vec!["shell.exec".to_owned()]
    }

    fn timeout(&self) -> Option<Duration> {
        Some(LONGEST)
    }
}

impl Bash {
    /// Returns the plan of a command, without an owner and a slot.
    fn plan(&self, args: Arguments, writable: bool) -> Result<Plan, ToolError> {
        let wrong = |why: String| Err(ToolError::InvalidArgs(why));
        if args.command.trim().is_empty() {
            return wrong("command must not be empty".to_owned());
        }
        if args.command.contains('\0') {
            return wrong("command must not contain a NUL character".to_owned());
        }
        if args.command.len() > MAX_COMMAND {
            let length = args.command.len();
            return wrong(format!(
                "command has {length} bytes, but at most {MAX_COMMAND} are allowed; write it to a file and run the file"
            ));
        }
        let side = |given: Option<Number>, default| {
            u16::try_from(given.map_or(default, |given| clamped(&given, 1, MAX_SIDE)))
                .unwrap_or(u16::MAX)
        };
        let input = match (args.pty, writable) {
            (Some(true), _) => Input::Terminal {
                columns: side(args.columns, DEFAULT_COLUMNS),
                rows: side(args.rows, DEFAULT_ROWS),
            },
            (_, true) => Input::Pipe,
            (_, false) => Input::Empty,
        };
        let workdir = self.workdir(args.workdir.as_deref())?;
        Ok(Plan {
            session: uuid::Uuid::new_v4().to_string(),
            owner: None,
            slot: None,
            command: args.command,
            workdir,
            input,
        })
    }

    fn workdir(&self, wanted: Option<&str>) -> Result<PathBuf, ToolError> {
        let Some(wanted) = wanted.filter(|wanted| !wanted.is_empty()) else {
            return Ok(self.shell.workspace.clone());
        };
        crate::home::refuse("workdir", wanted)?;
        let path = std::path::absolute(self.shell.workspace.join(wanted))?;
        let unusable =
            |why: String| format!("the workdir {} cannot be used: {why}", path.display());
        match path.metadata() {
            Ok(found) if found.is_dir() => Ok(path),
            Ok(_) => Err(ToolError::InvalidArgs(unusable("it is not a directory".to_owned()))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Err(ToolError::NotFound(unusable("it does not exist".to_owned())))
            }
            Err(error) => Err(ToolError::Failed(unusable(error.to_string()))),
        }
    }

    /// Moves a command to the background, where `Process` controls it. A command that has already
    /// ended is answered as ended.
    fn leave(&self, session: &Arc<Session>) -> Value {
        let events = &self.shell.events;
        let left = session.to_background(|name, data| {
            self.shell.sessions.insert(session);
            events.send(name, data);
        });
        match session.end() {
            Some(end) if !left => session.completed(&end),
            _ => session.running(),
        }
    }
}

/// A command that a caller waits for. If the caller stops waiting and the command is not in the
/// background, it ends.
struct Attended<'a> {
    session: &'a Session,
    attended: bool,
}

impl Attended<'_> {
    /// Sends output and heartbeats until the command ends or the time window is over.
    async fn watch(mut self, ctx: &ToolContext, window: Option<Duration>) -> Result<(), ToolError> {
        let session = self.session;
        session.live.watch(true);
        let mut streaming = pin!(stream(ctx, session));
        let mut heartbeat = interval_at(Instant::now() + HEARTBEAT, HEARTBEAT);
        let mut over = pin!(async {
            match window {
                Some(window) => sleep(window).await,
                None => std::future::pending().await,
            }
        });
        let mut streams = true;
        loop {
            tokio::select! {
                () = session.ended.cancelled() => {
                    // Sending the last output may take a moment, but not more: the result contains
                    // all of it.
                    if streams {
                        let _ = timeout(FAREWELL, &mut streaming).await;
                    }
                    break;
                }
                () = ctx.cancel.cancelled() => {
                    session.order(Order::Terminate);
                    let _ = timeout(FAREWELL, session.ended.cancelled()).await;
                    return Err(ToolError::Cancelled("the command was ended because the call was cancelled".to_owned()));
                }
                () = &mut over => break,
                _ = heartbeat.tick() => {
                    let seconds = session.elapsed().as_secs();
                    ctx.progress(seconds as f64, None, Some(&format!("running for {seconds} s")));
                }
                () = &mut streaming, if streams => streams = false,
            }
        }
        self.attended = false;
        session.live.watch(false);
        Ok(())
    }
}

impl Drop for Attended<'_> {
    fn drop(&mut self) {
        if self.attended {
            self.session.order(Order::Terminate);
        }
    }
}

/// Sends collected output until the command has ended and all output is sent.
async fn stream(ctx: &ToolContext, session: &Session) {
    loop {
        let ended = session.ended.is_cancelled();
        if let Some(text) = session.live.take() {
            if ctx.chunk(Value::String(text)).await.is_err() {
                return;
            }
        } else if ended {
            return;
        } else {
            tokio::select! { () = session.live.news() => {}, () = session.ended.cancelled() => {} }
        }
        if !ended {
            tokio::select! { () = sleep(GATHER) => {}, () = session.ended.cancelled() => {} }
        }
    }
}
