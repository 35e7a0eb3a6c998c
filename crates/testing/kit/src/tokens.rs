//! Tokens in memory, and the routes that create and revoke them.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{FromRef, Path, State};
use axum::http::StatusCode;
use axum::routing::{delete, post};
use axum::{Json, Router};
use parking_lot::Mutex;
use sa_core::call::CancelReason;
use sa_core::{Grant, Pattern, Principal, Role, clock};
use sa_http::{Authenticate, ChannelGrant, Identity, Refused, StoredToken, StoredTokens};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;
use uuid::fmt::Simple;

/// The name of the first token.
const OPERATOR: &str = "operator";

/// The tokens of a gateway, by their secret.
#[derive(Debug, Default)]
pub struct MemoryTokens(Mutex<BTreeMap<String, Identity>>);

/// The properties of a new token, as in the API.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewToken {
    name: String,
    role: String,
    #[serde(default)]
    tools: Vec<String>,
    #[serde(default)]
    channels: Vec<String>,
    #[serde(default)]
    models: Vec<String>,
    #[serde(default)]
    channel_rights: Vec<String>,
    node_id: Option<String>,
    expires_in_s: Option<u64>,
}

fn random() -> Simple {
    Uuid::new_v4().simple()
}

impl MemoryTokens {
    /// Returns the operator's token. It stays the same when a gateway starts again.
    pub(crate) fn operator(&self) -> String {
        let known = self.0.lock().iter().find_map(|(secret, identity)| {
            let Principal { name, role, .. } = &*identity.principal;
            (&**name == OPERATOR && *role == Role::Operator).then(|| secret.clone())
        });
        known.unwrap_or_else(|| {
            let new = json!({ "name": OPERATOR, "role": "operator" });
            self.create(serde_json::from_value(new).unwrap()).1
        })
    }

    /// Creates a token and returns its id and its secret.
    fn create(&self, new: NewToken) -> (String, String) {
        let (id, secret) = (format!("tok_{}", random()), format!("sb_{}", random()));
        let role = Role::ALL.into_iter().find(|role| role.as_str() == new.role).expect("a role");
        let patterns = |names: &[String]| names.iter().map(|name| Pattern::new(name)).collect();
        let principal = Principal {
            tools: patterns(&new.tools),
            channels: patterns(&new.channels),
            models: patterns(&new.models),
            ..Principal::new(id.as_str(), new.name, role)
        };
        let life_ms = new.expires_in_s.map(|seconds| (seconds * 1_000).cast_signed());
        let identity = Identity {
            principal: Arc::new(principal),
            revoked: CancellationToken::new(),
            expires_ms: life_ms.map(|life_ms| clock::now_ms() + life_ms),
            node_id: new.node_id.map(Into::into),
            channels: Arc::new(ChannelGrant {
                channels: new.channels,
                channel_rights: new.channel_rights,
            }),
        };
        self.0.lock().insert(secret.clone(), identity);
        (id, secret)
    }

    /// Returns whether there was such a token.
    fn revoke(&self, id: &str) -> bool {
        let tokens = self.0.lock();
        let found = tokens.values().find(|identity| &*identity.principal.id == id);
        found.inspect(|identity| identity.revoked.cancel()).is_some()
    }
}

impl Authenticate for MemoryTokens {
    fn authenticate(&self, token: &str) -> Result<Identity, Refused> {
        if token.is_empty() {
            return Err(Refused::Missing);
        }
        let identity = self.0.lock().get(token).cloned().ok_or(Refused::Unknown)?;
        if identity.revoked.is_cancelled() {
            return Err(Refused::Revoked);
        }
        if self.has_expired(identity.expires_ms) {
            return Err(Refused::Expired);
        }
        Ok(identity)
    }
}

impl StoredTokens for MemoryTokens {
    fn any(&self, role: Role) -> bool {
        self.0.lock().values().any(|identity| identity.principal.role == role)
    }

    fn list(&self, role: Role) -> Vec<StoredToken> {
        let tokens = self.0.lock();
        let tokens = tokens.values().filter(|identity| identity.principal.role == role);
        let stored = tokens.map(|identity| StoredToken {
            id: identity.principal.id.to_string(),
            is_over: identity.revoked.is_cancelled() || self.has_expired(identity.expires_ms),
        });
        stored.collect()
    }

    fn has_expired(&self, expires_ms: Option<i64>) -> bool {
        expires_ms.is_some_and(|at| at <= clock::now_ms())
    }
}

/// The state of the token routes.
#[derive(Clone, FromRef)]
struct Shared {
    tokens: Arc<MemoryTokens>,
    router: Arc<sa_core::Router>,
}

/// Returns the part of the token routes that tests use.
pub(crate) fn routes(tokens: Arc<MemoryTokens>, router: Arc<sa_core::Router>) -> Router {
    Router::new()
        .route("/v1/tokens", post(create))
        .route("/v1/tokens/{id}", delete(revoke))
        .with_state(Shared { tokens, router })
}

async fn create(
    State(tokens): State<Arc<MemoryTokens>>,
    Json(new): Json<NewToken>,
) -> (StatusCode, Json<Value>) {
    let (id, secret) = tokens.create(new);
    (StatusCode::CREATED, Json(json!({ "id": id, "token": secret })))
}

/// Ends the calls of the token, and frees the names of its node.
async fn revoke(
    State(Shared { tokens, router }): State<Shared>,
    Path(id): Path<String>,
) -> StatusCode {
    if !tokens.revoke(&id) {
        return StatusCode::NOT_FOUND;
    }
    router.cancel_all(CancelReason::Revoked, |call| *call.principal.id == *id);
    router.directory().forget_grant(&Grant::stored_token(&id));
    StatusCode::OK
}
