//! Build nodes: connect to a gateway, offer tools, answer calls.
//!
//! A node is a process that offers tools to agents through a gateway. It opens one WebSocket to the
//! gateway, describes its tools, and answers incoming calls. This crate does everything but the
//! tools: connection, authentication, heartbeat, reconnecting, running calls concurrently,
//! cancelling, and truncating large results.
//!
//! ```no_run
//! use sa_node_sdk::{NodeClient, NodeInfo, NodeTool, ToolContext, ToolRegistry, ToolResult};
//!
//! struct Greet;
//!
//! #[async_trait::async_trait]
//! impl NodeTool for Greet {
//!     async fn call(&self, _ctx: ToolContext, args: serde_json::Value) -> ToolResult {
//!         Ok(serde_json::json!({ "greeting": format!("Hello, {}", args["name"]) }))
//!     }
//!
//!     fn description(&self) -> Option<String> {
//!         Some("Greets somebody by name.".into())
//!     }
//! }
//!
//! # async fn run() -> anyhow::Result<()> {
//! let mut registry = ToolRegistry::new();
//! registry.register("demo.greet", Greet).derive_capabilities_from_tools();
//!
//! NodeClient::builder()
//!     .node_info(NodeInfo::from_env("demo", env!("CARGO_PKG_VERSION")))
//!     .token(std::env::var("SA_NODE_TOKEN").unwrap_or_default())
//!     .build()?
//!     .run_until_stopped(registry)
//!     .await?;
//! # Ok(())
//! # }
//! ```
//!
//! [`NodeInfo::from_env`] names the node. Its id is `SA_NODE_ID`, or else the type and the hostname
//! with a colon between them, here `demo:HOSTNAME`. The gateway distinguishes nodes by their ids: a
//! second process with the same id replaces the first. So two nodes on one machine need a
//! `SA_NODE_ID` each, and a token that is bound to an id works with that id only.
//!
//! # The life of a call
//!
//! A request for a tool that is not registered is answered `not_found`. A request that is larger
//! than [`max_request_bytes`](NodeClientBuilder::max_request_bytes) is answered `invalid_args`. All
//! others run concurrently, up to
//! [`max_concurrent_tools`](NodeClientBuilder::max_concurrent_tools); the rest wait in a queue.
//!
//! [`ToolContext::cancel`] fires when the gateway cancels a call, when its time limit expires, when
//! the connection is lost, or when the node shuts down. A tool that has not ended a few seconds
//! later is dropped. A panic in a tool is answered `failed` and does not affect other calls.
//!
//! # Secrets
//!
//! The token never appears in an error, a log line or the `Debug` of a type of this crate. (The
//! WebSocket library logs whole requests with their URLs at level TRACE of the target
//! `tungstenite`. Leave that target at DEBUG.)

mod builder;
mod call;
mod client;
mod close;
mod connect;
mod context;
mod error;
mod events;
mod live;
mod network;
mod registry;
mod session;
mod stop;
mod tls;
mod tool;
mod url;

pub use builder::NodeClientBuilder;
pub use client::NodeClient;
pub use context::{Principal, ToolContext};
pub use error::NodeSdkError;
pub use events::NodeEvents;
#[doc(hidden)]
pub use network::Network;
pub use registry::ToolRegistry;
pub use tool::{NodeTool, ToolError, ToolResult};

/// The whole protocol, so that a node needs no other crate for it.
pub use sa_protocol as protocol;
pub use sa_protocol::{
    ErrorKind, MAX_TOOL_RESPONSE_BYTES, NodeInfo, PROTOCOL_VERSION, ReconnectBackoff,
    ToolResponseError, WsMessage,
};
