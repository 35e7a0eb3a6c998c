//! Nodes: processes that connect over a WebSocket, list their tools, and answer calls.
//!
//! [`Nodes::serve`] handles an upgraded socket from the hello to the clean-up. It registers the
//! node in the directory, sends requests and receives responses. The decision whether a node may
//! connect is made earlier, and arrives as an [`Admission`].

mod access;
mod doctor;
mod hello;
mod host;
mod hosts;
pub mod http;
mod link;
mod machine;
mod remembered;
mod session;
mod settings;
mod skills;
mod tokens;
mod too_large;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use sa_core::directory::SavedProvider;
use sa_core::{Grant, ProviderId, Rank, Router};
use sa_limits::budget::{Holder, Limit, Permit, Refused, SharedBudget};
use sa_socket::{Liveness, WebSocket};
use tokio_util::sync::CancellationToken;

pub use access::Access;
pub use hello::check_id;
pub use host::{BadFrames, Host, MAX_BINS, PROBE_TIMEOUT, ProbeError, check_bins};
pub use remembered::NodeStore;
pub use session::TOOK_PLACE;
pub use settings::{Settings, SkillSettings};
pub use tokens::NodeTokens;

/// The provider kind of nodes, in addresses and lists.
pub const KIND: &str = "node";

#[derive(Debug, Clone)]
pub struct NodeOptions {
    /// The timeout for a node to send its hello.
    pub hello_timeout: Duration,
    pub liveness: Liveness,
    /// The maximum number of concurrent calls of one node.
    pub max_pending: usize,
    /// The largest frame that the sockets accept. It is sent to nodes in the welcome.
    pub max_frame_bytes: usize,
    /// The maximum number of bytes that are queued for a slow node.
    pub max_outbox_bytes: usize,
    /// The maximum number of queued bytes for all nodes together. A small amount per node is not
    /// counted.
    pub outboxes_bytes: usize,
    /// The maximum number of tools and prefixes that one node may offer.
    pub max_tools: usize,
    /// The maximum number of bytes that all stored hellos take, including those of remembered
    /// nodes.
    pub hello_bytes: usize,
    /// The maximum number of bytes of messages that are not complete yet, for all nodes together.
    pub message_bytes: usize,
    /// The node that the operator prefers for bare tool names.
    pub primary: Option<String>,
    pub gateway_version: &'static str,
}

/// The permissions with which a node connects.
#[derive(Debug, Clone)]
pub struct Admission {
    pub grant: Grant,
    /// The only id that the token may use. If it is `None`, any id is allowed.
    pub bound_id: Option<Arc<str>>,
    /// The address that the node connects from, for the audit log.
    pub remote: String,
    /// Cancelled when the token is not valid any more. The node is disconnected.
    pub suspended: CancellationToken,
    /// Cancelled before `suspended` if the token will never be valid again. Otherwise the clock may
    /// be wrong, and the node keeps its names.
    pub revoked: CancellationToken,
}

impl Admission {
    /// Returns the budget holder of the node: its token, or the shared holder of all nodes without
    /// a token.
    pub fn holder(&self) -> Holder {
        holder(&self.grant)
    }
}

fn holder(grant: &Grant) -> Holder {
    match grant.rank {
        Rank::None => Holder::anonymous(),
        Rank::Installed | Rank::Token => Holder::named(Arc::clone(&grant.id)),
    }
}

/// The number of forged replies of one connection that are recorded individually. All are counted.
const MAX_FORGERIES: u32 = 20;

/// The number of unreadable frames of one connection that are logged as warnings. All are counted.
const MAX_BAD_TOLD: u64 = 3;

/// Registers node sockets as providers.
#[derive(Debug)]
pub struct Nodes {
    router: Arc<Router>,
    options: NodeOptions,
    /// Cancelled when the gateway stops and nodes must be notified.
    shutdown: CancellationToken,
    /// The connected nodes by id.
    hosts: Mutex<HashMap<String, Arc<Host>>>,
    /// The budget for stored hellos.
    hellos: Arc<SharedBudget>,
    /// The budget for requests that nodes have not read yet.
    unread: Arc<SharedBudget>,
    /// The budget for messages that are not complete yet.
    messages: Arc<SharedBudget>,
}

impl Nodes {
    pub fn new(
        router: Arc<Router>,
        options: NodeOptions,
        shutdown: CancellationToken,
    ) -> Arc<Self> {
        let hellos = SharedBudget::new(Limit {
            name: "node_hellos",
            what: "bytes of node hellos",
            key: "nodes.hello_bytes",
            remedy: "disconnect nodes, or shorten the descriptions of their tools",
            total: options.hello_bytes,
        });
        let unread = SharedBudget::new(Limit {
            name: "node_requests",
            what: "bytes of requests that the nodes have not read",
            key: "nodes.request_bytes",
            remedy: "try again when the nodes have read them, or send less data",
            total: options.outboxes_bytes,
        });
        let messages = SharedBudget::new(Limit {
            name: "node_messages",
            what: "bytes of large messages from nodes",
            key: "nodes.message_bytes",
            remedy: "try again later, or send less",
            total: options.message_bytes,
        });
        let hosts = Mutex::default();
        Arc::new(Self { router, options, shutdown, hosts, hellos, unread, messages })
    }

    /// Restores the nodes that an earlier process has saved, if their grant is `valid` and the
    /// budget has space.
    pub fn restore(&self, saved: Vec<SavedProvider>, valid: impl Fn(&Grant) -> bool) {
        let mut saved = saved;
        for node in &mut saved {
            node.preferred = self.options.primary.as_deref() == Some(&*node.id);
        }
        self.router.directory().restore(KIND, saved, |node| {
            let room =
                || self.hellos.acquire(&holder(&node.grant), node.weight()).ok().map(Arc::new);
            if valid(&node.grant) { room() } else { None }
        });
    }

    /// Returns the budgets that bound the memory of all nodes.
    pub fn budgets(&self) -> [&Arc<SharedBudget>; 3] {
        [&self.hellos, &self.unread, &self.messages]
    }

    /// Returns the state of a connected node beside its tools.
    pub fn host(&self, id: &str) -> Option<Arc<Host>> {
        self.hosts().get(id).cloned()
    }

    /// Takes a node's hello from the budget.
    ///
    /// If the budget refuses, a node that reconnects keeps its previous permit if that is large
    /// enough.
    fn count_hello(&self, id: &str, holder: &Holder, bytes: usize) -> Result<Arc<Permit>, Refused> {
        self.hellos.acquire(holder, bytes).map(Arc::new).or_else(|_| {
            let directory = self.router.directory();
            let own = directory.permit(&ProviderId::new(KIND, id));
            if let Some(own) = own.filter(|permit| permit.amount() >= bytes) {
                return Ok(own);
            }
            // Expired nodes may still be in the directory.
            directory.sweep();
            self.hellos.acquire(holder, bytes).map(Arc::new)
        })
    }

    fn hosts(&self) -> MutexGuard<'_, HashMap<String, Arc<Host>>> {
        self.hosts.lock()
    }

    /// Serves one node until its connection ends.
    pub fn serve(
        self: Arc<Self>,
        socket: Box<WebSocket>,
        admission: Admission,
    ) -> impl Future<Output = ()> + Send + 'static {
        // A future stores its arguments as long as it lives, even after it has moved them. A box is
        // smaller.
        let admission = Box::new(admission);
        async move { session::run(&self, socket, &admission).await }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size_of_future<A, B, C, F>(_: impl Fn(A, B, C) -> F) -> usize {
        size_of::<F>()
    }

    /// Ten thousand nodes are ten thousand of these futures.
    #[test]
    fn an_idle_node_is_a_small_future() {
        let size =
            size_of_future(|nodes: Arc<Nodes>, socket, admission| nodes.serve(socket, admission));
        assert!(size <= 1_600, "{size} bytes");
    }
}
