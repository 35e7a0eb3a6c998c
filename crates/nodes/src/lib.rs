//! Nodes: processes that connect over a WebSocket, say which tools they have, and answer calls.
//!
//! [`Nodes::serve`] takes an upgraded socket through its life: hello, a place in the directory, requests out and
//! responses in, and the clean-up. Who may connect at all has been decided before, and arrives as an [`Admission`].

mod hello;
mod link;
mod session;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::WebSocket;
use sa_core::{GrantId, Router};
use sa_socket::Liveness;
use tokio_util::sync::CancellationToken;

/// The provider kind of nodes, in addresses and lists.
pub const KIND: &str = "node";

#[derive(Debug, Clone)]
pub struct NodeOptions {
    /// How long a node may take to say who it is.
    pub hello_patience: Duration,
    pub liveness: Liveness,
    /// Calls that one node may be given at once.
    pub max_pending: usize,
    /// Bytes that may wait for a node that reads slowly.
    pub max_outbox_bytes: usize,
    /// Tools and prefixes that one node may offer.
    pub max_tools: usize,
    pub gateway_version: &'static str,
}

/// By what right a node connects.
#[derive(Debug, Clone)]
pub struct Admission {
    pub grant: GrantId,
    /// The only id that its token may use; any, when absent.
    pub bound_id: Option<Arc<str>>,
    /// Where it connects from, for the record.
    pub remote: String,
    /// Fires when the token does not count any more.
    pub revoked: CancellationToken,
}

/// Makes providers of node sockets.
#[derive(Debug)]
pub struct Nodes {
    router: Arc<Router>,
    options: NodeOptions,
    /// Fires when the gateway stops and nodes are to be told.
    shutdown: CancellationToken,
}

impl Nodes {
    pub fn new(router: Arc<Router>, options: NodeOptions, shutdown: CancellationToken) -> Arc<Self> {
        Arc::new(Self { router, options, shutdown })
    }

    /// Serves one node until its connection ends.
    pub async fn serve(self: Arc<Self>, socket: WebSocket, admission: Admission) {
        session::run(&self, socket, admission).await;
    }
}
