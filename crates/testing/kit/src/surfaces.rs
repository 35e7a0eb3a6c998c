//! The routes that every small gateway has: tools, calls, nodes, channels and MCP.

use std::sync::Arc;
use std::time::Duration;

use sa_channels::Channels;
use sa_core::retention::{Reading, TrustedClock};
use sa_core::{Trimmer, clock};
use sa_http::DirectRoute;
use sa_mcp::Mcp;
use sa_mcp::http::Endpoint;
use sa_nodes::{Access, NodeOptions, NodeStore, NodeTokens, Nodes};
use sa_socket::Liveness;
use serde::Deserialize;

use crate::{Parts, budget, channels};

const VERSION: &str = "0.0.0";

#[derive(Deserialize)]
#[serde(default)]
struct NodeSettings {
    hello_timeout_ms: u64,
    ping_interval_ms: u64,
    dead_after_ms: u64,
    max_tools: usize,
    hello_bytes: usize,
    primary: String,
}

impl Default for NodeSettings {
    fn default() -> Self {
        Self {
            hello_timeout_ms: 10_000,
            ping_interval_ms: 15_000,
            dead_after_ms: 35_000,
            max_tools: 2_000,
            hello_bytes: 64 << 20,
            primary: String::new(),
        }
    }
}

pub(crate) struct Surfaces {
    pub(crate) direct: [DirectRoute; 2],
    pub(crate) routes: axum::Router,
    /// Saves the nodes when the gateway stops.
    pub(crate) nodes: NodeStore,
    pub(crate) channels: Arc<Channels>,
}

pub(crate) async fn open(parts: &Parts) -> Surfaces {
    let (settings, limits) = (&parts.settings, parts.settings.limits());
    let node: NodeSettings = settings.section("nodes");
    let liveness = Liveness {
        ping_every: Duration::from_millis(node.ping_interval_ms),
        dead_after: Duration::from_millis(node.dead_after_ms),
    };
    let options = NodeOptions {
        hello_timeout: Duration::from_millis(node.hello_timeout_ms),
        liveness,
        max_pending: limits.pending_per_node,
        max_frame_bytes: limits.max_frame_bytes,
        max_outbox_bytes: limits.max_outbox_bytes,
        outboxes_bytes: 256 << 20,
        max_tools: node.max_tools,
        hello_bytes: node.hello_bytes,
        message_bytes: 64 << 20,
        primary: Some(node.primary).filter(|id| !id.is_empty()),
        gateway_version: VERSION,
    };
    let tokens = NodeTokens::read(|name| settings.env(name)).unwrap();
    let nodes = Nodes::new(Arc::clone(&parts.router), options, parts.closing.clone());
    let access = Arc::new(Access::new(tokens, Arc::clone(&parts.tokens) as _));
    let store = NodeStore::load(
        &nodes,
        Arc::clone(parts.router.directory()),
        Arc::new(parts.store.clone()),
        Arc::clone(&parts.trimmer),
        &access,
    );
    let store = store.await.unwrap();
    let nodes = sa_nodes::http::Routes {
        http: parts.http(),
        nodes,
        access,
        skill_dirs: [parts.dir.path().join("skills")].into(),
    };
    let calls = sa_rest::http::Routes {
        http: parts.http(),
        log: Arc::new(parts.store.clone()),
        feed: parts.journal.feed(),
        notices: parts.notices.clone(),
        options: Arc::new(sa_rest::http::Options {
            version: VERSION,
            payload_bytes: 4_096,
            max_frame_bytes: limits.max_frame_bytes,
            liveness,
            answers: budget("limits.answer_bytes"),
        }),
        closing: parts.closing.clone(),
    };
    let channels = channels::open(parts, liveness).await;
    let routes = axum::Router::from(sa_nodes::http::router().with_state(nodes))
        .merge(sa_rest::http::router().with_state(calls))
        .merge(channels::routes(parts, Arc::clone(&channels)));
    let direct = [sa_rest::http::call_route(&parts.http()), mcp(parts, Arc::clone(&channels))];
    Surfaces { direct, routes, nodes: store, channels }
}

#[derive(Deserialize)]
#[serde(default)]
struct McpSettings {
    search: bool,
    session_idle_ms: u64,
    max_sessions: usize,
    resume_ms: u64,
    task_after_ms: u64,
}

impl Default for McpSettings {
    fn default() -> Self {
        Self {
            search: false,
            session_idle_ms: 3_600_000,
            max_sessions: 1_000,
            resume_ms: 10_000,
            task_after_ms: 10_000,
        }
    }
}

fn mcp(parts: &Parts, channels: Arc<Channels>) -> DirectRoute {
    let (settings, limits) =
        (parts.settings.section::<McpSettings>("mcp"), parts.settings.limits());
    let options = sa_mcp::Options {
        version: VERSION,
        max_body_bytes: limits.max_body_bytes,
        max_outbox_bytes: limits.max_outbox_bytes,
        session_idle: Duration::from_millis(settings.session_idle_ms),
        max_sessions: settings.max_sessions,
        resume: Duration::from_millis(settings.resume_ms),
        search: settings.search,
        task_after: Duration::from_millis(settings.task_after_ms),
        task_result_bytes: 64 << 20,
        trimmer: Arc::clone(&parts.trimmer),
    };
    let mcp = Mcp::new(
        Arc::clone(&parts.router),
        parts.notices.clone(),
        Arc::new(parts.store.clone()),
        &options,
        parts.closing.clone(),
    );
    sa_mcp::http::route(&Arc::new(Endpoint { http: parts.http(), mcp, channels }))
}

/// Returns a trimmer with the system's clock.
pub(crate) fn trimmer() -> Arc<Trimmer> {
    let begin_ms = clock::now_ms();
    let read = move || {
        let wall_ms = clock::now_ms();
        Reading { wall_ms, uptime_ms: wall_ms - begin_ms }
    };
    Arc::new(Trimmer::new(TrustedClock::new(None), read))
}

/// Returns whether these routes need no token in a header.
pub(crate) fn is_open(path: &str) -> bool {
    path == "/" || sa_nodes::http::is_open(path) || sa_channels::http::is_open(path)
}
