//! The machine node: a machine's shell and files, as tools that any node could have.
//!
//! `switchboard node` is a thin front for this crate. A program that wants the same tools beside its own registers them
//! in its own [`ToolRegistry`](sa_node_sdk::ToolRegistry):
//!
//! ```no_run
//! use sa_node::{Machine, Options};
//! use sa_node_sdk::ToolRegistry;
//!
//! # fn main() -> Result<(), sa_node::StartError> {
//! // First thing in main: this program is also what keeps its commands.
//! if sa_node::keeper::run_if_asked().is_some() {
//!     return Ok(());
//! }
//! let machine = Machine::new(Options::new("/srv/project"))?;
//! let mut tools = ToolRegistry::new();
//! machine.register(&mut tools);
//! # Ok(())
//! # }
//! ```

mod files;
mod home;
pub mod host;
mod machine;
mod shell;
mod tolerant;

pub use machine::{Environment, Machine, Options, Sandbox, StartError};

/// Keeps the user's other programs, the commands that the machine runs among them, from reading this process's memory
/// and environment through `/proc` (its token is in there). Root reads everything nevertheless.
pub fn hide_memory() -> std::io::Result<()> {
    use rustix::process::{DumpableBehavior, set_dumpable_behavior};
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

/// The process that stands between the node and a command, so that nothing of the command outlives it.
pub mod keeper {
    pub use crate::shell::keeper::run_if_asked;
}
