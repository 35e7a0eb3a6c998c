//! Providers: whatever is connected and executes tools.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::call::{Call, Updates};
use crate::documents::Documents;
use crate::outcome::Outcome;

/// Something connected that executes tools.
///
/// What it offers is not asked of it: it publishes a catalogue through its [`Registration`] when it attaches to the
/// directory, and again when that changes. (Asking would need one watching task for each of thousands of nodes.)
///
/// [`Registration`]: crate::directory::Registration
pub trait Provider: Send + Sync + 'static {
    /// Runs a call: zero to many updates, then the outcome, which is the return value, so there is exactly one.
    ///
    /// **Dropping the future is the cancel.** The router drops it on cancel, on the deadline and when the caller
    /// leaves, and does not wait: a provider that has a worker to stop does so in its own destructor, where
    /// `call.cancel_reason()` tells why.
    fn call(&self, call: Arc<Call>, updates: Updates) -> BoxFuture<'static, Outcome>;

    /// What it has to read beside its tools. Most have nothing.
    fn documents(&self) -> Option<Arc<dyn Documents>> {
        None
    }
}

/// A provider's address: its kind and its id within that kind. The core compares kinds, it never knows them.
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

/// By whose permission a provider is here. Providers with the same grant may share a prefix and replace each other;
/// a provider with another grant gets no calls for a name that this one holds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Grant {
    pub rank: Rank,
    pub id: Arc<str>,
}

/// How much a grant is worth. A better rank takes a name from a worse one at any time, and never the other way round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rank {
    /// An operator installed the provider, or it is a part of the gateway.
    Installed,
    /// The provider showed a token.
    Token,
    /// The provider was let in without a token.
    None,
}

impl Grant {
    pub fn installed(id: &str) -> Self {
        Self { rank: Rank::Installed, id: id.into() }
    }

    pub fn token(id: &str) -> Self {
        Self { rank: Rank::Token, id: id.into() }
    }

    /// The grant of every provider that was let in without a token.
    pub fn none() -> Self {
        Self { rank: Rank::None, id: "".into() }
    }
}
