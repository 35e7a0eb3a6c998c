//! The MCP surface: every tool of the gateway, for every MCP client, over Streamable HTTP.
//!
//! rmcp implements the protocol itself in all its revisions. There are two eras of it. From
//! 2026-07-28 on each request is independent: it carries its own principal, and an abandoned client
//! leaves nothing behind. Before that a client opens a session and may keep a stream open for
//! notifications; see [`sessions`] for its limits. A request of the old era without a session is
//! also served, as an independent request.

#![expect(
    deprecated,
    reason = "sampling, roots and logging are deprecated in MCP, but clients of older revisions still use them"
)]

mod body;
mod bridge;
mod call;
mod caller;
mod client;
mod convert;
mod fast_path;
mod handler;
pub mod http;
mod json_answer;
mod notifications;
mod passthrough;
mod questions;
mod search;
mod service;
mod sessions;
mod settings;
mod shared;
mod tasks;
mod tool_response;
mod trace;
mod unreadable;

pub use bridge::{BridgeError, bridge, refuse};
pub use caller::Caller;
pub use convert::result;
pub use handler::McpHandler;
pub use service::{Mcp, Options};
pub use settings::Settings;
