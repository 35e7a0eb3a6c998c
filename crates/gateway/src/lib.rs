//! Switchboard: a gateway between AI agents and the tools they call.
//!
//! This crate is the only library that depends on all providers and surfaces. [`assemble`] wires
//! the parts together, [`serve`] runs them on listeners, and [`http`] is the HTTP server.

pub mod assemble;
pub mod budgets;
pub mod config;
mod connection;
mod definitions;
#[cfg(test)]
mod gateway_for_tests;
pub mod http;
pub mod journal;
pub mod ledger;
pub mod memory_limit;
pub mod metrics;
mod operator_token;
pub mod recent;
#[cfg(test)]
mod records_for_tests;
mod repoll_on_wake;
mod retention;
mod secret_files;
pub mod serve;
pub mod sign_in;
pub mod telemetry;
pub mod terminal;
pub mod tokens;
mod unfinished;
mod write_probe;

/// The version that the gateway reports.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
