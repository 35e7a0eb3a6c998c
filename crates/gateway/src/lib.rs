//! Switchboard: one gateway between AI agents and the tools they call.
//!
//! This crate is the only one that knows all the others. [`assemble`] puts the parts together in one readable function,
//! [`serve`] runs them on listeners, [`http`] is the front door, [`cli`] is what people type.

pub mod assemble;
mod at_once;
pub mod budgets;
mod call_index;
pub mod cli;
pub mod config;
mod definitions;
pub mod demo;
pub mod examples;
pub mod hosts;
pub mod http;
pub mod journal;
mod json;
pub mod ledger;
#[cfg(test)]
mod memory;
pub mod memory_limit;
pub mod metrics;
mod place;
pub mod recent;
pub mod redact;
mod refusals;
mod remembered;
mod retention;
mod secret_files;
pub mod serve;
mod sessions;
pub mod sign_in;
pub mod skills;
mod slot;
pub mod telemetry;
mod terminal;
pub mod tokens;
mod unfinished;
mod wording;
mod write_probe;

/// The version that the gateway reports everywhere.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
