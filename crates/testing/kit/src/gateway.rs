//! A small gateway: a router on a temporary store, behind the routes that a test adds.

use std::future::{Ready, pending, ready};
use std::net::SocketAddr;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{ConnectInfo, Request, State};
use axum::response::{IntoResponse as _, Response};
use sa_channels::Channels;
use sa_core::{Directory, Journal, Notices, Policy, Router, RouterOptions, Trimmer};
use sa_http::auth::{bearer, unauthorized};
use sa_http::history::{CALLS, labels};
use sa_http::{Client, Ends, Http, RouteTable, SessionScopes, Shared};
use sa_limits::budget::{Limit, SharedBudget};
use sa_nodes::NodeStore;
use sa_relay::Sessions;
use sa_store::{Labelled, OpenOptions, Store};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::ledger::MemoryLedger;
use crate::surfaces::Surfaces;
use crate::{MemoryTokens, RecordingJournal, Server, Settings, sessions, soon, surfaces, tokens};

/// The time that running calls have to end when the gateway stops.
const DRAIN: Duration = Duration::from_secs(30);

/// What a router needs, and the providers and surfaces around it.
#[derive(Clone)]
pub struct Parts {
    /// The directory with the store and all other files.
    pub dir: Arc<TempDir>,
    pub store: Store,
    pub journal: Arc<RecordingJournal>,
    pub tokens: Arc<MemoryTokens>,
    pub notices: Notices,
    pub router: Arc<Router>,
    /// The budget for the answers of providers.
    pub answers: Arc<SharedBudget>,
    /// Cancelled when the gateway stops.
    pub closing: CancellationToken,
    /// The sessions with the tools that requests can use.
    pub sessions: Option<Arc<dyn SessionScopes>>,
    /// Deletes old records.
    pub trimmer: Arc<Trimmer>,
    pub settings: Settings,
}

impl Parts {
    pub(crate) fn new(
        dir: Arc<TempDir>,
        tokens: Arc<MemoryTokens>,
        options: RouterOptions,
        policy: Policy,
        settings: Settings,
    ) -> Self {
        let calls = Labelled { stream: CALLS, of: labels };
        let file = OpenOptions::new(dir.path().join("store.db"));
        let store = Store::open(OpenOptions { labelled: Some(calls), ..file }).unwrap();
        let notices = Notices::new();
        let journal = Arc::new(RecordingJournal::new(Arc::new(store.clone())));
        let directory = Directory::new(notices.clone(), settings.offline_memory());
        let ledger = Arc::new(MemoryLedger::default());
        let reported = Arc::clone(&journal) as Arc<dyn Journal>;
        Self {
            dir,
            store,
            journal,
            tokens,
            router: Router::new(directory, reported, Some(ledger), policy, options),
            notices,
            answers: budget("limits.provider_answer_bytes"),
            closing: CancellationToken::new(),
            sessions: None,
            trimmer: surfaces::trimmer(),
            settings,
        }
    }

    /// Returns the state that the handlers of all crates share.
    pub fn http(&self) -> Http {
        Http::new(Shared {
            router: Arc::clone(&self.router),
            journal: Arc::clone(&self.journal) as _,
            auth: Arc::clone(&self.tokens) as _,
            sessions: self.sessions.clone(),
            requests: budget("limits.request_bytes"),
            max_body_bytes: self.settings.limits().max_body_bytes,
            max_outbox_bytes: self.settings.limits().max_outbox_bytes,
        })
    }

    /// Serves these routes, and those that every small gateway has, on a free port. A request needs
    /// a token, except for the open paths.
    pub async fn serve(mut self, routes: axum::Router, is_open: fn(&str) -> bool) -> Gateway {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let local = listener.local_addr().unwrap();
        let operator = self.tokens.operator();
        let sessions = sessions::start(&self).await;
        self.sessions = sessions.clone().map(|sessions| sessions as _);
        let Surfaces { direct, routes: own, nodes, channels } = surfaces::open(&self).await;
        let nodes = Arc::new(nodes);
        let saving = save_nodes(Arc::clone(self.router.directory()), Arc::clone(&nodes));
        tokio::spawn(self.closing.clone().run_until_cancelled_owned(saving));
        let others = routes
            .merge(own)
            .merge(sessions::routes(&self, sessions.clone()))
            .merge(tokens::routes(Arc::clone(&self.tokens), Arc::clone(&self.router)));
        let routes = RouteTable::new(direct, others);
        let checks = Checks { http: self.http(), local, is_open, routes };
        let routes = axum::Router::new()
            .fallback(answer)
            .with_state(checks)
            .into_make_service_with_connect_info::<SocketAddr>();
        let closing = self.closing.clone();
        let serving = tokio::spawn(async move {
            let serve = axum::serve(listener, routes);
            closing.run_until_cancelled(serve.into_future()).await;
        });
        let server = Server { url: format!("http://{local}"), operator };
        Gateway { server, parts: self, nodes, channels, sessions, serving }
    }
}

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parts").field("dir", &self.dir).finish_non_exhaustive()
    }
}

/// A running small gateway, which ends when this value is dropped.
pub struct Gateway {
    server: Server,
    parts: Parts,
    nodes: Arc<NodeStore>,
    channels: Arc<Channels>,
    sessions: Option<Arc<Sessions>>,
    serving: JoinHandle<()>,
}

impl Gateway {
    /// Returns the components of the gateway.
    pub fn inner(&self) -> &Parts {
        &self.parts
    }

    pub fn channels(&self) -> &Arc<Channels> {
        &self.channels
    }

    pub fn data_dir(&self) -> PathBuf {
        self.parts.dir.path().to_owned()
    }

    /// Returns how often this reason was counted at this boundary. It is a future like that of a
    /// whole gateway, which reads its metrics.
    pub fn refused(&self, at: &str, reason: &str) -> Ready<u64> {
        ready(self.parts.journal.counted(at, reason))
    }

    /// Drains the running calls, saves the nodes, and closes all connections and the store.
    pub async fn stop(mut self) {
        let router = &self.parts.router;
        self.sessions.iter().for_each(|sessions| sessions.begin_shutdown());
        router.drain(DRAIN, pending()).await;
        if let Some(sessions) = &self.sessions {
            sessions.shut_down().await;
        }
        router.directory().save_absences();
        self.nodes.save().await.unwrap();
        self.parts.closing.cancel();
        soon(&mut self.serving).await.unwrap();
        self.parts.store.shutdown().await.unwrap();
    }
}

impl std::fmt::Debug for Gateway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gateway").field("server", &self.server).finish_non_exhaustive()
    }
}

impl Deref for Gateway {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.parts.closing.cancel();
    }
}

/// Saves the nodes after each change.
async fn save_nodes(directory: Arc<Directory>, nodes: Arc<NodeStore>) {
    loop {
        directory.unsaved().await;
        nodes.save().await.unwrap();
    }
}

/// A budget of 1 GiB, named after its configuration key.
pub fn budget(key: &'static str) -> Arc<SharedBudget> {
    SharedBudget::new(Limit { name: key, what: "bytes", key, remedy: "wait", total: 1 << 30 })
}

/// The part of the auth middleware that handlers rely on, and the routes behind it.
#[derive(Clone)]
struct Checks {
    http: Http,
    local: SocketAddr,
    is_open: fn(&str) -> bool,
    routes: RouteTable,
}

async fn answer(
    State(Checks { http, local, is_open, routes }): State<Checks>,
    ConnectInfo(remote): ConnectInfo<SocketAddr>,
    request: Request,
) -> Response {
    let ends = Ends { local, remote, tls: false };
    let path = request.uri().path();
    let mut identity = None;
    if !is_open(path) && !surfaces::is_open(path) {
        match bearer(request.headers()).and_then(|token| http.auth.authenticate(token)) {
            Ok(known) => identity = Some(known),
            Err(refused) => {
                http.token_refused(refused, ends, path);
                return unauthorized(refused).into_response();
            }
        }
    }
    routes.answer(Client { identity, ends, slot: None }, request).await
}
