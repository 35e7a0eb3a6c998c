//! The supervisor: the process between the node and a command, which ensures that no process of the
//! command outlives it.
//!
//! A node that is killed cannot clean up, and a command can leave its process group, its session
//! and its parent. So each command has a supervisor: this program, started again. The kernel makes
//! it the parent of orphans among the command's processes (a "child subreaper"), so that none can
//! leave its tree. It is connected to the node by a socket. The supervisor ends the whole tree, and
//! then itself, in three cases: on an order of the node, when the socket closes because the node
//! died, and when the command's shell ends.
//!
//! Between the supervisor and the shell there is one more process, which runs this program a third
//! time. Without a sandbox it is [`stage`], which creates the session and the terminal and becomes
//! the shell. With a sandbox it is the first process of the sandbox, which starts the shell.

mod stage;
mod tree;
pub(super) mod wire;

use std::io::Read as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, getpid, set_child_subreaper,
    set_parent_process_death_signal, setsid, wait, waitid,
};

use sa_sandbox::{Namespaces, Started, handover};

use self::tree::{Children, Tree};
use self::wire::{Launch, Said};
use super::private;

/// The argument that starts this program as a supervisor.
pub(super) const SUPERVISOR: &str = "__supervisor";
/// The argument that starts this program as the step before a command.
const STAGE: &str = "__command";

/// The delay between SIGTERM and SIGKILL.
const MERCY: Duration = Duration::from_millis(250);
/// The delay between checks whether all processes have ended: the first one, and the maximum.
const AGAIN: Duration = Duration::from_millis(20);
const RARELY: Duration = Duration::from_secs(5);

static PREPARED: AtomicBool = AtomicBool::new(false);

/// Runs this process as a supervisor if it was started as one, and returns its exit code. Otherwise
/// marks that this program can be a supervisor.
///
/// Call it first in `main`, before starting any thread and reading any argument. A machine without
/// [`Options::supervisor`](crate::Options::supervisor) starts its own program as a supervisor.
pub fn run_if_asked() -> Option<ExitCode> {
    PREPARED.store(true, Ordering::Release);
    if let Some(code) = sa_sandbox::run_if_asked() {
        return Some(code);
    }
    let mut words = std::env::args_os().skip(1);
    let first = words.next()?;
    match first.to_str()? {
        SUPERVISOR => Some(keep(words.next().map(PathBuf::from).as_deref())),
        STAGE => Some(stage::become_command(words.next())),
        _ => None,
    }
}

/// Returns whether this program can be a supervisor.
pub(super) fn prepared() -> bool {
    PREPARED.load(Ordering::Acquire)
}

/// Supervises a command. Its private directory, if any, is removed at the end.
fn keep(private: Option<&Path>) -> ExitCode {
    // Ctrl-C in the node's terminal is for the node only, which then ends its commands itself.
    let _ = setsid();
    // A command can stop its supervisor. If the node then dies, the kernel wakes the supervisor so
    // that it can clean up.
    let _ = set_parent_process_death_signal(Some(Signal::CONT));
    let removal = private.map(private::Removal::new);
    match prepare() {
        Ok((shell, tree, news)) => {
            say(&Said::Started { pid: shell });
            stay(tree, &news, removal);
            ExitCode::SUCCESS
        }
        Err(error) => {
            say(&Said::Failed { why: error.to_string() });
            ExitCode::FAILURE
        }
    }
}

/// Starts the command after everything that the supervisor needs, because a command can exhaust the
/// files and processes that the supervisor may still open or start. Each of the two event sources
/// therefore has a thread that blocks on it and sends its events to a channel.
///
/// The namespaces of a sandbox are entered before there are threads, and the sandbox is started
/// after them, as [`Namespaces`] requires.
fn prepare() -> std::io::Result<(i32, Tree, mpsc::Receiver<News>)> {
    set_child_subreaper(Some(getpid()))?;
    let files: [OwnedFd; 3] = handover::receive(rustix::stdio::stdin())?;
    let mut launch: Launch = handover::from_memory(files[0].try_clone()?)?;
    let sandbox = launch.sandbox.take().map(Namespaces::enter).transpose()?;
    let tree = Tree::new()?;
    let (tell, news) = mpsc::channel();
    let (started, shell) = mpsc::channel();
    let (children, reaped) = (tree.children(), tell.clone());
    std::thread::Builder::new().spawn(move || reap(&shell, &children, &reaped))?;
    std::thread::Builder::new().spawn(move || listen(&tell))?;
    let shell = match sandbox {
        Some(sandbox) => start_in_sandbox(sandbox, launch, files)?,
        None => Shell { pid: start(files)?, sandbox: None },
    };
    let pid = shell.pid.as_raw_pid();
    let _ = started.send(shell);
    Ok((pid, tree, news))
}

/// The process that defines the end of the command: the shell, or the first process of the shell's
/// sandbox.
struct Shell {
    pid: Pid,
    sandbox: Option<Started>,
}

fn start_in_sandbox(
    sandbox: Namespaces,
    launch: Launch,
    files: [OwnedFd; 3],
) -> std::io::Result<Shell> {
    let [_, input, output] = files;
    let command = sa_sandbox::Command {
        program: launch.shell.into(),
        args: vec!["-lc".into(), launch.command.into()],
        terminal: launch.terminal,
    };
    let started = sandbox.start(Some(command), [input.as_fd(), output.as_fd(), output.as_fd()])?;
    Ok(Shell { pid: Pid::from_child(&started.init), sandbox: Some(started) })
}

/// Starts the step that becomes the shell, and waits until it has.
fn start(files: [OwnedFd; 3]) -> std::io::Result<Pid> {
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
    // The command must hold the last handle of its end of the pipe.
    drop(files);
    // The step closes its end of the socket when it becomes the shell, or sends an error.
    let mut why = String::new();
    (&ours).take(4096).read_to_string(&mut why)?;
    if why.is_empty() { Ok(pid_of(child.id())) } else { Err(std::io::Error::other(why)) }
}

/// Waits until the command and all its descendants have ended. Nothing here needs a new descriptor.
fn stay(mut tree: Tree, news: &mpsc::Receiver<News>, removal: Option<private::Removal>) {
    let mut phase = Phase::Running;
    loop {
        let heard = match phase {
            Phase::Running => news.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Phase::Terminating { until } => {
                news.recv_timeout(until.saturating_duration_since(Instant::now()))
            }
            Phase::Killing { again } => news.recv_timeout(again),
        };
        match heard {
            Ok(News::Ended(said)) => {
                say(&said);
                // Processes that the shell has left behind are ended with it.
                phase.terminate(&mut tree);
            }
            Ok(News::Gone) => break,
            Ok(News::Order("term")) => phase.terminate(&mut tree),
            Ok(News::Order(_) | News::NodeGone) | Err(RecvTimeoutError::Timeout) => phase.kill(),
            Err(RecvTimeoutError::Disconnected) => {
                tree.kill_all();
                break;
            }
        }
        if matches!(phase, Phase::Killing { .. }) {
            tree.kill_all();
        }
    }
    if let Some(removal) = removal {
        removal.run();
    }
    say(&Said::Gone);
}

/// The events that a supervisor waits for.
enum News {
    /// The shell has ended.
    Ended(Said),
    /// All its descendants have ended, too.
    Gone,
    /// `term` or `kill`.
    Order(&'static str),
    /// The node has disconnected.
    NodeGone,
}

enum Phase {
    Running,
    Terminating { until: Instant },
    Killing { again: Duration },
}

impl Phase {
    fn terminate(&mut self, tree: &mut Tree) {
        if matches!(self, Self::Running) {
            tree.terminate_all();
            *self = Self::Terminating { until: Instant::now() + MERCY };
        }
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

/// Forwards the node's orders. A disconnected or unreadable socket counts as a dead node.
fn listen(tell: &mpsc::Sender<News>) {
    let mut bytes = [0; 64];
    loop {
        let news = match rustix::io::read(rustix::stdio::stdin(), &mut bytes) {
            // Orders are short and rare; of several, `kill` takes precedence.
            Ok(count @ 1..) => {
                News::Order(if bytes[..count].contains(&b'k') { "kill" } else { "term" })
            }
            Err(Errno::INTR) => continue,
            Ok(0) | Err(_) => News::NodeGone,
        };
        let last = matches!(news, News::NodeGone);
        if tell.send(news).is_err() || last {
            return;
        }
    }
}

/// Reaps every process that ends, and reports the end of the shell. Orphans become children of this
/// process, so when there is no child left, the whole tree has ended.
fn reap(shell: &mpsc::Receiver<Shell>, children: &Children, tell: &mpsc::Sender<News>) {
    let Ok(mut shell) = shell.recv() else { return };
    loop {
        // The process stays a zombie while another thread may be about to send a signal to its
        // number.
        match waitid(WaitId::All, WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => {
                let _ = tell.send(News::Gone);
                return;
            }
        }
        if let Ok(Some((pid, status))) = children.still(|| wait(WaitOptions::NOHANG))
            && pid == shell.pid
        {
            // The first process of a sandbox reports how the shell ended, unless it was killed.
            let reported = shell.sandbox.as_mut().and_then(Started::ended);
            let (code, signal) = match reported {
                Some(ended) => (ended.code, ended.signal),
                None => (status.exit_status(), status.terminating_signal()),
            };
            let _ = tell.send(News::Ended(Said::Exited { code, signal }));
        }
    }
}

fn say(said: &Said) {
    say_line(&format!("{}\n", said.line()));
}

/// Sends a line to the node. If the node has disconnected, the error is ignored.
fn say_line(line: &str) {
    let _ = rustix::io::write(rustix::stdio::stdin(), line.as_bytes());
}

fn pid_of(id: u32) -> Pid {
    Pid::from_raw(id.cast_signed()).unwrap_or(Pid::INIT)
}

/// Returns the name of the signal that ended a command.
pub(super) fn signal_name(number: i32) -> String {
    let name = match Signal::from_named_raw(number) {
        Some(Signal::HUP) => "SIGHUP",
        Some(Signal::INT) => "SIGINT",
        Some(Signal::QUIT) => "SIGQUIT",
        Some(Signal::ILL) => "SIGILL",
        Some(Signal::TRAP) => "SIGTRAP",
        Some(Signal::ABORT) => "SIGABRT",
        Some(Signal::BUS) => "SIGBUS",
        Some(Signal::FPE) => "SIGFPE",
        Some(Signal::KILL) => "SIGKILL",
        Some(Signal::USR1) => "SIGUSR1",
        Some(Signal::SEGV) => "SIGSEGV",
        Some(Signal::USR2) => "SIGUSR2",
        Some(Signal::PIPE) => "SIGPIPE",
        Some(Signal::ALARM) => "SIGALRM",
        Some(Signal::TERM) => "SIGTERM",
        Some(Signal::XCPU) => "SIGXCPU",
        Some(Signal::XFSZ) => "SIGXFSZ",
        Some(Signal::VTALARM) => "SIGVTALRM",
        Some(Signal::PROF) => "SIGPROF",
        Some(Signal::IO) => "SIGIO",
        Some(Signal::POWER) => "SIGPWR",
        Some(Signal::SYS) => "SIGSYS",
        _ => return format!("SIG{number}"),
    };
    name.to_owned()
}
