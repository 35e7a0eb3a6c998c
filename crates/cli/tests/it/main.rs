//! Runs the program as its users do: commands, their output and their exit codes.

mod calls;
mod channel;
mod chat;
mod completion;
mod config;
mod doctor;
mod json;
mod reach;
mod sessions;
mod terminal;
mod tokens;
mod views;

const SWITCHBOARD: &str = env!("CARGO_BIN_EXE_switchboard");
