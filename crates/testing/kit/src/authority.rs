//! An OAuth authority with real HTTP, and a resource that wants its tokens. The test plays the browser.

mod pages;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::http::header;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::soon;

type Words = HashMap<String, String>;

/// Grants tokens for one resource, to whoever registers, asks and proves that it was them who asked. Each renewal takes the
/// former token back; whoever uses one twice has lost the login.
#[derive(Debug)]
pub struct Authority {
    /// Without a path. The resource is at `/mcp`.
    pub url: String,
    state: Arc<Mutex<Book>>,
    task: JoinHandle<()>,
}

/// How it behaves, which a test can change at any time.
#[derive(Debug, Clone)]
pub struct Manner {
    /// How long it says that a token is good.
    pub lifetime_s: u64,
    /// Whom it says it is when it sends somebody back.
    pub issuer: Option<String>,
    /// Says beforehand that it does so.
    pub names_itself: bool,
    /// What it says in place of a code.
    pub refuses: Option<String>,
    /// What it calls the authority of the resource.
    pub authority: Option<String>,
    /// Where it says that clients register.
    pub registration: Option<String>,
    /// What a token must be for.
    pub scope: String,
    /// Which resource it grants tokens for, in place of its own.
    pub resource: Option<String>,
    /// How clients may say who they are.
    pub methods: Vec<&'static str>,
    /// Says nothing of itself any more, nor of who grants tokens for the resource.
    pub mute: bool,
    /// Says what it wants of whoever has no good token.
    pub challenges: bool,
    /// The token that it grants, in place of a good one.
    pub token: Option<String>,
    /// Grants nothing, for a reason of its own.
    pub broken: bool,
}

/// What it was asked for a login, or for tokens.
#[derive(Debug, Clone, Default)]
pub struct Asked {
    pub words: HashMap<String, String>,
    /// What was in the header, for those who say there who they are.
    pub basic: Option<(String, String)>,
}

/// While it is there, whatever is asked at a path is done, but not answered.
#[derive(Debug)]
pub struct Held {
    reached: watch::Receiver<usize>,
    _hold: watch::Sender<()>,
}

impl Held {
    /// Waits until so many have been asking there, since it is held.
    pub async fn reached(&mut self, count: usize) {
        soon(self.reached.wait_for(|reached| *reached >= count)).await.unwrap();
    }
}

#[derive(Debug, Default)]
struct Book {
    url: String,
    manner: Manner,
    clients: HashMap<String, Client>,
    codes: HashMap<String, Words>,
    /// With what each allows.
    access: HashMap<String, String>,
    refresh: HashMap<String, Words>,
    /// Every secret that it has ever given away.
    granted: Vec<String>,
    used: HashSet<String>,
    counts: Counts,
    /// By path.
    asked: HashMap<&'static str, Vec<Asked>>,
    held: HashMap<&'static str, (watch::Sender<usize>, watch::Receiver<()>)>,
    /// What fetches the documents that clients are described by; without it, it takes none.
    documents: Option<reqwest::Client>,
}

#[derive(Debug, Clone)]
struct Client {
    secret: String,
    redirect_uris: Vec<String>,
}

/// What it was asked.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counts {
    pub registered: usize,
    pub granted: usize,
    pub renewed: usize,
    /// Renewals with what was good once.
    pub reused: usize,
    /// Messages to the resource that had no good token.
    pub turned_away: usize,
}

impl Default for Manner {
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
    /// Starts one for what is served here.
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

    pub fn change(&self, change: impl FnOnce(&mut Manner)) {
        change(&mut book(&self.state).manner);
    }

    pub fn counts(&self) -> Counts {
        book(&self.state).counts
    }

    /// Every code, token and secret that it has given away so far.
    pub fn granted(&self) -> Vec<String> {
        book(&self.state).granted.clone()
    }

    /// What was asked at `/authorize` or `/token`, in turn.
    pub fn asked(&self, path: &str) -> Vec<Asked> {
        book(&self.state).asked.get(path).cloned().unwrap_or_default()
    }

    /// From now on, and for as long as what is given back is there, nobody is answered at this path.
    pub fn hold(&self, path: &'static str) -> Held {
        let ((reached, seen), (hold, held)) = (watch::channel(0), watch::channel(()));
        book(&self.state).held.insert(path, (reached, held));
        Held { reached: seen, _hold: hold }
    }

    /// Takes in a client by hand. Without a secret, it needs none.
    pub fn introduce(&self, id: &str, secret: &str, redirect_uri: &str) {
        let client = Client { secret: secret.into(), redirect_uris: vec![redirect_uri.into()] };
        book(&self.state).clients.insert(id.into(), client);
    }

    /// Takes the address of a document for the id of a client from now on, and fetches it with this.
    pub fn take_documents(&self, http: reqwest::Client) {
        book(&self.state).documents = Some(http);
    }

    /// All tokens for the resource are over, without a word.
    pub fn end_tokens(&self) {
        book(&self.state).access.clear();
    }

    /// So are all logins.
    pub fn end_logins(&self) {
        book(&self.state).refresh.clear();
        self.end_tokens();
    }

    /// It knows none of those who have registered, and their tokens are over.
    pub fn forget_clients(&self) {
        book(&self.state).clients.clear();
        self.end_tokens();
    }

    /// Opens an address as a browser whose owner agrees to everything: where it is sent to then.
    pub async fn agree(&self, address: &str) -> String {
        assert!(address.starts_with(&self.url), "{address}");
        let browser = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
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
    /// A word that is not given twice, and that a test can look for.
    fn word(&mut self, kind: &str) -> String {
        let word = format!("canary-{kind}-{}-of-{}", self.granted.len(), self.url.replace([':', '/', '.'], "-"));
        self.granted.push(word.clone());
        word
    }

    fn resource(&self) -> String {
        self.manner.resource.clone().unwrap_or_else(|| format!("{}/mcp", self.url))
    }

    fn tokens(&mut self, grant: Words) -> Response {
        let (mut access, refresh, beside) = (self.word("access"), self.word("refresh"), self.word("identity"));
        if let Some(token) = &self.manner.token {
            access.clone_from(token);
        }
        let scope = grant.get("scope").cloned().unwrap_or_default();
        self.access.insert(access.clone(), scope.clone());
        self.refresh.insert(refresh.clone(), grant);
        Json(json!({
            "access_token": access, "refresh_token": refresh, "token_type": "Bearer", "scope": scope,
            "expires_in": self.manner.lifetime_s, "id_token": beside,
        }))
        .into_response()
    }
}

fn book(state: &Arc<Mutex<Book>>) -> MutexGuard<'_, Book> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
