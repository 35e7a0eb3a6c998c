//! A ledger of idempotency keys in memory.

use std::collections::HashMap;
use std::future::ready;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use sa_core::idempotency::{Claim, KeyedCall, Ledger};
use sa_core::{CallError, CallId, Outcome};

/// The keys of each principal, with their first calls.
#[derive(Default)]
pub(crate) struct MemoryLedger(Mutex<HashMap<Key, First>>);

/// A principal and its key.
type Key = (Arc<str>, Arc<str>);

struct First {
    id: CallId,
    call: KeyedCall,
    outcome: Option<Outcome>,
}

fn key(call: &KeyedCall) -> Key {
    (Arc::clone(&call.principal), Arc::clone(&call.key))
}

impl Ledger for MemoryLedger {
    fn claim<'a>(
        &'a self,
        call: &'a KeyedCall,
        id: CallId,
    ) -> BoxFuture<'a, Result<Claim, CallError>> {
        let mut keys = self.0.lock();
        let claim = match keys.get(&key(call)) {
            None => {
                keys.insert(key(call), First { id, call: call.clone(), outcome: None });
                Claim::Ours
            }
            Some(First { id, call: first, .. }) if first != call => Claim::Different { id: *id },
            Some(First { id, outcome: Some(outcome), .. }) => {
                Claim::Ended { id: *id, outcome: outcome.clone() }
            }
            Some(First { id, .. }) => Claim::Unknown { id: *id },
        };
        Box::pin(ready(Ok(claim)))
    }

    fn settle<'a>(
        &'a self,
        call: &'a KeyedCall,
        _: CallId,
        outcome: &'a Outcome,
    ) -> BoxFuture<'a, Result<(), CallError>> {
        if let Some(first) = self.0.lock().get_mut(&key(call)) {
            first.outcome = Some(outcome.clone());
        }
        Box::pin(ready(Ok(())))
    }

    fn release<'a>(
        &'a self,
        call: &'a KeyedCall,
        _: CallId,
    ) -> BoxFuture<'a, Result<(), CallError>> {
        self.0.lock().remove(&key(call));
        Box::pin(ready(Ok(())))
    }
}
