//! A server that is a process: started in a group of its own, listened to, and ended as a group.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use secrecy::ExposeSecret as _;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader};
use tokio::process::{ChildStdin, ChildStdout, Command};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::reaper::Group;
use crate::spec::{Spec, resolve};

/// What a server gets of the gateway's own environment. The rest may hold secrets that are not for it.
const INHERITED: [&str; 11] =
    ["HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER", "XDG_RUNTIME_DIR"];
/// How long a line of its stderr may be, how many of the last ones are kept for the error, and how much is logged in a
/// minute.
const MAX_LINE: usize = 1_000;
const KEPT: usize = 5;
const LOGGED: usize = 32 * 1024;
const WINDOW: Duration = Duration::from_secs(60);
/// How long a server may take to end by itself once its stdin is closed.
const GRACE: Duration = Duration::from_secs(2);

/// A process that runs. Dropping it ends the whole group.
pub(crate) struct Child {
    pub(crate) stdout: ChildStdout,
    pub(crate) stdin: ChildStdin,
    pub(crate) process: Process,
}

#[derive(Clone)]
pub(crate) struct Process {
    /// Fires when the process has ended, and everything it started with it.
    pub(crate) ended: CancellationToken,
    stop: CancellationToken,
    last_words: Arc<Mutex<LastWords>>,
}

#[derive(Default)]
struct LastWords {
    lines: VecDeque<String>,
    status: Option<String>,
}

impl Process {
    /// Closes in good order: the caller has closed its stdin, and what has not ended after a moment is killed.
    pub(crate) fn stop(&self) {
        self.stop.cancel();
    }

    /// How it ended, and what it said last.
    pub(crate) fn last_words(&self) -> Option<String> {
        let words = self.last_words.lock().unwrap_or_else(PoisonError::into_inner);
        let status = words.status.as_ref()?;
        let lines: Vec<&str> = words.lines.iter().map(String::as_str).collect();
        Some(if lines.is_empty() {
            format!("{status} and said nothing on its stderr; start it by hand to see why")
        } else {
            format!("{status}: {}", lines.join(" | "))
        })
    }
}

impl Child {
    pub(crate) fn spawn(name: &Arc<str>, spec: &Spec) -> Result<Self, String> {
        let mut command = Command::new(&spec.command[0]);
        command.args(&spec.command[1..]).env_clear();
        for variable in INHERITED {
            if let Some(value) = std::env::var_os(variable) {
                command.env(variable, value);
            }
        }
        for (variable, value) in &spec.env {
            command.env(variable, resolve(value).map_err(|error| format!("env.{variable}: {error}"))?.expose_secret());
        }
        if !spec.cwd.is_empty() {
            command.current_dir(&spec.cwd);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0).kill_on_drop(true);
        let mut child = command.spawn().map_err(|error| not_started(spec, &error))?;
        let group = child.id().map(Group::new);
        let (Some(stdin), Some(stdout), Some(stderr)) = (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err("the process has no stdin, stdout or stderr".into());
        };
        let process =
            Process { ended: CancellationToken::new(), stop: CancellationToken::new(), last_words: Arc::default() };
        let listening = tokio::spawn(listen(Arc::clone(name), stderr, Arc::clone(&process.last_words)));
        let watched = process.clone();
        tokio::spawn(async move {
            let status = tokio::select! {
                status = child.wait() => status,
                () = async { watched.stop.cancelled().await; tokio::time::sleep(GRACE).await } => {
                    let _ = child.start_kill();
                    child.wait().await
                }
            };
            // Whoever it has started and left behind goes with it, and with them whoever holds its stdout open.
            drop(group);
            let _ = tokio::time::timeout(GRACE, listening).await;
            let status =
                status.map_or_else(|error| error.to_string(), |status| format!("the process ended ({status})"));
            watched.last_words.lock().unwrap_or_else(PoisonError::into_inner).status = Some(status);
            watched.ended.cancel();
        });
        Ok(Self { stdout, stdin, process })
    }
}

fn not_started(spec: &Spec, error: &io::Error) -> String {
    let why = match error.kind() {
        _ if !spec.cwd.is_empty() && !Path::new(&spec.cwd).is_dir() => {
            format!("its cwd \"{}\" is no directory that the gateway can enter", printable(&spec.cwd))
        }
        io::ErrorKind::NotFound => "there is no such program; check command, and the PATH of the gateway".into(),
        io::ErrorKind::PermissionDenied => "the gateway may not run it; check its permissions".into(),
        _ if error.raw_os_error() == Some(rustix::io::Errno::NOEXEC.raw_os_error()) => {
            "it is no program that this system can run; name what runs it first, such as node or python3".into()
        }
        _ => error.to_string(),
    };
    format!("cannot start \"{}\": {why}", printable(&spec.command[0]))
}

/// Logs what a server says on its stderr, within bounds.
async fn listen(name: Arc<str>, stderr: impl AsyncRead + Unpin, last_words: Arc<Mutex<LastWords>>) {
    let mut reader = BufReader::new(stderr);
    let (mut window, mut logged, mut silent) = (Instant::now(), 0_usize, false);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = (&mut reader).take(MAX_LINE as u64).read_until(b'\n', &mut line).await;
        if !matches!(read, Ok(1..)) {
            return;
        }
        let text = printable(String::from_utf8_lossy(&line).trim_end());
        if window.elapsed() > WINDOW {
            (window, logged, silent) = (Instant::now(), 0, false);
        }
        logged += text.len();
        if logged <= LOGGED {
            info!(upstream = %name, "{text}");
        } else if !silent {
            silent = true;
            warn!(upstream = %name, "it says more on its stderr than is logged; the rest of this minute is left out");
        }
        let mut words = last_words.lock().unwrap_or_else(PoisonError::into_inner);
        if words.lines.len() == KEPT {
            words.lines.pop_front();
        }
        words.lines.push_back(text);
    }
}

/// A text that a terminal shows as it is.
pub(crate) fn printable(text: &str) -> String {
    text.chars().take(MAX_LINE).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_said_on_stderr_is_bounded_and_printable() {
        let words = Arc::new(Mutex::new(LastWords::default()));
        let mut said = Vec::new();
        for number in 0..100 {
            said.extend(format!("line {number} \u{1b}[31m\n").into_bytes());
        }
        said.extend("x".repeat(1 << 20).into_bytes());
        listen("noisy".into(), &said[..], Arc::clone(&words)).await;
        let words = words.lock().unwrap();
        assert_eq!(words.lines.len(), KEPT);
        assert!(words.lines.iter().all(|line| line.len() <= MAX_LINE && !line.contains('\u{1b}')));
    }
}
