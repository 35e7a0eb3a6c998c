//! `Bash`: runs a command.

use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use sa_node_sdk::{NodeTool, ToolContext, ToolError, ToolResult};
use serde::Deserialize;
use serde_json::{Number, Value, json};
use tokio::time::{Instant, interval_at, sleep, timeout};

use super::Shell;
use super::arguments::{clamped, whole};
use super::launch::{Input, Plan};
use super::session::{Order, Session};

const DEFAULT_TIMEOUT_MS: u64 = 300_000;
const YIELD_MS: (u64, u64) = (10, 120_000);
const DEFAULT_COLUMNS: u64 = 80;
const DEFAULT_ROWS: u64 = 24;
const MAX_SIDE: u64 = 1_000;
/// What Linux takes as one argument of a program.
const MAX_COMMAND: usize = 128 * 1024 - 1;

/// How often a running command reports progress. Each report restarts a time limit that the caller did not set.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// How long output is gathered before it is sent.
const GATHER: Duration = Duration::from_millis(50);
/// How long a command that was cancelled may take to be gone, and the last of its output to be sent.
const FAREWELL: Duration = Duration::from_secs(2);
/// The heartbeat keeps a call alive at a gateway that takes progress. At one that does not, this is all it has.
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
        let window = args.yield_ms.as_ref().map(|ms| Duration::from_millis(clamped(ms, YIELD_MS.0, YIELD_MS.1)));
        let limit = match args.timeout.as_ref().map(|ms| whole("timeout", ms)).transpose()? {
            Some(0) => None,
            given => Some(Duration::from_millis(given.unwrap_or(DEFAULT_TIMEOUT_MS))),
        };
        let owner = ctx.principal().map(|principal| principal.id);
        let plan = self.plan(args, owner, background || window.is_some())?;
        if background || window.is_some() {
            self.shell.sessions.check_room()?;
        }
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
            "Runs a command in the machine's login shell (-lc) and returns its exit code and output, stdout and stderr in \
             the order of their arrival. It gets an empty stdin. With background it returns at once with a sessionId, with \
             yieldMs after that time if the command still runs; the tool Process then shows its output, writes to its stdin \
             and ends it. What a command leaves running ends with it, unless it is the background command itself. Of the \
             output the last 200,000 characters are kept."
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
                    "description": "Timeout in milliseconds. When exceeded, the process and all it started receive SIGTERM, then SIGKILL after 250 ms. It counts in the background, too. 0: none."
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
                    "description": "Give the command a terminal, for programs that behave differently without one."
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
                "status": { "enum": ["completed", "failed", "running"], "description": "completed: exit code 0; running: it goes on in the background" },
                "sessionId": { "type": "string" },
                "pid": { "type": "integer", "description": "Of the shell, while it runs in the background" },
                "exitCode": { "type": ["integer", "null"], "description": "null when a signal ended it" },
                "signal": { "type": ["string", "null"], "description": "The signal that ended it, such as SIGKILL" },
                "timedOut": { "type": "boolean" },
                "startedAt": { "type": "integer", "description": "Milliseconds since 1970" },
                "endedAt": { "type": "integer", "description": "Milliseconds since 1970" },
                "durationMs": { "type": "integer" },
                "output": { "type": "string", "description": "The last 200,000 characters" },
                "tail": { "type": "string", "description": "The last 4,000 characters" },
                "truncated": { "type": "boolean", "description": "Whether there was more output than was kept" },
                "workdir": { "type": "string" }
            }
        }))
    }

    fn annotations(&self) -> Option<Value> {
        Some(json!({ "readOnlyHint": false, "destructiveHint": true, "idempotentHint": false, "openWorldHint": true }))
    }

    fn capabilities(&self) -> Vec<String> {
        vec!["shell.exec".to_owned()]
    }

    fn timeout(&self) -> Option<Duration> {
        Some(LONGEST)
    }
}

impl Bash {
    fn plan(&self, args: Arguments, owner: Option<String>, writable: bool) -> Result<Plan, ToolError> {
        let wrong = |why: String| Err(ToolError::InvalidArgs(why));
        if args.command.trim().is_empty() {
            return wrong("command must not be empty".to_owned());
        }
        if args.command.contains('\0') {
            return wrong("command must not hold a NUL character".to_owned());
        }
        if args.command.len() > MAX_COMMAND {
            let length = args.command.len();
            return wrong(format!(
                "command has {length} bytes, and no more than {MAX_COMMAND} fit; write it to a file and run that"
            ));
        }
        let side = |given: Option<Number>, default| {
            u16::try_from(given.map_or(default, |given| clamped(&given, 1, MAX_SIDE))).unwrap_or(u16::MAX)
        };
        let input = match (args.pty, writable) {
            (Some(true), _) => {
                Input::Terminal { columns: side(args.columns, DEFAULT_COLUMNS), rows: side(args.rows, DEFAULT_ROWS) }
            }
            (_, true) => Input::Pipe,
            (_, false) => Input::Empty,
        };
        let workdir = self.workdir(args.workdir.as_deref())?;
        Ok(Plan { session: uuid::Uuid::new_v4().to_string(), owner, command: args.command, workdir, input })
    }

    fn workdir(&self, wanted: Option<&str>) -> Result<PathBuf, ToolError> {
        let Some(wanted) = wanted.filter(|wanted| !wanted.is_empty()) else { return Ok(self.shell.workspace.clone()) };
        crate::home::refuse("workdir", wanted)?;
        let path = std::path::absolute(self.shell.workspace.join(wanted))?;
        let unusable = |why: String| format!("the workdir {} cannot be used: {why}", path.display());
        match path.metadata() {
            Ok(found) if found.is_dir() => Ok(path),
            Ok(_) => Err(ToolError::InvalidArgs(unusable("it is not a directory".to_owned()))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Err(ToolError::NotFound(unusable("there is no such directory".to_owned())))
            }
            Err(error) => Err(ToolError::Failed(unusable(error.to_string()))),
        }
    }

    /// Leaves a command to itself and to `Process`; one that has ended meanwhile is answered as such.
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

/// A command that somebody waits for. When nobody does any more and it was not left to itself, it ends.
struct Attended<'a> {
    session: &'a Session,
    attended: bool,
}

impl Attended<'_> {
    /// Sends output and signs of life until the command ends or the window is over.
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
                    // What it wrote last is worth a moment, and no more: the result has it all.
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

/// Sends output as it comes, gathered, until the command has ended and all of it is sent.
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
