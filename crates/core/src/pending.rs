//! The calls that one connection has been given and has not answered.

use std::sync::{Mutex, PoisonError};

use tokio::sync::oneshot;

use crate::call::{ByCallId, CallId, Update, Updates};
use crate::outcome::{CallError, Outcome};

/// One table for each connection, which is what makes a reply count only from the connection that got the request:
/// any other connection looks the id up in a table of its own, and finds nothing. And only once: an answer takes
/// its entry out.
#[derive(Debug, Default)]
pub struct Pending {
    calls: Mutex<Table>,
}

#[derive(Debug)]
enum Table {
    Open(ByCallId<Entry>),
    /// The connection is gone; this is what a call that comes now is told.
    Closed(CallError),
}

impl Default for Table {
    fn default() -> Self {
        Self::Open(ByCallId::default())
    }
}

#[derive(Debug)]
struct Entry {
    answer: oneshot::Sender<Outcome>,
    updates: Updates,
}

impl Pending {
    /// Enters a call. Fails with the reason that the connection was closed for.
    pub fn open(&self, id: CallId, updates: Updates) -> Result<oneshot::Receiver<Outcome>, CallError> {
        let (answer, waiting) = oneshot::channel();
        self.with(|table| match table {
            Table::Open(calls) => {
                calls.insert(id, Entry { answer, updates });
                Ok(waiting)
            }
            Table::Closed(reason) => Err(reason.clone()),
        })
    }

    /// Whether this connection has been given the call, and has not answered it: for who has to work on an answer first.
    pub fn has(&self, id: CallId) -> bool {
        self.with(|table| matches!(table, Table::Open(calls) if calls.contains_key(&id)))
    }

    /// Gives a call its outcome. `false` when this connection has no such call: never asked, or already answered.
    pub fn complete(&self, id: CallId, outcome: Outcome) -> bool {
        match self.take(id) {
            // The caller may have left in this moment; the answer still was the connection's to give.
            Some(entry) => {
                let _ = entry.answer.send(outcome);
                true
            }
            None => false,
        }
    }

    /// Passes an update on; `false` as in [`Pending::complete`].
    pub fn update(&self, id: CallId, update: Update) -> bool {
        let updates = self.with(|table| match table {
            Table::Open(calls) => calls.get(&id).map(|entry| entry.updates.clone()),
            Table::Closed(_) => None,
        });
        // Sent outside the lock: a surface's queue is not ours to judge.
        updates.is_some_and(|updates| {
            updates.send(update);
            true
        })
    }

    /// Forgets a call that nobody waits for any more; `false` when it was answered already.
    pub fn abandon(&self, id: CallId) -> bool {
        self.take(id).is_some()
    }

    /// Ends every call with this error, and refuses new ones.
    pub fn close(&self, error: &CallError) {
        let refusal = CallError::undelivered(error.message.clone());
        let old = self.with(|table| std::mem::replace(table, Table::Closed(refusal)));
        if let Table::Open(calls) = old {
            // In the order in which they were made.
            let mut calls: Vec<_> = calls.into_iter().collect();
            calls.sort_unstable_by_key(|(id, _)| *id);
            for (_, entry) in calls {
                let _ = entry.answer.send(Err(error.clone()));
            }
        }
    }

    pub fn len(&self) -> usize {
        self.with(|table| match table {
            Table::Open(calls) => calls.len(),
            Table::Closed(_) => 0,
        })
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn take(&self, id: CallId) -> Option<Entry> {
        self.with(|table| match table {
            Table::Open(calls) => calls.remove(&id),
            Table::Closed(_) => None,
        })
    }

    fn with<T>(&self, work: impl FnOnce(&mut Table) -> T) -> T {
        work(&mut self.calls.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
