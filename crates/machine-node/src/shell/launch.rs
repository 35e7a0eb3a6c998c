//! Starts a command: its pipes or terminal, and the supervisor that runs it.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream as Socket;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use sa_limits::budget::Permit;
use sa_node_sdk::ToolError;
use sa_sandbox::handover;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::process::{Child, Command};

use super::private::PrivateDir;
use super::supervisor::wire::{Launch, Said};
use super::{Shell, environment, private, supervisor};

/// The time limit for a supervisor to start a command.
const TIMEOUT: Duration = Duration::from_secs(20);

/// The pipe size, so that large output is read in large pieces. The kernel may allow less.
const PIPE_BYTES: usize = 1 << 20;

/// A command to run, and its settings.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) session: String,
    /// The id of the principal that starts it, if the gateway sent one.
    pub(super) owner: Option<String>,
    /// The slot of a command that may continue in the background.
    pub(super) slot: Option<Permit>,
    pub(super) command: String,
    pub(super) workdir: PathBuf,
    pub(super) input: Input,
}

/// The input of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Input {
    /// No input.
    Empty,
    /// A pipe.
    Pipe,
    /// A terminal with this number of columns and rows, for input and output.
    Terminal { columns: u16, rows: u16 },
}

/// A running command.
#[derive(Debug)]
pub(super) struct Launched {
    pub(super) pid: i32,
    pub(super) output: Receiver,
    pub(super) input: Option<Sender>,
    pub(super) supervisor: Supervisor,
    /// Its private directory, if it has one, which is removed with it.
    pub(super) private: Option<PrivateDir>,
    /// The secret files of gateways that are hidden from it.
    pub(super) hidden: Vec<PathBuf>,
}

/// The node's end of a supervisor.
#[derive(Debug)]
pub(super) struct Supervisor {
    /// The handle is also kept so that the runtime reaps the process whenever it ends.
    process: Child,
    said: Lines<BufReader<OwnedReadHalf>>,
    orders: OwnedWriteHalf,
}

impl Supervisor {
    /// Returns the supervisor's next message, or `None` if it has ended.
    pub(super) async fn said(&mut self) -> Option<Said> {
        let line = self.said.next_line().await.ok().flatten()?;
        serde_json::from_str(&line).ok()
    }

    /// Orders the supervisor to end the command: `term`, with a delay before the kill, or `kill`. A
    /// supervisor that has ended has already done so.
    pub(super) fn order(&self, order: &str) {
        let _ = self.orders.try_write(order.as_bytes());
        // A command can stop its supervisor, which then could not read the order.
        if let Some(supervisor) = self.process.id().and_then(|id| Pid::from_raw(id.cast_signed())) {
            let _ = kill_process(supervisor, Signal::CONT);
        }
    }
}

/// Starts a command.
pub(super) async fn launch(shell: &Shell, plan: &Plan) -> Result<Launched, ToolError> {
    let failed =
        |error: io::Error| ToolError::Failed(format!("the command could not be started: {error}"));
    let allowed = match &shell.sandbox {
        Some(guarded) => Some(guarded.current().await?),
        None => None,
    };
    let (policy, hidden) = allowed.map(|allowed| (allowed.policy, allowed.hidden)).unzip();
    let ends = Ends::new(plan.input).map_err(failed)?;
    let private = policy.as_ref().map(|_| PrivateDir::new()).transpose().map_err(failed)?;
    let directory = private.as_ref().map(PrivateDir::path);
    let launch = Launch {
        shell: shell.program.clone(),
        command: plan.command.clone(),
        terminal: matches!(plan.input, Input::Terminal { .. }),
        sandbox: policy.zip(directory).map(|(policy, directory)| policy.with_writable(directory)),
    };
    let mut supervisor =
        start_supervisor(shell, plan, &launch, &ends, directory).map_err(failed)?;
    let (output, input) = ends.ours().map_err(failed)?;
    match tokio::time::timeout(TIMEOUT, supervisor.said()).await {
        Ok(Some(Said::Started { pid })) => {
            let hidden = hidden.unwrap_or_default();
            Ok(Launched { pid, output, input, supervisor, private, hidden })
        }
        Ok(Some(Said::Failed { why })) => {
            Err(ToolError::Failed(format!("the command could not be started: {why}")))
        }
        Ok(_) => Err(ToolError::Failed(
            "the command could not be started: its supervisor process ended".to_owned(),
        )),
        // The supervisor kills its processes as soon as this end of its socket is closed.
        Err(_) => Err(ToolError::Failed(format!(
            "the command did not start within {} s",
            TIMEOUT.as_secs()
        ))),
    }
}

fn start_supervisor(
    shell: &Shell,
    plan: &Plan,
    launch: &Launch,
    ends: &Ends,
    private: Option<&Path>,
) -> io::Result<Supervisor> {
    let (ours, theirs) = Socket::pair()?;
    let mut command = Command::new(&shell.supervisor);
    command.arg0("switchboard-supervisor").arg(supervisor::SUPERVISOR).current_dir(&plan.workdir);
    command.env_clear().envs(shell.environment.iter().cloned());
    command.env(environment::SESSION, &plan.session).env("PWD", &plan.workdir);
    if let Some(private) = private {
        command
            .arg(private)
            .env("HOME", private::home(private))
            .env("TMPDIR", private::temporary(private));
    }
    if launch.terminal {
        command.env("TERM", "xterm-256color");
    }
    command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).stderr(Stdio::null());
    let process = command.spawn()?;
    let files = handover::in_memory(launch)?;
    handover::send(&ours, &[files.as_fd(), ends.their_input.as_fd(), ends.their_output.as_fd()])?;
    ours.set_nonblocking(true)?;
    let (said, orders) = UnixStream::from_std(ours)?.into_split();
    Ok(Supervisor { process, said: BufReader::new(said).lines(), orders })
}

/// Both ends of a command's input and output.
struct Ends {
    their_input: OwnedFd,
    their_output: OwnedFd,
    our_input: Option<OwnedFd>,
    our_output: OwnedFd,
}

impl Ends {
    fn new(input: Input) -> io::Result<Self> {
        if let Input::Terminal { columns, rows } = input {
            let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
            unlockpt(&ours)?;
            tcsetwinsize(
                &ours,
                Winsize { ws_col: columns, ws_row: rows, ws_xpixel: 0, ws_ypixel: 0 },
            )?;
            let theirs = ioctl_tiocgptpeer(
                &ours,
                OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC,
            )?;
            let (their_output, our_input) = (theirs.try_clone()?, ours.try_clone()?);
            return Ok(Self {
                their_input: theirs,
                their_output,
                our_input: Some(our_input),
                our_output: ours,
            });
        }
        let (our_output, their_output) = pipe_with(PipeFlags::CLOEXEC)?;
        let _ = fcntl_setpipe_size(&our_output, PIPE_BYTES);
        let (their_input, our_input) = if input == Input::Pipe {
            let (theirs, ours) = pipe_with(PipeFlags::CLOEXEC)?;
            (theirs, Some(ours))
        } else {
            (
                rustix::fs::open(
                    Path::new("/dev/null"),
                    OFlags::RDONLY | OFlags::CLOEXEC,
                    Mode::empty(),
                )?,
                None,
            )
        };
        Ok(Self { their_input, their_output, our_input, our_output })
    }

    /// Keeps the node's ends and closes the command's: while the node held one, the output would
    /// never end. A terminal's end is not a pipe, but is read and written like one.
    fn ours(self) -> io::Result<(Receiver, Option<Sender>)> {
        rustix::io::ioctl_fionbio(&self.our_output, true)?;
        let output = Receiver::from_owned_fd_unchecked(self.our_output)?;
        let Some(input) = self.our_input else { return Ok((output, None)) };
        rustix::io::ioctl_fionbio(&input, true)?;
        Ok((output, Some(Sender::from_owned_fd_unchecked(input)?)))
    }
}
