//! An OAuth authorization server with real HTTP, and a resource that requires its tokens. The test
//! plays the browser.

mod pages;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use axum::http::header;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use parking_lot::{Mutex, MutexGuard};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::soon;

type Words = HashMap<String, String>;

/// Grants tokens for one resource to clients that register, ask and prove their identity. Each
/// renewal revokes the previous refresh token. A client that uses a refresh token twice loses its
/// login.
#[derive(Debug)]
pub struct Authority {
    /// The base URL, without a path. The resource is at `/mcp`.
    pub url: String,
    state: Arc<Mutex<Book>>,
    task: JoinHandle<()>,
}

/// The authority's behaviour, which a test can change at any time.
#[derive(Debug, Clone)]
pub struct Behaviour {
    /// The token lifetime that the authority reports.
    pub lifetime_s: u64,
    /// The issuer that the authority names when it redirects a user back.
    pub issuer: Option<String>,
    /// Whether the metadata announces that redirects name the issuer.
    pub names_itself: bool,
    /// The error code that redirects carry instead of an authorization code.
    pub refuses: Option<String>,
    /// The authority that the resource's metadata names.
    pub authority: Option<String>,
    /// The registration endpoint that the metadata names.
    pub registration: Option<String>,
    /// The scope that a token must have.
    pub scope: String,
    /// The resource for which tokens are granted, instead of the authority's own.
    pub resource: Option<String>,
    /// The methods by which clients may authenticate.
    pub methods: Vec<&'static str>,
    /// Stops serving the metadata of the authority and of the resource.
    pub mute: bool,
    /// Sends a `WWW-Authenticate` challenge to requests without a valid token.
    pub challenges: bool,
    /// Grants this token instead of a valid one.
    pub token: Option<String>,
    /// Rejects every token request with its own error.
    pub broken: bool,
}

/// One request for a login or for tokens.
#[derive(Debug, Clone, Default)]
pub struct Asked {
    pub words: HashMap<String, String>,
    /// The credentials from the `Authorization` header, if the client used it.
    pub basic: Option<(String, String)>,
}

/// While this value exists, requests to one path are executed but not answered.
#[derive(Debug)]
pub struct Held {
    reached: watch::Receiver<usize>,
    _hold: watch::Sender<()>,
}

impl Held {
    /// Waits until this number of requests has arrived since the path was held.
    pub async fn reached(&mut self, count: usize) {
        soon(self.reached.wait_for(|reached| *reached >= count)).await.unwrap();
    }
}

#[derive(Debug, Default)]
struct Book {
    url: String,
    behaviour: Behaviour,
    clients: HashMap<String, Client>,
    codes: HashMap<String, Words>,
    /// Access tokens, with the scope of each.
    access: HashMap<String, String>,
    refresh: HashMap<String, Words>,
    /// Every secret that the authority has issued.
    granted: Vec<String>,
    used: HashSet<String>,
    counts: Counts,
    /// Requests by path.
    asked: HashMap<&'static str, Vec<Asked>>,
    held: HashMap<&'static str, (watch::Sender<usize>, watch::Receiver<()>)>,
    /// Fetches client metadata documents. Without it, the authority accepts none.
    documents: Option<reqwest::Client>,
}

#[derive(Debug, Clone)]
struct Client {
    secret: String,
    redirect_uris: Vec<String>,
}

/// Counts of the requests that the authority received.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counts {
    pub registered: usize,
    pub granted: usize,
    pub renewed: usize,
    /// Renewals with a refresh token that had already been used.
    pub reused: usize,
    /// Requests to the resource without a valid token.
    pub turned_away: usize,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self {
            lifetime_s: 3_600,
            issuer: None,
            names_itself: true,
            refuses: None,
            authority: None,
            registration: None,
            scope: "tools".into(),
            resource: None,
            methods: vec!["client_secret_basic", "client_secret_post"],
            mute: false,
            challenges: true,
            token: None,
            broken: false,
        }
    }
}

impl Authority {
    /// Starts an authority for this resource.
    pub async fn start(resource: Router) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::new(Mutex::new(Book { url: url.clone(), ..Book::default() }));
        let routes = Router::new()
            .nest_service("/mcp", resource)
            .layer(from_fn_with_state(Arc::clone(&state), pages::guard))
            .route("/.well-known/oauth-protected-resource/mcp", get(pages::of_resource))
            .route("/.well-known/oauth-authorization-server", get(pages::of_authority))
            .route("/register", post(pages::register))
            .route("/authorize", get(pages::authorize))
            .route("/token", post(pages::token))
            .layer(from_fn_with_state(Arc::clone(&state), pages::hold))
            .with_state(Arc::clone(&state));
        let task = tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
        Self { url, state, task }
    }

    pub fn resource(&self) -> String {
        format!("{}/mcp", self.url)
    }

    pub fn change(&self, change: impl FnOnce(&mut Behaviour)) {
        change(&mut book(&self.state).behaviour);
    }

    pub fn counts(&self) -> Counts {
        book(&self.state).counts
    }

    /// Returns every code, token and secret that was issued so far.
    pub fn granted(&self) -> Vec<String> {
        book(&self.state).granted.clone()
    }

    /// Returns the requests to `/authorize` or `/token`, in order.
    pub fn asked(&self, path: &str) -> Vec<Asked> {
        book(&self.state).asked.get(path).cloned().unwrap_or_default()
    }

    /// Holds back every response at this path until the returned value is dropped.
    pub fn hold(&self, path: &'static str) -> Held {
        let ((reached, seen), (hold, held)) = (watch::channel(0), watch::channel(()));
        book(&self.state).held.insert(path, (reached, held));
        Held { reached: seen, _hold: hold }
    }

    /// Registers a client directly. A client with an empty secret does not need one.
    pub fn introduce(&self, id: &str, secret: &str, redirect_uri: &str) {
        let client = Client { secret: secret.into(), redirect_uris: vec![redirect_uri.into()] };
        book(&self.state).clients.insert(id.into(), client);
    }

    /// Accepts the URL of a metadata document as a client id from now on, and fetches it with this
    /// HTTP client.
    pub fn take_documents(&self, http: reqwest::Client) {
        book(&self.state).documents = Some(http);
    }

    /// Revokes all access tokens, without a notification.
    pub fn end_tokens(&self) {
        book(&self.state).access.clear();
    }

    /// Revokes all refresh and access tokens.
    pub fn end_logins(&self) {
        book(&self.state).refresh.clear();
        self.end_tokens();
    }

    /// Forgets all registered clients and revokes their access tokens.
    pub fn forget_clients(&self) {
        book(&self.state).clients.clear();
        self.end_tokens();
    }

    /// Opens an address like a browser, agrees to everything, and returns the URL of the redirect.
    pub async fn agree(&self, address: &str) -> String {
        assert!(address.starts_with(&self.url), "{address}");
        let browser =
            reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
        let response = browser.get(address).send().await.unwrap();
        let (status, to) = (response.status(), response.headers().get(header::LOCATION).cloned());
        let said = response.text().await.unwrap();
        to.unwrap_or_else(|| panic!("{status}: {said}")).to_str().unwrap().to_owned()
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Book {
    /// Creates a unique secret that a test can search for.
    fn word(&mut self, kind: &str) -> String {
        let word = format!(
            "canary-{kind}-{}-of-{}",
            self.granted.len(),
            self.url.replace([':', '/', '.'], "-")
        );
        self.granted.push(word.clone());
        word
    }

    fn resource(&self) -> String {
        self.behaviour.resource.clone().unwrap_or_else(|| format!("{}/mcp", self.url))
    }

    fn tokens(&mut self, grant: Words) -> Response {
        let (mut access, refresh, beside) =
            (self.word("access"), self.word("refresh"), self.word("identity"));
        if let Some(token) = &self.behaviour.token {
            access.clone_from(token);
        }
        let scope = grant.get("scope").cloned().unwrap_or_default();
        self.access.insert(access.clone(), scope.clone());
        self.refresh.insert(refresh.clone(), grant);
        Json(json!({
            "access_token": access, "refresh_token": refresh, "token_type": "Bearer", "scope": scope,
            "expires_in": self.behaviour.lifetime_s, "id_token": beside,
        }))
        .into_response()
    }
}

fn book(state: &Arc<Mutex<Book>>) -> MutexGuard<'_, Book> {
    state.lock()
}
