//! Kills the remaining processes of a command after its supervisor was killed.

use std::collections::HashSet;

use rustix::process::{Pid, Signal, kill_process};

use super::environment::SESSION;

/// The maximum number of scans for new processes; each scan kills all it finds.
const PASSES: usize = 64;

/// Kills all processes with the session's name in their environment. A process can avoid this by
/// starting a program with another environment. But this function is needed only if a command has
/// killed its own supervisor, which also ends its shell.
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
