//! What was wrong with the file since it was opened: in the log once for each place, and kept for whoever asks.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use sa_core::clock::now_ms;
use sa_core::store::{StoreError, StoreErrorKind};

/// The last thing that was wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    pub at_ms: i64,
    /// What happened, to which file, and what to do.
    pub message: String,
}

/// So many places are told of. A disk that falls to pieces would fill the log with them otherwise.
const PLACES: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct Troubles {
    found: Mutex<Found>,
}

#[derive(Debug, Default)]
struct Found {
    told: HashSet<String>,
    last: Option<Trouble>,
}

impl Troubles {
    /// Notes what somebody who reads or writes was told. A full disk is the writer's to tell of, which knows when it ends, and
    /// other refusals are about what was asked for.
    pub(crate) fn note(&self, error: &StoreError) {
        if !matches!(error.kind, StoreErrorKind::Damaged | StoreErrorKind::Io) {
            return;
        }
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.last = Some(Trouble { at_ms: now_ms(), message: error.message.clone() });
        if found.told.len() < PLACES && found.told.insert(error.message.clone()) {
            let last = if found.told.len() == PLACES { "; other places are not told of any more" } else { "" };
            tracing::error!(%error, "the store's file is not as it should be{last}");
        }
    }

    pub(crate) fn last(&self) -> Option<Trouble> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner).last.clone()
    }
}
