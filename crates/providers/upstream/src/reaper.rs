//! A small process beside the gateway that ends the servers' processes when the gateway cannot: after `kill -9`, say.
//!
//! It is the gateway's own program with one hidden word. The gateway tells it of every group of processes that it starts;
//! when the pipe between them breaks, for whatever reason, it kills the groups that are left, and ends. (The kernel's
//! parent-death signal would reach only the server itself, and not what that one has started.)

use std::collections::HashSet;
use std::io::{BufRead as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};

use rustix::process::{Pid, Signal, kill_process_group};
use tracing::warn;

/// The hidden word.
pub const WORD: &str = "__reap";

static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
static STATE: Mutex<State> = Mutex::new(State { groups: Vec::new(), pipe: None });

struct State {
    groups: Vec<i32>,
    pipe: Option<ChildStdin>,
}

/// Says which program to run as the reaper. Without one, processes end only when the gateway ends in good order.
pub fn install(program: PathBuf) {
    let _ = PROGRAM.set(program);
}

/// What the reaper does: reads which groups there are until the gateway is gone, then kills what is left.
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
        // Nobody left in it is what was wanted.
        let _ = kill_process_group(group, Signal::KILL);
    }
}

/// A group of processes that must not outlive the gateway. Dropping it ends them all.
#[derive(Debug)]
pub(crate) struct Group(i32);

impl Group {
    pub(crate) fn new(leader: u32) -> Self {
        let group = leader.cast_signed();
        let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
        state.groups.push(group);
        state.tell(&format!("+{group}\n"));
        Self(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        kill_group(self.0);
        let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
        state.groups.retain(|group| *group != self.0);
        state.tell(&format!("-{}\n", self.0));
    }
}

impl State {
    /// Passes a line on. A reaper that is not there, or not there any more, is started and told everything.
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
            // A Ctrl-C at the terminal is for the gateway, which then has time to end.
            .process_group(0)
            .spawn();
        match started {
            Ok(mut child) => {
                self.pipe = child.stdin.take();
                for group in &self.groups {
                    let _ = self.pipe.as_mut().map(|pipe| writeln!(pipe, "+{group}"));
                }
                // It ends after this process, or is found dead at the next line; nobody waits for it here.
                std::thread::spawn(move || child.wait());
            }
            Err(error) => warn!(%error, "cannot start the process that ends servers after a crash"),
        }
    }
}
