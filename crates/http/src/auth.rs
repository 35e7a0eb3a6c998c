//! Tokens in requests, and checks of roles.

use axum::http::{HeaderMap, header};
use sa_core::Role;

use crate::{Identity, Problem};

/// Finds the identity behind a token.
pub trait Authenticate: Send + Sync + 'static {
    fn authenticate(&self, token: &str) -> Result<Identity, Refused>;
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
