//! The HTTP handlers of the authority.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Query, Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Redirect, Response};
use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use parking_lot::Mutex;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::{Asked, Book, Client, Words, book};

type Shared = State<Arc<Mutex<Book>>>;

pub(super) async fn guard(State(state): Shared, request: Request, next: Next) -> Response {
    let refusal = {
        let mut book = book(&state);
        let token =
            request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let allows =
            token.and_then(|token| book.access.get(token.strip_prefix("Bearer ")?)).cloned();
        let metadata =
            format!("resource_metadata=\"{}/.well-known/oauth-protected-resource/mcp\"", book.url);
        let scope = book.behaviour.scope.clone();
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
    let challenges = book(&state).behaviour.challenges;
    match refusal {
        None => next.run(request).await,
        Some((status, _)) if !challenges => status.into_response(),
        Some((status, challenge)) => {
            (status, [(header::WWW_AUTHENTICATE, challenge)]).into_response()
        }
    }
}

pub(super) async fn of_resource(State(state): Shared) -> Response {
    let book = book(&state);
    if book.behaviour.mute {
        return StatusCode::NOT_FOUND.into_response();
    }
    let authority = book.behaviour.authority.as_ref().unwrap_or(&book.url);
    Json(json!({ "resource": format!("{}/mcp", book.url), "authorization_servers": [authority] }))
        .into_response()
}

pub(super) async fn of_authority(State(state): Shared) -> Response {
    let book = book(&state);
    if book.behaviour.mute {
        return StatusCode::NOT_FOUND.into_response();
    }
    let url = &book.url;
    let registration =
        book.behaviour.registration.clone().unwrap_or_else(|| format!("{url}/register"));
    Json(json!({
        "issuer": url, "authorization_endpoint": format!("{url}/authorize"), "token_endpoint": format!("{url}/token"),
        "registration_endpoint": registration, "response_types_supported": ["code"],
        "grant_types_supported": ["authorization_code", "refresh_token"],
        "code_challenge_methods_supported": ["S256"],
        "token_endpoint_auth_methods_supported": book.behaviour.methods,
        "authorization_response_iss_parameter_supported": book.behaviour.names_itself,
        "client_id_metadata_document_supported": book.documents.is_some(),
    }))
    .into_response()
}

pub(super) async fn register(State(state): Shared, Json(asked): Json<Value>) -> Response {
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

/// Grants every authorization request without asking a user.
pub(super) async fn authorize(State(state): Shared, Query(mut asked): Query<Words>) -> Response {
    if let Some(id) = asked.get("client_id") {
        read_document(&state, id).await;
    }
    let mut book = book(&state);
    book.asked.entry("/authorize").or_default().push(Asked { words: asked.clone(), basic: None });
    let word = |name: &str| asked.get(name).map(String::as_str).unwrap_or_default();
    let redirect = word("redirect_uri").to_owned();
    let known = book
        .clients
        .get(word("client_id"))
        .is_some_and(|client| client.redirect_uris.contains(&redirect));
    let proper = word("response_type") == "code"
        && word("code_challenge_method") == "S256"
        && word("state").len() >= 16
        && word("resource") == book.resource();
    if !known || !proper {
        return (StatusCode::BAD_REQUEST, format!("no login for {asked:?}")).into_response();
    }
    let mut back = url::Url::parse(&redirect).unwrap();
    back.query_pairs_mut().append_pair("state", word("state"));
    let issuer = book.behaviour.issuer.clone().unwrap_or_else(|| book.url.clone());
    back.query_pairs_mut().append_pair("iss", &issuer);
    if let Some(refusal) = &book.behaviour.refuses {
        back.query_pairs_mut()
            .append_pair("error", "access_denied")
            .append_pair("error_description", refusal);
    } else {
        asked.entry("scope".into()).or_default();
        let code = book.word("code");
        book.codes.insert(code.clone(), asked);
        back.query_pairs_mut().append_pair("code", &code);
    }
    Redirect::to(back.as_str()).into_response()
}

pub(super) async fn token(State(state): Shared, headers: HeaderMap, form: String) -> Response {
    let asked: Words = url::form_urlencoded::parse(form.as_bytes()).into_owned().collect();
    let mut book = book(&state);
    let refuse =
        |error: &str| (StatusCode::BAD_REQUEST, Json(json!({ "error": error }))).into_response();
    let word = |name: &str| asked.get(name).cloned().unwrap_or_default();
    let basic = basic(&headers);
    book.asked
        .entry("/token")
        .or_default()
        .push(Asked { words: asked.clone(), basic: basic.clone() });
    if book.behaviour.broken {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    }
    let method = if basic.is_some() { "client_secret_basic" } else { "client_secret_post" };
    let (id, secret) = basic.unwrap_or_else(|| (word("client_id"), word("client_secret")));
    if !secret.is_empty() && !book.behaviour.methods.contains(&method) {
        return refuse("invalid_client");
    }
    if book.clients.get(&id).is_none_or(|client| client.secret != secret) {
        return refuse("invalid_client");
    }
    if word("resource") != book.resource() {
        return refuse("invalid_target");
    }
    match &*word("grant_type") {
        "authorization_code" => {
            let Some(grant) = book.codes.remove(&word("code")) else {
                return refuse("invalid_grant");
            };
            let challenge = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(word("code_verifier")));
            let same =
                |name: &str, value: &str| grant.get(name).is_some_and(|known| known == value);
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
    // Id and secret are each form-encoded, so that they can contain a colon.
    let decoded = |text: &str| {
        url::form_urlencoded::parse(text.as_bytes()).next().map(|(text, _)| text.into_owned())
    };
    text.split_once(':').and_then(|(id, secret)| Some((decoded(id)?, decoded(secret)?)))
}

/// Delays a response while its path is held.
pub(super) async fn hold(State(state): Shared, request: Request, next: Next) -> Response {
    let path = request.uri().path().to_owned();
    let response = next.run(request).await;
    let held = book(&state).held.get(&*path).cloned();
    if let Some((reached, mut held)) = held {
        reached.send_modify(|count| *count += 1);
        let _ = held.changed().await;
    }
    response
}

/// Registers a client from the metadata document at the URL that is its id.
async fn read_document(state: &Arc<Mutex<Book>>, id: &str) {
    let http = book(state).documents.clone().filter(|_| id.starts_with("https://"));
    let Some(http) = http else { return };
    let document: Value = http.get(id).send().await.unwrap().json().await.unwrap();
    // The document must name this client; otherwise one client could impersonate another.
    assert_eq!(document["client_id"], id);
    assert_eq!(document["token_endpoint_auth_method"], "none");
    let uris = document["redirect_uris"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let client = Client { secret: String::new(), redirect_uris: uris.map(str::to_owned).collect() };
    book(state).clients.insert(id.to_owned(), client);
}
