//! OAuth2 client credentials: the request for a token, and its answer. The caller sends the
//! request.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use url::Url;

use crate::encode::encode;
use crate::error::{RequestError, RequestErrorKind};
use crate::request::HttpRequest;

/// A token that an operation needs. A token is valid for every operation with the same scheme and
/// scopes.
#[derive(Debug, Clone)]
pub struct TokenRequest {
    pub scheme: String,
    pub token_url: Url,
    pub scopes: Vec<String>,
    pub client_id: String,
    pub client_secret: SecretString,
}

impl TokenRequest {
    pub fn request(&self) -> HttpRequest {
        let client =
            format!("{}:{}", encode(&self.client_id), encode(self.client_secret.expose_secret()));
        let mut body = "grant_type=client_credentials".to_owned();
        if !self.scopes.is_empty() {
            body.push_str(&format!("&scope={}", encode(&self.scopes.join(" "))));
        }
        HttpRequest {
            method: "POST".to_owned(),
            url: self.token_url.clone(),
            headers: vec![
                ("Accept".to_owned(), "application/json".to_owned()),
                ("Authorization".to_owned(), format!("Basic {}", STANDARD.encode(client))),
                ("Content-Type".to_owned(), "application/x-www-form-urlencoded".to_owned()),
            ],
            body: Some(body.into_bytes()),
        }
    }
}

/// The answer of a token server.
#[derive(Debug, Clone)]
pub struct AccessToken {
    pub value: SecretString,
    /// The lifetime in seconds, if the server sent it.
    pub expires_in: Option<u64>,
}

impl AccessToken {
    /// Reads the answer of a token server, for any HTTP status.
    pub fn read(answer: &[u8]) -> Result<Self, RequestError> {
        #[derive(Deserialize)]
        struct Answer {
            access_token: Option<String>,
            token_type: Option<String>,
            expires_in: Option<serde_json::Value>,
            error: Option<String>,
        }
        let wrong =
            |message: String| RequestError::new(RequestErrorKind::MissingToken, "", message);
        let answer: Answer = serde_json::from_slice(answer).map_err(|_| {
            wrong("the token server's response is not a valid token response".to_owned())
        })?;
        if let Some(error) = answer.error {
            return Err(wrong(format!("the token server refused: {}", crate::refs::shown(&error))));
        }
        let token = answer.access_token.filter(|token| !token.is_empty());
        let token = token
            .ok_or_else(|| wrong("the token server's response has no access_token".to_owned()))?;
        if answer.token_type.is_some_and(|kind| !kind.eq_ignore_ascii_case("bearer")) {
            return Err(wrong(
                "the token server returned a token that is not a bearer token".to_owned(),
            ));
        }
        // Some servers write the number as text.
        let seconds = answer.expires_in.and_then(|seconds| {
            seconds.as_u64().or_else(|| seconds.as_str().and_then(|seconds| seconds.parse().ok()))
        });
        Ok(Self { value: SecretString::from(token), expires_in: seconds })
    }
}
