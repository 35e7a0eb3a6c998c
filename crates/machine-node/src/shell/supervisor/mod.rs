//! The keeper: the process between the node and a command, which sees to it that nothing of the command outlives it.
//!
//! A node that is killed cannot clean up, and a command can leave its process group, its session and its parent. So each
//! command has a keeper: this very program, started anew. It is what the orphans among the command's processes are given
//! to (a "child subreaper"), so that none can leave its tree, and it holds one end of a socket whose other end is the
//! node's. When the node says so, when the socket ends (the node died, by whatever signal) or when the command's shell
//! ends, the keeper ends the whole tree, and then itself.
//!
//! Between the keeper and the shell there is one more process, this program a third time. Without a sandbox it is
//! [`stage`], which makes the session and the terminal and becomes the shell. With one it is the first process of the
//! sandbox, which starts the shell; the keeper is the sandbox's supervisor.

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
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, getpid, set_child_subreaper, set_parent_process_death_signal,
    setsid, wait, waitid,
};

use sa_sandbox::{Namespaces, Started, handover};

use self::tree::{Children, Tree};
use self::wire::{Launch, Said};
use super::private;

/// The word by which this program is asked to be a keeper.
pub(super) const KEEPER: &str = "__keeper";
/// The word by which it is asked to become a command.
const STAGE: &str = "__command";

/// What a command has between SIGTERM and SIGKILL.
const MERCY: Duration = Duration::from_millis(250);
/// How long to wait before looking again whether all are dead, at first and in the end.
const AGAIN: Duration = Duration::from_millis(20);
const RARELY: Duration = Duration::from_secs(5);

static PREPARED: AtomicBool = AtomicBool::new(false);

/// Makes this process a keeper if it was started as one, and gives back how it ended; otherwise notes that this program
/// can be one. To be called first thing in `main`, before any thread is started and any argument is read: a machine
/// without [`Options::keeper`](crate::Options::keeper) starts the program that it is part of.
pub fn run_if_asked() -> Option<ExitCode> {
    PREPARED.store(true, Ordering::Release);
    if let Some(code) = sa_sandbox::run_if_asked() {
        return Some(code);
    }
    let mut words = std::env::args_os().skip(1);
    let first = words.next()?;
    match first.to_str()? {
        KEEPER => Some(keep(words.next().map(PathBuf::from).as_deref())),
        STAGE => Some(stage::become_command(words.next())),
        _ => None,
    }
}

/// Whether this program can be a keeper.
pub(super) fn prepared() -> bool {
    PREPARED.load(Ordering::Acquire)
}

/// Keeps a command. The directory that it has for itself, if any, goes with it.
fn keep(private: Option<&Path>) -> ExitCode {
    // Ctrl-C in the node's terminal is for the node; it ends its commands as it sees fit.
    let _ = setsid();
    // A command can stop its keeper. Should the node die then, the kernel wakes the keeper to do its duty.
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

/// Starts the command, after all that the keeper needs: a command can take from its keeper what it may still open or
/// start. So each of the two things to wait for has a thread that blocks on it, and what both find comes by a channel.
///
/// A sandbox's namespaces are entered before there are threads, and it is started after them, as [`Namespaces`] wants it.
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

/// The process whose end is the end of the command: the shell, or the first process of the shell's sandbox.
struct Shell {
    pid: Pid,
    sandbox: Option<Started>,
}

fn start_in_sandbox(sandbox: Namespaces, launch: Launch, files: [OwnedFd; 3]) -> std::io::Result<Shell> {
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
    // The command's own end of its pipe must be the last one.
    drop(files);
    // It closes its end by becoming the shell, or says why it could not.
    let mut why = String::new();
    (&ours).take(4096).read_to_string(&mut why)?;
    if why.is_empty() { Ok(pid_of(child.id())) } else { Err(std::io::Error::other(why)) }
}

/// Stays until the command and all that came of it are gone. Nothing here needs a new descriptor.
fn stay(mut tree: Tree, news: &mpsc::Receiver<News>, removal: Option<private::Removal>) {
    let mut phase = Phase::Running;
    loop {
        let heard = match phase {
            Phase::Running => news.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Phase::Terminating { until } => news.recv_timeout(until.saturating_duration_since(Instant::now())),
            Phase::Killing { again } => news.recv_timeout(again),
        };
        match heard {
            Ok(News::Ended(said)) => {
                say(&said);
                // Whatever the shell has left behind goes with it.
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

/// What a keeper waits for.
enum News {
    /// The shell has ended.
    Ended(Said),
    /// All that came of it has ended, too.
    Gone,
    /// `term` or `kill`.
    Order(&'static str),
    /// Nobody is left to give orders.
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

    /// What cannot be killed, such as a program of another user's, is tried again, ever less often.
    fn kill(&mut self) {
        *self = match self {
            Self::Killing { again } => Self::Killing { again: (*again * 2).min(RARELY) },
            _ => Self::Killing { again: AGAIN },
        };
    }
}

/// Passes on what the node wants. One that is gone, or cannot be heard, wants nothing more of the command.
fn listen(tell: &mpsc::Sender<News>) {
    let mut bytes = [0; 64];
    loop {
        let news = match rustix::io::read(rustix::stdio::stdin(), &mut bytes) {
            // Orders are short and rare; of several the hardest counts.
            Ok(count @ 1..) => News::Order(if bytes[..count].contains(&b'k') { "kill" } else { "term" }),
            Err(Errno::INTR) => continue,
            Ok(0) | Err(_) => News::NodeGone,
        };
        let last = matches!(news, News::NodeGone);
        if tell.send(news).is_err() || last {
            return;
        }
    }
}

/// Takes in every process that ends, and tells of the shell's end. There being none left is the end of the tree: orphans
/// are given to this process, so that as long as one lives, this process has a child.
fn reap(shell: &mpsc::Receiver<Shell>, children: &Children, tell: &mpsc::Sender<News>) {
    let Ok(mut shell) = shell.recv() else { return };
    loop {
        // It is left a corpse for as long as somebody may be about to send a signal to its number.
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
            // A sandbox's first process reports how the shell ended, unless it was killed.
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

/// A node that is gone needs no news.
fn say_line(line: &str) {
    let _ = rustix::io::write(rustix::stdio::stdin(), line.as_bytes());
}

fn pid_of(id: u32) -> Pid {
    Pid::from_raw(id.cast_signed()).unwrap_or(Pid::INIT)
}

/// The signals of a command that ended by one, by name.
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
