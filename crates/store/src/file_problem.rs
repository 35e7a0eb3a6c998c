//! Problems with the file since the store was opened. Each problem is logged once, and the last
//! one is kept for status requests.

use std::collections::HashSet;

use parking_lot::Mutex;
use sa_core::clock::now_ms;
use sa_core::store::{StoreError, StoreErrorKind};

/// The last problem with the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileProblem {
    pub at_ms: i64,
    /// The problem, the file, and the remedy.
    pub message: String,
}

/// The maximum number of different problems that are logged.
///
/// A failing disk would otherwise flood the log.
const PLACES: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct FileProblems {
    found: Mutex<Found>,
}

#[derive(Debug, Default)]
struct Found {
    told: HashSet<String>,
    last: Option<FileProblem>,
}

impl FileProblems {
    /// Records an error that a reader or writer received.
    ///
    /// The writer reports a full disk itself, because it knows when that ends. Other errors concern
    /// the request and not the file.
    pub(crate) fn note(&self, error: &StoreError) {
        if !matches!(error.kind, StoreErrorKind::Damaged | StoreErrorKind::Io) {
            return;
        }
        let mut found = self.found.lock();
        found.last = Some(FileProblem { at_ms: now_ms(), message: error.message.clone() });
        if found.told.len() < PLACES && found.told.insert(error.message.clone()) {
            let last =
                if found.told.len() == PLACES { "; further errors are not logged" } else { "" };
            tracing::error!(%error, "the store's file has an error{last}");
        }
    }

    pub(crate) fn last(&self) -> Option<FileProblem> {
        self.found.lock().last.clone()
    }
}
