//! The owner's side: starts a program under a supervisor, and gives orders to the supervisor.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream as Socket;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, kill_process};
use sa_sandbox::{Policy, handover};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::process::Child;

use crate::wire::{Failure, Launch, Order, Report};
use crate::{SUPERVISOR, program};

/// The time limit for a supervisor to start a program.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A program to start under a supervisor. It inherits no environment, because that of the owner may
/// contain secrets.
#[derive(Debug)]
pub struct Command {
    supervisor: Option<PathBuf>,
    launch: Launch,
    environment: Vec<(OsString, OsString)>,
    directory: Option<PathBuf>,
}

impl Command {
    pub fn new(
        program: impl Into<OsString>,
        args: impl IntoIterator<Item = impl Into<OsString>>,
    ) -> Self {
        let launch = Launch {
            program: program.into(),
            args: args.into_iter().map(Into::into).collect(),
            terminal: false,
            sandbox: None,
            grace: Duration::ZERO,
            remove: None,
        };
        Self { supervisor: None, launch, environment: Vec::new(), directory: None }
    }

    /// Sets the program to start as the supervisor, instead of [`program`].
    pub fn supervisor(&mut self, program: impl Into<PathBuf>) -> &mut Self {
        self.supervisor = Some(program.into());
        self
    }

    /// Sets an environment variable of the program.
    pub fn env(&mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> &mut Self {
        self.environment.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Sets environment variables of the program.
    pub fn envs(
        &mut self,
        variables: impl IntoIterator<Item = (impl AsRef<OsStr>, impl AsRef<OsStr>)>,
    ) -> &mut Self {
        for (name, value) in variables {
            self.env(name, value);
        }
        self
    }

    /// Sets the working directory of the program.
    pub fn current_dir(&mut self, directory: impl Into<PathBuf>) -> &mut Self {
        self.directory = Some(directory.into());
        self
    }

    /// Sets the time between SIGTERM and SIGKILL when the processes are terminated. By default
    /// they are killed at once.
    pub fn grace(&mut self, grace: Duration) -> &mut Self {
        self.launch.grace = grace;
        self
    }

    /// Makes the program's input its controlling terminal.
    pub fn terminal(&mut self) -> &mut Self {
        self.launch.terminal = true;
        self
    }

    /// Runs the program in a sandbox.
    pub fn sandbox(&mut self, policy: Policy) -> &mut Self {
        self.launch.sandbox = Some(policy);
        self
    }

    /// Removes this directory when all processes have ended.
    pub fn remove(&mut self, directory: impl Into<PathBuf>) -> &mut Self {
        self.launch.remove = Some(directory.into());
        self
    }

    /// Starts the program with pipes for its input and both outputs.
    pub fn spawn_piped(&self) -> io::Result<(Supervisor, Pipes)> {
        let (their_input, input) = pipe_with(PipeFlags::CLOEXEC)?;
        let (output, their_output) = pipe_with(PipeFlags::CLOEXEC)?;
        let (errors, their_errors) = pipe_with(PipeFlags::CLOEXEC)?;
        let supervisor =
            self.spawn([their_input.as_fd(), their_output.as_fd(), their_errors.as_fd()])?;
        let receiver = |end: OwnedFd| Receiver::from_owned_fd(end);
        let pipes = Pipes {
            stdin: Sender::from_owned_fd(input)?,
            stdout: receiver(output)?,
            stderr: receiver(errors)?,
        };
        Ok((supervisor, pipes))
    }

    /// Starts the program with this input, output and error output. The caller closes them: the
    /// supervisor has handles of its own.
    pub fn spawn(&self, files: [BorrowedFd<'_>; 3]) -> io::Result<Supervisor> {
        let program = match &self.supervisor {
            Some(program) => program,
            None => program()?,
        };
        let (ours, theirs) = Socket::pair()?;
        let mut command = tokio::process::Command::new(program);
        command.arg0("switchboard-supervisor").arg(SUPERVISOR);
        command.env_clear().envs(self.environment.iter().map(|(name, value)| (name, value)));
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn()?;
        let launch = handover::in_memory(&self.launch)?;
        let [input, output, errors] = files;
        handover::send(&ours, &[launch.as_fd(), input, output, errors])?;
        ours.set_nonblocking(true)?;
        let (reports, orders) = UnixStream::from_std(ours)?.into_split();
        Ok(Supervisor { process, reports: BufReader::new(reports).lines(), orders })
    }
}

/// The owner's ends of a program's pipes.
#[derive(Debug)]
pub struct Pipes {
    pub stdin: Sender,
    pub stdout: Receiver,
    pub stderr: Receiver,
}

/// The owner's end of a supervisor. Dropping it terminates the program and all its processes.
#[derive(Debug)]
pub struct Supervisor {
    /// The handle is also kept so that the runtime reaps the process whenever it ends.
    process: Child,
    reports: Lines<BufReader<OwnedReadHalf>>,
    orders: OwnedWriteHalf,
}

impl Supervisor {
    /// Waits until the program runs, and returns its process number.
    pub async fn started(&mut self) -> Result<i32, Failure> {
        let why = match tokio::time::timeout(TIMEOUT, self.report()).await {
            Ok(Some(Report::Started { pid })) => return Ok(pid),
            Ok(Some(Report::Failed(failure))) => return Err(failure),
            Ok(_) => "its supervisor process ended".to_owned(),
            Err(_) => format!("it did not start within {} s", TIMEOUT.as_secs()),
        };
        Err(Failure { why, code: None })
    }

    /// Returns the next report, or `None` if the supervisor has ended. No report is lost if the
    /// future is dropped.
    pub async fn report(&mut self) -> Option<Report> {
        let line = self.reports.next_line().await.ok().flatten()?;
        serde_json::from_str(&line).ok()
    }

    /// Orders the supervisor to end all processes. A supervisor that has ended has already done so.
    pub fn order(&self, order: Order) {
        let _ = self.orders.try_write(order.as_bytes());
        self.wake();
    }

    /// Continues the supervisor. A program can stop its supervisor, which then could not read an
    /// order or notice the end of its owner.
    fn wake(&self) {
        if let Some(supervisor) = self.process.id().and_then(|id| Pid::from_raw(id.cast_signed())) {
            let _ = kill_process(supervisor, Signal::CONT);
        }
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.wake();
    }
}
