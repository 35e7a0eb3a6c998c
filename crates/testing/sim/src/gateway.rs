//! The gateway: the product's router, directory and node sessions, behind the product's WebSockets.

use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use axum::routing::any;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use sa_core::{
    AuditEvent, CallRecord, CallStarted, Directory, Grant, Journal, Notices, Policy, Router,
    RouterOptions,
};
use sa_nodes::{Admission, NodeOptions, Nodes};
use sa_socket::{SocketLimits, Upgrade};
use tokio_util::sync::CancellationToken;
use turmoil::net::{TcpListener, TcpStream};

use crate::caller;
use crate::plan::Plan;
use crate::world::{Gateway, World};

pub(crate) const PORT: u16 = 3210;
const MAX_FRAME: usize = 1 << 20;
/// The same timeout as in the product.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) fn options() -> RouterOptions {
    RouterOptions {
        max_duration: Duration::from_secs(30),
        queue_timeout: Duration::from_secs(1),
        reconnect_timeout: Duration::from_secs(5),
        ..RouterOptions::default()
    }
}

pub(crate) async fn run(world: World, plan: Plan) -> turmoil::Result {
    let directory = Directory::new(Notices::new(), Duration::from_secs(600));
    let gateway = world.state().gateways + 1;
    let journal = Arc::new(Record { world: world.clone(), gateway });
    let router = Router::new(directory, journal, None, Policy::default(), options());
    let node_options = NodeOptions {
        hello_timeout: Duration::from_secs(5),
        liveness: plan.liveness,
        max_pending: 6,
        max_frame_bytes: MAX_FRAME,
        max_outbox_bytes: 1 << 20,
        outboxes_bytes: 1 << 24,
        max_tools: 16,
        hello_bytes: 1 << 20,
        message_bytes: 1 << 20,
        primary: None,
        gateway_version: "simulated",
    };
    let nodes = Nodes::new(Arc::clone(&router), node_options, CancellationToken::new());
    world.gateway_up(Gateway { router: Arc::clone(&router), nodes: Arc::clone(&nodes) });
    caller::start(&world, &router, &plan, gateway);
    let listener = TcpListener::bind(("0.0.0.0", PORT)).await?;
    loop {
        let (stream, remote) = listener.accept().await?;
        tokio::spawn(connection(stream, remote, Arc::clone(&nodes), world.clone()));
    }
}

async fn connection(stream: TcpStream, remote: SocketAddr, nodes: Arc<Nodes>, world: World) {
    let upgrade = move |upgrade: Upgrade| async move {
        let admission = Admission {
            grant: Grant::token("simulated"),
            bound_id: None,
            remote: remote.to_string(),
            revoked: CancellationToken::new(),
            suspended: CancellationToken::new(),
        };
        upgrade.serve(
            SocketLimits { max_message_bytes: MAX_FRAME, cuts: true, budget: None },
            move |socket| async move {
                if AssertUnwindSafe(nodes.serve(socket, admission)).catch_unwind().await.is_err() {
                    world.broken(format!("the session of {remote} panicked"));
                }
            },
        )
    };
    let app: axum::Router = axum::Router::new().route("/v1/nodes/ws", any(upgrade));
    // Broken connections are expected in this test.
    let _ = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(app))
        .with_upgrades()
        .await;
}

/// Records the events of the router and the sessions in the world.
struct Record {
    world: World,
    gateway: u32,
}

impl Journal for Record {
    fn started(&self, _: &CallStarted) {}

    fn finished(&self, record: CallRecord) {
        self.world.recorded(&record);
    }

    fn backpressure(&self) -> Option<BoxFuture<'_, ()>> {
        None
    }

    fn audit(&self, event: AuditEvent) {
        self.world.audited(&event, self.gateway);
    }

    fn count(&self, what: &'static str, why: &'static str) {
        self.world.note("count", &format!("{what} {why}"));
        if why == "panic" || why == "bad_frame" || why == "protocol" {
            self.world.broken(format!("a {what} was refused for {why}"));
        }
    }
}
