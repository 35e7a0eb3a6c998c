//! HTTP client for a server, with an access token that is refreshed when it expires.
//!
//! rmcp has such a client, too, but it does not fit here for these reasons:
//! - It refreshes once per rejected request, even when another request has just refreshed.
//! - It aborts a refresh when the request is dropped. An authorization server with rotating
//!   refresh tokens has then already replaced the old token, and the new one is lost.
//! - It sends requests without a token when there is none.
//! - It refreshes a token only to delete the session on shutdown.

use std::future::Future;
use std::sync::Arc;

use rmcp::model::ClientJsonRpcMessage;
use rmcp::transport::auth::{AuthError, AuthorizationManager};
use rmcp::transport::streamable_http_client::{
    AuthRequiredError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
};
use sa_lines::MAX_MESSAGE;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::errors;
use crate::session_check::{Events, Failed, Headers, SessionCheck};

/// The HTTP client of one connection. All connections to a server share the token.
#[derive(Clone)]
pub(crate) struct Authorised {
    http: SessionCheck,
    tokens: Arc<Mutex<Tokens>>,
    /// The token that was sent last.
    latest: Arc<parking_lot::Mutex<Option<String>>>,
}

struct Tokens {
    manager: AuthorizationManager,
    /// The time and the error of the last failed token refresh.
    failed: Option<(Instant, String)>,
}

impl Authorised {
    pub(crate) fn new(http: SessionCheck, manager: AuthorizationManager) -> Self {
        Self {
            http,
            tokens: Arc::new(Mutex::new(Tokens { manager, failed: None })),
            latest: Arc::default(),
        }
    }

    /// Returns a client for another connection that shares the same token.
    pub(crate) fn over(&self, http: SessionCheck) -> Self {
        Self { http, tokens: Arc::clone(&self.tokens), latest: Arc::clone(&self.latest) }
    }

    /// Sends a request. Repeats it once with a new token if the server rejects the current one.
    async fn send<T, Sent>(&self, send: impl Fn(Option<String>) -> Sent) -> Result<T, Failed>
    where
        Sent: Future<Output = Result<T, Failed>>,
    {
        let token = self.token(None).await?;
        let refusal = match send(Some(token.clone())).await {
            Err(error) if errors::is_unauthorized(&error) => challenge(error),
            answer => return answer,
        };
        match self.token(Some(token.clone())).await {
            Ok(fresh) if fresh != token => send(Some(fresh)).await.map_err(challenge),
            Ok(_) | Err(AuthError::AuthorizationRequired) => Err(refusal),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the current token, or a new one if the current token equals `refused`.
    async fn token(&self, refused: Option<String>) -> Result<String, AuthError> {
        let (tokens, requested_at) = (Arc::clone(&self.tokens), Instant::now());
        // Runs in a separate task: a refresh that has begun must complete, even if the caller is
        // dropped.
        let token = tokio::spawn(async move {
            tokens.lock().await.token(refused.as_deref(), requested_at).await
        });
        let token =
            token.await.unwrap_or_else(|error| Err(AuthError::InternalError(error.to_string())))?;
        *self.latest.lock() = Some(token.clone());
        Ok(token)
    }
}

impl Tokens {
    async fn token(
        &mut self,
        refused: Option<&str>,
        requested_at: Instant,
    ) -> Result<String, AuthError> {
        // A caller that waited for a failed refresh does not retry it immediately.
        if let Some((at, why)) = &self.failed
            && *at > requested_at
        {
            return Err(AuthError::TokenRefreshFailed(why.clone()));
        }
        let token = self.granted(refused).await;
        if let Err(AuthError::TokenRefreshFailed(why)) = &token {
            self.failed = Some((Instant::now(), why.clone()));
        }
        token
    }

    async fn granted(&self, refused: Option<&str>) -> Result<String, AuthError> {
        let token = self.manager.get_access_token().await?;
        if refused != Some(&*token) {
            return Ok(token);
        }
        match self.manager.refresh_token().await {
            Ok(_) => self.manager.get_access_token().await,
            Err(AuthError::TokenRefreshRejected(_)) => Err(AuthError::AuthorizationRequired),
            Err(error) => Err(error),
        }
    }
}

/// Turns every "unauthorized" error into `AuthRequired`. Some servers reject a token without a
/// `WWW-Authenticate` challenge.
fn challenge(error: Failed) -> Failed {
    if errors::is_unauthorized(&error) && !matches!(error, StreamableHttpError::AuthRequired(_)) {
        return StreamableHttpError::AuthRequired(AuthRequiredError::new("Bearer".into()));
    }
    error
}

impl StreamableHttpClient for Authorised {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        token: Option<String>,
        headers: Headers,
    ) -> Result<StreamableHttpPostResponse, Failed> {
        self.post_message_with_max_sse_event_size(
            uri,
            message,
            session,
            token,
            headers,
            MAX_MESSAGE,
        )
        .await
    }

    async fn post_message_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        _token: Option<String>,
        headers: Headers,
        max_bytes: usize,
    ) -> Result<StreamableHttpPostResponse, Failed> {
        self.send(|token| {
            let (uri, message, session, headers) =
                (uri.clone(), message.clone(), session.clone(), headers.clone());
            self.http.post_message_with_max_sse_event_size(
                uri, message, session, token, headers, max_bytes,
            )
        })
        .await
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        _token: Option<String>,
        headers: Headers,
    ) -> Result<(), Failed> {
        // Deleting the session is not worth a token refresh: a gateway that shuts down might not
        // receive the new token.
        let token = self.latest.lock().clone();
        self.http.delete_session(uri, session, token, headers).await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        token: Option<String>,
        headers: Headers,
    ) -> Result<Events, Failed> {
        self.get_stream_with_max_sse_event_size(
            uri,
            session,
            last_event,
            token,
            headers,
            MAX_MESSAGE,
        )
        .await
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        _token: Option<String>,
        headers: Headers,
        max_bytes: usize,
    ) -> Result<Events, Failed> {
        self.send(|token| {
            let (uri, session, last, headers) =
                (uri.clone(), session.clone(), last_event.clone(), headers.clone());
            self.http
                .get_stream_with_max_sse_event_size(uri, session, last, token, headers, max_bytes)
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::future::join_all;
    use rmcp::transport::auth::{
        AuthorizationMetadata, CredentialStore as _, InMemoryCredentialStore, OAuthHttpClient,
        OAuthHttpClientFuture, OAuthHttpRequest, StoredCredentials,
    };
    use serde_json::json;
    use tokio_util::sync::CancellationToken;

    use super::*;

    /// An authorization server that is down and fails every request after 20 ms.
    #[derive(Default)]
    struct Down(AtomicUsize);

    impl OAuthHttpClient for Down {
        fn execute(&self, _: OAuthHttpRequest) -> OAuthHttpClientFuture<'_> {
            self.0.fetch_add(1, Ordering::SeqCst);
            Box::pin(async {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
                Err("nobody is there".into())
            })
        }
    }

    /// Returns a client with this token, which has the given lifetime.
    async fn client(down: &Arc<Down>, token: &str, lifetime_s: u64) -> Authorised {
        let http = Arc::clone(down) as Arc<dyn OAuthHttpClient>;
        let mut manager =
            AuthorizationManager::new_with_oauth_http_client("https://mcp.example.com/mcp", http)
                .await
                .unwrap();
        let address = |path: &str| format!("https://auth.example.com/{path}");
        let mut metadata = AuthorizationMetadata::default();
        (metadata.authorization_endpoint, metadata.token_endpoint) =
            (address("authorize"), address("token"));
        manager.set_metadata(metadata);
        manager.configure_client_id("client").unwrap();
        let granted = json!({
            "access_token": token, "refresh_token": "more", "token_type": "bearer", "expires_in": lifetime_s,
        });
        let granted = serde_json::from_value(granted).unwrap();
        let store = InMemoryCredentialStore::new();
        store
            .save(StoredCredentials::new("client".into(), Some(granted), Vec::new(), Some(0)))
            .await
            .unwrap();
        manager.set_credential_store(store);
        Authorised::new(
            SessionCheck::new(reqwest::Client::new(), "a server".into(), CancellationToken::new()),
            manager,
        )
    }

    #[tokio::test]
    async fn nobody_asks_for_a_token_to_take_leave_with() {
        let down = Arc::new(Down::default());
        let client = client(&down, "old", 0).await;
        assert!(
            client
                .delete_session("http://127.0.0.1:9/mcp".into(), "one".into(), None, Headers::new())
                .await
                .is_err()
        );
        assert_eq!(down.0.load(Ordering::SeqCst), 0);
        assert!(client.token(None).await.is_err());
        assert_eq!(down.0.load(Ordering::SeqCst), 1, "it is over");
    }

    #[tokio::test]
    async fn a_failed_refresh_is_reported_to_all_waiting_requests() {
        let down = Arc::new(Down::default());
        let client = client(&down, "old", u64::MAX).await;
        let answers = join_all((0..8).map(|_| client.token(Some("old".into())))).await;
        assert!(
            answers.iter().all(|answer| matches!(answer, Err(AuthError::TokenRefreshFailed(_)))),
            "{answers:?}"
        );
        assert_eq!(down.0.load(Ordering::SeqCst), 1, "each of them asked");
        // A later caller tries again.
        assert!(client.token(Some("old".into())).await.is_err());
        assert_eq!(down.0.load(Ordering::SeqCst), 2);
        assert_eq!(
            client.token(Some("older".into())).await.unwrap(),
            "old",
            "another one has renewed it"
        );
    }
}
