//! The state that the handlers of all crates share.

use std::ops::Deref;
use std::sync::Arc;

use sa_core::{Journal, Principal, Router, Scope, View};
use sa_limits::budget::SharedBudget;

use crate::Identity;
use crate::auth::Authenticate;

/// What a key in a request adds to the view of its principal, such as the tools of a session.
pub trait SessionScopes: Send + Sync + 'static {
    /// Returns the scope of a session, if the principal may use the session.
    fn scope(&self, principal: &Principal, session: &str) -> Option<Scope>;
}

/// A handle that is cheap to clone.
#[derive(Clone)]
pub struct Http(Arc<Shared>);

/// See [`Http`].
#[expect(missing_debug_implementations, reason = "it is a collection of traits")]
pub struct Shared {
    pub router: Arc<Router>,
    pub journal: Arc<dyn Journal>,
    pub auth: Arc<dyn Authenticate>,
    /// `None` if there are no sessions.
    pub sessions: Option<Arc<dyn SessionScopes>>,
    /// The budget of request bodies.
    pub requests: Arc<SharedBudget>,
    pub max_body_bytes: usize,
    pub max_outbox_bytes: usize,
}

impl Http {
    pub fn new(shared: Shared) -> Self {
        Self(Arc::new(shared))
    }

    /// Counts a refused request.
    pub fn refused(&self, reason: &'static str) {
        self.journal.count("http", reason);
    }

    /// Returns the view of a request: the channels that its token names, and the session if it
    /// names one.
    pub fn view(&self, identity: &Identity, session: Option<&str>) -> View {
        self.in_session(identity.view(), session)
    }

    /// Returns the view with an additional channel. Returns `None` if the token may not call there.
    pub fn view_in(
        &self,
        identity: &Identity,
        session: Option<&str>,
        channel: Option<&str>,
    ) -> Option<View> {
        Some(self.in_session(identity.view_in(channel)?, session))
    }

    fn in_session(&self, mut view: View, session: Option<&str>) -> View {
        if let (Some(sessions), Some(session)) = (&self.sessions, session) {
            view.scopes.extend(sessions.scope(&view.principal, session));
        }
        view
    }
}

impl Deref for Http {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

impl std::fmt::Debug for Http {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Http").finish_non_exhaustive()
    }
}
