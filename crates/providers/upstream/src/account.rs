//! What the gateway is at a server that people log in to: nobody yet, or whoever has logged in.
//!
//! All connections to the server share one token, which is renewed once for all of them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};

use rmcp::transport::auth::{
    AuthError, AuthorizationRequest, AuthorizationSession, CredentialStore as _, OAuthClientConfig,
};
use sa_core::store::StoreError;
use secrecy::ExposeSecret as _;
use tokio::sync::Mutex;

use crate::authorised::Authorised;
use crate::authority::{Authority, check_address};
use crate::keep::{Client, Holder, Keep};
use crate::observed::Observed;
use crate::spec::{OAuth, resolve};
use crate::trouble;

/// What an authority shows to whoever logs in.
const CLIENT_NAME: &str = "Switchboard";

pub(crate) struct Account {
    name: Arc<str>,
    url: String,
    oauth: OAuth,
    /// The operator has said that the server wants a login; where that is not so, it is tried without.
    expected: bool,
    keep: Arc<Keep>,
    /// What the connections share, with the login that it is of.
    shared: std::sync::Mutex<Option<(u64, Authorised)>>,
    /// Held by whoever makes it. Apart from it, so that nobody who logs in or out waits for an authority.
    making: Mutex<()>,
    /// The server has refused what there is.
    locked_out: AtomicBool,
    /// What the server would have wanted the login to allow.
    missing: std::sync::Mutex<Vec<String>>,
}

/// Why a connection has no token.
pub(crate) enum NoToken {
    LoginNeeded(String),
    Trouble(String),
}

impl Account {
    pub(crate) fn new(name: &Arc<str>, url: &str, oauth: Option<&OAuth>, keep: Arc<Keep>) -> Arc<Self> {
        Arc::new(Self {
            name: Arc::clone(name),
            url: url.to_owned(),
            expected: oauth.is_some(),
            oauth: oauth.cloned().unwrap_or_default(),
            keep,
            shared: std::sync::Mutex::default(),
            making: Mutex::default(),
            locked_out: AtomicBool::new(false),
            missing: std::sync::Mutex::default(),
        })
    }

    /// Whether somebody is logged in; `None` when nobody needs to be, as far as is known.
    pub(crate) fn logged_in(&self) -> Option<bool> {
        let there = self.keep.is_there();
        (self.expected || there || self.is_locked_out()).then_some(there)
    }

    /// Whether there is any sign that the server has a use for a login.
    pub(crate) fn is_wanted(&self) -> bool {
        self.logged_in().is_some() || !self.missing().is_empty()
    }

    /// Whether there is no use in asking the server.
    pub(crate) fn lacks_login(&self) -> bool {
        self.expected && !self.keep.is_there()
    }

    pub(crate) fn is_locked_out(&self) -> bool {
        self.locked_out.load(Ordering::Acquire)
    }

    pub(crate) fn lock_out(&self) {
        self.locked_out.store(true, Ordering::Release);
    }

    /// The server is to be asked again, with what is written of it now: an operator may have mended that.
    pub(crate) fn try_again(&self) {
        if self.locked_out.swap(false, Ordering::AcqRel) {
            *self.shared.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }

    /// The server has said that the login does not allow enough.
    pub(crate) fn misses(&self, scopes: &str) {
        let mut missing = self.missing.lock().unwrap_or_else(PoisonError::into_inner);
        *missing = scopes.split_whitespace().map(str::to_owned).collect();
    }

    /// What an operator is told to do.
    pub(crate) async fn login_needed(&self) -> String {
        let why = if self.keep.is_there() {
            "the server does not take the login any more"
        } else {
            self.keep.why_gone().await.unwrap_or("it wants a login, and nobody has logged in")
        };
        format!("{why}; run: {}", self.advice())
    }

    pub(crate) fn advice(&self) -> String {
        format!("switchboard upstream login {}", self.name)
    }

    /// What sends a connection's requests with the token; `None` where it is tried without.
    pub(crate) async fn client(&self, http: Observed) -> Result<Option<Authorised>, NoToken> {
        if let Some(client) = self.shared(&http).await {
            return Ok(Some(client));
        }
        let _making = self.making.lock().await;
        if let Some(client) = self.shared(&http).await {
            return Ok(Some(client));
        }
        let Some(holder) = self.keep.holder().await else {
            return if self.expected { Err(NoToken::LoginNeeded(self.login_needed().await)) } else { Ok(None) };
        };
        let (generation, client) = (holder.generation(), self.authorised(holder, http).await?);
        *self.shared.lock().unwrap_or_else(PoisonError::into_inner) = generation.map(|of| (of, client.clone()));
        Ok(Some(client))
    }

    async fn shared(&self, http: &Observed) -> Option<Authorised> {
        let now = self.keep.generation().await;
        let shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.as_ref().filter(|(of, _)| *of == now).map(|(_, client)| client.over(http.clone()))
    }

    /// Makes ready to use a login at the authority that has granted it, and at no other.
    async fn authorised(&self, holder: Holder, http: Observed) -> Result<Authorised, NoToken> {
        let trouble = |error| NoToken::Trouble(trouble::of_authority(&error));
        let Some(login) = holder.load().await.map_err(trouble)? else {
            return Err(NoToken::LoginNeeded(self.login_needed().await));
        };
        let Authority { mut manager, issuer, .. } =
            Authority::of(&self.url, &self.oauth.issuer).await.map_err(trouble)?;
        if login.issuer.is_some() && issuer.is_none() {
            // Its addresses would be a guess, to which nothing is sent that is another's. It may only be a passing mistake.
            let why = "the server does not name the authority of the login any more";
            return Err(NoToken::Trouble(format!("{why}; if that stays so, run: {}", self.advice())));
        }
        if login.issuer != issuer {
            holder.clear().await.map_err(trouble)?;
            return Err(NoToken::LoginNeeded(self.login_needed().await));
        }
        let mut client = holder.client.clone();
        if login.client_id == self.oauth.client_id {
            client.secret = self.secret().map_err(NoToken::Trouble)?.or(client.secret);
        }
        manager.set_credential_store(holder);
        if !manager.initialize_from_store().await.map_err(trouble)? {
            return Err(NoToken::LoginNeeded(self.login_needed().await));
        }
        if let Some(secret) = client.secret {
            let config = OAuthClientConfig::new(login.client_id, client.redirect_uri).with_client_secret(secret);
            manager.configure_client(config).map_err(trouble)?;
        }
        Ok(Authorised::new(http, manager))
    }

    /// Asks the server who grants tokens for it, and makes ready for somebody to go there and come back to `redirect_uri`.
    pub(crate) async fn begin(&self, redirect_uri: &str) -> Result<AuthorizationSession, String> {
        let told = |error: AuthError| trouble::of_login(&error);
        let newcomer = self.keep.newcomer().await;
        let authority = Authority::of(&self.url, &self.oauth.issuer).await.map_err(told)?;
        let Authority { mut manager, issuer, takes_documents } = authority;
        let (configured, missing) = (&self.oauth.scopes, self.missing());
        let scopes = match (configured.is_empty(), missing.is_empty()) {
            (true, true) => manager.select_initial_scopes(&[]).await,
            (true, false) => merged(self.keep.scopes().await, missing),
            (false, _) => merged(configured.clone(), missing),
        };
        let mut request = AuthorizationRequest::new(redirect_uri).with_scopes(&scopes);
        let mut client = Client { secret: None, redirect_uri: redirect_uri.to_owned() };
        // An authority may tell programs on somebody's machine from sites by this, and by where they are returned to.
        let kind = if redirect_uri.starts_with("https:") { "web" } else { "native" };
        request = request.with_application_type(kind);
        if !self.oauth.client_id.is_empty() {
            request = request.with_preregistered_client(&self.oauth.client_id);
            // Not kept with the login: it is where the operator says, and may be replaced there.
            if let Some(secret) = self.secret()? {
                request = request.with_client_secret(secret);
            }
        } else if takes_documents && !self.oauth.client_metadata_url.is_empty() {
            request = request.with_client_metadata_url(&self.oauth.client_metadata_url);
        } else {
            // Not left to the session, which does not tell the secret that some authorities give.
            manager
                .configure_client(OAuthClientConfig::new("", redirect_uri).with_application_type(kind))
                .map_err(told)?;
            let scopes: Vec<&str> = scopes.iter().map(String::as_str).collect();
            let registered = manager.register_client(CLIENT_NAME, redirect_uri, &scopes).await;
            let registered = registered.map_err(|error| match error {
                // What was asked is a guess, and what a stranger says to it would only mislead.
                AuthError::RegistrationFailed(_) if issuer.is_none() => trouble::NO_AUTHORITY.to_owned(),
                error => told(error),
            })?;
            request = request.with_preregistered_client(registered.client_id);
            client.secret = registered.client_secret;
            if let Some(secret) = &client.secret {
                request = request.with_client_secret(secret);
            }
        }
        manager.set_credential_store(newcomer.with(client));
        let session = AuthorizationSession::new(manager, request).await.map_err(|(_, error)| told(error))?;
        check_address(&self.url, &session.auth_url).map_err(told)?;
        Ok(session)
    }

    /// A new login is there.
    pub(crate) fn entered(&self) {
        self.missing.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.locked_out.store(false, Ordering::Release);
    }

    /// Forgets the login, on disk and wherever it is in use.
    pub(crate) async fn forget(&self) -> Result<(), StoreError> {
        let forgotten = self.keep.forget().await;
        self.entered();
        forgotten
    }

    /// Waits until the login is not being renewed.
    pub(crate) async fn settle(&self) {
        self.keep.settle().await;
    }

    /// The gateway's own secret, where the operator has said where it is.
    fn secret(&self) -> Result<Option<String>, String> {
        if self.oauth.client_secret.is_empty() {
            return Ok(None);
        }
        let secret = resolve(&self.oauth.client_secret).map_err(|error| format!("oauth.client_secret: {error}"))?;
        Ok(Some(secret.expose_secret().to_owned()))
    }

    fn missing(&self) -> Vec<String> {
        self.missing.lock().unwrap_or_else(PoisonError::into_inner).clone()
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
    fn what_a_login_allowed_before_is_asked_for_with_what_was_missing() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(merged(words("a b"), words("b c")), words("a b c"));
    }
}
