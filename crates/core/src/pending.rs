//! The unanswered calls of one connection.

use parking_lot::Mutex;

use tokio::sync::oneshot;

use crate::call::{ByCallId, CallId, Update, Updates};
use crate::outcome::{CallError, Outcome};

/// A table of calls for one connection. A reply only counts from the connection that received the
/// request: any other connection looks the id up in its own table, and finds nothing. A reply also
/// counts only once, because it removes the entry.
#[derive(Debug, Default)]
pub struct Pending {
    calls: Mutex<Table>,
}

#[derive(Debug)]
enum Table {
    Open(ByCallId<Entry>),
    /// The connection is closed; new calls fail with this error.
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
    /// Adds a call. Returns the error of the closed connection if it is closed.
    pub fn open(
        &self,
        id: CallId,
        updates: Updates,
    ) -> Result<oneshot::Receiver<Outcome>, CallError> {
        let (answer, waiting) = oneshot::channel();
        self.with(|table| match table {
            Table::Open(calls) => {
                calls.insert(id, Entry { answer, updates });
                Ok(waiting)
            }
            Table::Closed(reason) => Err(reason.clone()),
        })
    }

    /// Returns whether this connection has the call and has not answered it. For callers that must
    /// process an answer first.
    pub fn has(&self, id: CallId) -> bool {
        self.with(|table| matches!(table, Table::Open(calls) if calls.contains_key(&id)))
    }

    /// Completes a call with its outcome. Returns `false` if this connection does not have the
    /// call, or has already answered it.
    pub fn complete(&self, id: CallId, outcome: Outcome) -> bool {
        match self.take(id) {
            // The caller may disconnect at the same moment. The answer still came from the right
            // connection.
            Some(entry) => {
                let _ = entry.answer.send(outcome);
                true
            }
            None => false,
        }
    }

    /// Sends an update of a call. Returns `false` as in [`Pending::complete`].
    pub fn update(&self, id: CallId, update: Update) -> bool {
        let updates = self.with(|table| match table {
            Table::Open(calls) => calls.get(&id).map(|entry| entry.updates.clone()),
            Table::Closed(_) => None,
        });
        // Sent outside of the lock, because a surface's queue may be slow.
        updates.is_some_and(|updates| {
            updates.send(update);
            true
        })
    }

    /// Removes a call without a waiting caller. Returns `false` if it was already answered.
    pub fn abandon(&self, id: CallId) -> bool {
        self.take(id).is_some()
    }

    /// Ends every call with this error, and refuses new ones.
    pub fn close(&self, error: &CallError) {
        let refusal = CallError::undelivered(error.message.clone());
        let old = self.with(|table| std::mem::replace(table, Table::Closed(refusal)));
        if let Table::Open(calls) = old {
            // In the order in which the calls were made.
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
        work(&mut self.calls.lock())
    }
}
