//! A login at a server's authority, as it is kept: sealed, for one server at one address, and known to nobody else.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use rmcp::transport::auth::{
    AuthError, CredentialRefreshGuard, CredentialStore, StoredCredentials, VendorExtraTokenFields,
};
use sa_core::store::{Expect, Records, StoreError};
use sa_vault::Vault;
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;
use tracing::warn;

const BUCKET: &str = "upstream-login";
/// No token is longer. It is a part of each request, and servers take only so much.
const MAX_TOKEN: usize = 32 * 1_024;
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
    /// Grows with each logout alone. Who has begun to log in before it is not let in after it.
    logouts: u64,
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
        Some(Holder { keep: Arc::clone(self), of: Of::Login(now.generation), client })
    }

    /// For a manager that is to bring a new login, which begins now.
    pub(crate) async fn newcomer(self: &Arc<Self>) -> Holder {
        let since = self.now.lock().await.logouts;
        Holder { keep: Arc::clone(self), of: Of::Newcomer(since), client: Client::default() }
    }

    /// Waits until it is not being renewed.
    pub(crate) async fn settle(&self) {
        drop(self.refreshing.lock().await);
    }

    /// Which login this is.
    pub(crate) async fn generation(&self) -> u64 {
        self.now.lock().await.generation
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
        now.logouts += 1;
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

    async fn store(&self, kept: &Kept) -> Result<(), AuthError> {
        let text = serde_json::to_string(kept).map_err(unkept)?;
        let sealed = self.vault.seal(&self.place, &text).map_err(unkept)?;
        self.records.put(BUCKET, &self.name, Bytes::from(sealed), Expect::Anything).await.map(drop).map_err(unkept)
    }
}

fn unkept(error: impl std::fmt::Display) -> AuthError {
    AuthError::CredentialStoreError(error.to_string())
}

/// rmcp's way to a login, for as long as it is that login.
pub(crate) struct Holder {
    keep: Arc<Keep>,
    of: Of,
    pub(crate) client: Client,
}

#[derive(Clone, Copy)]
enum Of {
    /// The one that is there, by its generation.
    Login(u64),
    /// The one that somebody is about to bring, who began after so many logouts.
    Newcomer(u64),
}

impl Holder {
    /// What is known of the client by the time that somebody is sent to log in.
    pub(crate) fn with(self, client: Client) -> Self {
        Self { client, ..self }
    }

    /// Which login it is of. `None` before that is there.
    pub(crate) fn generation(&self) -> Option<u64> {
        if let Of::Login(generation) = self.of { Some(generation) } else { None }
    }

    fn is_stale(&self, now: &Now) -> bool {
        match self.of {
            Of::Login(generation) => generation != now.generation,
            Of::Newcomer(logouts) => logouts != now.logouts,
        }
    }
}

/// What is kept of what an authority has sent: nothing that is not needed, and no token that no request could carry.
fn usable(mut credentials: StoredCredentials) -> Result<StoredCredentials, AuthError> {
    if let Some(granted) = &mut credentials.token_response {
        granted.set_extra_fields(VendorExtraTokenFields::default());
    }
    let granted = serde_json::to_value(&credentials.token_response).map_err(unkept)?;
    let token = granted["access_token"].as_str().unwrap_or_default();
    if token.is_empty() || token.len() > MAX_TOKEN || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(unkept("the authority has granted a token that is empty, too long, or no word that can be sent"));
    }
    Ok(credentials)
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
        let kept = Kept { credentials: usable(credentials)?, client: self.client.clone() };
        let mut now = self.keep.now.lock().await;
        if self.is_stale(&now) {
            return Err(unkept("somebody has logged out or in meanwhile"));
        }
        let stored = self.keep.store(&kept).await;
        match (self.of, stored.is_ok()) {
            // Whoever logs in is told that it did not work, and can begin again.
            (Of::Newcomer(_), false) => return stored,
            (Of::Newcomer(_), true) => now.generation += 1,
            (Of::Login(_), _) => {}
        }
        // A token that was renewed is used in any case: the authority has forgotten the one before it.
        now.kept = Some(kept);
        now.why_gone = None;
        self.keep.there.store(true, Ordering::Release);
        stored
    }

    async fn clear(&self) -> Result<(), AuthError> {
        let mut now = self.keep.now.lock().await;
        if self.is_stale(&now) {
            return Ok(());
        }
        let cleared = self.keep.clear(&mut now, Some("the server has another authority now")).await;
        cleared.map_err(unkept)
    }

    async fn on_refresh_token_rejected(&self, _credentials: &StoredCredentials) -> Result<(), AuthError> {
        let mut now = self.keep.now.lock().await;
        if self.is_stale(&now) {
            return Ok(());
        }
        let cleared = self.keep.clear(&mut now, Some(REFUSED)).await;
        cleared.map_err(unkept)
    }

    async fn acquire_refresh_guard(&self) -> Result<Option<CredentialRefreshGuard>, AuthError> {
        let guard = Arc::clone(&self.keep.refreshing).lock_owned().await;
        Ok(Some(CredentialRefreshGuard::new(guard)))
    }
}
