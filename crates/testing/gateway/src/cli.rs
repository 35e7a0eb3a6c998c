//! Runs commands of the program.

use std::process::Stdio;

use rustix::process::Signal;
use sa_testkit::{eventually, soon};
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, Command};

use crate::gateway::{Said, clean, send_signal};

/// A command that is not started yet.
#[derive(Debug)]
pub struct Cli {
    command: Command,
}

/// A command that has ended.
#[derive(Debug)]
pub struct Finished {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// A running command.
#[derive(Debug)]
pub struct Started {
    child: Child,
    out: Said,
    err: Said,
    /// Both streams go to one terminal, which uses its own line endings.
    terminal: bool,
}

impl Cli {
    pub fn new(program: &str) -> Self {
        let mut command = Command::new(program);
        clean(&mut command);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        Self { command }
    }

    #[must_use]
    pub fn args(mut self, args: &[&str]) -> Self {
        self.command.args(args);
        self
    }

    #[must_use]
    pub fn env(mut self, name: &str, value: impl AsRef<std::ffi::OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Runs the command in this folder.
    #[must_use]
    pub fn folder(mut self, folder: &std::path::Path) -> Self {
        self.command.current_dir(folder);
        self
    }

    /// Runs the command to its end on a terminal with this number of columns, for both stdout and
    /// stderr. The terminal's output is returned as stdout, with plain line breaks.
    pub async fn run_on_terminal(self, columns: u16) -> Finished {
        self.start_on_terminal(columns).end().await
    }

    /// Starts the command on a terminal and does not wait for its end.
    pub fn start_on_terminal(mut self, columns: u16) -> Started {
        use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let ours = openpt(flags).unwrap();
        grantpt(&ours).and_then(|()| unlockpt(&ours)).unwrap();
        let theirs = ioctl_tiocgptpeer(&ours, flags).unwrap();
        let size =
            rustix::termios::Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        rustix::termios::tcsetwinsize(&theirs, size).unwrap();
        self.command.stdout(theirs.try_clone().unwrap()).stderr(theirs);
        let child = self.command.env("TERM", "xterm").spawn().unwrap();
        // The command holds the other end open until it is dropped.
        drop(self.command);
        let out = Said::of(tokio::fs::File::from_std(std::fs::File::from(ours)));
        Started { child, out, err: Said::of(tokio::io::empty()), terminal: true }
    }

    /// Runs the command to its end.
    pub async fn run(self) -> Finished {
        self.start().end().await
    }

    /// Runs the command with this text on its stdin.
    pub async fn run_with(mut self, input: &str) -> Finished {
        self.command.stdin(Stdio::piped());
        let mut started = self.start();
        let mut stdin = started.child.stdin.take().unwrap();
        stdin.write_all(input.as_bytes()).await.unwrap();
        drop(stdin);
        started.end().await
    }

    pub fn start(mut self) -> Started {
        let mut child = self.command.spawn().unwrap();
        let (out, err) =
            (Said::of(child.stdout.take().unwrap()), Said::of(child.stderr.take().unwrap()));
        Started { child, out, err, terminal: false }
    }
}

impl Started {
    /// Waits until the command has written this to stdout.
    pub async fn says(&self, words: &str) -> String {
        eventually(words, || async { Some(self.out.text()).filter(|text| text.contains(words)) })
            .await
    }

    /// Waits until the command has written this to stderr.
    pub async fn warns(&self, words: &str) -> String {
        eventually(words, || async { Some(self.err.text()).filter(|text| text.contains(words)) })
            .await
    }

    pub fn pid(&self) -> u32 {
        self.child.id().unwrap()
    }

    pub fn signal(&self, signal: Signal) {
        send_signal(self.pid(), signal);
    }

    pub async fn end(mut self) -> Finished {
        let code = soon(self.child.wait()).await.unwrap().code();
        self.out.end().await;
        self.err.end().await;
        let stdout =
            if self.terminal { self.out.text().replace("\r\n", "\n") } else { self.out.text() };
        Finished { code, stdout, stderr: self.err.text() }
    }
}

impl Finished {
    /// Parses stdout as JSON.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", self.stdout))
    }

    /// Checks the exit code.
    #[track_caller]
    pub fn assert_code(&self, code: i32) -> &Self {
        assert_eq!(self.code, Some(code), "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        self
    }
}
