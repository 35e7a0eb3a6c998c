//! Test support: a whole gateway on port 0, and the commands of the program.
//!
//! [`Setup`] starts a gateway, in this process or as a separate program. Its directory is temporary
//! and is removed afterwards. [`Cli`] runs commands of the program. The helpers of [`sa_testkit`]
//! use the gateway like any other server.

mod cli;
mod gateway;

pub use cli::{Cli, Finished, Started};
pub use gateway::{Gateway, Setup};
pub use sa_testkit::*;
