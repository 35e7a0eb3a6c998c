//! Providers: connected components that execute tools.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::call::{Call, Updates};
use crate::documents::Documents;
use crate::outcome::Outcome;

/// A connected component that executes tools.
///
/// A provider is not polled for its tools. It publishes a catalog through its [`Registration`] when
/// it attaches to the directory, and again after each change. (Polling would need one task for each
/// of thousands of nodes.)
///
/// [`Registration`]: crate::directory::Registration
pub trait Provider: Send + Sync + 'static {
    /// Runs a call. It sends any number of updates, and then returns the outcome, so there is
    /// exactly one.
    ///
    /// **Dropping the future cancels the call.** The router drops it on cancellation, at the
    /// deadline and when the caller disconnects, and does not wait. A provider that has a worker to
    /// stop does so in its own destructor. There, `call.cancel_reason()` returns the reason.
    fn call(&self, call: Arc<Call>, updates: Updates) -> BoxFuture<'static, Outcome>;

    /// A name for messages, where the id says nothing to people.
    fn name(&self) -> Option<String> {
        None
    }

    /// What it has to read beside its tools. Most have nothing.
    fn documents(&self) -> Option<Arc<dyn Documents>> {
        None
    }
}

/// A provider's address: its kind and its id within that kind. The core only compares kinds, and
/// knows none of them.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProviderId {
    pub kind: &'static str,
    pub id: Arc<str>,
}

impl ProviderId {
    pub fn new(kind: &'static str, id: &str) -> Self {
        Self { kind, id: id.into() }
    }
}

impl fmt::Display for ProviderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} \"{}\"", self.kind, self.id)
    }
}

impl fmt::Debug for ProviderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind, self.id)
    }
}

/// The permission under which a provider is attached. Providers with the same grant may share a
/// prefix and replace each other. A provider with another grant receives no calls for a name that
/// this one holds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Grant {
    pub rank: Rank,
    pub id: Arc<str>,
}

/// The precedence of a grant. A better rank takes a name from a worse one at any time, and never
/// the other way round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rank {
    /// An operator installed the provider, or it is a part of the gateway.
    Installed,
    /// The provider presented a token.
    Token,
    /// The provider was accepted without a token.
    None,
}

impl Grant {
    pub fn installed(id: &str) -> Self {
        Self { rank: Rank::Installed, id: id.into() }
    }

    pub fn token(id: &str) -> Self {
        Self { rank: Rank::Token, id: id.into() }
    }

    /// Returns the grant of a provider that presented a token from the store.
    pub fn stored_token(id: &str) -> Self {
        Self::token(&format!("token:{id}"))
    }

    /// Returns the grant of every provider without a token.
    pub fn none() -> Self {
        Self { rank: Rank::None, id: "".into() }
    }
}
