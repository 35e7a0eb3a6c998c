//! What a keeper that was killed has left behind.

use std::collections::HashSet;

use rustix::process::{Pid, Signal, kill_process};

use super::environment::SESSION;

/// How often new processes are looked for; each look kills what it finds.
const PASSES: usize = 64;

/// Kills whatever has the session's name in its environment. A process can hide from this by starting a program with
/// another environment; but to need it, a command must first have killed its own keeper, which takes its shell along.
pub(super) fn kill(session: &str) {
    let mark = format!("{SESSION}={session}");
    for _ in 0..PASSES {
        let found = marked(mark.as_bytes());
        if found.is_empty() {
            return;
        }
        for pid in found {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

fn marked(mark: &[u8]) -> HashSet<Pid> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbered = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let has_mark = |pid: &i32| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == mark)
    };
    numbered.filter(has_mark).filter_map(Pid::from_raw).collect()
}
