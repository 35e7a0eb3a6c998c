//! The first process of a sandbox: it restricts itself, starts the command and collects processes
//! that have ended.

use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Mode, OFlags, fstat};
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, ioctl_tiocsctty, kill_process_group,
    set_parent_process_death_signal, setsid, wait,
};
use rustix::termios::ttyname;
use serde::{Deserialize, Serialize};

use crate::namespaces::Command;
use crate::{Policy, calls, files, handover, privileges, view};

/// The time between SIGTERM and SIGKILL for the remaining processes after the command has ended.
const GRACE: Duration = Duration::from_millis(250);
const POLL_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };

/// The supervisor's request. Without a command, it only checks whether the sandbox is possible.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Launch {
    pub(crate) policy: Policy,
    pub(crate) command: Option<Command>,
    /// The highest version of Landlock to use.
    pub(crate) landlock: i32,
}

/// The messages from `init` to the supervisor, one per line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Report {
    Started,
    Failed(String),
    Ended(Ended),
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    pub code: Option<i32>,
    pub signal: Option<i32>,
}

pub(crate) fn run() -> ExitCode {
    close_inherited();
    let Ok(socket) =
        rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3).map(UnixStream::from)
    else {
        return ExitCode::FAILURE;
    };
    let command = match start(&socket) {
        Ok(command) => command,
        Err(error) => {
            report(&socket, &Report::Failed(error.to_string()));
            return ExitCode::FAILURE;
        }
    };
    report(&socket, &Report::Started);
    let Some(command) = command else { return ExitCode::SUCCESS };
    let ended = wait_for(command);
    report(&socket, &Report::Ended(ended));
    end_others(&socket);
    ExitCode::from(ended.exit_code())
}

/// Closes files that the supervisor has inherited, such as a directory that its shell had open.
/// Through them, the command could access the host's files. No other files are open yet.
fn close_inherited() {
    let entries = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let numbers: Vec<i32> =
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    for number in numbers.into_iter().filter(|number| *number > 2) {
        // The descriptor that listed the directory is closed already.
        let _ = nix::unistd::close(number);
    }
}

/// Enters the sandbox and starts the command in it.
fn start(socket: &UnixStream) -> io::Result<Option<Pid>> {
    let [launch, mut input, output, errors] = handover::receive(socket)?;
    let Launch { policy, command, landlock } = handover::from_memory(launch)?;
    // The new session has no access to the terminal from which the supervisor was started.
    setsid()?;
    let mut terminal = None;
    if command.as_ref().is_some_and(|command| command.terminal) {
        ioctl_tiocsctty(input.as_fd())?;
        terminal = ttyname(&input, Vec::new()).ok();
    }
    let terminal =
        terminal.as_deref().map(|name| Path::new(std::ffi::OsStr::from_bytes(name.to_bytes())));
    privileges::limit_resources()?;
    view::enter(&policy, terminal)?;
    if terminal.is_none() {
        input = own_device(input)?;
    }
    privileges::drop_all()?;
    stay_with_supervisor(socket)?;
    files::restrict(&policy, terminal.is_some(), landlock)?;
    calls::filter(&policy)?;
    let Some(command) = command else { return Ok(None) };
    let child = std::process::Command::new(&command.program)
        .args(&command.args)
        .stdin(input)
        .stdout(output)
        .stderr(errors)
        .spawn()
        .map_err(|error| {
            io::Error::new(
                error.kind(),
                format!("cannot start {}: {error}", command.program.display()),
            )
        })?;
    Ok(Some(Pid::from_child(&child)))
}

/// Replaces the host's `/dev/null` by the sandbox's own. The mode and times of the host's device
/// could be changed through its descriptor.
fn own_device(input: OwnedFd) -> io::Result<OwnedFd> {
    if FileType::from_raw_mode(fstat(&input)?.st_mode) != FileType::CharacterDevice {
        return Ok(input);
    }
    Ok(rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}

/// Makes the kernel kill this process, and with it the whole sandbox, when the supervisor ends.
fn stay_with_supervisor(socket: &UnixStream) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // The supervisor may have ended before that. Then its end of the socket is closed.
    let mut ends = [PollFd::new(socket, PollFlags::empty())];
    poll(&mut ends, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
    if ends[0].revents().contains(PollFlags::HUP) {
        return Err(io::Error::other("the supervisor has ended"));
    }
    Ok(())
}

/// Reaps processes until the command has ended.
fn wait_for(command: Pid) -> Ended {
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == command => return Ended::from(status),
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return Ended { code: None, signal: None },
        }
    }
}

/// Sends SIGTERM to the remaining processes. The kernel kills the rest when this process ends.
fn end_others(socket: &UnixStream) {
    // For the first process of a namespace, process group 1 stands for all other processes.
    let all = Pid::INIT;
    if !others_run() {
        return;
    }
    let _ = kill_process_group(all, Signal::TERM);
    let _ = kill_process_group(all, Signal::CONT);
    let until = Instant::now() + GRACE;
    while others_run() && Instant::now() < until {
        // No data arrives here. This is a bounded wait that ends early when the supervisor ends.
        let _ = poll(&mut [PollFd::new(socket, PollFlags::empty())], Some(&POLL_INTERVAL));
    }
}

fn others_run() -> bool {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}

fn report(mut socket: &UnixStream, report: &Report) {
    let line = format!("{}\n", serde_json::to_string(report).unwrap_or_default());
    // A supervisor that has ended needs no report.
    let _ = socket.write_all(line.as_bytes());
}

impl From<WaitStatus> for Ended {
    fn from(status: WaitStatus) -> Self {
        Self { code: status.exit_status(), signal: status.terminating_signal() }
    }
}

impl Ended {
    /// Returns the exit code in the convention of shells.
    fn exit_code(self) -> u8 {
        let code = self.code.or(self.signal.map(|signal| 128 + signal)).unwrap_or(1);
        u8::try_from(code).unwrap_or(1)
    }
}
