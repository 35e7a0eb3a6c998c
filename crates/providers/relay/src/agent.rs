//! Agents that the gateway starts: one command per session, optionally in a sandbox.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sa_core::{CallError, CallErrorKind};
use sa_process::{Order, Pipes, Report, Supervisor};
use sa_sandbox::Policy;
use sa_text::mask;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, BufReader,
};
use tokio::net::unix::pipe::Sender;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};

use crate::Options;
use crate::sandbox::{self, Paths};
use crate::session::{Session, Working};
use crate::sessions::Sessions;

/// The maximum length of an output line in one event. A longer line is split into several events.
const MAX_OUTPUT_LINE: u64 = 64 * 1024;
/// The maximum number of messages queued for an agent that does not read.
const QUEUE: usize = 16;
/// The number of output events after which an agent's events are trimmed to the limits.
const TRIM_EVERY: u64 = 1_024;
/// How long the supervisor of an agent may take to terminate it.
const LAST_TIMEOUT: Duration = Duration::from_secs(10);
/// The time between SIGTERM and SIGKILL for the processes of an agent.
const GRACE: Duration = Duration::from_secs(2);
/// How long to read an agent's output after its supervisor has exited. The agent has exited
/// before, unless the supervisor was killed.
const OUTPUT_TIMEOUT: Duration = Duration::from_secs(1);
/// The exit code of an agent that could not be started, as in shells.
const NOT_STARTED: i32 = 127;
/// The environment variables that agents inherit from the gateway. Others may hold secrets.
const INHERITED_ENV: [&str; 12] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LC_ALL",
    "TZ",
    "TERM",
    "TMPDIR",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
];
/// `[sessions.agents.NAME]`: the command that runs for a session.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentCommand {
    /// The program and its arguments.
    #[serde(default)]
    pub command: Vec<String>,
    /// Whether to run it in a sandbox, which shows only the system's programs, its directory and
    /// the relay socket.
    #[serde(default)]
    pub sandbox: bool,
    /// Whether a sandbox has network access.
    #[serde(default = "yes")]
    pub network: bool,
    /// How it receives messages.
    #[serde(default)]
    pub input: Input,
    /// Environment variables to set for it.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Additional environment variables that it inherits from the gateway.
    #[serde(default)]
    pub pass_env: Vec<String>,
    /// The working directory. If empty, the session has its own directory, which is deleted with
    /// it.
    #[serde(default)]
    pub dir: String,
    /// Additional paths that it may read in a sandbox, beside the system's programs.
    #[serde(default)]
    pub read: Vec<String>,
}

/// Prints the names of the variables without their values, which may be API keys.
impl fmt::Debug for AgentCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&String> = self.env.keys().collect();
        f.debug_struct("AgentCommand")
            .field("command", &self.command)
            .field("env", &names)
            .finish_non_exhaustive()
    }
}

fn yes() -> bool {
    true
}

impl AgentCommand {
    /// Returns an error if the command is invalid.
    pub fn check(&self) -> Result<(), String> {
        let no_text = |text: &String| text.contains('\0');
        match self.command.first() {
            None => {
                return Err("needs a command: the program and its arguments, such as command = [\"my-agent\"]".into());
            }
            Some(program) if program.trim().is_empty() => {
                return Err("command must begin with a program, such as \"my-agent\"".into());
            }
            _ => {}
        }
        if self.command.iter().any(no_text) {
            return Err("command must not contain a null character".into());
        }
        let wrong = |name: &&String| name.is_empty() || name.contains(['=', '\0']);
        if let Some(name) = self.env.keys().find(wrong) {
            return Err(format!("env: \"{}\" is not a valid variable name", mask::name(name)));
        }
        if let Some(name) = self.pass_env.iter().find(wrong) {
            return Err(format!(
                "pass_env: \"{}\" is not a valid variable name; write the name alone",
                mask::name(name)
            ));
        }
        if self.env.values().any(no_text) {
            return Err("env: a value must not contain a null character".into());
        }
        Ok(())
    }
}

/// How an agent receives messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Input {
    /// Each message as one line of JSON on its stdin, `{"session_id","message"}`: for an agent
    /// that keeps running.
    #[default]
    Json,
    /// One message as plain text, followed by the end of its stdin: for a program that answers
    /// one question and exits.
    Text,
}

/// Sends a message to the session's agent, and starts the agent if it is not running.
pub(crate) async fn deliver(
    sessions: &Arc<Sessions>,
    session: &Arc<Session>,
    text: &str,
) -> Result<(), CallError> {
    // An agent that connects by itself reads the session's events.
    let Some(name) = &session.agent else { return Ok(()) };
    let Some(command) = sessions.options.agents.get(name) else {
        return Err(CallError::new(
            CallErrorKind::Failed,
            format!("the agent \"{name}\" is no longer configured"),
        ));
    };
    let mut process = session.process.lock().await;
    if let Some(lines) = process.as_ref().filter(|lines| !lines.is_closed()) {
        if command.input == Input::Text {
            return Err(CallError::new(
                CallErrorKind::Overloaded,
                "the agent is still working on the previous message",
            )
            .hint("wait for its event agent_exited, or end the session"));
        }
        return lines.try_send(Some(message(session, text))).map_err(|_| {
            CallError::new(
                CallErrorKind::Overloaded,
                format!("the agent has {QUEUE} unread messages"),
            )
        });
    }
    if session.ended.is_cancelled() {
        return Err(CallError::new(CallErrorKind::Conflict, "the session has ended"));
    }
    let what = command.command.first().map_or("nothing", String::as_str);
    let started = start(sessions, session, command).await.map_err(|error| {
        CallError::new(
            CallErrorKind::Failed,
            format!("the agent \"{name}\" cannot be started ({what}): {error}"),
        )
        .hint("check sessions.agents in the gateway's configuration")
    })?;
    let (lines, queue) = mpsc::channel(QUEUE);
    let first = match command.input {
        Input::Json => vec![Some(message(session, text))],
        Input::Text => vec![Some(text.to_owned()), None],
    };
    for line in first {
        let _ = lines.try_send(line);
    }
    *process = Some(lines);
    info!(session = &*session.id, agent = name, "agent started");
    session.events.record_event("agent_started", json!({ "agent": name }));
    let (working, sessions, session) =
        (Working::new(session), Arc::clone(sessions), Arc::clone(session));
    let what = what.to_owned();
    let tasks = sessions.tasks.clone();
    tasks.spawn(async move {
        supervise(&session, &what, started, queue).await;
        // The last of both, the agent's exit or the session's end, removes the directory.
        drop(working);
        if session.ended.is_cancelled() {
            session.remove_files().await;
            sessions.write(&session).await;
        }
    });
    Ok(())
}

fn message(session: &Session, text: &str) -> String {
    format!("{}\n", json!({ "session_id": &*session.id, "message": text }))
}

async fn start(
    sessions: &Sessions,
    session: &Session,
    command: &AgentCommand,
) -> std::io::Result<(Supervisor, Pipes)> {
    let (options, paths) = (&sessions.options, sessions.paths_of(session, command));
    let dir = if let Some(dir) = &paths.dir {
        dir.clone()
    } else {
        std::fs::create_dir_all(session.own_dir())?;
        session.own_dir().canonicalize()?
    };
    let missing = || std::io::Error::other("the command is missing");
    let (first, args) = command.command.split_first().ok_or_else(missing)?;
    let mut agent = sa_process::Command::new(first, args);
    agent.current_dir(&dir).grace(GRACE);
    let usual = INHERITED_ENV.iter().copied().chain(command.pass_env.iter().map(String::as_str));
    agent.envs(usual.filter_map(|name| Some((name, std::env::var_os(name)?))));
    agent.envs(&command.env).env("SWITCHBOARD_SESSION_ID", &*session.id);
    let mut program = options.program.clone();
    if command.sandbox {
        let policy = session_policy(options, session, (command, paths), dir.clone()).await?;
        agent.sandbox(policy);
        agent.env("SWITCHBOARD_RELAY_SOCKET", sandbox::RELAY).env("TMPDIR", "/tmp");
        program = PathBuf::from(sandbox::PROGRAM);
    } else {
        agent.env("SWITCHBOARD_RELAY_SOCKET", &session.socket);
    }
    // The directory of this program is on the PATH, so that one MCP configuration works on all
    // machines.
    let path = command
        .env
        .get("PATH")
        .map(OsString::from)
        .or_else(|| std::env::var_os("PATH"))
        .unwrap_or_default();
    let places = std::env::split_paths(&path).chain(program.parent().map(Path::to_path_buf));
    // An empty entry would mean the agent's working directory.
    let places = places.filter(|place| !place.as_os_str().is_empty());
    agent
        .env("PATH", std::env::join_paths(places).unwrap_or(path))
        .env("SWITCHBOARD_PROGRAM", &program);
    agent.spawn_piped()
}

/// Builds the sandbox policy of an agent that is about to start.
async fn session_policy(
    options: &Options,
    session: &Session,
    (command, paths): (&AgentCommand, Paths),
    dir: PathBuf,
) -> std::io::Result<Policy> {
    let home = command
        .env
        .get("HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(PathBuf::from));
    let secrets: Vec<PathBuf> = [&options.data_dir, &options.socket_dir]
        .into_iter()
        .chain(&options.hidden)
        .cloned()
        .collect();
    let (command, socket, program) =
        (command.clone(), session.socket.clone(), options.program.clone());
    // Both steps read many files, so they run on a blocking thread.
    let search = move || {
        let mut policy = sandbox::policy(&command, &paths, &secrets)?;
        policy.private.extend(home.filter(|home| home.is_absolute()));
        let policy = sandbox::of_session(policy, &dir, &socket, &program);
        sandbox::check_program(&policy, &command).map_err(|error| error.to_string())?;
        sandbox::without_marked(policy, &command.read)
    };
    tokio::task::spawn_blocking(search).await?.map_err(std::io::Error::other)
}

/// Serves an agent until it exits, or its session ends.
async fn supervise(
    session: &Arc<Session>,
    program: &str,
    (mut supervisor, pipes): (Supervisor, Pipes),
    mut queue: mpsc::Receiver<Option<String>>,
) {
    let mut code = None;
    {
        let mut feed = std::pin::pin!(feed(session, pipes.stdin, &mut queue));
        let mut listen = std::pin::pin!(async {
            tokio::join!(
                output(session, "stdout", pipes.stdout),
                output(session, "stderr", pipes.stderr)
            )
        });
        let (mut is_silent, mut deadline) = (false, None);
        loop {
            tokio::select! {
                report = supervisor.report() => match report {
                    Some(Report::Started { .. }) => {}
                    Some(Report::Failed(failure)) => {
                        let error = std::io::Error::from(failure);
                        let text = format!("cannot start {program}: {error}");
                        session.events.record_event("output", json!({ "stream": "stderr", "text": text }));
                        code = Some(NOT_STARTED);
                    }
                    Some(Report::Exited { code: exit, signal }) => {
                        code = exit.or(signal.map(|signal| 128 + signal));
                    }
                    Some(Report::Gone) | None => break,
                },
                _ = &mut listen, if !is_silent => is_silent = true,
                () = &mut feed, if deadline.is_none() => {
                    supervisor.order(Order::Terminate);
                    deadline = Some(Instant::now() + LAST_TIMEOUT);
                }
                () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => {
                    supervisor.order(Order::Kill);
                    break;
                }
            }
        }
        if !is_silent {
            let _ = tokio::time::timeout(OUTPUT_TIMEOUT, listen).await;
        }
    }
    info!(session = &*session.id, code, "agent ended");
    let message = session.turn.exited(code == Some(0));
    // Closed before the event is written, so that a reader of the event can start a new agent.
    drop(queue);
    if let Err(error) = session.events.write("agent_exited", json!({ "code": code })).await {
        warn!(session = &*session.id, %error, "cannot record the exit of the agent");
    }
    session.turn.end(message, code == Some(0));
}

/// Writes messages to an agent's stdin, and closes it at `None`, until the session ends.
async fn feed(session: &Session, stdin: Sender, queue: &mut mpsc::Receiver<Option<String>>) {
    let mut stdin = Some(stdin);
    let forward = async {
        while let Some(text) = queue.recv().await {
            // An error means that the agent has closed its stdin. Its exit is noticed elsewhere.
            stdin = match (stdin.take(), text) {
                (Some(mut agent), Some(text)) => {
                    agent.write_all(text.as_bytes()).await.is_ok().then_some(agent)
                }
                _ => None,
            };
        }
    };
    tokio::select! {
        () = forward => {}
        () = session.ended.cancelled() => {}
    }
}

/// Writes each line of an agent's output as an event.
async fn output(session: &Session, name: &str, stream: impl AsyncRead + Unpin) {
    let mut reader = BufReader::new(stream);
    let mut line = Vec::new();
    for latest in 1_u64.. {
        line.clear();
        match (&mut reader).take(MAX_OUTPUT_LINE).read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let text = String::from_utf8_lossy(&line);
        session.touch();
        session.events.record_event(
            "output",
            json!({ "stream": name, "text": text.trim_end_matches(['\n', '\r']) }),
        );
        session.events.backpressure().await;
        if latest.is_multiple_of(TRIM_EVERY) {
            session.events.trim_to_limits().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_of_a_command_contains_no_secret() {
        let command = json!({ "command": ["agent"], "env": { "KEY": "canary" } });
        let command: AgentCommand = serde_json::from_value(command).unwrap();
        let printed = format!("{command:?}");
        assert!(printed.contains("KEY") && !printed.contains("canary"), "{printed}");
    }
}
