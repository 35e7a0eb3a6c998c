//! A sandbox for programs that are not trusted: agents and the commands of a machine node.
//!
//! A [`Policy`] defines which files a command sees and whether it has a network. The process that
//! starts the command is its supervisor. The supervisor enters new namespaces
//! ([`Namespaces::enter`]). It then starts this program again as the first process of a new PID
//! namespace ([`Namespaces::start`]). That process is called `init`. It builds the command's file
//! system (`view`) and drops every capability (`privileges`). It restricts itself with Landlock
//! (`files`) and seccomp (`calls`), and then starts the command. When `init` ends, the kernel kills
//! every process in the namespace. When the supervisor ends, the kernel kills `init`.
//!
//! Every layer is required. If a kernel or a system does not support one, the error names the
//! missing part. A program that uses this crate calls [`run_if_asked`] at the start of `main`.

mod calls;
mod files;
pub mod handover;
mod init;
pub mod leftovers;
pub mod marked;
mod mounted;
pub mod mounts;
mod namespaces;
mod policy;
mod privileges;
mod probe;
mod secrets;
mod view;

use std::process::ExitCode;

pub use init::Ended;
pub use namespaces::{Command, Namespaces, Started};
pub use policy::{Bind, Policy};
pub use probe::probe;
pub use secrets::{credentials, homes};

/// The argument that makes this program the first process of a sandbox.
const INIT: &str = "__sandbox-init";
/// The argument that makes this program check whether a sandbox is possible here.
const PROBE: &str = "__sandbox-probe";

/// Runs this process as a part of a sandbox if it was started as one, and returns its exit code.
/// Call this at the start of `main`, before any thread is started and any argument is read.
pub fn run_if_asked() -> Option<ExitCode> {
    match std::env::args_os().nth(1)?.to_str()? {
        INIT => Some(init::run()),
        PROBE => Some(probe::run()),
        _ => None,
    }
}
