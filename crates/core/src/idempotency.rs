//! Calls that carry a key: run once, and answered from the record after that.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::call::CallId;
use crate::json::RawJson;
use crate::outcome::{CallError, Outcome};

/// Whose key it is: two principals, or two tools, never meet under one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyedCall {
    pub principal: Arc<str>,
    /// The name that the tool was called by.
    pub tool: Arc<str>,
    /// What else leads to the same call: which tool it is, whatever it goes by, and what it has in common with those of providers
    /// that stand in for its own. A key is used up under all of them: the same tool by another name is no other call.
    pub leads: Vec<Arc<str>>,
    pub key: Arc<str>,
    /// The same key with other arguments is a mistake, not a retry.
    pub args: RawJson,
}

/// What the ledger knows about a key.
#[derive(Debug)]
pub enum Claim {
    /// Nobody has used it, under this name or for this tool; it is ours now, on disk.
    Ours,
    /// It ran, and this is how it ended.
    Ended { id: CallId, outcome: Outcome },
    /// It was dispatched by a gateway that stopped before it saw the outcome, or could not keep that.
    Unknown { id: CallId },
    /// It was used with other arguments.
    Different { id: CallId },
}

/// Where keys are kept, durably. The embedding program implements it over its store.
pub trait Ledger: Send + Sync + 'static {
    fn claim<'a>(&'a self, call: &'a KeyedCall, id: CallId) -> BoxFuture<'a, Result<Claim, CallError>>;

    /// Records the outcome; when this resolves it is on disk.
    fn settle<'a>(
        &'a self,
        call: &'a KeyedCall,
        id: CallId,
        outcome: &'a Outcome,
    ) -> BoxFuture<'a, Result<(), CallError>>;

    /// The call never reached a provider: the key may be used again.
    fn release<'a>(&'a self, call: &'a KeyedCall, id: CallId) -> BoxFuture<'a, Result<(), CallError>>;
}
