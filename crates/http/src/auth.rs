//! Tokens in requests, and checks of roles.

use axum::http::{HeaderMap, header};
use sa_core::Role;
use subtle::ConstantTimeEq as _;

use crate::{Identity, Problem};

/// Finds the identity behind a token.
pub trait Authenticate: Send + Sync + 'static {
    fn authenticate(&self, token: &str) -> Result<Identity, Refused>;
}

/// The stored tokens, for decisions that depend on all tokens of a role.
pub trait StoredTokens: Send + Sync + 'static {
    /// Returns whether an operator ever created a token of this role. Also returns `true` if that
    /// is not known, because a stored token cannot be read.
    fn any(&self, role: Role) -> bool;

    fn list(&self, role: Role) -> Vec<StoredToken>;

    /// Returns whether this time has passed for certain. While the clock is not trusted, no time
    /// counts as passed.
    fn has_expired(&self, expires_ms: Option<i64>) -> bool;
}

/// The state of a stored token.
#[derive(Debug, Clone)]
pub struct StoredToken {
    pub id: String,
    /// Whether it is revoked, or has expired for certain.
    pub is_over: bool,
}

/// Why a token is not valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    Missing,
    Unknown,
    Revoked,
    Expired,
}

impl Refused {
    pub fn message(self) -> &'static str {
        match self {
            Self::Missing => "a token is required",
            Self::Unknown => "the token is unknown",
            Self::Revoked => "the token was revoked",
            Self::Expired => "the token has expired",
        }
    }
}

/// Returns the bearer token in the `Authorization` header.
pub fn bearer(headers: &HeaderMap) -> Result<&str, Refused> {
    let value = headers.get(header::AUTHORIZATION).ok_or(Refused::Missing)?;
    let value = value.to_str().map_err(|_| Refused::Unknown)?;
    let (scheme, token) = value.split_once(' ').ok_or(Refused::Unknown)?;
    if scheme.eq_ignore_ascii_case("bearer") { Ok(token.trim()) } else { Err(Refused::Unknown) }
}

/// Compares two secrets in constant time.
pub fn same_secret(a: &str, b: &str) -> bool {
    let hash = |secret: &str| *blake3::hash(secret.as_bytes()).as_bytes();
    hash(a).ct_eq(&hash(b)).into()
}

pub fn unauthorized(refused: Refused) -> Problem {
    Problem::new(401, "unauthorized", refused.message()).hint(
        "send a token as \"Authorization: Bearer TOKEN\"; the operator token is in the file operator.token in the \
         data directory",
    )
}

/// Returns an error unless the token is an operator's.
pub fn operator_only(identity: &Identity) -> Result<(), Problem> {
    if identity.principal.role == Role::Operator {
        return Ok(());
    }
    let detail =
        format!("only operators may do this; the token's role is {}", identity.principal.role);
    Err(Problem::new(403, "not_allowed", detail)
        .hint("use an operator token; commands read one from --token-file or SWITCHBOARD_TOKEN"))
}
