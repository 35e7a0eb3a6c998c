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
struct LoginRecord {
    credentials: StoredCredentials,
    client: Client,
}

/// The login of one server, if there is one.
pub(crate) struct StoredLogin {
    name: Arc<str>,
    /// The context that the login is encrypted for. It includes the address: if the address of a
    /// server changes, its login cannot be decrypted.
    context: String,
    records: Arc<dyn Records>,
    vault: Arc<Vault>,
    current: Mutex<Current>,
    is_stored: AtomicBool,
    refreshing: Arc<Mutex<()>>,
}

#[derive(Default)]
struct Current {
    /// Incremented at each login and logout. A holder of an older generation can neither read nor
    /// change the login.
    generation: u64,
    /// Incremented at each logout. A login that began before a logout is rejected after it.
    logouts: u64,
    record: Option<LoginRecord>,
    end_reason: Option<&'static str>,
}

impl StoredLogin {
    pub(crate) async fn load(
        name: &Arc<str>,
        url: &str,
        records: Arc<dyn Records>,
        vault: Arc<Vault>,
    ) -> Arc<Self> {
        let context = format!("upstream login {name} {url}");
        let mut record = None;
        match records.get(BUCKET, name).await {
            Ok(Some(stored)) => {
                let opened = vault.open(&context, &stored.value).ok();
                record = opened.and_then(|text| serde_json::from_str::<LoginRecord>(&text).ok());
                if record.is_none() {
                    warn!(upstream = %name, "the stored login is for another URL or was encrypted with another key; log in again");
                }
            }
            Ok(None) => {}
            Err(error) => warn!(upstream = %name, %error, "cannot read the stored login"),
        }
        let (is_stored, current) = (
            AtomicBool::new(record.is_some()),
            Mutex::new(Current { record, ..Current::default() }),
        );
        Arc::new(Self {
            name: Arc::clone(name),
            context,
            records,
            vault,
            current,
            is_stored,
            refreshing: Arc::default(),
        })
    }

    pub(crate) fn is_there(&self) -> bool {
        self.is_stored.load(Ordering::Acquire)
    }

    /// Returns a holder for a manager that uses the login, or `None` if there is no login.
    pub(crate) async fn holder(self: &Arc<Self>) -> Option<Holder> {
        let current = self.current.lock().await;
        let client = current.record.as_ref()?.client.clone();
        Some(Holder {
            stored_login: Arc::clone(self),
            of: LoginRef::Login(current.generation),
            client,
        })
    }

    /// Returns a holder for a manager that performs a new login, which begins now.
    pub(crate) async fn for_new_login(self: &Arc<Self>) -> Holder {
        let since = self.current.lock().await.logouts;
        Holder {
            stored_login: Arc::clone(self),
            of: LoginRef::NewLogin(since),
            client: Client::default(),
        }
    }

    /// Waits until no token refresh is in progress.
    pub(crate) async fn settle(&self) {
        drop(self.refreshing.lock().await);
    }

    /// Returns the generation of the current login.
    pub(crate) async fn generation(&self) -> u64 {
        self.current.lock().await.generation
    }

    /// Returns the scopes that the login grants.
    pub(crate) async fn scopes(&self) -> Vec<String> {
        self.current
            .lock()
            .await
            .record
            .as_ref()
            .map(|record| record.credentials.granted_scopes.clone())
            .unwrap_or_default()
    }

    pub(crate) async fn end_reason(&self) -> Option<&'static str> {
        self.current.lock().await.end_reason
    }

    pub(crate) async fn forget(&self) -> Result<(), StoreError> {
        let mut current = self.current.lock().await;
        current.logouts += 1;
        self.clear(&mut current, None).await
    }

    async fn clear(
        &self,
        current: &mut Current,
        why: Option<&'static str>,
    ) -> Result<(), StoreError> {
        // The memory is cleared first: a login that could not be deleted is no longer used
        // either.
        current.generation += 1;
        current.record = None;
        current.end_reason = why;
        self.is_stored.store(false, Ordering::Release);
        self.records.delete(BUCKET, &self.name).await.map(drop)
    }

    async fn store(&self, record: &LoginRecord) -> Result<(), AuthError> {
        let text = serde_json::to_string(record).map_err(store_error)?;
        let sealed = self.vault.seal(&self.context, &text).map_err(store_error)?;
        self.records
            .put(BUCKET, &self.name, Bytes::from(sealed), Expect::Anything)
            .await
            .map(drop)
            .map_err(store_error)
    }
}

fn store_error(error: impl std::fmt::Display) -> AuthError {
    AuthError::CredentialStoreError(error.to_string())
}

/// Gives rmcp access to a login, as long as that login is current.
pub(crate) struct Holder {
    stored_login: Arc<StoredLogin>,
    of: LoginRef,
    pub(crate) client: Client,
}

#[derive(Clone, Copy)]
enum LoginRef {
    /// The current login, by its generation.
    Login(u64),
    /// A login in progress, with the number of logouts at its start.
    NewLogin(u64),
}

impl Holder {
    /// Sets the client registration, which is known when the browser is redirected to the login
    /// page.
    pub(crate) fn with(self, client: Client) -> Self {
        Self { client, ..self }
    }

    /// Returns the generation of the login, or `None` while the login is in progress.
    pub(crate) fn generation(&self) -> Option<u64> {
        if let LoginRef::Login(generation) = self.of { Some(generation) } else { None }
    }

    fn is_stale(&self, current: &Current) -> bool {
        match self.of {
            LoginRef::Login(generation) => generation != current.generation,
            LoginRef::NewLogin(logouts) => logouts != current.logouts,
        }
    }
}

/// Removes unneeded fields from credentials, and rejects a token that no request could carry.
fn usable(mut credentials: StoredCredentials) -> Result<StoredCredentials, AuthError> {
    if let Some(granted) = &mut credentials.token_response {
        granted.set_extra_fields(VendorExtraTokenFields::default());
    }
    let granted = serde_json::to_value(&credentials.token_response).map_err(store_error)?;
    let token = granted["access_token"].as_str().unwrap_or_default();
    if token.is_empty()
        || token.len() > MAX_TOKEN
        || !token.bytes().all(|byte| byte.is_ascii_graphic())
    {
        return Err(store_error(
            "the authority granted a token that is empty, too long, or has invalid characters",
        ));
    }
    Ok(credentials)
}

#[async_trait::async_trait]
impl CredentialStore for Holder {
    async fn load(&self) -> Result<Option<StoredCredentials>, AuthError> {
        let current = self.stored_login.current.lock().await;
        if self.is_stale(&current) {
            return Ok(None);
        }
        Ok(current.record.as_ref().map(|record| record.credentials.clone()))
    }

    async fn save(&self, credentials: StoredCredentials) -> Result<(), AuthError> {
        let record = LoginRecord { credentials: usable(credentials)?, client: self.client.clone() };
        let mut current = self.stored_login.current.lock().await;
        if self.is_stale(&current) {
            return Err(store_error("another login or logout happened in the meantime"));
        }
        let stored = self.stored_login.store(&record).await;
        match (self.of, stored.is_ok()) {
            // The user sees the error, and can begin again.
            (LoginRef::NewLogin(_), false) => return stored,
            (LoginRef::NewLogin(_), true) => current.generation += 1,
            (LoginRef::Login(_), _) => {}
        }
        // A refreshed token is used even if it was not stored: the authorization server has
        // invalidated the previous one.
        current.record = Some(record);
        current.end_reason = None;
        self.stored_login.is_stored.store(true, Ordering::Release);
        stored
    }

    async fn clear(&self) -> Result<(), AuthError> {
        let mut current = self.stored_login.current.lock().await;
        if self.is_stale(&current) {
            return Ok(());
        }
        let cleared = self
            .stored_login
            .clear(&mut current, Some("the server now has another authority"))
            .await;
        cleared.map_err(store_error)
    }

    async fn on_refresh_token_rejected(
        &self,
        _credentials: &StoredCredentials,
    ) -> Result<(), AuthError> {
        let mut current = self.stored_login.current.lock().await;
        if self.is_stale(&current) {
            return Ok(());
        }
        let cleared = self.stored_login.clear(&mut current, Some(REFUSED)).await;
        cleared.map_err(store_error)
    }

    async fn acquire_refresh_guard(&self) -> Result<Option<CredentialRefreshGuard>, AuthError> {
        let guard = Arc::clone(&self.stored_login.refreshing).lock_owned().await;
        Ok(Some(CredentialRefreshGuard::new(guard)))
    }
}
