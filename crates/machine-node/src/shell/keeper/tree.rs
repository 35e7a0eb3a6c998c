//! The processes below this one.

use std::collections::{HashMap, HashSet};

use rustix::process::{Pid, PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};

/// How often new processes are looked for before those that are known are killed: a fork bomb is stopped before it is
/// killed, since each process that it lost would make room for another.
const PASSES: usize = 64;

/// Kills them all. Some may have been born meanwhile, so that it takes another call: until there is none left.
pub(super) fn kill_all() {
    let mut stopped = HashSet::new();
    for _ in 0..PASSES {
        let new: Vec<_> = below().into_iter().filter(|process| stopped.insert(process.pid)).collect();
        if new.is_empty() {
            break;
        }
        send_all(&new, Signal::STOP);
    }
    send_all(&below(), Signal::KILL);
}

/// Asks them all to end. One that is stopped could not hear it.
pub(super) fn terminate_all() {
    let all = below();
    send_all(&all, Signal::TERM);
    send_all(&all, Signal::CONT);
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

/// All that came of this process, parents before their children.
fn below() -> Vec<Process> {
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
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

/// The fourth field. The second one is the program's name in parentheses, and may hold anything.
fn parent(pid: i32) -> Option<i32> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    let after = stat.iter().rposition(|byte| *byte == b')')?;
    std::str::from_utf8(&stat[after + 1..]).ok()?.split_ascii_whitespace().nth(1)?.parse().ok()
}
