//! The step between the keeper and the shell: what has to be done in the process that becomes the shell.

use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitCode};

use rustix::fs::{FileType, Mode, OFlags, fstat};
use rustix::process::{Signal, getppid, ioctl_tiocsctty, set_parent_process_death_signal, setsid};
use rustix::termios::ttyname;

use super::wire::{self, Launch};
use crate::shell::sandbox::{self, Policy};

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
    let mut files = wire::receive(socket)?.into_iter();
    let (Some(launch), Some(input), Some(output)) = (files.next(), files.next(), files.next()) else {
        return Err(io::Error::other("files are missing"));
    };
    let launch: Launch = wire::from_memory(launch)?;
    setsid()?;
    if launch.terminal {
        ioctl_tiocsctty(input.as_fd())?;
    }
    let mut input = input;
    if let Some(policy) = &launch.sandbox {
        let terminal = launch.terminal.then(|| ttyname(&input, Vec::new())).and_then(Result::ok);
        let terminal = terminal.as_deref().map(|name| Path::new(OsStr::from_bytes(name.to_bytes())));
        sandbox::enter(policy, terminal)?;
        if !launch.terminal && FileType::from_raw_mode(fstat(&input)?.st_mode) == FileType::CharacterDevice {
            // The one that the node has opened could be changed through its descriptor.
            input = rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        }
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

/// Enters the sandbox that stdin describes, and says on stdout why it cannot be had.
pub(super) fn probe() -> ExitCode {
    let mut text = String::new();
    let read = io::stdin().read_to_string(&mut text);
    let policy = read.and_then(|_| serde_json::from_str::<Policy>(&text).map_err(io::Error::from));
    match policy.and_then(|policy| sandbox::enter(&policy, None)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = write!(io::stdout(), "{error}");
            ExitCode::FAILURE
        }
    }
}
