//! The wire types of Switchboard's own protocols: pure serde, no runtime.
//!
//! There are two views of the same frames:
//!
//! * [`WsMessage`] is the node protocol as plain data, for a node or a test that is written by
//!   hand.
//! * [`node`] and [`calls`] are used by the gateway and the SDK on the hot path. They borrow from
//!   the received text and keep arguments and results as raw JSON, so that a gateway forwards them
//!   without parsing.
//!
//! ```
//! use sa_protocol::{WsMessage, node::{self, Incoming}};
//!
//! let mut text = String::new();
//! node::encode_request(&mut text, &node::ToolRequest {
//!     request_id: "r1".into(),
//!     tool: "node.echo".into(),
//!     args: Some(r#"{"a":1}"#),
//!     ..Default::default()
//! });
//! let Incoming::Request(request) = Incoming::decode(&text)? else { unreachable!() };
//! assert_eq!(request.args, Some(r#"{"a":1}"#));
//! assert!(matches!(serde_json::from_str(&text)?, WsMessage::ToolRequest { .. }));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Rules of every frame
//!
//! * A text frame is one JSON object; its `type` identifies the kind of frame. Unknown fields and
//!   unknown types are ignored.
//! * An absent field is left out when writing. When reading, `null` for an optional field is the
//!   same as absent.
//! * A known field may appear once. A second one makes the frame invalid, because two readers could
//!   otherwise disagree about which one counts. Inside arguments and results, which are passed on
//!   unchanged, the last one counts, as in `serde_json`.
//! * Nesting deeper than [`MAX_NESTING`] makes a frame invalid.

pub mod attachment;
mod backoff;
pub mod calls;
pub mod channel;
pub mod close;
mod error;
mod info;
mod json;
mod message;
mod names;
pub mod node;
pub mod plugin;
mod truncate;

pub use attachment::Attachment;
pub use backoff::ReconnectBackoff;
pub use error::{FrameError, FrameErrorKind};
pub use info::NodeInfo;
pub use json::{MAX_NESTING, object};
pub use message::{ErrorKind, ToolResponseError, WsMessage};
pub use names::{
    CapabilityError, Place, is_unseen, validate_capability, validate_name, validate_prefix,
    validate_tool_name,
};
pub use truncate::{escaped_prefix, truncated_result};

/// The version of the node protocol that this crate implements.
pub const PROTOCOL_VERSION: u32 = 1;

/// The maximum size of the data of a node's event, in bytes.
pub const MAX_EVENT_BYTES: usize = 32 * 1024;

/// The maximum size of a result in bytes (4 MB), whatever a node is configured to, unless the
/// gateway announces a larger limit. The rest of the response does not count.
pub const MAX_TOOL_RESPONSE_BYTES: usize = 4 * 1024 * 1024;
