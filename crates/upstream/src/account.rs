//! What the gateway is at a server that people log in to: nobody yet, or whoever has logged in.
//!
//! All connections to the server share one [`AuthClient`], so that a token is renewed once for all of them. Whom rmcp asks on
//! the way is bounded by what the server's own address is: only one on this machine or in a private network can name an
//! authority that is there, too.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};

use rmcp::transport::auth::{
    AuthClient, AuthError, AuthorizationManager, AuthorizationRequest, AuthorizationSession, OAuthClientConfig,
};
use sa_core::store::StoreError;
use secrecy::ExposeSecret as _;
use tokio::sync::Mutex;
use url::Url;

use crate::keep::{Client, Keep};
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
    shared: Mutex<Option<AuthClient<Observed>>>,
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
            shared: Mutex::default(),
            locked_out: AtomicBool::new(false),
            missing: std::sync::Mutex::default(),
        })
    }

    /// Whether somebody is logged in; `None` when nobody needs to be, as far as is known.
    pub(crate) fn logged_in(&self) -> Option<bool> {
        let there = self.keep.is_there();
        (self.expected || there || self.is_locked_out()).then_some(there)
    }

    /// Whether there is no use in asking the server.
    pub(crate) fn lacks_login(&self) -> bool {
        self.expected && !self.keep.is_there()
    }

    pub(crate) fn is_locked_out(&self) -> bool {
        self.locked_out.load(Ordering::Acquire)
    }

    pub(crate) fn lock_out(&self, locked_out: bool) {
        self.locked_out.store(locked_out, Ordering::Release);
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
    pub(crate) async fn client(&self, http: Observed) -> Result<Option<AuthClient<Observed>>, NoToken> {
        let mut shared = self.shared.lock().await;
        if let Some(client) = &*shared {
            let mut client = client.clone();
            client.http_client = http;
            return Ok(Some(client));
        }
        let Some(holder) = self.keep.holder().await else {
            return if self.expected { Err(NoToken::LoginNeeded(self.login_needed().await)) } else { Ok(None) };
        };
        let (client, trouble) = (holder.client.clone(), |error| NoToken::Trouble(trouble::of_authority(&error)));
        let (mut manager, _) = self.manager().await.map_err(trouble)?;
        manager.set_credential_store(holder);
        if !manager.initialize_from_store().await.map_err(trouble)? {
            return Err(NoToken::LoginNeeded(self.login_needed().await));
        }
        if let Some(secret) = client.secret {
            let (id, _) = manager.get_credentials().await.map_err(trouble)?;
            let config = OAuthClientConfig::new(id, client.redirect_uri).with_client_secret(secret);
            manager.configure_client(config).map_err(trouble)?;
        }
        Ok(Some(shared.insert(AuthClient::new(http, manager)).clone()))
    }

    /// Asks the server who grants tokens for it, and makes ready for somebody to go there and come back to `redirect_uri`.
    pub(crate) async fn begin(&self, redirect_uri: &str) -> Result<AuthorizationSession, String> {
        let told = |error: AuthError| trouble::of_login(&error);
        let (mut manager, takes_documents) = self.manager().await.map_err(told)?;
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
            if !self.oauth.client_secret.is_empty() {
                let secret = resolve(&self.oauth.client_secret);
                let secret = secret.map_err(|error| format!("oauth.client_secret: {error}"))?;
                client.secret = Some(secret.expose_secret().to_owned());
            }
        } else if takes_documents && !self.oauth.client_metadata_url.is_empty() {
            request = request.with_client_metadata_url(&self.oauth.client_metadata_url);
        } else {
            // Not left to the session, which does not tell the secret that some authorities give.
            manager
                .configure_client(OAuthClientConfig::new("", redirect_uri).with_application_type(kind))
                .map_err(told)?;
            let scopes: Vec<&str> = scopes.iter().map(String::as_str).collect();
            let registered = manager.register_client(CLIENT_NAME, redirect_uri, &scopes).await.map_err(told)?;
            request = request.with_preregistered_client(registered.client_id);
            client.secret = registered.client_secret;
        }
        if let Some(secret) = &client.secret {
            request = request.with_client_secret(secret);
        }
        manager.set_credential_store(self.keep.newcomer(client));
        let session = AuthorizationSession::new(manager, request).await.map_err(|(_, error)| told(error))?;
        check_address(&self.url, &session.auth_url).map_err(told)?;
        Ok(session)
    }

    /// A new login is there.
    pub(crate) async fn entered(&self) {
        self.missing.lock().unwrap_or_else(PoisonError::into_inner).clear();
        *self.shared.lock().await = None;
        self.lock_out(false);
    }

    /// Forgets the login, on disk and wherever it is in use.
    pub(crate) async fn forget(&self) -> Result<(), StoreError> {
        let forgotten = self.keep.forget().await;
        self.entered().await;
        forgotten
    }

    /// A manager that knows who grants tokens for the server, and whether they take a client's word for what it is.
    async fn manager(&self) -> Result<(AuthorizationManager, bool), AuthError> {
        let mut manager = AuthorizationManager::new(&self.url).await?;
        let metadata = manager.resolve_metadata().await?.metadata;
        let endpoints = [Some(&metadata.token_endpoint), metadata.registration_endpoint.as_ref()];
        for endpoint in endpoints.into_iter().flatten() {
            check_address(&self.url, endpoint)?;
        }
        let takes_documents = metadata.additional_fields.get("client_id_metadata_document_supported");
        let takes_documents = takes_documents.is_some_and(|value| *value == true);
        manager.set_metadata(metadata);
        Ok((manager, takes_documents))
    }

    fn missing(&self) -> Vec<String> {
        self.missing.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Whether secrets may go to this address, or somebody be sent there: the authority of a server that is reached with TLS is
/// reached with TLS, too.
fn check_address(server: &str, address: &str) -> Result<(), AuthError> {
    let plain = server.starts_with("http://");
    let allowed = |url: &Url| url.scheme() == "https" || (plain && url.scheme() == "http");
    if Url::parse(address).is_ok_and(|url| allowed(&url)) {
        return Ok(());
    }
    Err(AuthError::MetadataError(format!("\"{}\" is no https address", trouble::place(address))))
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
    fn what_is_reached_with_tls_has_an_authority_that_is() {
        let (secure, plain) = ("https://mcp.example.com/mcp", "http://127.0.0.1:3000/mcp");
        assert!(check_address(secure, "https://auth.example.com/token").is_ok());
        assert!(check_address(plain, "http://127.0.0.1:3001/token").is_ok());
        for address in ["http://auth.example.com/token", "javascript:alert(1)", "file:///etc/passwd", "nonsense", ""] {
            assert!(check_address(secure, address).is_err(), "{address}");
        }
        assert!(check_address(plain, "javascript:alert(1)").is_err());
    }

    #[test]
    fn what_a_login_allowed_before_is_asked_for_with_what_was_missing() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(merged(words("a b"), words("b c")), words("a b c"));
    }
}
