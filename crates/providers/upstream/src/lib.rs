//! Upstream MCP servers as providers: a program that is connected over its stdin and stdout, or a
//! URL.
//!
//! [`Upstreams`] owns all of them. Each [`server`] is started on first use, monitored, and
//! restarted when it ends. A [`connection`] sends requests to it, and returns its questions to
//! the caller. The lists of tools and documents are cached, so that a stopped, slow or dead
//! server delays no list request.

mod account;
mod authorised;
mod authority;
mod child;
mod connection;
mod connection_pool;
pub mod doctor;
mod errors;
mod event_limit;
mod expected;
mod handler;
pub mod http;
mod lists;
mod login;
mod outcome;
mod post;
mod provider;
mod server;
mod session_check;
mod settings;
mod spec;
mod status;
mod stored_login;
mod subscriptions;
mod table;
mod task;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use parking_lot::Mutex;
use sa_core::store::{Expect, Records, StoreError};
use sa_core::{Directory, ProviderId};
use sa_limits::budget::SharedBudget;
use sa_vault::Vault;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use self::account::Account;
pub use self::lists::LeftOut;
pub use self::login::{Callback, Progress, StartedLogin};
use self::login::{Logins, Returned};
use self::server::Server;
pub use self::server::{Health, State};
pub use self::settings::Settings;
pub use self::spec::{Grant, OAuth, Spec};
pub use self::status::{DownUpstream, UpstreamStatus};

/// The provider kind of upstream servers.
pub const KIND: &str = "upstream";
const BUCKET: &str = "upstream";
/// The maximum number of servers. Each of them is a process or a few connections.
pub const MAX_SERVERS: usize = 200;
/// The timeout for all requests to a server's authorization server during a login.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a gateway that shuts down waits for token refreshes.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(10);

/// All upstream servers of a gateway: the configured ones, and those that were added at run time.
pub struct Upstreams {
    directory: Arc<Directory>,
    records: Arc<dyn Records>,
    vault: Arc<Vault>,
    /// The budget for answers.
    answers: Arc<SharedBudget>,
    closing: CancellationToken,
    logins: Logins,
    servers: Mutex<BTreeMap<String, Entry>>,
}

#[derive(Clone)]
struct Entry {
    server: Arc<Server>,
    configured: bool,
}

/// A server as an operator sees it.
#[derive(Debug, Clone)]
pub struct View {
    pub name: String,
    /// The specification without its secrets.
    pub spec: Spec,
    /// Whether it is in the configuration file. It can then only be changed there.
    pub configured: bool,
    pub health: Health,
    /// Whether there is a login; `None` if the server requires none.
    pub logged_in: Option<bool>,
}

#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    #[error("{0}")]
    Invalid(String),
    #[error("the upstream \"{0}\" already exists")]
    Exists(String),
    #[error("the name belongs to the {0}")]
    Taken(ProviderId),
    #[error("no upstream has the name \"{0}\"")]
    Unknown(String),
    #[error(
        "the upstream \"{0}\" is defined in the configuration file and can only be changed there"
    )]
    Configured(String),
    /// The server, or its authorization server, does not allow a login.
    #[error("{0}")]
    Refused(String),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Upstreams {
    /// Loads the servers of the configuration and those that were added before. It does not wait
    /// until they are connected.
    pub async fn load(
        directory: Arc<Directory>,
        records: Arc<dyn Records>,
        vault: Arc<Vault>,
        answers: Arc<SharedBudget>,
        configured: &BTreeMap<String, Spec>,
        closing: CancellationToken,
    ) -> Result<Arc<Self>, StoreError> {
        let added = records.list(BUCKET).await?;
        let upstreams = Arc::new(Self {
            directory,
            records,
            vault,
            answers,
            closing,
            logins: Logins::default(),
            servers: Mutex::default(),
        });
        for (name, spec) in configured {
            upstreams.enter(name, spec.clone(), true).await;
        }
        for (name, record) in added {
            match serde_json::from_slice::<Spec>(&record.value) {
                _ if configured.contains_key(&name) => {
                    warn!(
                        upstream = name,
                        "the stored upstream is ignored: the configuration file has one with the same name"
                    );
                }
                Ok(spec) => upstreams.enter(&name, spec, false).await,
                Err(error) => {
                    warn!(upstream = name, %error, "the record of the upstream is invalid; remove the upstream and add it again");
                }
            }
        }
        Ok(upstreams)
    }

    /// Returns every server, sorted by name.
    pub fn list(&self) -> Vec<View> {
        let servers = self.servers().clone();
        servers.into_iter().map(|(name, entry)| view(name, &entry)).collect()
    }

    /// Waits until every starting server has either connected or failed, but at most for this
    /// timeout.
    pub async fn reached(&self, timeout: Duration) {
        let servers: Vec<Arc<Server>> =
            self.servers().values().map(|entry| Arc::clone(&entry.server)).collect();
        let all = async {
            for server in &servers {
                server.wait_for_first_attempt().await;
            }
        };
        let _ = tokio::time::timeout(timeout, all).await;
    }

    /// Adds a server and stores it.
    pub async fn add(&self, name: &str, spec: Spec) -> Result<View, ChangeError> {
        spec.check(name).map_err(ChangeError::Invalid)?;
        if let Ok(entry) = self.find(name) {
            let taken =
                if entry.configured { ChangeError::Configured } else { ChangeError::Exists };
            return Err(taken(name.into()));
        }
        if let Some(holder) = self.directory.installed_besides(&ProviderId::new(KIND, name)) {
            return Err(ChangeError::Taken(holder));
        }
        if self.servers().len() >= MAX_SERVERS {
            return Err(ChangeError::Invalid(format!(
                "the limit of {MAX_SERVERS} upstreams is reached"
            )));
        }
        let json =
            serde_json::to_vec(&spec).map_err(|error| ChangeError::Invalid(error.to_string()))?;
        self.records.put(BUCKET, name, Bytes::from(json), Expect::Absent).await.map_err(
            |error| match error.kind {
                sa_core::store::StoreErrorKind::Conflict => ChangeError::Exists(name.into()),
                _ => error.into(),
            },
        )?;
        self.enter(name, spec, false).await;
        self.find(name).map(|entry| view(name.into(), &entry))
    }

    /// Removes a server that was added at run time.
    pub async fn remove(&self, name: &str) -> Result<View, ChangeError> {
        let entry = self.find(name)?;
        if entry.configured {
            return Err(ChangeError::Configured(name.into()));
        }
        self.records.delete(BUCKET, name).await?;
        self.servers().remove(name);
        self.logins.forget(name);
        entry.server.remove().await;
        Ok(view(name.into(), &entry))
    }

    /// Restarts a server in any state, and resets its failure count.
    pub fn restart(&self, name: &str) -> Result<View, ChangeError> {
        let entry = self.find(name)?;
        if !entry.server.spec.enabled {
            return Err(ChangeError::Invalid(format!("the upstream \"{name}\" is disabled")));
        }
        entry.server.restart();
        Ok(view(name.into(), &entry))
    }

    /// Begins a login to a server. The user opens the returned address, and the browser is
    /// redirected to `redirect_uri`.
    pub async fn begin_login(
        &self,
        name: &str,
        redirect_uri: &str,
    ) -> Result<StartedLogin, ChangeError> {
        let entry = self.find(name)?;
        let account = account_of(name, &entry)?;
        if entry.server.health().state == State::Ready && !account.is_wanted() {
            return Err(ChangeError::Invalid(format!(
                "the upstream \"{name}\" is ready and requires no login"
            )));
        }
        let session = tokio::time::timeout(LOGIN_TIMEOUT, account.begin(redirect_uri)).await;
        let session =
            session.unwrap_or_else(|_| Err("its OAuth authority did not respond in time".into()));
        session.and_then(|session| self.logins.begin(name, session)).map_err(ChangeError::Refused)
    }

    /// Completes a login after the redirect from the authorization server. Returns once the login
    /// is stored.
    pub async fn finish_login(
        self: &Arc<Self>,
        name: &str,
        callback: Callback,
    ) -> Result<(), String> {
        const UNKNOWN: &str =
            "the login is unknown: it was already used or has expired; start again";
        let returned = self.logins.take(name, &callback.state).ok_or(UNKNOWN)?;
        let upstreams = Arc::clone(self);
        // Runs in a separate task: an authorization code is valid once, and the browser may
        // disconnect before the code is exchanged for a token.
        let finish = tokio::spawn(async move {
            let ended = upstreams.finish(&returned, &callback).await;
            returned.set_result(&ended);
            ended
        });
        finish.await.unwrap_or_else(|error| Err(error.to_string()))
    }

    async fn finish(&self, returned: &Returned, callback: &Callback) -> Result<(), String> {
        let entry = self.find(&returned.server).map_err(|error| error.to_string())?;
        let finished = tokio::time::timeout(LOGIN_TIMEOUT, returned.finish(callback)).await;
        finished.unwrap_or_else(|_| {
            Err("the OAuth authority did not respond in time; start again".into())
        })?;
        if let Some(account) = entry.server.account() {
            account.entered();
        }
        entry.server.restart();
        Ok(())
    }

    /// Waits for a login to end, at most for this timeout. Returns `None` if the login is
    /// unknown.
    pub async fn login_progress(
        &self,
        name: &str,
        id: &str,
        timeout: Duration,
    ) -> Option<Progress> {
        self.logins.wait(name, id, timeout).await
    }

    /// Deletes the login of a server.
    pub async fn log_out(&self, name: &str) -> Result<View, ChangeError> {
        let entry = self.find(name)?;
        account_of(name, &entry)?.forget().await?;
        self.logins.forget(name);
        entry.server.restart();
        Ok(view(name.into(), &entry))
    }

    /// Waits, with a timeout, for token refreshes in progress: an interrupted refresh may lose
    /// the login.
    pub async fn finish_renewals(&self) {
        let servers: Vec<_> =
            self.servers().values().map(|entry| Arc::clone(&entry.server)).collect();
        let accounts = servers.iter().filter_map(|server| server.account());
        let all_settled = join_all(accounts.map(|account| account.settle()));
        if tokio::time::timeout(SETTLE_TIMEOUT, all_settled).await.is_err() {
            warn!("the renewal of a login did not finish in time");
        }
    }

    fn find(&self, name: &str) -> Result<Entry, ChangeError> {
        self.servers().get(name).cloned().ok_or_else(|| ChangeError::Unknown(name.into()))
    }

    async fn enter(&self, name: &str, spec: Spec, configured: bool) {
        let (directory, records) = (Arc::clone(&self.directory), Arc::clone(&self.records));
        let (vault, stop) = (Arc::clone(&self.vault), self.closing.child_token());
        let answers = Arc::clone(&self.answers);
        let server = Server::start(name, spec, directory, records, vault, answers, stop).await;
        self.servers().insert(name.into(), Entry { server, configured });
    }

    fn servers(&self) -> parking_lot::MutexGuard<'_, BTreeMap<String, Entry>> {
        self.servers.lock()
    }
}

fn view(name: String, entry: &Entry) -> View {
    let logged_in = entry.server.account().and_then(|account| account.logged_in());
    let (spec, health) = (entry.server.spec.masked(), entry.server.health());
    View { name, spec, configured: entry.configured, health, logged_in }
}

fn account_of<'a>(name: &str, entry: &'a Entry) -> Result<&'a Arc<Account>, ChangeError> {
    let none = "does not use a login: it has a command, or gets its tokens in another way (bearer, headers, oauth)";
    entry
        .server
        .account()
        .ok_or_else(|| ChangeError::Invalid(format!("the upstream \"{name}\" {none}")))
}

impl fmt::Debug for Upstreams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upstreams").field("servers", &self.servers().len()).finish_non_exhaustive()
    }
}
