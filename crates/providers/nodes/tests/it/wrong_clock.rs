//! Rule: a node keeps its names while its token is valid. A token that may have expired only by a
//! wrong clock costs no names, and a wrong clock makes no node forgotten.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use sa_core::audit::NoJournal;
use sa_core::directory::Attach;
use sa_core::retention::{ClockMemory, Reading, TrustedClock};
use sa_core::store::{Expect, Records as _};
use sa_core::{
    Call, CallError, Catalog, Directory, Grant, Notices, Outcome, Policy, Provider, ProviderId,
    RawJson, Role, Router, RouterOptions, Scope, Trimmer, Updates, clock,
};
use sa_http::{StoredToken, StoredTokens};
use sa_nodes::{Access, KIND, NodeOptions, NodeStore, NodeTokens, Nodes};
use sa_socket::Liveness;
use sa_store::{OpenOptions, Store};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

const BUCKET: &str = "nodes";
const MINUTE_MS: i64 = 60_000;
/// After this time, the clock is not trusted at the start.
const YEAR_MS: i64 = 365 * 24 * 60 * MINUTE_MS;
/// The memory of offline nodes.
const TEN_MINUTES: Duration = Duration::from_secs(600);

/// Stored node tokens: `valid`, `expired`, which counts while the clock is trusted, and `revoked`.
#[derive(Default)]
struct Tokens {
    trusts_clock: AtomicBool,
}

impl StoredTokens for Tokens {
    fn any(&self, _: Role) -> bool {
        true
    }

    fn list(&self, role: Role) -> Vec<StoredToken> {
        assert_eq!(role, Role::Node);
        let token = |id: &str, is_over| StoredToken { id: id.to_owned(), is_over };
        let expired = self.has_expired(Some(1));
        vec![token("valid", false), token("expired", expired), token("revoked", true)]
    }

    fn has_expired(&self, expires_ms: Option<i64>) -> bool {
        expires_ms.is_some() && self.trusts_clock.load(Ordering::Relaxed)
    }
}

/// The parts of a gateway that remember nodes.
struct Gateway {
    directory: Arc<Directory>,
    nodes: NodeStore,
    store: Store,
}

impl Gateway {
    /// Starts with the store of a process that ended this long ago. A node with this token had
    /// disconnected at the same time, or was still connected.
    async fn start_after(dir: &Path, ms: i64, token: &str, was_connected: bool) -> Self {
        let store = Store::open(OpenOptions::new(dir.join("test.db"))).unwrap();
        let ended_ms = clock::now_ms() - ms;
        let grant = Grant::stored_token(token).id;
        let mut node = json!({ "grant": grant, "age": 1, "bare_names": false, "about": {} });
        if !was_connected {
            node["gone_ms"] = ended_ms.into();
        }
        store.put(BUCKET, "n", node.to_string().into(), Expect::Absent).await.unwrap();
        let memory = ClockMemory { trusted_ms: ended_ms, untrusted: None };
        let read = || Reading { wall_ms: clock::now_ms(), uptime_ms: clock::now_ms() };
        let trimmer = Arc::new(Trimmer::new(TrustedClock::new(Some(memory)), read));
        let directory = Directory::new(Notices::new(), TEN_MINUTES);
        let router = Router::new(
            Arc::clone(&directory),
            Arc::new(NoJournal),
            None,
            Policy::default(),
            RouterOptions::default(),
        );
        let nodes = Nodes::new(router, options(), CancellationToken::new());
        let tokens = Tokens::default();
        tokens.trusts_clock.store(trimmer.now_ms().is_some(), Ordering::Relaxed);
        let access = Access::new(NodeTokens::default(), Arc::new(tokens));
        let records = Arc::new(store.clone());
        let nodes =
            NodeStore::load(&nodes, Arc::clone(&directory), records, trimmer, &access).await;
        Self { directory, nodes: nodes.unwrap(), store }
    }

    /// Stops, and returns the stored node.
    async fn stop(self) -> Option<Value> {
        self.directory.save_absences();
        self.nodes.save().await.unwrap();
        let record = self.store.get(BUCKET, "n").await.unwrap();
        self.store.shutdown().await.unwrap();
        record.map(|record| serde_json::from_slice(&record.value).unwrap())
    }
}

fn options() -> NodeOptions {
    NodeOptions {
        hello_timeout: TEN_MINUTES,
        liveness: Liveness { ping_every: TEN_MINUTES, dead_after: 2 * TEN_MINUTES },
        max_pending: 1,
        max_frame_bytes: 1 << 20,
        max_outbox_bytes: 1 << 20,
        outboxes_bytes: 1 << 20,
        max_tools: 10,
        hello_bytes: 1 << 20,
        message_bytes: 1 << 20,
        primary: None,
        gateway_version: "0",
    }
}

#[tokio::test]
async fn a_wrong_clock_makes_no_node_forgotten() {
    for (ms, gone_for_minutes) in
        [(MINUTE_MS, Some(1)), (11 * MINUTE_MS, None), (YEAR_MS, Some(0)), (-YEAR_MS, Some(0))]
    {
        let dir = tempfile::tempdir().unwrap();
        let gateway = Gateway::start_after(dir.path(), ms, "valid", false).await;
        let nodes = gateway.directory.members(KIND);
        let known: Vec<_> =
            nodes.iter().map(|node| node.gone_for.unwrap().as_secs() / 60).collect();
        assert_eq!(known, Vec::from_iter(gone_for_minutes), "after {ms} ms");
        gateway.stop().await;
    }
}

#[tokio::test]
async fn a_wrong_time_of_disconnection_is_not_stored() {
    for (ms, is_stored) in [(MINUTE_MS, true), (YEAR_MS, false)] {
        let dir = tempfile::tempdir().unwrap();
        let gateway = Gateway::start_after(dir.path(), ms, "valid", false).await;
        let node = gateway.stop().await.unwrap();
        assert_eq!(node["gone_ms"].is_i64(), is_stored, "after {ms} ms: {node}");
    }
}

/// A token may have expired only by a wrong clock.
#[tokio::test]
async fn a_wrong_clock_forgets_no_node_with_an_expiring_token() {
    for (ms, is_known) in [(MINUTE_MS, false), (YEAR_MS, true)] {
        let dir = tempfile::tempdir().unwrap();
        let gateway = Gateway::start_after(dir.path(), ms, "expired", true).await;
        assert_eq!(!gateway.directory.members(KIND).is_empty(), is_known, "after {ms} ms");
        assert_eq!(gateway.stop().await.is_some(), is_known, "after {ms} ms");
    }
}

struct Nobody;

impl Provider for Nobody {
    fn call(&self, _: Arc<Call>, _: Updates) -> BoxFuture<'static, Outcome> {
        Box::pin(std::future::ready(Err(CallError::undelivered("nobody is here"))))
    }
}

#[test]
fn an_offline_node_keeps_no_names_once_its_token_is_over() {
    let tokens = Arc::new(Tokens::default());
    let access = Access::new(NodeTokens::default(), Arc::clone(&tokens) as _);
    let directory = Directory::new(Notices::new(), TEN_MINUTES);
    let attach = |id: &str, token: &str| {
        let attach = Attach {
            id: ProviderId::new(KIND, id),
            scope: Scope::Everyone,
            grant: Grant::stored_token(token),
            provider: Arc::new(Nobody),
            catalog: Catalog { prefixes: vec![format!("{id}.x")], ..Catalog::default() },
            max_running: 1,
            about: RawJson::empty_object(),
            may_take_over: false,
        };
        directory.attach(attach).unwrap()
    };
    let known = || {
        directory.members(KIND).into_iter().map(|node| node.id.id.to_string()).collect::<Vec<_>>()
    };
    let grants = |tokens: &[&str]| tokens.iter().map(|token| Grant::stored_token(token)).collect();
    drop(attach("a-valid", "valid"));
    drop(attach("b-expired", "expired"));
    drop(attach("c-revoked", "revoked"));
    let online = attach("d-online", "expired");
    access.release_names(&directory);
    assert_eq!(known(), ["a-valid", "b-expired", "d-online"], "the clock may be wrong");
    assert_eq!(access.valid_grants(), grants(&["valid", "expired"]));
    tokens.trusts_clock.store(true, Ordering::Relaxed);
    access.release_names(&directory);
    assert_eq!(access.valid_grants(), grants(&["valid"]));
    assert_eq!(known(), ["a-valid", "d-online"], "an online node gets a message and disconnects");
    drop(online);
    access.release_names(&directory);
    assert_eq!(known(), ["a-valid"]);
}
