//! The keeper: the process between the node and a command, which sees to it that nothing of the command outlives it.
//!
//! A node that is killed cannot clean up, and a command can leave its process group, its session and its parent. So each
//! command has a keeper: this very program, started anew. It is what the orphans among the command's processes are given
//! to (a "child subreaper"), so that none can leave its tree, and it holds one end of a socket whose other end is the
//! node's. When the node says so, when the socket ends (the node died, by whatever signal) or when the command's shell
//! ends, the keeper ends the whole tree, and then itself.
//!
//! Between the keeper and the shell there is one step more, [`stage`]: this program a third time, which becomes the
//! shell after it has made the session, the terminal and the sandbox.

mod stage;
mod tree;
pub(super) mod wire;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, getpid, set_child_subreaper, setsid, wait};

use self::wire::Said;

/// The word by which this program is asked to be a keeper.
pub(super) const KEEPER: &str = "__keeper";
/// The word by which it is asked to become a command.
const STAGE: &str = "__command";
/// The word by which it is asked whether a sandbox can be had here.
pub(super) const PROBE: &str = "__probe-sandbox";

/// What a command has between SIGTERM and SIGKILL.
const MERCY: Duration = Duration::from_millis(250);
/// How long to wait before looking again whether all are dead.
const AGAIN: Duration = Duration::from_millis(20);

static PREPARED: AtomicBool = AtomicBool::new(false);

/// Makes this process a keeper if it was started as one, and gives back how it ended; otherwise notes that this program
/// can be one. To be called first thing in `main`, before any thread is started and any argument is read: a machine
/// without [`Options::keeper`](crate::Options::keeper) starts the program that it is part of.
pub fn run_if_asked() -> Option<ExitCode> {
    PREPARED.store(true, Ordering::Release);
    let mut words = std::env::args_os().skip(1);
    let first = words.next()?;
    match first.to_str()? {
        KEEPER => Some(keep()),
        STAGE => Some(stage::become_command(words.next())),
        PROBE => Some(stage::probe()),
        _ => None,
    }
}

/// Whether this program can be a keeper.
pub(super) fn prepared() -> bool {
    PREPARED.load(Ordering::Acquire)
}

fn keep() -> ExitCode {
    // Ctrl-C in the node's terminal is for the node; it ends its commands as it sees fit.
    let _ = setsid();
    let node = rustix::stdio::stdin();
    let ready = set_child_subreaper(Some(getpid())).map_err(std::io::Error::from);
    match ready.and_then(|()| wire::receive(node)).and_then(start) {
        Ok(shell) => {
            say(&Said::Started { pid: shell.as_raw_pid() });
            stay(shell);
            ExitCode::SUCCESS
        }
        Err(error) => {
            say(&Said::Failed { why: error.to_string() });
            ExitCode::FAILURE
        }
    }
}

/// Starts the step that becomes the shell, and waits until it has.
fn start(files: Vec<OwnedFd>) -> std::io::Result<Pid> {
    let (ours, theirs) = UnixStream::pair()?;
    let child = Command::new("/proc/self/exe")
        .arg0("switchboard-command")
        .arg(STAGE)
        .arg(getpid().as_raw_pid().to_string())
        .stdin(OwnedFd::from(theirs))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    wire::send(&ours, files.iter().map(std::os::fd::AsFd::as_fd).collect::<Vec<_>>().as_slice())?;
    // The command's own end of its pipe must be the last one.
    drop(files);
    // It closes its end by becoming the shell, or says why it could not.
    let mut why = String::new();
    (&ours).take(4096).read_to_string(&mut why)?;
    if why.is_empty() { Ok(pid_of(child.id())) } else { Err(std::io::Error::other(why)) }
}

/// Stays until the command and all that came of it are gone.
fn stay(shell: Pid) {
    let Ok((news, tell)) = UnixStream::pair() else { return tree::kill_all() };
    std::thread::spawn(move || reap(shell, tell));
    let mut news = BufReader::new(news);
    let mut node = rustix::stdio::stdin().try_clone_to_owned().map(UnixStream::from).ok();
    let mut phase = Phase::Running;
    loop {
        let patience = match phase {
            Phase::Running => None,
            Phase::Terminating { until } => Some(until.saturating_duration_since(Instant::now())),
            Phase::Killing => Some(AGAIN),
        };
        let (news_came, node_spoke) = wait_for(&news, node.as_ref(), patience);
        if node_spoke {
            match order(&mut node) {
                Some("term") => phase.terminate(),
                Some(_) => phase = Phase::Killing,
                None => {}
            }
        }
        if news_came {
            let mut line = String::new();
            match news.read_line(&mut line) {
                Ok(1..) => {
                    say_line(&line);
                    // Whatever the shell has left behind goes with it.
                    phase.terminate();
                }
                _ => return say(&Said::Gone),
            }
        }
        if matches!(phase, Phase::Terminating { until } if Instant::now() >= until) {
            phase = Phase::Killing;
        }
        if matches!(phase, Phase::Killing) {
            tree::kill_all();
        }
    }
}

enum Phase {
    Running,
    Terminating { until: Instant },
    Killing,
}

impl Phase {
    fn terminate(&mut self) {
        if matches!(self, Self::Running) {
            tree::terminate_all();
            *self = Self::Terminating { until: Instant::now() + MERCY };
        }
    }
}

/// What the node wants: `term` or `kill`. A node that is gone wants the latter.
fn order(node: &mut Option<UnixStream>) -> Option<&'static str> {
    let mut bytes = [0; 64];
    let count = node.as_mut()?.read(&mut bytes).unwrap_or(0);
    if count == 0 {
        *node = None;
        return Some("kill");
    }
    // Orders are short and rare; of several the hardest counts.
    Some(if bytes[..count].contains(&b'k') { "kill" } else { "term" })
}

/// Waits until there is something to read, or for as long as there is patience.
fn wait_for(news: &BufReader<UnixStream>, node: Option<&UnixStream>, patience: Option<Duration>) -> (bool, bool) {
    if !news.buffer().is_empty() {
        return (true, false);
    }
    let news = news.get_ref().as_fd();
    let mut files = vec![PollFd::from_borrowed_fd(news, PollFlags::IN)];
    if let Some(node) = node {
        files.push(PollFd::from_borrowed_fd(node.as_fd(), PollFlags::IN));
    }
    let patience = patience.and_then(|patience| Timespec::try_from(patience).ok());
    if poll(&mut files, patience.as_ref()).is_err() {
        return (false, false);
    }
    let spoke = |file: &PollFd<'_>| !file.revents().is_empty();
    (spoke(&files[0]), files.get(1).is_some_and(spoke))
}

/// Takes in every process that ends, and tells of the shell's end. There being none left is the end of the tree: orphans
/// are given to this process, so that as long as one lives, this process has a child.
fn reap(shell: Pid, mut tell: UnixStream) {
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == shell => {
                let said = Said::Exited { code: status.exit_status(), signal: status.terminating_signal() };
                let _ = writeln!(tell, "{}", said.line());
            }
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return,
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
