//! Child processes that end with everything that they have started.
//!
//! A process that is killed cannot clean up, and a program can leave its process group, its session
//! and its parent. So each program has a supervisor, a process of its own between the program and
//! its owner. The supervisor ends the whole tree of the program's processes when the owner orders
//! it, when the owner ends for any reason, and when the program ends.
//!
//! ```no_run
//! # async fn example() -> std::io::Result<()> {
//! let mut server = sa_process::Command::new("node", ["server.mjs"]);
//! server.env("PATH", "/usr/bin");
//! let (mut supervisor, pipes) = server.spawn_piped()?;
//! let pid = supervisor.started().await?;
//! # Ok(())
//! # }
//! ```
//!
//! The supervisor is the owner's own program, started again. A program that uses this crate calls
//! [`run_if_asked`] at the start of `main`.

mod command;
mod removal;
mod stage;
mod supervisor;
mod tree;
mod wire;

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::OnceLock;

pub use command::{Command, Pipes, Supervisor};
pub use wire::{Failure, Order, Report};

/// The argument that starts this program as a supervisor.
const SUPERVISOR: &str = "__supervisor";
/// The argument that starts this program as the step before a supervised program.
const STAGE: &str = "__command";

/// The program to start as a supervisor.
static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// Runs this process as a supervisor or as a part of a sandbox if it was started as one, and
/// returns its exit code. Otherwise makes this program the supervisor of the programs that it
/// starts.
///
/// Call it first in `main`, before starting any thread and reading any argument.
pub fn run_if_asked() -> Option<ExitCode> {
    set_program("/proc/self/exe");
    if let Some(code) = sa_sandbox::run_if_asked() {
        return Some(code);
    }
    let mut words = std::env::args_os().skip(1);
    match words.next()?.to_str()? {
        SUPERVISOR => Some(supervisor::run()),
        STAGE => Some(stage::become_program(words.next())),
        _ => None,
    }
}

/// Sets the program to start as a supervisor, for a program that cannot be one itself, such as a
/// test. The first setting remains.
pub fn set_program(program: impl Into<PathBuf>) {
    let _ = PROGRAM.set(program.into());
}

/// Returns the program to start as a supervisor.
pub fn program() -> io::Result<&'static Path> {
    let program = PROGRAM.get().map(PathBuf::as_path);
    program.ok_or_else(|| {
        io::Error::other("this program cannot supervise others: call run_if_asked() first in main")
    })
}
