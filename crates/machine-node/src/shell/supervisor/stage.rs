//! The step between the supervisor and the shell: the setup that must happen in the process that
//! becomes the shell.

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

/// Becomes the shell, or reports the error to the supervisor.
pub(super) fn become_command(supervisor: Option<OsString>) -> ExitCode {
    let Err(error) = attempt(supervisor);
    if let Some(mut report) = error.report {
        let _ = report.write_all(error.why.as_bytes());
    }
    ExitCode::FAILURE
}

struct Failed {
    why: String,
    report: Option<UnixStream>,
}

fn attempt(supervisor: Option<OsString>) -> Result<Infallible, Failed> {
    // The socket is closed when the shell takes over, which informs the supervisor.
    let socket = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3).map(UnixStream::from);
    let socket = socket.map_err(|error| Failed { why: error.to_string(), report: None })?;
    let Err(error) = command(&socket, supervisor);
    Err(Failed { why: error.to_string(), report: Some(socket) })
}

fn command(socket: &UnixStream, supervisor: Option<OsString>) -> io::Result<Infallible> {
    let [launch, input, output] = handover::receive(socket)?;
    let launch: Launch = handover::from_memory(launch)?;
    setsid()?;
    if launch.terminal {
        ioctl_tiocsctty(input.as_fd())?;
    }
    // A supervisor that is killed cannot end the tree, but at least the shell is killed with it.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let parent = getppid().map(|pid| pid.as_raw_pid().to_string().into());
    if parent != supervisor {
        return Err(io::Error::other("the supervisor process has ended"));
    }
    take_over(input, output)?;
    let error = Command::new(&launch.shell).arg("-lc").arg(&launch.command).exec();
    Err(io::Error::new(error.kind(), format!("cannot run {}: {error}", launch.shell)))
}

/// Uses one pipe for both kinds of output, so that their order is preserved.
fn take_over(input: OwnedFd, output: OwnedFd) -> io::Result<()> {
    rustix::stdio::dup2_stdin(input)?;
    rustix::stdio::dup2_stdout(&output)?;
    rustix::stdio::dup2_stderr(output)?;
    Ok(())
}
