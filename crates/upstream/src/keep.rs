//! A login at a server's authority, as it is kept: sealed, for one server at one address, and known to nobody else.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use rmcp::transport::auth::{AuthError, CredentialRefreshGuard, CredentialStore, StoredCredentials};
use sa_core::store::{Expect, Records, StoreError};
use sa_vault::Vault;
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;
use tracing::warn;

const BUCKET: &str = "upstream-login";
/// What is said of a login that its authority did not renew.
const REFUSED: &str = "its authority has ended the login, or does not renew it";

/// Whom the authority knows the gateway as. rmcp keeps the id alone, and without the rest no token is renewed.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(crate) struct Client {
    pub(crate) secret: Option<String>,
    pub(crate) redirect_uri: String,
}

#[derive(Clone, Serialize, Deserialize)]
struct Kept {
    credentials: StoredCredentials,
    client: Client,
}

/// The login of one server, if there is one.
pub(crate) struct Keep {
    name: Arc<str>,
    /// What it is sealed for. The address is a part of it: with another one under the same name, it does not open.
    place: String,
    records: Arc<dyn Records>,
    vault: Arc<Vault>,
    now: Mutex<Now>,
    there: AtomicBool,
    refreshing: Arc<Mutex<()>>,
}

#[derive(Default)]
struct Now {
    /// Grows with each login and logout. Whoever has seen an older one is told nothing, and can change nothing.
    generation: u64,
    kept: Option<Kept>,
    why_gone: Option<&'static str>,
}

impl Keep {
    pub(crate) async fn load(name: &Arc<str>, url: &str, records: Arc<dyn Records>, vault: Arc<Vault>) -> Arc<Self> {
        let place = format!("upstream login {name} {url}");
        let mut kept = None;
        match records.get(BUCKET, name).await {
            Ok(Some(record)) => {
                let opened = vault.open(&place, &record.value).ok();
                kept = opened.and_then(|text| serde_json::from_str::<Kept>(&text).ok());
                if kept.is_none() {
                    warn!(upstream = %name, "its login was stored for another address or with another key; log in again");
                }
            }
            Ok(None) => {}
            Err(error) => warn!(upstream = %name, %error, "its login cannot be read"),
        }
        let (there, now) = (AtomicBool::new(kept.is_some()), Mutex::new(Now { kept, ..Now::default() }));
        Arc::new(Self { name: Arc::clone(name), place, records, vault, now, there, refreshing: Arc::default() })
    }

    pub(crate) fn is_there(&self) -> bool {
        self.there.load(Ordering::Acquire)
    }

    /// For a manager that uses the login. `None` when there is none.
    pub(crate) async fn holder(self: &Arc<Self>) -> Option<Holder> {
        let now = self.now.lock().await;
        let client = now.kept.as_ref()?.client.clone();
        Some(Holder { keep: Arc::clone(self), generation: Some(now.generation), client })
    }

    /// For a manager that is to bring a new login.
    pub(crate) fn newcomer(self: &Arc<Self>, client: Client) -> Holder {
        Holder { keep: Arc::clone(self), generation: None, client }
    }

    /// What the login allows.
    pub(crate) async fn scopes(&self) -> Vec<String> {
        self.now.lock().await.kept.as_ref().map(|kept| kept.credentials.granted_scopes.clone()).unwrap_or_default()
    }

    pub(crate) async fn why_gone(&self) -> Option<&'static str> {
        self.now.lock().await.why_gone
    }

    pub(crate) async fn forget(&self) -> Result<(), StoreError> {
        let mut now = self.now.lock().await;
        self.clear(&mut now, None).await
    }

    async fn clear(&self, now: &mut Now, why: Option<&'static str>) -> Result<(), StoreError> {
        // In this order: what could not be deleted is not used any more all the same.
        now.generation += 1;
        now.kept = None;
        now.why_gone = why;
        self.there.store(false, Ordering::Release);
        self.records.delete(BUCKET, &self.name).await.map(drop)
    }

    async fn store(&self, now: &mut Now, kept: Kept) -> Result<(), AuthError> {
        let failed = |why: String| AuthError::CredentialStoreError(why);
        let text = serde_json::to_string(&kept).map_err(|error| failed(error.to_string()))?;
        let sealed = self.vault.seal(&self.place, &text).map_err(|error| failed(error.to_string()))?;
        let put = self.records.put(BUCKET, &self.name, Bytes::from(sealed), Expect::Anything).await;
        // A token that was renewed is used in any case: the authority has forgotten the one before it.
        now.kept = Some(kept);
        now.why_gone = None;
        self.there.store(true, Ordering::Release);
        put.map(drop).map_err(|error| failed(error.to_string()))
    }
}

/// rmcp's way to a login, for as long as it is that login.
pub(crate) struct Holder {
    keep: Arc<Keep>,
    /// Absent before the login is there.
    generation: Option<u64>,
    pub(crate) client: Client,
}

impl Holder {
    fn is_stale(&self, now: &Now) -> bool {
        self.generation.is_some_and(|generation| generation != now.generation)
    }
}

#[async_trait::async_trait]
impl CredentialStore for Holder {
    async fn load(&self) -> Result<Option<StoredCredentials>, AuthError> {
        let now = self.keep.now.lock().await;
        if self.is_stale(&now) {
            return Ok(None);
        }
        Ok(now.kept.as_ref().map(|kept| kept.credentials.clone()))
    }

    async fn save(&self, credentials: StoredCredentials) -> Result<(), AuthError> {
        let mut now = self.keep.now.lock().await;
        if self.is_stale(&now) {
            return Err(AuthError::CredentialStoreError("somebody has logged out or in meanwhile".into()));
        }
        if self.generation.is_none() {
            now.generation += 1;
        }
        self.keep.store(&mut now, Kept { credentials, client: self.client.clone() }).await
    }

    async fn clear(&self) -> Result<(), AuthError> {
        let mut now = self.keep.now.lock().await;
        if self.is_stale(&now) {
            return Ok(());
        }
        let cleared = self.keep.clear(&mut now, Some("the server has another authority now")).await;
        cleared.map_err(|error| AuthError::CredentialStoreError(error.to_string()))
    }

    async fn on_refresh_token_rejected(&self, _credentials: &StoredCredentials) -> Result<(), AuthError> {
        let mut now = self.keep.now.lock().await;
        if self.is_stale(&now) {
            return Ok(());
        }
        let cleared = self.keep.clear(&mut now, Some(REFUSED)).await;
        cleared.map_err(|error| AuthError::CredentialStoreError(error.to_string()))
    }

    async fn acquire_refresh_guard(&self) -> Result<Option<CredentialRefreshGuard>, AuthError> {
        let guard = Arc::clone(&self.keep.refreshing).lock_owned().await;
        Ok(Some(CredentialRefreshGuard::new(guard)))
    }
}
