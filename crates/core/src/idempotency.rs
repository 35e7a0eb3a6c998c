//! Calls with an idempotency key: they run once, and retries return the recorded outcome.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::call::CallId;
use crate::outcome::{CallError, Outcome};
use sa_text::json::RawJson;

/// A key and the request that it was sent with. Keys of different principals never collide.
///
/// The key is looked up before the tool's name is resolved. A retry therefore gets the first call's
/// outcome, whichever provider the name leads to meanwhile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyedCall {
    pub principal: Arc<str>,
    pub key: Arc<str>,
    /// The name that the tool was called by, in lowercase. The same key with another name or other
    /// arguments is a mistake, not a retry.
    pub tool: Arc<str>,
    pub args: RawJson,
}

/// The state of a key in the ledger.
#[derive(Debug)]
pub enum Claim {
    /// The key was unused. It is now claimed by this call, on disk.
    Ours,
    /// The call has run and ended with this outcome.
    Ended { id: CallId, outcome: Outcome },
    /// A gateway dispatched the call, but stopped before it saw the outcome, or could not store it.
    Unknown { id: CallId },
    /// The key was used with another tool or other arguments.
    Different { id: CallId },
}

/// A durable store for keys. The embedding program implements it with its database.
pub trait Ledger: Send + Sync + 'static {
    fn claim<'a>(
        &'a self,
        call: &'a KeyedCall,
        id: CallId,
    ) -> BoxFuture<'a, Result<Claim, CallError>>;

    /// Records the outcome. When the future resolves, the outcome is on disk.
    fn settle<'a>(
        &'a self,
        call: &'a KeyedCall,
        id: CallId,
        outcome: &'a Outcome,
    ) -> BoxFuture<'a, Result<(), CallError>>;

    /// Releases the key, because the call never reached a provider. The key may be used again.
    fn release<'a>(
        &'a self,
        call: &'a KeyedCall,
        id: CallId,
    ) -> BoxFuture<'a, Result<(), CallError>>;
}
