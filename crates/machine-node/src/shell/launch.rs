//! Starts a command: its pipes or terminal, and the supervisor that runs it.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use sa_limits::budget::Permit;
use sa_node_sdk::ToolError;
use sa_process::Supervisor;
use sa_sandbox::Policy;
use tokio::net::unix::pipe::{Receiver, Sender};

use super::private::PrivateDir;
use super::{Shell, environment, private};

/// The delay between SIGTERM and SIGKILL for the processes of a command.
const GRACE: Duration = Duration::from_millis(250);

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
    let sandbox = policy.zip(private.as_ref().map(PrivateDir::path));
    let command = supervised(shell, plan, sandbox);
    let (input, errors) = (ends.their_input.as_fd(), ends.their_output.as_fd());
    let mut supervisor = command.spawn([input, errors, errors]).map_err(failed)?;
    let (output, input) = ends.ours().map_err(failed)?;
    let started = supervisor.started().await;
    let pid = started.map_err(|failure| failed(io::Error::other(failure.why)))?;
    Ok(Launched { pid, output, input, supervisor, private, hidden: hidden.unwrap_or_default() })
}

/// Returns the command of a plan, with its policy and private directory if it has a sandbox.
fn supervised(shell: &Shell, plan: &Plan, sandbox: Option<(Policy, &Path)>) -> sa_process::Command {
    let arguments = [OsStr::new("-lc"), OsStr::new(&plan.command)];
    let mut command = sa_process::Command::new(&shell.program, arguments);
    command.current_dir(&plan.workdir).grace(GRACE);
    if let Some(supervisor) = &shell.supervisor {
        command.supervisor(supervisor);
    }
    command.envs(shell.environment.iter().map(|(name, value)| (name, value)));
    command.env(environment::SESSION, &plan.session).env("PWD", &plan.workdir);
    if let Some((policy, private)) = sandbox {
        command.sandbox(policy.with_writable(private)).remove(private);
        command.env("HOME", private::home(private)).env("TMPDIR", private::temporary(private));
    }
    if matches!(plan.input, Input::Terminal { .. }) {
        command.terminal().env("TERM", "xterm-256color");
    }
    command
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
