//! The step between the keeper and the shell: what has to be done in the process that becomes the shell.

use std::convert::Infallible;
use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use rustix::process::{Signal, getppid, ioctl_tiocsctty, set_parent_process_death_signal, setsid};
use sa_sandbox::handover;

use super::wire::Launch;

/// Becomes the shell, or tells the keeper why not.
pub(super) fn become_command(keeper: Option<OsString>) -> ExitCode {
    let Err(error) = attempt(keeper);
    if let Some(mut report) = error.report {
        let _ = report.write_all(error.why.as_bytes());
    }
    ExitCode::FAILURE
}

struct Failed {
    why: String,
    report: Option<UnixStream>,
}

fn attempt(keeper: Option<OsString>) -> Result<Infallible, Failed> {
    // Closed when the shell takes over, which is how the keeper knows.
    let socket = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3).map(UnixStream::from);
    let socket = socket.map_err(|error| Failed { why: error.to_string(), report: None })?;
    let Err(error) = command(&socket, keeper);
    Err(Failed { why: error.to_string(), report: Some(socket) })
}

fn command(socket: &UnixStream, keeper: Option<OsString>) -> io::Result<Infallible> {
    let [launch, input, output] = handover::receive(socket)?;
    let launch: Launch = handover::from_memory(launch)?;
    setsid()?;
    if launch.terminal {
        ioctl_tiocsctty(input.as_fd())?;
    }
    // A keeper that is killed cannot end the tree; the shell at least goes with it.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let parent = getppid().map(|pid| pid.as_raw_pid().to_string().into());
    if parent != keeper {
        return Err(io::Error::other("the keeper is gone"));
    }
    take_over(input, output)?;
    let error = Command::new(&launch.shell).arg("-lc").arg(&launch.command).exec();
    Err(io::Error::new(error.kind(), format!("cannot run {}: {error}", launch.shell)))
}

/// One pipe for both kinds of output: what the command wrote first comes first.
fn take_over(input: OwnedFd, output: OwnedFd) -> io::Result<()> {
    rustix::stdio::dup2_stdin(input)?;
    rustix::stdio::dup2_stdout(&output)?;
    rustix::stdio::dup2_stderr(output)?;
    Ok(())
}
