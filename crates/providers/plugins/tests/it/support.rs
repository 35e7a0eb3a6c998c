//! A registry of plugins on a store, and a web server with the files that it fetches.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{StatusCode, Uri};
use parking_lot::Mutex;
use sa_core::audit::NoJournal;
use sa_core::{Directory, Notices, Policy, Router, RouterOptions};
use sa_limits::budget::{Limit, SharedBudget};
use sa_plugins::{Addition, Options, Plugins, Terms};
use sa_store::{OpenOptions, Store};
use sa_vault::Vault;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// A web server with text files, by path.
pub(crate) struct Site {
    address: SocketAddr,
    files: Arc<Mutex<BTreeMap<String, String>>>,
}

impl Site {
    pub(crate) async fn start() -> Self {
        let files: Arc<Mutex<BTreeMap<String, String>>> = Arc::default();
        let shown = Arc::clone(&files);
        let get = move |uri: Uri| {
            let text = shown.lock().get(uri.path()).cloned();
            async move { text.ok_or(StatusCode::NOT_FOUND) }
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async { axum::serve(listener, axum::Router::new().fallback(get)).await });
        Self { address, files }
    }

    pub(crate) fn set(&self, path: &str, text: impl Into<String>) {
        self.files.lock().insert(path.to_owned(), text.into());
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn at(&self, path: &str) -> Addition {
        Addition::Url(self.url(path).parse().unwrap())
    }

    /// Allows the private address of this server.
    pub(crate) fn terms(&self) -> Terms {
        Terms { replace: false, allow_private: vec![self.address.to_string()] }
    }
}

pub(crate) fn router() -> Arc<Router> {
    Router::new(
        Directory::new(Notices::new(), TIMEOUT),
        Arc::new(NoJournal),
        None,
        Policy::default(),
        RouterOptions::default(),
    )
}

/// The budget for answers.
pub(crate) fn answers(total: usize) -> Arc<SharedBudget> {
    SharedBudget::new(Limit {
        name: "provider_answers",
        what: "bytes of answers",
        key: "limits.provider_answer_bytes",
        remedy: "request less",
        total,
    })
}

/// A store on disk, whose registry can be loaded several times.
pub(crate) struct Disk {
    pub(crate) store: Arc<Store>,
    dir: TempDir,
}

impl Disk {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(OpenOptions::new(dir.path().join("store.db"))).unwrap();
        Self { store: Arc::new(store), dir }
    }

    pub(crate) async fn load(&self) -> Arc<Plugins> {
        self.load_with(|_| {}).await
    }

    pub(crate) async fn load_with(&self, change: impl FnOnce(&mut Options)) -> Arc<Plugins> {
        self.load_on(router(), change).await
    }

    pub(crate) async fn load_on(
        &self,
        router: Arc<Router>,
        change: impl FnOnce(&mut Options),
    ) -> Arc<Plugins> {
        let mut options = Options {
            allow_inline_manifest: false,
            accept_changes: false,
            allow_private: Vec::new(),
            settings_headers: Vec::new(),
            timeout: TIMEOUT,
            max_response_bytes: 1 << 20,
            calls_per_second: NonZeroU32::MAX,
            max_running: 1,
            refresh: Duration::from_secs(3_600),
            vault: Arc::new(Vault::new(self.dir.path().join("key"), None)),
            answers: answers(1 << 30),
        };
        change(&mut options);
        let records = Arc::clone(&self.store);
        Plugins::load(router, records, options, CancellationToken::new()).await.unwrap()
    }
}
