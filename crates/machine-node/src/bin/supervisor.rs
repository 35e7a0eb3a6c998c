//! A program that only supervises a command.

use std::process::ExitCode;

fn main() -> ExitCode {
    sa_node::supervisor::run_if_asked().unwrap_or(ExitCode::FAILURE)
}
