//! A small process that kills the servers' process groups when the gateway cannot, for example
//! after `kill -9`.
//!
//! It is the gateway's own binary with a hidden argument. The gateway sends it every process
//! group that it starts. When the pipe between them breaks, the reaper kills the remaining groups
//! and exits. (The kernel's parent-death signal would reach only the server itself, and not its
//! child processes.)

use std::collections::HashSet;
use std::io::{BufRead as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::OnceLock;

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process_group};
use tracing::warn;

/// The hidden argument.
pub const WORD: &str = "__reap";

static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
static STATE: Mutex<State> = Mutex::new(State { groups: Vec::new(), pipe: None });

struct State {
    groups: Vec<i32>,
    pipe: Option<ChildStdin>,
}

/// Sets the program to run as the reaper. Without one, processes are killed only when the gateway
/// shuts down cleanly.
pub fn install(program: PathBuf) {
    let _ = PROGRAM.set(program);
}

/// Runs the reaper: reads the process groups from stdin until the gateway has ended, then kills
/// the remaining ones.
pub fn run() {
    let mut groups = HashSet::new();
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let (sign, group) = line.split_at_checked(1).unwrap_or_default();
        let Ok(group) = group.parse::<i32>() else { continue };
        if sign == "+" {
            groups.insert(group);
        } else {
            groups.remove(&group);
        }
    }
    for group in groups {
        kill_group(group);
    }
}

pub(crate) fn kill_group(group: i32) {
    if let Some(group) = Pid::from_raw(group) {
        // An error means that the group has no process left, which is the goal.
        let _ = kill_process_group(group, Signal::KILL);
    }
}

/// A process group that must not outlive the gateway. Dropping it kills the group.
#[derive(Debug)]
pub(crate) struct Group(i32);

impl Group {
    pub(crate) fn new(leader: u32) -> Self {
        let group = leader.cast_signed();
        let mut state = STATE.lock();
        state.groups.push(group);
        state.tell(&format!("+{group}\n"));
        Self(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        kill_group(self.0);
        let mut state = STATE.lock();
        state.groups.retain(|group| *group != self.0);
        state.tell(&format!("-{}\n", self.0));
    }
}

impl State {
    /// Sends a line to the reaper. If the reaper is not running, starts it and sends all groups.
    fn tell(&mut self, line: &str) {
        let Some(program) = PROGRAM.get() else { return };
        if self.pipe.as_mut().is_some_and(|pipe| pipe.write_all(line.as_bytes()).is_ok()) {
            return;
        }
        if self.groups.is_empty() {
            return;
        }
        let started = Command::new(program)
            .arg(WORD)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .env_clear()
            .current_dir("/")
            // A Ctrl-C at the terminal must reach only the gateway, which then has time to shut
            // down.
            .process_group(0)
            .spawn();
        match started {
            Ok(mut child) => {
                self.pipe = child.stdin.take();
                for group in &self.groups {
                    let _ = self.pipe.as_mut().map(|pipe| writeln!(pipe, "+{group}"));
                }
                // The reaper exits after this process, or the next write finds it dead. This
                // thread only reaps its exit status.
                std::thread::spawn(move || child.wait());
            }
            Err(error) => warn!(%error, "cannot start the process that ends servers after a crash"),
        }
    }
}
