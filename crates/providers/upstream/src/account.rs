//! The gateway's OAuth account at a server that requires a login.
//!
//! All connections to the server share one access token, which is refreshed once for all of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rmcp::transport::auth::{
    AuthError, AuthorizationRequest, AuthorizationSession, CredentialStore as _, OAuthClientConfig,
};
use sa_core::store::StoreError;
use secrecy::ExposeSecret as _;
use tokio::sync::Mutex;

use crate::authorised::Authorised;
use crate::authority::{Authority, check_address};
use crate::errors;
use crate::session_check::SessionCheck;
use crate::spec::{OAuth, resolve};
use crate::stored_login::{Client, Holder, StoredLogin};

/// The client name that an authorization server shows on its login page.
const CLIENT_NAME: &str = "Switchboard";

pub(crate) struct Account {
    name: Arc<str>,
    url: String,
    oauth: OAuth,
    /// Whether the operator has configured that the server requires a login. Otherwise, the
    /// server is first tried without one.
    expected: bool,
    stored_login: Arc<StoredLogin>,
    /// The client that the connections share, with the generation of the login that it belongs
    /// to.
    shared: parking_lot::Mutex<Option<(u64, Authorised)>>,
    /// Held while the shared client is being created. It is a separate lock, so that a login or
    /// logout never waits for an authorization server.
    making: Mutex<()>,
    /// Whether the server has rejected the current credentials.
    locked_out: AtomicBool,
    /// The scopes that the server required and the current login does not grant.
    missing: parking_lot::Mutex<Vec<String>>,
}

/// The reason why a connection has no token.
pub(crate) enum NoToken {
    LoginNeeded(String),
    Failed(String),
}

impl Account {
    pub(crate) fn new(
        name: &Arc<str>,
        url: &str,
        oauth: Option<&OAuth>,
        stored_login: Arc<StoredLogin>,
    ) -> Arc<Self> {
        Arc::new(Self {
            name: Arc::clone(name),
            url: url.to_owned(),
            expected: oauth.is_some(),
            oauth: oauth.cloned().unwrap_or_default(),
            stored_login,
            shared: parking_lot::Mutex::default(),
            making: Mutex::default(),
            locked_out: AtomicBool::new(false),
            missing: parking_lot::Mutex::default(),
        })
    }

    /// Returns whether there is a login, or `None` if, as far as is known, the server requires
    /// none.
    pub(crate) fn logged_in(&self) -> Option<bool> {
        let there = self.stored_login.is_there();
        (self.expected || there || self.is_locked_out()).then_some(there)
    }

    /// Returns whether there is any sign that the server supports a login.
    pub(crate) fn is_wanted(&self) -> bool {
        self.logged_in().is_some() || !self.missing().is_empty()
    }

    /// Returns whether a request to the server is pointless, because it requires a login and
    /// there is none.
    pub(crate) fn lacks_login(&self) -> bool {
        self.expected && !self.stored_login.is_there()
    }

    pub(crate) fn is_locked_out(&self) -> bool {
        self.locked_out.load(Ordering::Acquire)
    }

    pub(crate) fn lock_out(&self) {
        self.locked_out.store(true, Ordering::Release);
    }

    /// Allows requests again and drops the shared client, so that the server's current metadata
    /// is read. An operator may have fixed the cause in the meantime.
    pub(crate) fn try_again(&self) {
        if self.locked_out.swap(false, Ordering::AcqRel) {
            *self.shared.lock() = None;
        }
    }

    /// Records the scopes that the server reported as insufficient.
    pub(crate) fn misses(&self, scopes: &str) {
        let mut missing = self.missing.lock();
        *missing = scopes.split_whitespace().map(str::to_owned).collect();
    }

    /// Returns the reason why a login is needed, and the command for it.
    pub(crate) async fn login_needed(&self) -> String {
        let why = if self.stored_login.is_there() {
            "the server no longer accepts the login"
        } else {
            self.stored_login.end_reason().await.unwrap_or("it requires a login")
        };
        format!("{why}; run `{}`", self.advice())
    }

    pub(crate) fn advice(&self) -> String {
        format!("switchboard upstream login {}", self.name)
    }

    /// Returns the client that adds the token to a connection's requests, or `None` if the server
    /// is tried without a login.
    pub(crate) async fn client(&self, http: SessionCheck) -> Result<Option<Authorised>, NoToken> {
        if let Some(client) = self.shared(&http).await {
            return Ok(Some(client));
        }
        let _making = self.making.lock().await;
        if let Some(client) = self.shared(&http).await {
            return Ok(Some(client));
        }
        let Some(holder) = self.stored_login.holder().await else {
            return if self.expected {
                Err(NoToken::LoginNeeded(self.login_needed().await))
            } else {
                Ok(None)
            };
        };
        let (generation, client) = (holder.generation(), self.authorised(holder, http).await?);
        *self.shared.lock() = generation.map(|of| (of, client.clone()));
        Ok(Some(client))
    }

    async fn shared(&self, http: &SessionCheck) -> Option<Authorised> {
        let now = self.stored_login.generation().await;
        let shared = self.shared.lock();
        shared.as_ref().filter(|(of, _)| *of == now).map(|(_, client)| client.over(http.clone()))
    }

    /// Builds a client for a login. The login is used only at the authorization server that
    /// granted it.
    async fn authorised(&self, holder: Holder, http: SessionCheck) -> Result<Authorised, NoToken> {
        let to_error = |error| NoToken::Failed(errors::of_authority(&error));
        let Some(login) = holder.load().await.map_err(to_error)? else {
            return Err(NoToken::LoginNeeded(self.login_needed().await));
        };
        let Authority { mut manager, issuer, .. } =
            Authority::of(&self.url, &self.oauth.issuer).await.map_err(to_error)?;
        if login.issuer.is_some() && issuer.is_none() {
            // The endpoints would be a guess, and credentials of another authorization server
            // must not be sent there. The cause may be temporary, so the login is kept.
            let why = "the server no longer names the authority of the login";
            return Err(NoToken::Failed(format!(
                "{why}; if this persists, run `{}`",
                self.advice()
            )));
        }
        if login.issuer != issuer {
            holder.clear().await.map_err(to_error)?;
            return Err(NoToken::LoginNeeded(self.login_needed().await));
        }
        let mut client = holder.client.clone();
        if login.client_id == self.oauth.client_id {
            client.secret = self.secret().map_err(NoToken::Failed)?.or(client.secret);
        }
        manager.set_credential_store(holder);
        if !manager.initialize_from_store().await.map_err(to_error)? {
            return Err(NoToken::LoginNeeded(self.login_needed().await));
        }
        if let Some(secret) = client.secret {
            let config = OAuthClientConfig::new(login.client_id, client.redirect_uri)
                .with_client_secret(secret);
            manager.configure_client(config).map_err(to_error)?;
        }
        Ok(Authorised::new(http, manager))
    }

    /// Discovers the server's authorization server and prepares a login. The browser will be
    /// redirected to `redirect_uri`.
    pub(crate) async fn begin(&self, redirect_uri: &str) -> Result<AuthorizationSession, String> {
        let describe = |error: AuthError| errors::of_login(&error);
        let for_new_login = self.stored_login.for_new_login().await;
        let authority = Authority::of(&self.url, &self.oauth.issuer).await.map_err(describe)?;
        let Authority { mut manager, issuer, takes_documents } = authority;
        let (configured, missing) = (&self.oauth.scopes, self.missing());
        let scopes = match (configured.is_empty(), missing.is_empty()) {
            (true, true) => manager.select_initial_scopes(&[]).await,
            (true, false) => merged(self.stored_login.scopes().await, missing),
            (false, _) => merged(configured.clone(), missing),
        };
        let mut request = AuthorizationRequest::new(redirect_uri).with_scopes(&scopes);
        let mut client = Client { secret: None, redirect_uri: redirect_uri.to_owned() };
        // An authorization server may distinguish native applications from web sites by this
        // value and by the redirect URI.
        let kind = if redirect_uri.starts_with("https:") { "web" } else { "native" };
        request = request.with_application_type(kind);
        if !self.oauth.client_id.is_empty() {
            request = request.with_preregistered_client(&self.oauth.client_id);
            // The secret is not stored with the login: it comes from the operator's
            // configuration, and may be replaced there.
            if let Some(secret) = self.secret()? {
                request = request.with_client_secret(secret);
            }
        } else if takes_documents && !self.oauth.client_metadata_url.is_empty() {
            request = request.with_client_metadata_url(&self.oauth.client_metadata_url);
        } else {
            // Not left to the session, which does not return the client secret that some
            // authorization servers issue.
            manager
                .configure_client(
                    OAuthClientConfig::new("", redirect_uri).with_application_type(kind),
                )
                .map_err(describe)?;
            let scopes: Vec<&str> = scopes.iter().map(String::as_str).collect();
            let registered = manager.register_client(CLIENT_NAME, redirect_uri, &scopes).await;
            let registered = registered.map_err(|error| match error {
                // The registration endpoint is a guess, so its error message would be misleading.
                AuthError::RegistrationFailed(_) if issuer.is_none() => {
                    errors::NO_AUTHORITY.to_owned()
                }
                error => describe(error),
            })?;
            request = request.with_preregistered_client(registered.client_id);
            client.secret = registered.client_secret;
            if let Some(secret) = &client.secret {
                request = request.with_client_secret(secret);
            }
        }
        manager.set_credential_store(for_new_login.with(client));
        let session = AuthorizationSession::new(manager, request)
            .await
            .map_err(|(_, error)| describe(error))?;
        check_address(&self.url, &session.auth_url).map_err(describe)?;
        Ok(session)
    }

    /// Resets the account's state after a new login.
    pub(crate) fn entered(&self) {
        self.missing.lock().clear();
        self.locked_out.store(false, Ordering::Release);
    }

    /// Deletes the login, on disk and in every client that uses it.
    pub(crate) async fn forget(&self) -> Result<(), StoreError> {
        let forgotten = self.stored_login.forget().await;
        self.entered();
        forgotten
    }

    /// Waits until no token refresh is in progress.
    pub(crate) async fn settle(&self) {
        self.stored_login.settle().await;
    }

    /// Returns the configured client secret, if the operator has configured one.
    fn secret(&self) -> Result<Option<String>, String> {
        if self.oauth.client_secret.is_empty() {
            return Ok(None);
        }
        let secret = resolve(&self.oauth.client_secret)
            .map_err(|error| format!("oauth.client_secret: {error}"))?;
        Ok(Some(secret.expose_secret().to_owned()))
    }

    fn missing(&self) -> Vec<String> {
        self.missing.lock().clone()
    }
}

fn merged(mut scopes: Vec<String>, more: Vec<String>) -> Vec<String> {
    for scope in more {
        if !scopes.contains(&scope) {
            scopes.push(scope);
        }
    }
    scopes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_login_requests_the_granted_and_the_missing_scopes() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(merged(words("a b"), words("b c")), words("a b c"));
    }
}
