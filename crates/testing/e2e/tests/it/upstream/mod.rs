//! Upstream MCP servers that are real programs, and the commands about them.

mod deep_schemas;
mod everything;
mod hostile;
mod login;
mod login_clients;
mod login_errors;
mod login_races;
mod manage;
mod pages;
mod secrets;
pub(crate) mod server;
