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
//! let machine = Machine::new(Options::new("/srv/project"))?;
//! let mut tools = ToolRegistry::new();
//! machine.register(&mut tools);
//! # Ok(())
//! # }
//! ```

mod files;
pub mod host;
mod machine;
mod shell;

pub use machine::{Machine, Options, StartError};
