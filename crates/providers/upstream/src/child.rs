//! A server that runs as a child process, and ends with everything that it has started.

use std::collections::VecDeque;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sa_process::{Command, Order, Pipes, Report, Supervisor};
use secrecy::ExposeSecret as _;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader};
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::spec::{Spec, resolve};

/// The environment variables that a server inherits from the gateway. The others may hold secrets
/// that a server must not see.
const INHERITED: [&str; 11] = [
    "HOME",
    "LANG",
    "LC_ALL",
    "LOGNAME",
    "PATH",
    "SHELL",
    "TERM",
    "TMPDIR",
    "TZ",
    "USER",
    "XDG_RUNTIME_DIR",
];
/// Limits of the stderr log: the length of a line, and the bytes logged per `WINDOW`. `MAX_LINES`
/// is the number of last lines kept for the error message.
const MAX_LINE: usize = 1_000;
const MAX_LINES: usize = 5;
const LOGGED: usize = 32 * 1024;
const WINDOW: Duration = Duration::from_secs(60);
/// How long a server may take to exit by itself after its stdin is closed.
const GRACE: Duration = Duration::from_secs(2);

pub(crate) struct Child {
    pub(crate) stdout: Receiver,
    pub(crate) stdin: Sender,
    pub(crate) process: Process,
}

#[derive(Clone)]
pub(crate) struct Process {
    /// Cancelled when the process and everything that it started have ended.
    pub(crate) ended: CancellationToken,
    stop: CancellationToken,
    stderr_tail: Arc<Mutex<StderrTail>>,
}

#[derive(Default)]
struct StderrTail {
    lines: VecDeque<String>,
    status: Option<String>,
}

impl Process {
    /// Starts a graceful shutdown. The caller has closed stdin; a process that has not exited
    /// after a grace period is killed.
    pub(crate) fn stop(&self) {
        self.stop.cancel();
    }

    /// Returns the exit status and the last lines of stderr.
    pub(crate) fn stderr_tail(&self) -> Option<String> {
        let tail = self.stderr_tail.lock();
        let status = tail.status.as_ref()?;
        let lines: Vec<&str> = tail.lines.iter().map(String::as_str).collect();
        Some(if lines.is_empty() {
            format!("{status} without output on stderr; start it manually to find the cause")
        } else {
            format!("{status}: {}", lines.join(" | "))
        })
    }
}

impl Child {
    pub(crate) async fn spawn(name: &Arc<str>, spec: &Spec) -> Result<Self, String> {
        let mut command = Command::new(&spec.command[0], &spec.command[1..]);
        command.envs(INHERITED.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
        for (variable, value) in &spec.env {
            command.env(
                variable,
                resolve(value).map_err(|error| format!("env.{variable}: {error}"))?.expose_secret(),
            );
        }
        if !spec.cwd.is_empty() {
            command.current_dir(&spec.cwd);
        }
        let spawned = command.spawn_piped().map_err(|error| not_started(spec, &error));
        let (mut supervisor, Pipes { stdin, stdout, stderr }) = spawned?;
        let started = supervisor.started().await;
        started.map_err(|failure| not_started(spec, &failure.into()))?;
        let process = Process {
            ended: CancellationToken::new(),
            stop: CancellationToken::new(),
            stderr_tail: Arc::default(),
        };
        let stderr_tail = Arc::clone(&process.stderr_tail);
        let listening = tokio::spawn(listen(Arc::clone(name), stderr, stderr_tail));
        tokio::spawn(process.clone().watch(supervisor, listening));
        Ok(Self { stdout, stdin, process })
    }
}

impl Process {
    /// Waits until the process and everything that it started have ended. Kills them if that is
    /// requested and they do not end by themselves.
    async fn watch(self, mut supervisor: Supervisor, listening: JoinHandle<()>) {
        let mut status = None;
        let mut stop = std::pin::pin!(async {
            self.stop.cancelled().await;
            tokio::time::sleep(GRACE).await;
        });
        let mut is_stopping = false;
        loop {
            tokio::select! {
                report = supervisor.report() => match report {
                    Some(Report::Exited { code, signal }) => {
                        status = Some(exit_status(code, signal));
                    }
                    Some(Report::Started { .. } | Report::Failed(_)) => {}
                    Some(Report::Gone) | None => break,
                },
                () = &mut stop, if !is_stopping => {
                    is_stopping = true;
                    supervisor.order(Order::Kill);
                }
            }
        }
        let _ = tokio::time::timeout(GRACE, listening).await;
        let status = status.map_or_else(
            || "its supervisor process was killed".to_owned(),
            |status| format!("the process ended ({status})"),
        );
        self.stderr_tail.lock().status = Some(status);
        self.ended.cancel();
    }
}

/// Returns an exit status in the system's encoding.
fn exit_status(code: Option<i32>, signal: Option<i32>) -> ExitStatus {
    ExitStatus::from_raw((code.unwrap_or_default() << 8) | signal.unwrap_or_default())
}

fn not_started(spec: &Spec, error: &io::Error) -> String {
    let why = match error.kind() {
        _ if !spec.cwd.is_empty() && !Path::new(&spec.cwd).is_dir() => {
            format!("its cwd \"{}\" is not a directory that the gateway can access", printable(&spec.cwd))
        }
        io::ErrorKind::NotFound => "no such program; check command and the PATH of the gateway".into(),
        io::ErrorKind::PermissionDenied => "permission denied; check the permissions of the program".into(),
        _ if error.raw_os_error() == Some(rustix::io::Errno::NOEXEC.raw_os_error()) => {
            "this system cannot execute the file; put an interpreter such as node or python3 before it".into()
        }
        _ => error.to_string(),
    };
    format!("cannot start \"{}\": {why}", printable(&spec.command[0]))
}

/// Logs the stderr of a server, within limits.
async fn listen(
    name: Arc<str>,
    stderr: impl AsyncRead + Unpin,
    stderr_tail: Arc<Mutex<StderrTail>>,
) {
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
            warn!(upstream = %name, "its stderr exceeds the log limit; the output of the rest of this minute is dropped");
        }
        let mut tail = stderr_tail.lock();
        if tail.lines.len() == MAX_LINES {
            tail.lines.pop_front();
        }
        tail.lines.push_back(text);
    }
}

/// Truncates a text and replaces its control characters, so that it is safe to print on a
/// terminal.
pub(crate) fn printable(text: &str) -> String {
    text.chars().take(MAX_LINE).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn stderr_is_bounded_and_printable() {
        let tail = Arc::new(Mutex::new(StderrTail::default()));
        let mut output = Vec::new();
        for number in 0..100 {
            output.extend(format!("line {number} \u{1b}[31m\n").into_bytes());
        }
        output.extend("x".repeat(1 << 20).into_bytes());
        listen("noisy".into(), &output[..], Arc::clone(&tail)).await;
        let tail = tail.lock();
        assert_eq!(tail.lines.len(), MAX_LINES);
        assert!(tail.lines.iter().all(|line| line.len() <= MAX_LINE && !line.contains('\u{1b}')));
    }
}
