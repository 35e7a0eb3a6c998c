//! A program that is a keeper and nothing else.

use std::process::ExitCode;

fn main() -> ExitCode {
    sa_node::keeper::run_if_asked().unwrap_or(ExitCode::FAILURE)
}
