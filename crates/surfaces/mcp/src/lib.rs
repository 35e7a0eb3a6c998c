//! The MCP surface: every tool of the gateway, for every MCP client, over Streamable HTTP.
//!
//! The protocol itself, in all its revisions, is rmcp's. There are two eras of it. From 2026-07-28 on each request stands
//! for itself: it brings its own principal, and an abandoned client leaves nothing behind. Before that a client opens a
//! session and may keep a stream open on which it is told of changes; see [`sessions`] for what bounds these. A request of
//! the old era that names no session is served all the same, as one that stands for itself.

#![expect(
    deprecated,
    reason = "sampling, roots and logging are out of favour, and clients of the revisions that have them are served"
)]

mod body;
mod bridge;
mod call;
mod caller;
mod client;
mod convert;
mod handler;
mod news;
mod passthrough;
mod questions;
mod search;
mod service;
mod sessions;
mod shared;
mod short;
mod sole;
mod tasks;
mod unasked;
mod unread;

pub use bridge::{BridgeError, bridge, refuse};
pub use caller::Caller;
pub use convert::result;
pub use handler::McpHandler;
pub use service::{Mcp, Options};
