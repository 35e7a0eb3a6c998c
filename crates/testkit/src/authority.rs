//! An OAuth authority with real HTTP, and a resource that wants its tokens. The test plays the browser.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::extract::{Query, Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Redirect, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

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
    /// What it says in place of a code.
    pub refuses: Option<String>,
    /// What it calls the authority of the resource.
    pub authority: Option<String>,
    /// Where it says that clients register.
    pub registration: Option<String>,
    /// What a token must be for.
    pub scope: String,
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
            refuses: None,
            authority: None,
            registration: None,
            scope: "tools".into(),
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
            .layer(from_fn_with_state(Arc::clone(&state), guard))
            .route("/.well-known/oauth-protected-resource/mcp", get(of_resource))
            .route("/.well-known/oauth-authorization-server", get(of_authority))
            .route("/register", post(register))
            .route("/authorize", get(authorize))
            .route("/token", post(token))
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

    fn tokens(&mut self, grant: Words) -> Response {
        let (access, refresh, beside) = (self.word("access"), self.word("refresh"), self.word("identity"));
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

type Shared = State<Arc<Mutex<Book>>>;

async fn guard(State(state): Shared, request: Request, next: Next) -> Response {
    let refusal = {
        let mut book = book(&state);
        let token = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let allows = token.and_then(|token| book.access.get(token.strip_prefix("Bearer ")?)).cloned();
        let metadata = format!("resource_metadata=\"{}/.well-known/oauth-protected-resource/mcp\"", book.url);
        let scope = book.manner.scope.clone();
        match allows {
            None => {
                book.counts.turned_away += usize::from(request.method() == Method::POST);
                Some((StatusCode::UNAUTHORIZED, format!("Bearer {metadata}, scope=\"{scope}\"")))
            }
            Some(allowed) if !allowed.split(' ').any(|word| word == scope) => Some((
                StatusCode::FORBIDDEN,
                format!("Bearer error=\"insufficient_scope\", scope=\"{scope}\", {metadata}"),
            )),
            Some(_) => None,
        }
    };
    match refusal {
        None => next.run(request).await,
        Some((status, challenge)) => (status, [(header::WWW_AUTHENTICATE, challenge)]).into_response(),
    }
}

async fn of_resource(State(state): Shared) -> Json<Value> {
    let book = book(&state);
    let authority = book.manner.authority.as_ref().unwrap_or(&book.url);
    Json(json!({ "resource": format!("{}/mcp", book.url), "authorization_servers": [authority] }))
}

async fn of_authority(State(state): Shared) -> Json<Value> {
    let book = book(&state);
    let url = &book.url;
    let registration = book.manner.registration.clone().unwrap_or_else(|| format!("{url}/register"));
    Json(json!({
        "issuer": url, "authorization_endpoint": format!("{url}/authorize"), "token_endpoint": format!("{url}/token"),
        "registration_endpoint": registration, "response_types_supported": ["code"],
        "grant_types_supported": ["authorization_code", "refresh_token"],
        "code_challenge_methods_supported": ["S256"],
        "token_endpoint_auth_methods_supported": ["client_secret_basic", "client_secret_post"],
        "authorization_response_iss_parameter_supported": true,
    }))
}

async fn register(State(state): Shared, Json(asked): Json<Value>) -> Response {
    let mut book = book(&state);
    book.counts.registered += 1;
    let (id, secret) = (format!("client-{}", book.counts.registered), book.word("secret"));
    let uris = asked["redirect_uris"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let redirect_uris = uris.map(str::to_owned).collect();
    book.clients.insert(id.clone(), Client { secret: secret.clone(), redirect_uris });
    let answer = json!({
        "client_id": id, "client_secret": secret, "redirect_uris": asked["redirect_uris"], "client_name": asked["client_name"],
    });
    (StatusCode::CREATED, Json(answer)).into_response()
}

/// Asks nobody: whoever comes here agrees.
async fn authorize(State(state): Shared, Query(mut asked): Query<Words>) -> Response {
    let mut book = book(&state);
    let word = |name: &str| asked.get(name).map(String::as_str).unwrap_or_default();
    let redirect = word("redirect_uri").to_owned();
    let known = book.clients.get(word("client_id")).is_some_and(|client| client.redirect_uris.contains(&redirect));
    let proper = word("response_type") == "code"
        && word("code_challenge_method") == "S256"
        && word("state").len() >= 16
        && word("resource") == format!("{}/mcp", book.url);
    if !known || !proper {
        return (StatusCode::BAD_REQUEST, format!("no login for {asked:?}")).into_response();
    }
    let mut back = url::Url::parse(&redirect).unwrap();
    back.query_pairs_mut().append_pair("state", word("state"));
    let issuer = book.manner.issuer.clone().unwrap_or_else(|| book.url.clone());
    back.query_pairs_mut().append_pair("iss", &issuer);
    if let Some(refusal) = &book.manner.refuses {
        back.query_pairs_mut().append_pair("error", "access_denied").append_pair("error_description", refusal);
    } else {
        asked.entry("scope".into()).or_default();
        let code = book.word("code");
        book.codes.insert(code.clone(), asked);
        back.query_pairs_mut().append_pair("code", &code);
    }
    Redirect::to(back.as_str()).into_response()
}

async fn token(State(state): Shared, headers: HeaderMap, form: String) -> Response {
    let asked: Words = url::form_urlencoded::parse(form.as_bytes()).into_owned().collect();
    let mut book = book(&state);
    let refuse = |error: &str| (StatusCode::BAD_REQUEST, Json(json!({ "error": error }))).into_response();
    let word = |name: &str| asked.get(name).cloned().unwrap_or_default();
    let (id, secret) = basic(&headers).unwrap_or_else(|| (word("client_id"), word("client_secret")));
    if book.clients.get(&id).is_none_or(|client| client.secret != secret) {
        return refuse("invalid_client");
    }
    if word("resource") != format!("{}/mcp", book.url) {
        return refuse("invalid_target");
    }
    match &*word("grant_type") {
        "authorization_code" => {
            let Some(grant) = book.codes.remove(&word("code")) else { return refuse("invalid_grant") };
            let challenge = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(word("code_verifier")));
            let same = |name: &str, value: &str| grant.get(name).is_some_and(|known| known == value);
            let proven = same("code_challenge", &challenge);
            if !proven || !same("client_id", &id) || !same("redirect_uri", &word("redirect_uri")) {
                return refuse("invalid_grant");
            }
            book.counts.granted += 1;
            book.tokens(grant)
        }
        "refresh_token" => {
            let token = word("refresh_token");
            let Some(grant) = book.refresh.remove(&token) else {
                if book.used.contains(&token) {
                    book.counts.reused += 1;
                    book.refresh.clear();
                }
                return refuse("invalid_grant");
            };
            book.used.insert(token);
            book.counts.renewed += 1;
            book.tokens(grant)
        }
        _ => refuse("unsupported_grant_type"),
    }
}

fn basic(headers: &HeaderMap) -> Option<(String, String)> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?.strip_prefix("Basic ")?;
    let text = String::from_utf8(BASE64_STANDARD.decode(value).ok()?).ok()?;
    text.split_once(':').map(|(id, secret)| (id.to_owned(), secret.to_owned()))
}
