//! A small process between the gateway and an agent, which outlives neither: when the gateway is gone, by whatever death, so are
//! the agent and all that it started.
//!
//! It reads lines of JSON on its stdin: a text is written to the agent's stdin, `null` closes that. The end of the stream is
//! the end of the gateway. The agent has stdout and stderr to itself.

use std::ffi::OsString;
use std::io::{BufRead as _, Write as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, set_child_subreaper, waitid,
};

/// How long an agent may take to end by itself once it is asked to.
const GRACE: Duration = Duration::from_secs(2);

/// Runs a command until it or the gateway ends, and gives back its exit code.
pub fn keep(command: &[OsString]) -> i32 {
    let Some((program, args)) = command.split_first() else {
        eprintln!("there is no command to run");
        return 2;
    };
    // Whatever the agent leaves behind becomes ours, and goes with us.
    let _ = set_child_subreaper(Pid::from_raw(std::process::id().cast_signed()));
    let spawned = Command::new(program).args(args).stdin(Stdio::piped()).process_group(0).spawn();
    let mut child = match spawned {
        Ok(child) => child,
        Err(error) => {
            eprintln!("cannot start {}: {error}", program.display());
            return 127;
        }
    };
    let stdin = child.stdin.take();
    let (tell, told) = mpsc::channel();
    let gone = tell.clone();
    std::thread::spawn(move || {
        pass_on(stdin);
        let _ = gone.send(());
    });
    let group = Pid::from_child(&child);
    std::thread::spawn(move || {
        // Not reaped yet, so that the number of its group cannot have become another one's.
        let _ = waitid(WaitId::Pid(group), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
        let _ = tell.send(());
    });
    // Whichever is first: the agent's end, or the gateway's.
    let _ = told.recv();
    if !has_ended(group) {
        let _ = kill_process_group(group, Signal::TERM);
        let _ = told.recv_timeout(GRACE);
    }
    let _ = kill_process_group(group, Signal::KILL);
    let code = reap(&mut child);
    end_orphans();
    code
}

fn has_ended(child: Pid) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    matches!(waitid(WaitId::Pid(child), options), Ok(Some(_)))
}

fn reap(child: &mut Child) -> i32 {
    match child.wait() {
        Ok(status) => status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)),
        Err(_) => 1,
    }
}

/// Passes on what the gateway writes, until it writes no more.
fn pass_on(mut agent: Option<ChildStdin>) {
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { return };
        match serde_json::from_str::<Option<String>>(&line) {
            Ok(Some(text)) => {
                // An agent that does not read is its own affair; its end is noticed elsewhere.
                let written = agent.as_mut().map(|agent| agent.write_all(text.as_bytes()).and_then(|()| agent.flush()));
                if matches!(written, Some(Err(_))) {
                    agent = None;
                }
            }
            Ok(None) => agent = None,
            Err(_) => {}
        }
    }
}

/// Kills what has left the agent's group, and so has become our child when its parent died.
fn end_orphans() {
    let until = Instant::now() + GRACE;
    while Instant::now() < until {
        let listed = std::fs::read_to_string(format!("/proc/self/task/{}/children", std::process::id()));
        let children: Vec<Pid> =
            listed.unwrap_or_default().split_whitespace().filter_map(|id| Pid::from_raw(id.parse().ok()?)).collect();
        if children.is_empty() {
            return;
        }
        for child in children {
            let _ = kill_process(child, Signal::KILL);
            let _ = waitid(WaitId::Pid(child), WaitIdOptions::EXITED);
        }
    }
}
