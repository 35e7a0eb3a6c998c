//! What the HTTP handlers of all crates share: the identity behind a token, errors as problems,
//! bodies within their budget, streams of events, and calls as JSON.

pub mod annotations;
pub mod auth;
pub mod blocks;
pub mod body;
pub mod call_json;
pub mod connection;
mod difference;
pub mod doctor;
pub mod events;
mod extract;
pub mod feed;
mod format;
pub mod history;
mod http;
mod identity;
mod problem;
pub mod provider;
pub mod query;
mod refused;
mod route_table;
mod scope;
pub mod slot;
mod socket;
mod status;

use axum::http::{HeaderName, HeaderValue};
use sa_core::CallId;

pub use auth::{Authenticate, Refused, StoredToken, StoredTokens, operator_only};
pub use blocks::{WireBlock, wire_attachment, wire_attachments};
pub use body::Payload;
pub use connection::Ends;
pub use difference::DifferenceDoc;
pub use extract::{Params, Segment, parse};
pub use format::{ErrorFormat, ForeignRoutes};
pub use http::{Http, SessionScopes, Shared};
pub use identity::{ChannelGrant, Identity, Rights};
pub use problem::{Problem, ProblemError, SHOULD_RETRY};
pub use provider::ProviderDoc;
pub use refused::masked_path;
pub use route_table::{Client, DirectRequest, DirectRoute, RouteTable, method_not_allowed};
pub use scope::{KnownChannels, no_such_scope};
pub use socket::SocketRoute;
pub use status::{status, status_of_kind};

/// The format of data that passes unchanged between MCP servers and MCP clients, see
/// [`sa_core::Passthrough`].
pub const MCP: &str = "mcp";

/// The media type of JSON.
pub const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// The header with the id of the call that a request made.
pub const CALL_ID: HeaderName = HeaderName::from_static("x-call-id");

/// Returns the header that contains the call id.
pub fn call_id_header(id: CallId) -> [(HeaderName, String); 1] {
    [(CALL_ID, id.to_string())]
}
