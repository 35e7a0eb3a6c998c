//! Upstream MCP servers as providers: a program that is spoken to over its stdin and stdout, or a URL.
//!
//! [`Upstreams`] has them all. Each [`server`] is started when it is first wanted, watched, and started again when it ends;
//! a [`connection`] carries requests to it and its questions back to whoever made the request. What it lists is kept, so
//! that a server that is not running, or slow, or dead delays no list.

mod account;
mod authorised;
mod authority;
mod backoff;
mod child;
mod connection;
mod gauge;
mod handler;
mod keep;
mod lists;
mod login;
mod observed;
mod outcome;
mod post;
mod provider;
pub mod reaper;
mod seats;
mod server;
mod spec;
mod table;
mod task;
mod trouble;
mod watched;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use sa_core::store::{Expect, Records, StoreError};
use sa_core::{Directory, ProviderId};
use sa_vault::Vault;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use self::account::Account;
pub use self::lists::LeftOut;
pub use self::login::{Begun, Callback, Progress};
use self::login::{Logins, Returned};
use self::server::Server;
pub use self::server::{Health, State};
pub use self::spec::{Grant, OAuth, Spec};

/// The kind of these providers.
pub const KIND: &str = "upstream";
const BUCKET: &str = "upstream";
/// How many servers there may be, each of them a process or a few connections.
pub const MAX_SERVERS: usize = 200;
/// How long a server's authority may take to answer, with all that is asked of it.
const LOGIN_PATIENCE: Duration = Duration::from_secs(60);
/// How long a gateway that stops waits for the same.
const SETTLE_PATIENCE: Duration = Duration::from_secs(10);

/// All upstream servers of a gateway: those of its configuration, and those that were added while it ran.
pub struct Upstreams {
    directory: Arc<Directory>,
    records: Arc<dyn Records>,
    vault: Arc<Vault>,
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
    /// Without its secrets.
    pub spec: Spec,
    /// Whether it is in the configuration file, where alone it can be changed.
    pub configured: bool,
    pub health: Health,
    /// Whether somebody has logged in; absent where nobody needs to.
    pub logged_in: Option<bool>,
}

#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    #[error("{0}")]
    Invalid(String),
    #[error("there is an upstream \"{0}\" already")]
    Exists(String),
    #[error("the name belongs to the {0}")]
    Taken(ProviderId),
    #[error("there is no upstream \"{0}\"")]
    Unknown(String),
    #[error("the upstream \"{0}\" is in the configuration file, and can only be changed there")]
    Configured(String),
    /// The server, or whoever grants tokens for it, does not let anybody log in.
    #[error("{0}")]
    Refused(String),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Upstreams {
    /// Takes in the servers of the configuration and those that were added before. None of them is waited for.
    pub async fn load(
        directory: Arc<Directory>,
        records: Arc<dyn Records>,
        vault: Arc<Vault>,
        configured: &BTreeMap<String, Spec>,
        closing: CancellationToken,
    ) -> Result<Arc<Self>, StoreError> {
        let added = records.list(BUCKET).await?;
        let upstreams =
            Arc::new(Self { directory, records, vault, closing, logins: Logins::default(), servers: Mutex::default() });
        for (name, spec) in configured {
            upstreams.enter(name, spec.clone(), true).await;
        }
        for (name, record) in added {
            match serde_json::from_slice::<Spec>(&record.value) {
                _ if configured.contains_key(&name) => {
                    warn!(upstream = name, "it was added before, and now is in the configuration file, which counts");
                }
                Ok(spec) => upstreams.enter(&name, spec, false).await,
                Err(error) => warn!(upstream = name, %error, "its record cannot be read; remove it and add it again"),
            }
        }
        Ok(upstreams)
    }

    /// Every server, by name.
    pub fn list(&self) -> Vec<View> {
        let servers = self.servers().clone();
        servers.into_iter().map(|(name, entry)| view(name, &entry)).collect()
    }

    /// Waits until every server that is being started was reached or was not, but no longer than this.
    pub async fn reached(&self, patience: Duration) {
        let servers: Vec<Arc<Server>> = self.servers().values().map(|entry| Arc::clone(&entry.server)).collect();
        let all = async {
            for server in &servers {
                server.is_settled().await;
            }
        };
        let _ = tokio::time::timeout(patience, all).await;
    }

    /// Adds a server for good.
    pub async fn add(&self, name: &str, spec: Spec) -> Result<View, ChangeError> {
        spec.check(name).map_err(ChangeError::Invalid)?;
        if let Ok(entry) = self.find(name) {
            let taken = if entry.configured { ChangeError::Configured } else { ChangeError::Exists };
            return Err(taken(name.into()));
        }
        if let Some(holder) = self.directory.installed_besides(&ProviderId::new(KIND, name)) {
            return Err(ChangeError::Taken(holder));
        }
        if self.servers().len() >= MAX_SERVERS {
            return Err(ChangeError::Invalid(format!(
                "there are {MAX_SERVERS} upstreams already, the most there may be"
            )));
        }
        let json = serde_json::to_vec(&spec).map_err(|error| ChangeError::Invalid(error.to_string()))?;
        self.records.put(BUCKET, name, Bytes::from(json), Expect::Absent).await.map_err(|error| match error.kind {
            sa_core::store::StoreErrorKind::Conflict => ChangeError::Exists(name.into()),
            _ => error.into(),
        })?;
        self.enter(name, spec, false).await;
        self.find(name).map(|entry| view(name.into(), &entry))
    }

    /// Removes a server that was added.
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

    /// Starts a server anew, whatever it is doing, and forgets how often it failed.
    pub fn restart(&self, name: &str) -> Result<View, ChangeError> {
        let entry = self.find(name)?;
        if !entry.server.spec.enabled {
            return Err(ChangeError::Invalid(format!("the upstream \"{name}\" is disabled")));
        }
        entry.server.restart();
        Ok(view(name.into(), &entry))
    }

    /// Makes ready for somebody to log in to a server: they open an address, and come back to `redirect_uri`.
    pub async fn begin_login(&self, name: &str, redirect_uri: &str) -> Result<Begun, ChangeError> {
        let entry = self.find(name)?;
        let account = account_of(name, &entry)?;
        if entry.server.health().state == State::Ready && !account.is_wanted() {
            return Err(ChangeError::Invalid(format!("the upstream \"{name}\" is ready and wants no login")));
        }
        let session = tokio::time::timeout(LOGIN_PATIENCE, account.begin(redirect_uri)).await;
        let session = session.unwrap_or_else(|_| Err("its OAuth authority does not answer in time".into()));
        session.and_then(|session| self.logins.begin(name, session)).map_err(ChangeError::Refused)
    }

    /// Somebody is back from the authority of this server. Answers once their login is kept.
    pub async fn finish_login(self: &Arc<Self>, name: &str, callback: Callback) -> Result<(), String> {
        const UNKNOWN: &str = "this login is not known: it was used before, or took too long; begin again";
        let returned = self.logins.take(name, &callback.state).ok_or(UNKNOWN)?;
        let upstreams = Arc::clone(self);
        // In a task of its own: a code is good once, and a browser may be gone before it is changed for a token.
        let finish = tokio::spawn(async move {
            let ended = upstreams.finish(&returned, &callback).await;
            returned.tell(&ended);
            ended
        });
        finish.await.unwrap_or_else(|error| Err(error.to_string()))
    }

    async fn finish(&self, returned: &Returned, callback: &Callback) -> Result<(), String> {
        let entry = self.find(&returned.server).map_err(|error| error.to_string())?;
        let finished = tokio::time::timeout(LOGIN_PATIENCE, returned.finish(callback)).await;
        finished.unwrap_or_else(|_| Err("the OAuth authority does not answer in time; begin again".into()))?;
        if let Some(account) = entry.server.account() {
            account.entered();
        }
        entry.server.restart();
        Ok(())
    }

    /// Waits for a login to end, for a while. `None` for one that is not known.
    pub async fn login_progress(&self, name: &str, id: &str, patience: Duration) -> Option<Progress> {
        self.logins.wait(name, id, patience).await
    }

    /// Forgets the login at a server.
    pub async fn log_out(&self, name: &str) -> Result<View, ChangeError> {
        let entry = self.find(name)?;
        account_of(name, &entry)?.forget().await?;
        self.logins.forget(name);
        entry.server.restart();
        Ok(view(name.into(), &entry))
    }

    /// Waits for renewals of logins that are under way, for a while: one that is cut off may cost the login.
    pub async fn finish_renewals(&self) {
        let servers: Vec<_> = self.servers().values().map(|entry| Arc::clone(&entry.server)).collect();
        let accounts = servers.iter().filter_map(|server| server.account());
        let settled = join_all(accounts.map(|account| account.settle()));
        if tokio::time::timeout(SETTLE_PATIENCE, settled).await.is_err() {
            warn!("a login is still being renewed; its authority does not answer in time");
        }
    }

    fn find(&self, name: &str) -> Result<Entry, ChangeError> {
        self.servers().get(name).cloned().ok_or_else(|| ChangeError::Unknown(name.into()))
    }

    async fn enter(&self, name: &str, spec: Spec, configured: bool) {
        let (directory, records) = (Arc::clone(&self.directory), Arc::clone(&self.records));
        let (vault, stop) = (Arc::clone(&self.vault), self.closing.child_token());
        let server = Server::start(name, spec, directory, records, vault, stop).await;
        self.servers().insert(name.into(), Entry { server, configured });
    }

    fn servers(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Entry>> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn view(name: String, entry: &Entry) -> View {
    let logged_in = entry.server.account().and_then(|account| account.logged_in());
    let (spec, health) = (entry.server.spec.masked(), entry.server.health());
    View { name, spec, configured: entry.configured, health, logged_in }
}

fn account_of<'a>(name: &str, entry: &'a Entry) -> Result<&'a Arc<Account>, ChangeError> {
    let none = "is not one to log in to: it has a command, or gets its tokens in another way (bearer, headers, oauth)";
    entry.server.account().ok_or_else(|| ChangeError::Invalid(format!("the upstream \"{name}\" {none}")))
}

impl fmt::Debug for Upstreams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upstreams").field("servers", &self.servers().len()).finish_non_exhaustive()
    }
}
