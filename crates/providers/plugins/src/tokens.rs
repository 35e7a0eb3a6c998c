//! OAuth2 tokens for calls of OpenAPI plugins, fetched with their users' client credentials.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sa_core::{CallError, CallErrorKind};
use sa_egress::{Egress, origin};
use sa_openapi::{AccessToken, TokenRequest};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::time::Instant;

use crate::answer;
use crate::call_extensions::Fault;
use crate::openapi::{fault, outgoing};
use crate::plugin::Plugin;
use crate::scrub::Hidden;

const MAX_TOKENS: usize = 1_000;
const MAX_ANSWER: usize = 64 * 1024;
/// The default lifetime of a token, its maximum, and the margin by which it expires early.
const LIFE: Duration = Duration::from_secs(300);
const LONGEST_LIFE: Duration = Duration::from_secs(86_400);
const EARLY: Duration = Duration::from_secs(30);

/// The cache of all tokens.
#[derive(Default)]
pub(crate) struct Tokens {
    known: Mutex<HashMap<blake3::Hash, Known>>,
    /// The locks of token requests in progress, so that concurrent calls make only one request.
    fetching: Mutex<HashMap<blake3::Hash, Arc<tokio::sync::Mutex<()>>>>,
}

struct Known {
    value: SecretString,
    fetched: Instant,
    until: Instant,
}

/// Fetches the tokens of one plugin for one owner of settings.
pub(crate) struct TokenFetcher<'a> {
    pub(crate) tokens: &'a Tokens,
    pub(crate) egress: &'a Egress,
    pub(crate) plugin: &'a Plugin,
    pub(crate) owner: &'a str,
}

impl Tokens {
    fn known(&self, key: &blake3::Hash, newer_than: Option<Instant>) -> Option<SecretString> {
        let known = self.known.lock();
        let good = |known: &&Known| {
            known.until > Instant::now() && newer_than.is_none_or(|at| known.fetched > at)
        };
        known.get(key).filter(good).map(|known| known.value.clone())
    }

    fn keep(&self, key: blake3::Hash, fetched: AccessToken) -> SecretString {
        let AccessToken { value, expires_in } = fetched;
        let life = expires_in.map_or(LIFE, Duration::from_secs).min(LONGEST_LIFE);
        let now = Instant::now();
        let mut known = self.known.lock();
        if known.len() >= MAX_TOKENS {
            known.clear();
        }
        known.insert(
            key,
            Known { value: value.clone(), fetched: now, until: now + life - EARLY.min(life / 2) },
        );
        value
    }

    fn turn(&self, key: blake3::Hash) -> Arc<tokio::sync::Mutex<()>> {
        let mut fetching = self.fetching.lock();
        Arc::clone(fetching.entry(key).or_default())
    }

    pub(crate) fn sweep(&self) {
        self.known.lock().retain(|_, known| known.until > Instant::now());
        self.fetching.lock().retain(|_, turn| Arc::strong_count(turn) > 1);
    }
}

impl TokenFetcher<'_> {
    /// Returns a token from the cache, or else from its server.
    pub(crate) async fn token(
        &self,
        token: &TokenRequest,
        time: Duration,
        newer_than: Option<Instant>,
        secrets: &[String],
    ) -> Result<SecretString, Fault> {
        let key = self.key(token);
        if let Some(value) = self.tokens.known(&key, newer_than) {
            return Ok(value);
        }
        let turn = self.tokens.turn(key);
        let _turn = turn.lock().await;
        match self.tokens.known(&key, newer_than) {
            Some(value) => Ok(value),
            None => Ok(self.tokens.keep(key, self.fetch(token, time, secrets).await?)),
        }
    }

    async fn fetch(
        &self,
        token: &TokenRequest,
        time: Duration,
        secrets: &[String],
    ) -> Result<AccessToken, Fault> {
        let request =
            outgoing(token.request(), true, self.plugin.allowed.clone(), time, MAX_ANSWER)?;
        let response = self.egress.send(request).await;
        let response = response.map_err(|error| answer::no_token(self.plugin, error, secrets))?;
        AccessToken::read(&response.body).map_err(|error| {
            // The message quotes the answer, which may repeat the secrets that were sent.
            let masked = AccessToken::read(&Hidden::new(secrets).body(&response.body)).err();
            let why = fault(masked.unwrap_or(error));
            let status = response.status.as_u16();
            let place = origin(&token.token_url);
            let plugin = self.plugin.identifier();
            let message = format!(
                "cannot get a token for the plugin \"{plugin}\" from {place} ({status}): {}",
                why.error.message
            );
            let error = CallError::new(CallErrorKind::Failed, message);
            Fault::new(
                why.error_type,
                error.hint(format!(
                    "run `switchboard plugin settings {plugin}` to check its settings"
                )),
            )
        })
    }

    /// Returns the cache key of a token. A token is valid for one plugin, owner of settings,
    /// client, token server and list of scopes.
    fn key(&self, token: &TokenRequest) -> blake3::Hash {
        let (secret, scopes) = (token.client_secret.expose_secret(), token.scopes.join(" "));
        let parts = [
            self.plugin.identifier(),
            self.owner,
            token.token_url.as_str(),
            &token.client_id,
            secret,
            &scopes,
        ];
        // Each part is hashed with its length, so that different lists have different hashes.
        let mut hasher = blake3::Hasher::new();
        for part in parts {
            hasher.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
        }
        hasher.finalize()
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::future::BoxFuture;
    use sa_egress::{Allowed, Options, Resolver};
    use sa_protocol::plugin::PluginErrorType;

    use super::*;
    use crate::manifest;

    /// A name that resolves to a public address at the first request, and to a private one
    /// afterwards.
    #[derive(Default)]
    struct Turns(AtomicUsize);

    impl Resolver for Turns {
        fn resolve(&self, _: &str) -> BoxFuture<'static, std::io::Result<Vec<IpAddr>>> {
            let last = if self.0.fetch_add(1, Ordering::SeqCst) == 0 { 2 } else { 1 };
            Box::pin(std::future::ready(Ok(vec![IpAddr::from([127, 0, 0, last])])))
        }
    }

    /// Listens on both addresses, and counts the requests to the private one.
    async fn serve() -> (u16, Arc<AtomicUsize>) {
        let inside = Arc::new(AtomicUsize::new(0));
        let outer = tokio::net::TcpListener::bind("127.0.0.2:0").await.unwrap();
        let port = outer.local_addr().unwrap().port();
        let inner = tokio::net::TcpListener::bind(("127.0.0.1", port)).await.unwrap();
        let answer = r#"{"access_token":"t","token_type":"bearer","expires_in":0}"#;
        // With a persistent connection the name would not be resolved again.
        let headers = [("content-type", "application/json"), ("connection", "close")];
        let open = axum::Router::new().fallback(move || async move { (headers, answer) });
        let counted = Arc::clone(&inside);
        let shut = axum::Router::new().fallback(move || {
            counted.fetch_add(1, Ordering::SeqCst);
            async move { (headers, answer) }
        });
        tokio::spawn(async { axum::serve(outer, open).await });
        tokio::spawn(async { axum::serve(inner, shut).await });
        (port, inside)
    }

    #[tokio::test]
    async fn a_token_servers_name_that_turns_inside_is_refused() {
        let (port, inside) = serve().await;
        let options = Options { allow_private: Vec::new(), max_redirects: 5, user_agent: "test" };
        let outside = |address: IpAddr| address == IpAddr::from([127, 0, 0, 2]);
        let egress = Egress::with(&options, Arc::new(Turns::default()), outside).unwrap();
        let text = r#"{"identifier":"p","api":[{"name":"run","description":"d","url":"http://turns.test/"}]}"#;
        let plugin = |allowed: &[String]| {
            let plugin =
                Plugin::new(manifest::read(text, None).manifest.unwrap(), None, true, "").unwrap();
            plugin.allowed(Allowed::parse(allowed).unwrap())
        };
        let tokens = Tokens::default();
        let token = TokenRequest {
            scheme: "client".into(),
            token_url: format!("http://turns.test:{port}/token").parse().unwrap(),
            scopes: Vec::new(),
            client_id: "me".into(),
            client_secret: "my secret".to_owned().into(),
        };
        let ask = async |plugin: &Plugin| {
            let fetcher = TokenFetcher { tokens: &tokens, egress: &egress, plugin, owner: "me" };
            fetcher.token(&token, Duration::from_secs(20), None, &[]).await
        };
        let guarded = plugin(&[]);
        assert_eq!(ask(&guarded).await.unwrap().expose_secret(), "t");
        let fault = ask(&guarded).await.unwrap_err();
        assert_eq!(fault.error_type, PluginErrorType::PluginGatewayError);
        assert_eq!(inside.load(Ordering::SeqCst), 0, "not one connection");
        ask(&plugin(&[format!("turns.test:{port}")])).await.unwrap();
        assert_eq!(inside.load(Ordering::SeqCst), 1, "one that is allowed goes there");
    }
}
