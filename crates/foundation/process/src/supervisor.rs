//! The supervisor: the process between the owner and a program. It ensures that no process of the
//! program outlives the owner.
//!
//! The kernel makes the supervisor the parent of orphans among the program's processes (a "child
//! subreaper"), so that none can leave its tree. It is connected to the owner by a socket. The
//! supervisor ends the whole tree, and then itself, in three cases: on an order of the owner, when
//! the socket closes because the owner ended, and when the program ends.
//!
//! Between the supervisor and the program there is one more process, which starts this program a
//! third time. Without a sandbox it is [`stage`](crate::stage), which creates the session and the
//! terminal and becomes the program. With a sandbox it is the first process of the sandbox, which
//! starts the program.

use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, getpid, set_child_subreaper,
    set_parent_process_death_signal, setsid, wait, waitid,
};

use sa_sandbox::{Namespaces, Started, handover};

use crate::STAGE;
use crate::removal::Removal;
use crate::tree::{Children, Tree};
use crate::wire::{Failure, Launch, Order, Report};

/// The maximum length of a report from the step before the program.
const MAX_REPORT: u64 = 16 * 1024;
/// The delay between checks whether all processes have ended: the first one, and the maximum.
const AGAIN: Duration = Duration::from_millis(20);
const RARELY: Duration = Duration::from_secs(5);

/// Supervises a program.
pub(crate) fn run() -> ExitCode {
    // Ctrl-C in the owner's terminal is for the owner only, which then ends its programs itself.
    let _ = setsid();
    // A program can stop its supervisor. If the owner then dies, the kernel wakes the supervisor so
    // that it can clean up.
    let _ = set_parent_process_death_signal(Some(Signal::CONT));
    match start() {
        Ok((pid, supervision)) => {
            report(&Report::Started { pid });
            supervision.run();
            ExitCode::SUCCESS
        }
        Err(failure) => {
            report(&Report::Failed(failure));
            ExitCode::FAILURE
        }
    }
}

/// Everything that the supervisor needs after the program has started.
struct Supervision {
    tree: Tree,
    events: mpsc::Receiver<Event>,
    grace: Duration,
    removal: Option<Removal>,
}

/// Starts the program after everything that the supervisor needs, because a program can exhaust the
/// files and processes that the supervisor may still open or start. Each of the two event sources
/// therefore has a thread that blocks on it and sends its events to a channel.
///
/// The namespaces of a sandbox are entered before there are threads, and the sandbox is started
/// after them, as [`Namespaces`] requires.
fn start() -> Result<(i32, Supervision), Failure> {
    set_child_subreaper(Some(getpid())).map_err(io::Error::from)?;
    let files: [OwnedFd; 4] = handover::receive(rustix::stdio::stdin())?;
    let mut launch: Launch = handover::from_memory(files[0].try_clone()?)?;
    let (grace, removal) = (launch.grace, launch.remove.take().map(Removal::new));
    let sandbox = launch.sandbox.take().map(Namespaces::enter).transpose()?;
    let tree = Tree::new()?;
    let (sender, events) = mpsc::channel();
    let (started, program) = mpsc::channel();
    let (children, reaped) = (tree.children(), sender.clone());
    std::thread::Builder::new().spawn(move || reap(&program, &children, &reaped))?;
    std::thread::Builder::new().spawn(move || listen(&sender))?;
    let program = match sandbox {
        Some(sandbox) => start_in_sandbox(sandbox, launch, files)?,
        None => Program { pid: start_stage(files)?, sandbox: None },
    };
    let pid = program.pid.as_raw_pid();
    let _ = started.send(program);
    Ok((pid, Supervision { tree, events, grace, removal }))
}

/// The process that defines the end of the program: its own, or the first process of its sandbox.
struct Program {
    pid: Pid,
    sandbox: Option<Started>,
}

fn start_in_sandbox(
    sandbox: Namespaces,
    launch: Launch,
    files: [OwnedFd; 4],
) -> io::Result<Program> {
    let [_, input, output, errors] = files;
    let command = sa_sandbox::Command {
        program: launch.program,
        args: launch.args,
        terminal: launch.terminal,
    };
    let started = sandbox.start(Some(command), [input.as_fd(), output.as_fd(), errors.as_fd()])?;
    Ok(Program { pid: Pid::from_child(&started.init), sandbox: Some(started) })
}

/// Starts the step that becomes the program, and waits until it has.
fn start_stage(files: [OwnedFd; 4]) -> Result<Pid, Failure> {
    let (ours, theirs) = UnixStream::pair()?;
    let child = Command::new("/proc/self/exe")
        .arg0("switchboard-command")
        .arg(STAGE)
        .arg(getpid().as_raw_pid().to_string())
        .stdin(OwnedFd::from(theirs))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    handover::send(&ours, &files.each_ref().map(OwnedFd::as_fd))?;
    // The program must hold the last handle of its end of a pipe.
    drop(files);
    // The step closes its end of the socket when it becomes the program, or reports a failure.
    let mut line = String::new();
    ours.take(MAX_REPORT).read_to_string(&mut line)?;
    match serde_json::from_str(&line) {
        Ok(Report::Failed(failure)) => Err(failure),
        _ if line.is_empty() => Ok(Pid::from_child(&child)),
        _ => Err(io::Error::other("the step before the program did not start it").into()),
    }
}

impl Supervision {
    /// Waits until the program and all its descendants have ended. Nothing here needs a new
    /// descriptor.
    fn run(mut self) {
        let mut phase = Phase::Running;
        loop {
            let event = match phase {
                Phase::Running => self.events.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Phase::Terminating { until } => {
                    self.events.recv_timeout(until.saturating_duration_since(Instant::now()))
                }
                Phase::Killing { again } => self.events.recv_timeout(again),
            };
            match event {
                Ok(Event::Exited(exited)) => {
                    report(&exited);
                    // Processes that the program has left behind are ended with it.
                    phase.terminate(&mut self.tree, self.grace);
                }
                Ok(Event::Gone) => break,
                Ok(Event::Order(Order::Terminate) | Event::OwnerGone) => {
                    phase.terminate(&mut self.tree, self.grace);
                }
                Ok(Event::Order(Order::Kill)) | Err(RecvTimeoutError::Timeout) => phase.kill(),
                Err(RecvTimeoutError::Disconnected) => {
                    self.tree.kill_all();
                    break;
                }
            }
            if matches!(phase, Phase::Killing { .. }) {
                self.tree.kill_all();
            }
        }
        if let Some(removal) = self.removal {
            removal.run();
        }
        report(&Report::Gone);
    }
}

/// The events that a supervisor waits for.
enum Event {
    /// The program has ended, with this report.
    Exited(Report),
    /// All its descendants have ended, too.
    Gone,
    Order(Order),
    OwnerGone,
}

enum Phase {
    Running,
    Terminating { until: Instant },
    Killing { again: Duration },
}

impl Phase {
    /// Asks all processes to end. Without a grace period, they are killed instead.
    fn terminate(&mut self, tree: &mut Tree, grace: Duration) {
        if !matches!(self, Self::Running) {
            return;
        }
        if grace.is_zero() {
            return self.kill();
        }
        tree.terminate_all();
        *self = Self::Terminating { until: Instant::now() + grace };
    }

    /// Retries killing with increasing delays, for processes that cannot be killed, such as those
    /// of another user.
    fn kill(&mut self) {
        *self = match self {
            Self::Killing { again } => Self::Killing { again: (*again * 2).min(RARELY) },
            _ => Self::Killing { again: AGAIN },
        };
    }
}

/// Forwards the owner's orders. A disconnected or unreadable socket counts as the owner's end.
fn listen(sender: &mpsc::Sender<Event>) {
    let mut bytes = [0; 64];
    loop {
        let event = match rustix::io::read(rustix::stdio::stdin(), &mut bytes) {
            Ok(count @ 1..) => Event::Order(Order::read(&bytes[..count])),
            Err(Errno::INTR) => continue,
            Ok(0) | Err(_) => Event::OwnerGone,
        };
        let last = matches!(event, Event::OwnerGone);
        if sender.send(event).is_err() || last {
            return;
        }
    }
}

/// Reaps every process that ends, and reports the end of the program. Orphans become children of
/// this process, so when there is no child left, the whole tree has ended.
fn reap(program: &mpsc::Receiver<Program>, children: &Children, sender: &mpsc::Sender<Event>) {
    let Ok(mut program) = program.recv() else { return };
    loop {
        // The process stays a zombie while another thread may be about to send a signal to its
        // number.
        match waitid(WaitId::All, WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => {
                let _ = sender.send(Event::Gone);
                return;
            }
        }
        if let Ok(Some((pid, status))) = children.still(|| wait(WaitOptions::NOHANG))
            && pid == program.pid
        {
            // The first process of a sandbox reports how the program ended, unless it was killed.
            let reported = program.sandbox.as_mut().and_then(Started::ended);
            let (code, signal) = match reported {
                Some(ended) => (ended.code, ended.signal),
                None => (status.exit_status(), status.terminating_signal()),
            };
            let _ = sender.send(Event::Exited(Report::Exited { code, signal }));
        }
    }
}

/// Sends a report to the owner. If the owner has disconnected, the error is ignored.
fn report(report: &Report) {
    let _ = rustix::io::write(rustix::stdio::stdin(), report.line().as_bytes());
}
