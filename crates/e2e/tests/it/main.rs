//! Switchboard as its users meet it: real sockets, real processes, one behaviour a file.

mod contract_call;
mod contract_errors;
mod contract_events;
mod contract_start;
mod contract_tokens;
mod contract_tools;
mod docs;
mod mcp;

/// The gateway's program.
const SWITCHBOARD: &str = env!("CARGO_BIN_EXE_e2e-switchboard");
