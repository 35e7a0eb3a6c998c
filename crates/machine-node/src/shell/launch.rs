//! Starting a command: its pipes or its terminal, and the keeper that runs it.

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
use sa_node_sdk::ToolError;
use sa_sandbox::handover;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::process::{Child, Command};

use super::keeper::wire::{Launch, Said};
use super::private::PrivateDir;
use super::{Shell, environment, keeper, private};

/// How long a keeper may take to get a command going.
const PATIENCE: Duration = Duration::from_secs(20);

/// Much output is read in large pieces. The kernel may allow less.
const PIPE_BYTES: usize = 1 << 20;

/// What to run, and how.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) session: String,
    /// The id of the principal that starts it, when the gateway sent one.
    pub(super) owner: Option<String>,
    pub(super) command: String,
    pub(super) workdir: PathBuf,
    pub(super) input: Input,
}

/// Where a command's input comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Input {
    /// There is none.
    Empty,
    /// What is written to it.
    Pipe,
    /// A terminal of so many columns and rows, where its output goes as well.
    Terminal { columns: u16, rows: u16 },
}

/// A command that runs.
#[derive(Debug)]
pub(super) struct Launched {
    pub(super) pid: i32,
    pub(super) output: Receiver,
    pub(super) input: Option<Sender>,
    pub(super) keeper: Keeper,
    /// The directory of its own, if it has one, which goes with it.
    pub(super) private: Option<PrivateDir>,
}

/// The node's end of a keeper.
#[derive(Debug)]
pub(super) struct Keeper {
    /// Held also so that the runtime takes its end in, whenever that is.
    process: Child,
    said: Lines<BufReader<OwnedReadHalf>>,
    orders: OwnedWriteHalf,
}

impl Keeper {
    /// The next thing that it says; nothing when it is gone.
    pub(super) async fn said(&mut self) -> Option<Said> {
        let line = self.said.next_line().await.ok().flatten()?;
        serde_json::from_str(&line).ok()
    }

    /// Has it end the command: `term`, which gives it a moment, or `kill`. One that is gone has done so already.
    pub(super) fn order(&self, order: &str) {
        let _ = self.orders.try_write(order.as_bytes());
        // A command can stop its keeper, which then would not hear it.
        if let Some(keeper) = self.process.id().and_then(|id| Pid::from_raw(id.cast_signed())) {
            let _ = kill_process(keeper, Signal::CONT);
        }
    }
}

/// Starts a command.
pub(super) async fn launch(shell: &Shell, plan: &Plan) -> Result<Launched, ToolError> {
    let failed = |error: io::Error| ToolError::Failed(format!("the command could not be started: {error}"));
    let policy = match &shell.sandbox {
        Some(guarded) => Some(guarded.current().await?),
        None => None,
    };
    let ends = Ends::new(plan.input).map_err(failed)?;
    let private = policy.as_ref().map(|_| PrivateDir::new()).transpose().map_err(failed)?;
    let directory = private.as_ref().map(PrivateDir::path);
    let launch = Launch {
        shell: shell.program.clone(),
        command: plan.command.clone(),
        terminal: matches!(plan.input, Input::Terminal { .. }),
        sandbox: policy.zip(directory).map(|(policy, directory)| policy.with_writable(directory)),
    };
    let mut keeper = start_keeper(shell, plan, &launch, &ends, directory).map_err(failed)?;
    let (output, input) = ends.ours().map_err(failed)?;
    match tokio::time::timeout(PATIENCE, keeper.said()).await {
        Ok(Some(Said::Started { pid })) => Ok(Launched { pid, output, input, keeper, private }),
        Ok(Some(Said::Failed { why })) => Err(ToolError::Failed(format!("the command could not be started: {why}"))),
        Ok(_) => Err(ToolError::Failed("the command could not be started: its keeper ended".to_owned())),
        // It kills what it has started as soon as our end of its socket is closed.
        Err(_) => Err(ToolError::Failed(format!("the command did not start within {} s", PATIENCE.as_secs()))),
    }
}

fn start_keeper(
    shell: &Shell,
    plan: &Plan,
    launch: &Launch,
    ends: &Ends,
    private: Option<&Path>,
) -> io::Result<Keeper> {
    let (ours, theirs) = Socket::pair()?;
    let mut command = Command::new(&shell.keeper);
    command.arg0("switchboard-keeper").arg(keeper::KEEPER).current_dir(&plan.workdir);
    command.env_clear().envs(shell.environment.iter().cloned());
    command.env(environment::SESSION, &plan.session).env("PWD", &plan.workdir);
    if let Some(private) = private {
        command.arg(private).env("HOME", private::home(private)).env("TMPDIR", private::temporary(private));
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
    Ok(Keeper { process, said: BufReader::new(said).lines(), orders })
}

/// Both ends of what a command reads and writes.
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
            tcsetwinsize(&ours, Winsize { ws_col: columns, ws_row: rows, ws_xpixel: 0, ws_ypixel: 0 })?;
            let theirs = ioctl_tiocgptpeer(&ours, OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
            let (their_output, our_input) = (theirs.try_clone()?, ours.try_clone()?);
            return Ok(Self { their_input: theirs, their_output, our_input: Some(our_input), our_output: ours });
        }
        let (our_output, their_output) = pipe_with(PipeFlags::CLOEXEC)?;
        let _ = fcntl_setpipe_size(&our_output, PIPE_BYTES);
        let (their_input, our_input) = if input == Input::Pipe {
            let (theirs, ours) = pipe_with(PipeFlags::CLOEXEC)?;
            (theirs, Some(ours))
        } else {
            (rustix::fs::open(Path::new("/dev/null"), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?, None)
        };
        Ok(Self { their_input, their_output, our_input, our_output })
    }

    /// Keeps ours and closes theirs: as long as we held one, the output would have no end. A terminal's end is no pipe,
    /// but is read and written like one.
    fn ours(self) -> io::Result<(Receiver, Option<Sender>)> {
        rustix::io::ioctl_fionbio(&self.our_output, true)?;
        let output = Receiver::from_owned_fd_unchecked(self.our_output)?;
        let Some(input) = self.our_input else { return Ok((output, None)) };
        rustix::io::ioctl_fionbio(&input, true)?;
        Ok((output, Some(Sender::from_owned_fd_unchecked(input)?)))
    }
}
