//! The sandbox of agents: what their configuration means, and whether it is possible.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use sa_sandbox::{Bind, Policy};

use crate::agent::AgentCommand;

/// Where an agent in a sandbox finds its session's socket and this program.
pub(crate) const RELAY: &str = "/run/switchboard/relay.sock";
pub(crate) const PROGRAM: &str = "/run/switchboard/switchboard";

/// What every session of an agent has in common.
pub(crate) fn policy(command: &AgentCommand, data_dir: &Path) -> io::Result<Policy> {
    let mut policy = Policy::new(command.network);
    policy.unix_sockets = true;
    let data_dir = data_dir.canonicalize().unwrap_or_else(|_| data_dir.to_owned());
    for path in command.read.iter().map(PathBuf::from) {
        if path.canonicalize().is_ok_and(|real| real.starts_with(&data_dir)) {
            let why = format!("read: {} is in the gateway's data directory, which no agent may read", path.display());
            return Err(io::Error::other(why));
        }
        policy.readable.push(path);
    }
    Ok(policy.hiding([data_dir]))
}

/// The same with the directory, the socket and the program of one session.
pub(crate) fn of_session(mut policy: Policy, dir: &Path, socket: &Path, program: &Path) -> Policy {
    policy.writable.push(dir.to_owned());
    for (source, target) in [(socket, RELAY), (program, PROGRAM)] {
        policy.binds.push(Bind { source: source.to_owned(), target: target.into() });
    }
    policy
}

/// Refuses a program that exists and that the sandbox does not show. The system would only say that it does not exist.
pub(crate) fn check_program(policy: &Policy, command: &AgentCommand) -> io::Result<()> {
    let program = command.command.first().map(Path::new).filter(|program| program.is_absolute());
    match program {
        Some(program) if program.exists() && !policy.shows(program) => {
            let folder = program.parent().unwrap_or(program).display();
            Err(io::Error::other(format!("the sandbox does not see it; add read = [\"{folder}\"]")))
        }
        _ => Ok(()),
    }
}

/// Tries the sandboxes of all agents that have one, each in a process of its own. The program is one that calls
/// [`sa_sandbox::run_if_asked`]. The error names the agent and the part that is missing.
pub fn check(program: &Path, data_dir: &Path, agents: &BTreeMap<String, AgentCommand>) -> Result<(), String> {
    for (name, command) in agents.iter().filter(|(_, command)| command.sandbox) {
        let policy = policy(command, data_dir).map_err(|error| error.to_string());
        policy.and_then(|policy| sa_sandbox::probe(program, &policy)).map_err(|why| {
            format!("the agent \"{name}\" cannot have its sandbox: {why}; to run it without one, set sandbox = false")
        })?;
    }
    Ok(())
}
