//! A program that only supervises another one.

use std::process::ExitCode;

fn main() -> ExitCode {
    sa_process::run_if_asked().unwrap_or(ExitCode::FAILURE)
}
