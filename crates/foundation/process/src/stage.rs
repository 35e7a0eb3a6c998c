//! The step between the supervisor and the program: the setup that must happen in the process that
//! becomes the program.

use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use rustix::fs::{Access, access};
use rustix::io::Errno;
use rustix::process::{Signal, getppid, ioctl_tiocsctty, set_parent_process_death_signal, setsid};
use sa_sandbox::handover;

use crate::wire::{Failure, Launch, Report};

/// Becomes the program, or reports the failure to the supervisor.
pub(crate) fn become_program(supervisor: Option<OsString>) -> ExitCode {
    // The socket is closed when the program takes over, which informs the supervisor.
    if let Ok(socket) = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3) {
        let mut socket = UnixStream::from(socket);
        let Err(failure) = attempt(&socket, supervisor);
        let _ = socket.write_all(Report::Failed(failure).line().as_bytes());
    }
    ExitCode::FAILURE
}

fn attempt(socket: &UnixStream, supervisor: Option<OsString>) -> Result<Infallible, Failure> {
    let launch = prepare(socket, supervisor)?;
    let error = if lacks_interpreter(&launch.program) {
        Errno::NOEXEC.into()
    } else {
        Command::new(&launch.program).args(&launch.args).exec()
    };
    let why = format!("cannot run {}: {error}", launch.program.display());
    Err(Failure { why, code: error.raw_os_error() })
}

fn prepare(socket: &UnixStream, supervisor: Option<OsString>) -> io::Result<Launch> {
    let [launch, input, output, errors] = handover::receive(socket)?;
    let launch: Launch = handover::from_memory(launch)?;
    setsid()?;
    if launch.terminal {
        ioctl_tiocsctty(input.as_fd())?;
    }
    // A supervisor that is killed cannot end the tree, but at least the program is killed with it.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let parent = getppid().map(|pid| pid.as_raw_pid().to_string().into());
    if parent != supervisor {
        return Err(io::Error::other("the supervisor process has ended"));
    }
    rustix::stdio::dup2_stdin(input)?;
    rustix::stdio::dup2_stdout(output)?;
    rustix::stdio::dup2_stderr(errors)?;
    Ok(launch)
}

/// Returns whether the program is a text without `#!`. The kernel refuses to execute it, and the C
/// library would then run it as a shell script.
fn lacks_interpreter(program: &OsStr) -> bool {
    let path = std::env::var_os("PATH").filter(|_| !program.as_bytes().contains(&b'/'));
    let folders = path.iter().flat_map(std::env::split_paths);
    let mut files =
        folders.map(|folder| folder.join(program)).chain(path.is_none().then(|| program.into()));
    let file = files.find(|file| access(file, Access::EXEC_OK).is_ok());
    let mut head = Vec::new();
    let read = file.and_then(|file| File::open(file).ok()?.take(64).read_to_end(&mut head).ok());
    // Binary formats have zeros in their header.
    read.is_some() && !head.starts_with(b"#!") && !head.contains(&0)
}
