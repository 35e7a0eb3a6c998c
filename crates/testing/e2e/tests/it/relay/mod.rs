//! Sessions with agents that are real programs.

mod agents;
mod callers;
mod relay_command;
mod round_trip;
mod shutdown;
