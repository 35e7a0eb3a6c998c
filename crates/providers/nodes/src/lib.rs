//! Nodes: processes that connect over a WebSocket, say which tools they have, and answer calls.
//!
//! [`Nodes::serve`] takes an upgraded socket through its life: hello, a place in the directory, requests out and
//! responses in, and the clean-up. Who may connect at all has been decided before, and arrives as an [`Admission`].

mod hello;
mod host;
mod link;
mod machine;
mod session;
mod too_large;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sa_core::budget::{Holder, Limit, Permit, Refused, SharedBudget};
use sa_core::directory::SavedProvider;
use sa_core::{Grant, ProviderId, Rank, Router};
use sa_socket::{Liveness, WebSocket};
use tokio_util::sync::CancellationToken;

pub use hello::check_id;
pub use host::{BadFrames, Host, MAX_BINS, PROBE_PATIENCE, ProbeError, check_bins};
pub use session::TOOK_PLACE;

/// The provider kind of nodes, in addresses and lists.
pub const KIND: &str = "node";

#[derive(Debug, Clone)]
pub struct NodeOptions {
    /// How long a node may take to say who it is.
    pub hello_patience: Duration,
    pub liveness: Liveness,
    /// Calls that one node may be given at once.
    pub max_pending: usize,
    /// The largest frame that the sockets take; nodes are told.
    pub max_frame_bytes: usize,
    /// Bytes that may wait for a node that reads slowly.
    pub max_outbox_bytes: usize,
    /// The same for all nodes together, but for a little of each.
    pub outboxes_bytes: usize,
    /// Tools and prefixes that one node may offer.
    pub max_tools: usize,
    /// What is kept of all nodes' hellos together, in bytes, of nodes that are remembered, too.
    pub hello_bytes: usize,
    /// The node on which the operator wants bare names to run.
    pub primary: Option<String>,
    pub gateway_version: &'static str,
}

/// By what right a node connects.
#[derive(Debug, Clone)]
pub struct Admission {
    pub grant: Grant,
    /// The only id that its token may use; any, when absent.
    pub bound_id: Option<Arc<str>>,
    /// Where it connects from, for the record.
    pub remote: String,
    /// Fires when the token does not count any more.
    pub revoked: CancellationToken,
}

impl Admission {
    /// What the node takes from budgets as: its token, or one of all without a token.
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

/// How many attempts of one connection to answer for others are recorded one by one. All are counted.
const MAX_FORGERIES: u32 = 20;

/// How many frames of one connection that cannot be read are warned of one by one. All are counted.
const MAX_BAD_TOLD: u64 = 3;

/// Makes providers of node sockets.
#[derive(Debug)]
pub struct Nodes {
    router: Arc<Router>,
    options: NodeOptions,
    /// Fires when the gateway stops and nodes are to be told.
    shutdown: CancellationToken,
    /// Those that are connected, by id.
    hosts: Mutex<HashMap<String, Arc<Host>>>,
    /// For what is kept of hellos.
    hellos: Arc<SharedBudget>,
    /// For what nodes still have to read.
    unread: Arc<SharedBudget>,
}

impl Nodes {
    pub fn new(router: Arc<Router>, options: NodeOptions, shutdown: CancellationToken) -> Arc<Self> {
        let hellos = SharedBudget::new(Limit {
            name: "node_hellos",
            what: "bytes of node hellos",
            key: "nodes.hello_bytes",
            remedy: "disconnect nodes, or describe their tools in fewer words",
            total: options.hello_bytes,
        });
        let unread = SharedBudget::new(Limit {
            name: "node_requests",
            what: "bytes of requests that nodes have not read",
            key: "nodes.request_bytes",
            remedy: "try again when the nodes have read them, or send less",
            total: options.outboxes_bytes,
        });
        Arc::new(Self { router, options, shutdown, hosts: Mutex::default(), hellos, unread })
    }

    /// Takes up the nodes that an earlier process has saved, as far as their grants are `valid` and the budget has room.
    pub fn restore(&self, saved: Vec<SavedProvider>, valid: impl Fn(&Grant) -> bool) {
        let mut saved = saved;
        for node in &mut saved {
            node.preferred = self.options.primary.as_deref() == Some(&*node.id);
        }
        self.router.directory().restore(KIND, saved, |node| {
            let room = || self.hellos.acquire(&holder(&node.grant), node.weight()).ok().map(Arc::new);
            if valid(&node.grant) { room() } else { None }
        });
    }

    /// What bounds the memory that nodes take.
    pub fn budgets(&self) -> [&Arc<SharedBudget>; 2] {
        [&self.hellos, &self.unread]
    }

    /// What is known of a node that is connected, beside its tools.
    pub fn host(&self, id: &str) -> Option<Arc<Host>> {
        self.hosts().get(id).cloned()
    }

    /// Counts what is kept of a node's hello. When that is refused, a node that comes back keeps the permit that it had.
    fn count_hello(&self, id: &str, holder: &Holder, bytes: usize) -> Result<Arc<Permit>, Refused> {
        self.hellos.acquire(holder, bytes).map(Arc::new).or_else(|_| {
            let directory = self.router.directory();
            let own = directory.room(&ProviderId::new(KIND, id));
            if let Some(own) = own.filter(|permit| permit.amount() >= bytes) {
                return Ok(own);
            }
            // Those whose time is over may not have been forgotten yet.
            directory.sweep();
            self.hellos.acquire(holder, bytes).map(Arc::new)
        })
    }

    fn hosts(&self) -> MutexGuard<'_, HashMap<String, Arc<Host>>> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves one node until its connection ends.
    pub fn serve(
        self: Arc<Self>,
        socket: Box<WebSocket>,
        admission: Admission,
    ) -> impl Future<Output = ()> + Send + 'static {
        // What a future is given, it has room for as long as it lives, though it passes it on: a pointer is less.
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

    /// Ten thousand nodes are ten thousand of these.
    #[test]
    fn an_idle_node_is_a_small_future() {
        let size = size_of_future(|nodes: Arc<Nodes>, socket, admission| nodes.serve(socket, admission));
        assert!(size <= 1_600, "{size} bytes");
    }
}
