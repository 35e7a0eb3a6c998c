//! Agents that the gateway starts: a command for each session, in a sandbox where it is wanted.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use sa_core::{CallError, CallErrorKind, mask};
use sa_sandbox::Policy;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tracing::{info, warn};

use crate::session::{Session, Working};
use crate::sessions::Sessions;
use crate::{Options, sandbox};

/// The longest line of an agent's that is one event; what is longer becomes several.
const MAX_OUTPUT_LINE: u64 = 64 * 1024;
/// Messages that may wait for an agent that does not read.
const QUEUE: usize = 16;
/// How often the events of an agent that says much are cut to what is kept.
const TRIM_EVERY: u64 = 1_024;
/// How long the keeper of an agent may take to end it.
const LAST_PATIENCE: Duration = Duration::from_secs(10);
/// How long an agent is listened to after its keeper. It has ended before that, unless somebody has killed the keeper.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// Of the gateway's own environment, agents get these. Anything else may be a secret.
const PASSED_ON: [&str; 12] = [
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
/// `[sessions.agents.NAME]`: what is run for a session.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentCommand {
    /// The program and its arguments.
    #[serde(default)]
    pub command: Vec<String>,
    /// Run it in a sandbox, in which it sees the system's programs, its directory and the relay.
    #[serde(default)]
    pub sandbox: bool,
    /// Whether a sandbox has the network.
    #[serde(default = "yes")]
    pub network: bool,
    /// How it gets messages.
    #[serde(default)]
    pub input: Input,
    /// Variables that are set for it.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Variables of the gateway's that it gets, beside the usual ones.
    #[serde(default)]
    pub pass_env: Vec<String>,
    /// Where it works. Empty: a directory of the session's own, which is gone with it.
    #[serde(default)]
    pub dir: String,
    /// What it may read in a sandbox, beside the system's programs.
    #[serde(default)]
    pub read: Vec<String>,
}

/// The names of its variables, and not what they are set to: keys are given to agents in this way.
impl fmt::Debug for AgentCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&String> = self.env.keys().collect();
        f.debug_struct("AgentCommand").field("command", &self.command).field("env", &names).finish_non_exhaustive()
    }
}

fn yes() -> bool {
    true
}

impl AgentCommand {
    /// What is wrong with it, if anything is.
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
            return Err("command holds a null character, which no argument can have".into());
        }
        let wrong = |name: &&String| name.is_empty() || name.contains(['=', '\0']);
        if let Some(name) = self.env.keys().find(wrong) {
            return Err(format!("env: \"{}\" is no name of a variable", mask::name(name)));
        }
        if let Some(name) = self.pass_env.iter().find(wrong) {
            return Err(format!("pass_env: \"{}\" is no name of a variable; write the name alone", mask::name(name)));
        }
        if self.env.values().any(no_text) {
            return Err("env: a value holds a null character, which no variable can have".into());
        }
        Ok(())
    }
}

/// How an agent gets messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Input {
    /// Each as one line of JSON on its stdin, `{"session_id","message"}`: for an agent that goes on.
    #[default]
    Json,
    /// One as it is, and then the end of its stdin: for a program that answers one question and ends.
    Text,
}

/// Gives a message to the session's agent, which is started if it is not there.
pub(crate) async fn deliver(sessions: &Arc<Sessions>, session: &Arc<Session>, text: &str) -> Result<(), CallError> {
    // One that comes by itself reads the session's events.
    let Some(name) = &session.agent else { return Ok(()) };
    let Some(command) = sessions.options.agents.get(name) else {
        return Err(CallError::new(CallErrorKind::Failed, format!("the agent \"{name}\" is not configured any more")));
    };
    let mut process = session.process.lock().await;
    if let Some(lines) = process.as_ref().filter(|lines| !lines.is_closed()) {
        if command.input == Input::Text {
            return Err(CallError::new(CallErrorKind::Overloaded, "the agent works on the message before")
                .hint("wait for its event agent_exited, or end the session"));
        }
        return lines.try_send(control(&message(session, text))).map_err(|_| {
            CallError::new(CallErrorKind::Overloaded, format!("the agent has {QUEUE} messages that it has not read"))
        });
    }
    if session.ended.is_cancelled() {
        return Err(CallError::new(CallErrorKind::Conflict, "the session has ended"));
    }
    let child = start(sessions, session, command).await.map_err(|error| {
        let what = command.command.first().map_or("nothing", String::as_str);
        CallError::new(CallErrorKind::Failed, format!("the agent \"{name}\" cannot be started ({what}): {error}"))
            .hint("see sessions.agents in the gateway's configuration")
    })?;
    let (lines, queue) = mpsc::channel(QUEUE);
    let first: Vec<String> = match command.input {
        Input::Json => vec![control(&message(session, text))],
        Input::Text => vec![control(text), "null\n".into()],
    };
    for line in first {
        let _ = lines.try_send(line);
    }
    *process = Some(lines);
    info!(session = &*session.id, agent = name, "agent started");
    session.events.say("agent_started", json!({ "agent": name }));
    let (working, sessions, session) = (Working::new(session), Arc::clone(sessions), Arc::clone(session));
    let tasks = sessions.tasks.clone();
    tasks.spawn(async move {
        attend(&sessions, &session, child, queue).await;
        // Whichever comes last, the agent's end or the session's, takes the directory away.
        drop(working);
        if session.ended.is_cancelled() {
            session.clear_away().await;
        }
    });
    Ok(())
}

fn message(session: &Session, text: &str) -> String {
    format!("{}\n", json!({ "session_id": &*session.id, "message": text }))
}

/// A line for the keeper: what the agent's stdin is given.
fn control(text: &str) -> String {
    format!("{}\n", json!(text))
}

async fn start(sessions: &Sessions, session: &Session, command: &AgentCommand) -> std::io::Result<Child> {
    let mut dir = PathBuf::from(&command.dir);
    if command.dir.is_empty() {
        dir = session.own_dir();
        std::fs::create_dir_all(&dir)?;
    }
    let options = &sessions.options;
    let mut keeper = Command::new(&options.program);
    keeper.arg("agent-keeper").current_dir(&dir).env_clear();
    let usual = PASSED_ON.iter().copied().chain(command.pass_env.iter().map(String::as_str));
    keeper.envs(usual.filter_map(|name| Some((name, std::env::var_os(name)?))));
    keeper.envs(&command.env).env("SWITCHBOARD_SESSION_ID", &*session.id);
    let mut program = options.program.clone();
    if command.sandbox {
        let policy = session_policy(options, session, command, dir.canonicalize()?).await?;
        keeper.arg("--sandbox").arg(serde_json::to_string(&policy)?);
        keeper.env("SWITCHBOARD_RELAY_SOCKET", sandbox::RELAY).env("TMPDIR", "/tmp");
        program = PathBuf::from(sandbox::PROGRAM);
    } else {
        keeper.env("SWITCHBOARD_RELAY_SOCKET", &session.socket);
    }
    // Found by its name wherever it is, so that one list of MCP servers does for all machines.
    let path = command.env.get("PATH").map(OsString::from).or_else(|| std::env::var_os("PATH")).unwrap_or_default();
    let places = std::env::split_paths(&path).chain(program.parent().map(Path::to_path_buf));
    // An empty place would be the agent's own directory.
    let places = places.filter(|place| !place.as_os_str().is_empty());
    keeper.env("PATH", std::env::join_paths(places).unwrap_or(path)).env("SWITCHBOARD_PROGRAM", &program);
    keeper.arg("--").args(&command.command);
    keeper.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    keeper.spawn()
}

/// The policy of an agent that starts now.
async fn session_policy(
    options: &Options,
    session: &Session,
    command: &AgentCommand,
    dir: PathBuf,
) -> std::io::Result<Policy> {
    let home = command.env.get("HOME").map(PathBuf::from).or_else(|| std::env::var_os("HOME").map(PathBuf::from));
    let secrets: Vec<PathBuf> =
        [&options.data_dir, &options.socket_dir].into_iter().chain(&options.hidden).cloned().collect();
    let (command, socket, program) = (command.clone(), session.socket.clone(), options.program.clone());
    // Both look at many files.
    let search = move || {
        let mut policy = sandbox::policy(&command, &secrets)?;
        policy.private.extend(home.filter(|home| home.is_absolute()));
        let policy = sandbox::of_session(policy, &dir, &socket, &program);
        sandbox::check_program(&policy, &command).map_err(|error| error.to_string())?;
        sandbox::without_marked(policy, &command.read)
    };
    tokio::task::spawn_blocking(search).await?.map_err(std::io::Error::other)
}

/// Sees to an agent until it ends, or its session does.
async fn attend(sessions: &Sessions, session: &Arc<Session>, mut child: Child, mut queue: mpsc::Receiver<String>) {
    let stdin = child.stdin.take();
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let feed = async {
        let Some(mut stdin) = stdin else { return };
        loop {
            let line = tokio::select! {
                line = queue.recv() => line,
                () = session.ended.cancelled() => return,
            };
            let Some(line) = line else { return };
            if stdin.write_all(line.as_bytes()).await.is_err() {
                // It has ended, which is noticed by its output.
                return session.ended.cancelled().await;
            }
        }
    };
    let listen = async {
        tokio::join!(output(sessions, session, "stdout", out), output(sessions, session, "stderr", err));
    };
    // Once the feed is over, its end of the pipe is closed, and the keeper takes the agent down.
    let status = {
        let mut listen = std::pin::pin!(listen);
        let mut done = std::pin::pin!(async {
            tokio::select! {
                () = &mut listen => child.wait().await,
                status = child.wait() => {
                    let _ = tokio::time::timeout(LAST_WORDS, &mut listen).await;
                    status
                }
            }
        });
        tokio::select! {
            status = &mut done => Some(status),
            () = feed => tokio::time::timeout(LAST_PATIENCE, done).await.ok(),
        }
    };
    if status.is_none() {
        let _ = child.kill().await;
    }
    let code = status.and_then(Result::ok).and_then(|status| status.code());
    info!(session = &*session.id, code, "agent ended");
    let message = session.turn.message();
    // Closed before it is told, so that whoever is told finds that a new one can be started.
    drop(queue);
    if let Err(error) = session.events.write("agent_exited", json!({ "code": code })).await {
        warn!(session = &*session.id, %error, "cannot write down that the agent has ended");
    }
    session.turn.end(message, code == Some(0));
}

/// Each line that an agent writes is an event.
async fn output(sessions: &Sessions, session: &Session, name: &str, stream: Option<impl AsyncRead + Unpin>) {
    let Some(stream) = stream else { return };
    let mut reader = BufReader::new(stream);
    let mut line = Vec::new();
    for said in 1_u64.. {
        line.clear();
        match (&mut reader).take(MAX_OUTPUT_LINE).read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let text = String::from_utf8_lossy(&line);
        session.touch();
        session.events.say("output", json!({ "stream": name, "text": text.trim_end_matches(['\n', '\r']) }));
        session.events.keep_pace().await;
        if said.is_multiple_of(TRIM_EVERY) {
            let Options { trimmer, keep_events, .. } = &sessions.options;
            trimmer.report("session_event", session.events.trim_to(*keep_events).await);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_of_a_command_has_no_secret() {
        let command = json!({ "command": ["agent"], "env": { "KEY": "canary" } });
        let command: AgentCommand = serde_json::from_value(command).unwrap();
        let printed = format!("{command:?}");
        assert!(printed.contains("KEY") && !printed.contains("canary"), "{printed}");
    }
}
