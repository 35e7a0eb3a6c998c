//! The caller of a request, as determined by the auth middleware.

use std::sync::Arc;

use axum::http::request::Parts;
use rmcp::model::Extensions;
use rmcp::{ErrorData, RoleServer};
use sa_core::{Principal, Scope, View};
use tokio_util::sync::CancellationToken;

/// The caller, and the tools that it wants to see. The auth middleware puts it into the extensions
/// of every request.
#[derive(Debug, Clone)]
pub struct Caller {
    pub principal: Arc<Principal>,
    /// Fires when the token is revoked.
    pub revoked: CancellationToken,
    /// The session or channel of the request. The principal's membership has already been checked.
    pub scopes: Vec<Scope>,
    /// Whether the list contains a search instead of the tools; `None` uses the configured default.
    pub search: Option<bool>,
}

impl Caller {
    pub fn new(principal: Arc<Principal>, revoked: CancellationToken) -> Self {
        Self { principal, revoked, scopes: Vec::new(), search: None }
    }

    pub(crate) fn view(&self) -> View {
        View { principal: Arc::clone(&self.principal), scopes: self.scopes.clone() }
    }

    pub(crate) fn find(extensions: &Extensions) -> Option<&Self> {
        extensions.get::<Parts>().and_then(|parts| parts.extensions.get::<Self>())
    }

    /// Returns the caller of a request. Its token may have been revoked while the body was
    /// received.
    pub(crate) fn of(
        context: &rmcp::service::RequestContext<RoleServer>,
    ) -> Result<&Self, ErrorData> {
        let caller = Self::find(&context.extensions)
            .ok_or_else(|| ErrorData::internal_error("the request has no caller", None))?;
        if caller.revoked.is_cancelled() {
            return Err(ErrorData::invalid_request("the token was revoked", None));
        }
        Ok(caller)
    }
}
