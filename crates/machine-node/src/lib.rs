//! The machine node: offers a machine's shell and files as tools.
//!
//! `switchboard node` is a thin wrapper around this crate. A program that offers the same tools
//! beside its own registers them in its own [`ToolRegistry`](sa_node_sdk::ToolRegistry):
//!
//! ```no_run
//! use sa_node::{Machine, Options};
//! use sa_node_sdk::ToolRegistry;
//!
//! # fn main() -> Result<(), sa_node::StartError> {
//! // First in main: this program also supervises its commands.
//! if sa_node::supervisor::run_if_asked().is_some() {
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

/// Prevents other programs of the user, including the machine's commands, from reading this
/// process's memory and environment through `/proc`. The environment contains the token. Root can
/// read everything nevertheless.
pub fn hide_memory() -> std::io::Result<()> {
    use rustix::process::{DumpableBehavior, set_dumpable_behavior};
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

/// The supervisor process between the node and a command. It ensures that no process of the command
/// outlives it.
pub mod supervisor {
    pub use sa_process::run_if_asked;
}
