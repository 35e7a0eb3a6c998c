//! The processes below this one.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{Dir, Mode, OFlags};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, getpid, kill_process, pidfd_open, pidfd_send_signal, waitid,
};

/// How often new processes are looked for before those that are known are killed: a fork bomb is stopped before it is
/// killed, since each process that it lost would make room for another.
const PASSES: usize = 64;

/// All that came of this process.
pub(super) struct Tree {
    /// Opened before there is a command, which could see to it that it can no longer be.
    processes: Dir,
    children: Children,
}

/// The right to take in a child that has ended. Nobody has it while a signal is sent, so that a number stays what it is.
#[derive(Clone, Default)]
pub(super) struct Children(Arc<Mutex<()>>);

impl Children {
    pub(super) fn still<T>(&self, act: impl FnOnce() -> T) -> T {
        let _still = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        act()
    }
}

impl Tree {
    pub(super) fn new() -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let processes = Dir::new(rustix::fs::open("/proc", flags, Mode::empty())?)?;
        Ok(Self { processes, children: Children::default() })
    }

    pub(super) fn children(&self) -> Children {
        self.children.clone()
    }

    /// Kills them all. Some may have been born meanwhile, so that it takes another call: until there is none left.
    pub(super) fn kill_all(&mut self) {
        let mut stopped = HashSet::new();
        for _ in 0..PASSES {
            let new: Vec<_> = self.below().into_iter().filter(|process| stopped.insert(process.pid)).collect();
            if new.is_empty() {
                break;
            }
            send_all(&new, Signal::STOP);
        }
        send_all(&self.below(), Signal::KILL);
        self.send_to_children(Signal::KILL);
    }

    /// Asks them all to end. One that is stopped could not hear it.
    pub(super) fn terminate_all(&mut self) {
        let all = self.below();
        for signal in [Signal::TERM, Signal::CONT] {
            send_all(&all, signal);
        }
        if all.is_empty() {
            self.send_to_children(Signal::TERM);
            self.send_to_children(Signal::CONT);
        }
    }

    /// Does without any new descriptor, which [`Self::below`] cannot. When the children are gone, theirs are the children.
    fn send_to_children(&mut self, signal: Signal) {
        for pid in self.numbers().into_iter().filter_map(Pid::from_raw) {
            self.children.still(|| {
                let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
                // It is an error to wait for what is no child.
                if waitid(WaitId::Pid(pid), look).is_ok() {
                    let _ = kill_process(pid, signal);
                }
            });
        }
    }

    /// Parents before their children.
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

    /// All processes that there are.
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
    /// Sends a signal to this process and to no other that has got its number since.
    fn send(self, signal: Signal) {
        let Some(handle) = Pid::from_raw(self.pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()) else {
            return;
        };
        let ours = getpid().as_raw_pid();
        if parent(self.pid).is_some_and(|parent| parent == self.parent || parent == ours) {
            let _ = pidfd_send_signal(handle, signal);
        }
    }
}

/// The fourth field. The second one is the program's name in parentheses, and may hold anything.
fn parent(pid: i32) -> Option<i32> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    let after = stat.iter().rposition(|byte| *byte == b')')?;
    std::str::from_utf8(&stat[after + 1..]).ok()?.split_ascii_whitespace().nth(1)?.parse().ok()
}
