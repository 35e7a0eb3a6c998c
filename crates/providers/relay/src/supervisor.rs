//! The supervisor: a small process between the gateway and an agent. When the gateway ends for
//! any reason, it terminates the agent and all its child processes, and exits.
//!
//! It reads lines of JSON on its stdin: a string is written to the agent's stdin, and `null`
//! closes that. The end of its stdin means that the gateway has ended. The agent inherits stdout
//! and stderr.

use std::ffi::OsString;
use std::io::{BufRead as _, PipeReader, PipeWriter, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, set_child_subreaper,
    waitid,
};
use sa_sandbox::{Namespaces, Policy};

/// The grace period between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(2);

/// Runs a command until it or the gateway ends, and returns its exit code. With a policy, the
/// command runs in a sandbox. Must be called while the process has only one thread.
pub fn keep(command: &[OsString], sandbox: Option<Policy>) -> i32 {
    let Some((program, args)) = command.split_first() else {
        eprintln!("the command is missing");
        return 2;
    };
    // Orphaned processes of the agent become children of this process, which kills them.
    let _ = set_child_subreaper(Pid::from_raw(std::process::id().cast_signed()));
    let refused = |error: std::io::Error| {
        eprintln!("cannot start {}: {error}", program.display());
        127
    };
    let sandbox = match sandbox.map(Namespaces::enter).transpose() {
        Ok(sandbox) => sandbox,
        Err(error) => return refused(error),
    };
    let (input, stdin) = match std::io::pipe() {
        Ok(pipe) => pipe,
        Err(error) => return refused(error),
    };
    // No thread can be started after the sandbox is entered, so these threads start before and
    // wait for the command.
    let (ended, end) = mpsc::channel();
    let (started, start) = mpsc::channel();
    let gateway_ended = ended.clone();
    std::thread::spawn(move || {
        pass_on(Some(stdin));
        let _ = gateway_ended.send(());
    });
    std::thread::spawn(move || {
        let Ok(group) = start.recv() else { return };
        // The process is not reaped yet, so that its process group id cannot be reused.
        let _ = waitid(WaitId::Pid(group), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
        let _ = ended.send(());
    });
    let spawned = match sandbox {
        Some(sandbox) => start_in_sandbox(sandbox, program, args, input),
        None => Command::new(program).args(args).stdin(input).process_group(0).spawn(),
    };
    let mut child = match spawned {
        Ok(child) => child,
        Err(error) => return refused(error),
    };
    // The first process of a sandbox also leads a process group, which contains the agent.
    let group = Pid::from_child(&child);
    let _ = started.send(group);
    // Waits for the end of the agent or the gateway.
    let _ = end.recv();
    if !has_ended(group) {
        let _ = kill_process_group(group, Signal::TERM);
        let _ = end.recv_timeout(GRACE);
    }
    let _ = kill_process_group(group, Signal::KILL);
    let code = reap(&mut child);
    end_orphans();
    code
}

fn start_in_sandbox(
    sandbox: Namespaces,
    program: &OsString,
    args: &[OsString],
    input: PipeReader,
) -> std::io::Result<Child> {
    let command =
        sa_sandbox::Command { program: program.clone(), args: args.to_vec(), terminal: false };
    let (output, errors) = (std::io::stdout(), std::io::stderr());
    let started = sandbox.start(Some(command), [input.as_fd(), output.as_fd(), errors.as_fd()])?;
    Ok(started.init)
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

/// Forwards the gateway's messages to the agent until the gateway ends.
fn pass_on(mut agent: Option<PipeWriter>) {
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { return };
        match serde_json::from_str::<Option<String>>(&line) {
            Ok(Some(text)) => {
                // A write error means that the agent has closed its stdin. Its exit is noticed
                // elsewhere.
                let written = agent
                    .as_mut()
                    .map(|agent| agent.write_all(text.as_bytes()).and_then(|()| agent.flush()));
                if matches!(written, Some(Err(_))) {
                    agent = None;
                }
            }
            Ok(None) => agent = None,
            Err(_) => {}
        }
    }
}

/// Kills processes that have left the agent's group, and became children of this process when
/// their parents died.
fn end_orphans() {
    let until = Instant::now() + GRACE;
    while Instant::now() < until {
        let listed =
            std::fs::read_to_string(format!("/proc/self/task/{}/children", std::process::id()));
        let children: Vec<Pid> = listed
            .unwrap_or_default()
            .split_whitespace()
            .filter_map(|id| Pid::from_raw(id.parse().ok()?))
            .collect();
        if children.is_empty() {
            return;
        }
        for child in children {
            let _ = kill_process(child, Signal::KILL);
            let _ = waitid(WaitId::Pid(child), WaitIdOptions::EXITED);
        }
    }
}
