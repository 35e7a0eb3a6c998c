//! Tests the MCP surface: one behaviour per file.

mod answers;
mod calls;
mod client_sessions;
mod elicitation;
mod hostile;
mod notices;
mod notifications;
mod output;
mod scopes;
mod search;
mod sessions;
mod surface;
mod tasks;
mod traces;
