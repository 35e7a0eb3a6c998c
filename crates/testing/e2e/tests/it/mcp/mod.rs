//! MCP: the official conformance suite, third-party clients, and the stdio bridge.

pub(crate) mod conformance;
mod fast_path;
mod hostile;
pub(crate) mod peers;
mod search;
mod silent_calls;
mod stdio;
mod tasks;
mod upstream;
