//! The stored OAuth login for a server: encrypted, and bound to one server at one address.

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
/// The maximum length of a token. Each request carries it in a header, and servers limit headers.
const MAX_TOKEN: usize = 32 * 1_024;
/// The reason that is reported when the authorization server rejected a token refresh.
const REFUSED: &str = "its authority ended the login or refused to renew it";

/// The gateway's client registration at the authorization server. rmcp stores only the id, but a
/// token refresh requires the rest, too.
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
    /// The context that the login is encrypted for. It includes the address: if the address of a
    /// server changes, its login cannot be decrypted.
    place: String,
    records: Arc<dyn Records>,
    vault: Arc<Vault>,
    now: Mutex<Now>,
    there: AtomicBool,
    refreshing: Arc<Mutex<()>>,
}

#[derive(Default)]
struct Now {
    /// Incremented at each login and logout. A holder of an older generation can neither read nor
    /// change the login.
    generation: u64,
    /// Incremented at each logout. A login that began before a logout is rejected after it.
    logouts: u64,
    kept: Option<Kept>,
    why_gone: Option<&'static str>,
}

impl Keep {
    pub(crate) async fn load(
        name: &Arc<str>,
        url: &str,
        records: Arc<dyn Records>,
        vault: Arc<Vault>,
    ) -> Arc<Self> {
        let place = format!("upstream login {name} {url}");
        let mut kept = None;
        match records.get(BUCKET, name).await {
            Ok(Some(record)) => {
                let opened = vault.open(&place, &record.value).ok();
                kept = opened.and_then(|text| serde_json::from_str::<Kept>(&text).ok());
                if kept.is_none() {
                    warn!(upstream = %name, "the stored login is for another URL or was encrypted with another key; log in again");
                }
            }
            Ok(None) => {}
            Err(error) => warn!(upstream = %name, %error, "cannot read the stored login"),
        }
        let (there, now) =
            (AtomicBool::new(kept.is_some()), Mutex::new(Now { kept, ..Now::default() }));
        Arc::new(Self {
            name: Arc::clone(name),
            place,
            records,
            vault,
            now,
            there,
            refreshing: Arc::default(),
        })
    }

    pub(crate) fn is_there(&self) -> bool {
        self.there.load(Ordering::Acquire)
    }

    /// Returns a holder for a manager that uses the login, or `None` if there is no login.
    pub(crate) async fn holder(self: &Arc<Self>) -> Option<Holder> {
        let now = self.now.lock().await;
        let client = now.kept.as_ref()?.client.clone();
        Some(Holder { keep: Arc::clone(self), of: Of::Login(now.generation), client })
    }

    /// Returns a holder for a manager that performs a new login, which begins now.
    pub(crate) async fn newcomer(self: &Arc<Self>) -> Holder {
        let since = self.now.lock().await.logouts;
        Holder { keep: Arc::clone(self), of: Of::Newcomer(since), client: Client::default() }
    }

    /// Waits until no token refresh is in progress.
    pub(crate) async fn settle(&self) {
        drop(self.refreshing.lock().await);
    }

    /// Returns the generation of the current login.
    pub(crate) async fn generation(&self) -> u64 {
        self.now.lock().await.generation
    }

    /// Returns the scopes that the login grants.
    pub(crate) async fn scopes(&self) -> Vec<String> {
        self.now
            .lock()
            .await
            .kept
            .as_ref()
            .map(|kept| kept.credentials.granted_scopes.clone())
            .unwrap_or_default()
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
        // The memory is cleared first: a login that could not be deleted is no longer used
        // either.
        now.generation += 1;
        now.kept = None;
        now.why_gone = why;
        self.there.store(false, Ordering::Release);
        self.records.delete(BUCKET, &self.name).await.map(drop)
    }

    async fn store(&self, kept: &Kept) -> Result<(), AuthError> {
        let text = serde_json::to_string(kept).map_err(unkept)?;
        let sealed = self.vault.seal(&self.place, &text).map_err(unkept)?;
        self.records
            .put(BUCKET, &self.name, Bytes::from(sealed), Expect::Anything)
            .await
            .map(drop)
            .map_err(unkept)
    }
}

fn unkept(error: impl std::fmt::Display) -> AuthError {
    AuthError::CredentialStoreError(error.to_string())
}

/// Gives rmcp access to a login, as long as that login is current.
pub(crate) struct Holder {
    keep: Arc<Keep>,
    of: Of,
    pub(crate) client: Client,
}

#[derive(Clone, Copy)]
enum Of {
    /// The current login, by its generation.
    Login(u64),
    /// A login in progress, with the number of logouts at its start.
    Newcomer(u64),
}

impl Holder {
    /// Sets the client registration, which is known when the browser is redirected to the login
    /// page.
    pub(crate) fn with(self, client: Client) -> Self {
        Self { client, ..self }
    }

    /// Returns the generation of the login, or `None` while the login is in progress.
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

/// Removes unneeded fields from credentials, and rejects a token that no request could carry.
fn usable(mut credentials: StoredCredentials) -> Result<StoredCredentials, AuthError> {
    if let Some(granted) = &mut credentials.token_response {
        granted.set_extra_fields(VendorExtraTokenFields::default());
    }
    let granted = serde_json::to_value(&credentials.token_response).map_err(unkept)?;
    let token = granted["access_token"].as_str().unwrap_or_default();
    if token.is_empty()
        || token.len() > MAX_TOKEN
        || !token.bytes().all(|byte| byte.is_ascii_graphic())
    {
        return Err(unkept(
            "the authority granted a token that is empty, too long, or has invalid characters",
        ));
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
            return Err(unkept("another login or logout happened in the meantime"));
        }
        let stored = self.keep.store(&kept).await;
        match (self.of, stored.is_ok()) {
            // The user sees the error, and can begin again.
            (Of::Newcomer(_), false) => return stored,
            (Of::Newcomer(_), true) => now.generation += 1,
            (Of::Login(_), _) => {}
        }
        // A refreshed token is used even if it was not stored: the authorization server has
        // invalidated the previous one.
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
        let cleared = self.keep.clear(&mut now, Some("the server now has another authority")).await;
        cleared.map_err(unkept)
    }

    async fn on_refresh_token_rejected(
        &self,
        _credentials: &StoredCredentials,
    ) -> Result<(), AuthError> {
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
