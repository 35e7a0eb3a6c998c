//! Tests Switchboard from the outside: real sockets, real processes, one behaviour per file.

mod channels;
mod chat;
mod cli;
mod console;
mod limits;
mod logging;
mod machine;
mod mcp;
mod messaging;
mod nodes;
mod plugins;
mod process;
mod relay;
mod tokens;
mod tools;
mod upstream;
mod websocket;

/// The gateway's program.
const SWITCHBOARD: &str = env!("CARGO_BIN_EXE_e2e-switchboard");
