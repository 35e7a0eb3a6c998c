//! The processes below this one.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fs::{Dir, Mode, OFlags};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, getpid, kill_process, pidfd_open,
    pidfd_send_signal, waitid,
};

/// The maximum number of scans for new processes before the known ones are killed. A fork bomb is
/// stopped before it is killed, because each killed process would free capacity for another.
const PASSES: usize = 64;

/// All descendants of this process.
pub(crate) struct Tree {
    /// It is opened before the program starts, because a program could prevent it later.
    processes: Dir,
    children: Children,
}

/// A lock that excludes reaping a child while a signal is sent, so that its process number remains
/// valid.
#[derive(Clone, Default)]
pub(crate) struct Children(Arc<Mutex<()>>);

impl Children {
    pub(crate) fn still<T>(&self, act: impl FnOnce() -> T) -> T {
        let _still = self.0.lock();
        act()
    }
}

impl Tree {
    pub(crate) fn new() -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let processes = Dir::new(rustix::fs::open("/proc", flags, Mode::empty())?)?;
        Ok(Self { processes, children: Children::default() })
    }

    pub(crate) fn children(&self) -> Children {
        self.children.clone()
    }

    /// Kills all processes. New ones may have started meanwhile, so it must be called again until
    /// none is left.
    pub(crate) fn kill_all(&mut self) {
        let mut stopped = HashSet::new();
        for _ in 0..PASSES {
            let new: Vec<_> =
                self.below().into_iter().filter(|process| stopped.insert(process.pid)).collect();
            if new.is_empty() {
                break;
            }
            send_all(&new, Signal::STOP);
        }
        send_all(&self.below(), Signal::KILL);
        self.send_to_children(Signal::KILL);
    }

    /// Asks all processes to end. SIGCONT follows, because a stopped process would not handle
    /// SIGTERM.
    pub(crate) fn terminate_all(&mut self) {
        let all = self.below();
        for signal in [Signal::TERM, Signal::CONT] {
            send_all(&all, signal);
        }
        if all.is_empty() {
            self.send_to_children(Signal::TERM);
            self.send_to_children(Signal::CONT);
        }
    }

    /// Signals the children without a new descriptor, which [`Self::below`] requires. When the
    /// children have ended, their children become the children of this process.
    fn send_to_children(&mut self, signal: Signal) {
        for pid in self.numbers().into_iter().filter_map(Pid::from_raw) {
            self.children.still(|| {
                let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
                // Waiting for a process that is not a child is an error.
                if waitid(WaitId::Pid(pid), look).is_ok() {
                    let _ = kill_process(pid, signal);
                }
            });
        }
    }

    /// Returns the descendants, parents before their children.
    fn below(&mut self) -> Vec<Process> {
        let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
        for pid in self.numbers() {
            if let Some(parent) = parent(pid) {
                children.entry(parent).or_default().push(pid);
            }
        }
        let mut found = Vec::new();
        let mut next = vec![getpid().as_raw_pid()];
        while let Some(parent) = next.pop() {
            for pid in children.remove(&parent).unwrap_or_default() {
                found.push(Process { pid, parent });
                next.push(pid);
            }
        }
        found
    }

    /// Returns the numbers of all processes.
    fn numbers(&mut self) -> Vec<i32> {
        self.processes.rewind();
        let entries = std::iter::from_fn(|| self.processes.read()).map_while(Result::ok);
        entries.filter_map(|entry| entry.file_name().to_str().ok()?.parse().ok()).collect()
    }
}

fn send_all(processes: &[Process], signal: Signal) {
    for process in processes {
        process.send(signal);
    }
}

#[derive(Clone, Copy)]
struct Process {
    pid: i32,
    parent: i32,
}

impl Process {
    /// Sends a signal to this process, but not to another one that has reused its number.
    fn send(self, signal: Signal) {
        let Some(handle) =
            Pid::from_raw(self.pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok())
        else {
            return;
        };
        let ours = getpid().as_raw_pid();
        if parent(self.pid).is_some_and(|parent| parent == self.parent || parent == ours) {
            let _ = pidfd_send_signal(handle, signal);
        }
    }
}

/// Reads the parent, which is the fourth field. The second field is the program's name in
/// parentheses, which may contain any character.
fn parent(pid: i32) -> Option<i32> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    let after = stat.iter().rposition(|byte| *byte == b')')?;
    std::str::from_utf8(&stat[after + 1..]).ok()?.split_ascii_whitespace().nth(1)?.parse().ok()
}
