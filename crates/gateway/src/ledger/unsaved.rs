//! Outcomes that could not be stored because the disk was full. Their stored claims still state
//! that the calls are running.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use sa_core::outcome::weight;
use sa_core::{CallId, Outcome};

/// The maximum size of these outcomes in memory.
pub(super) const MAX: usize = 32 << 20;

/// Outcomes of calls, keyed by the storage key of the claim.
#[derive(Default)]
pub(super) struct Unsaved(Mutex<Ends>);

#[derive(Default)]
struct Ends {
    by_place: HashMap<String, End>,
    bytes: usize,
}

#[derive(Clone)]
pub(super) struct End {
    pub(super) id: CallId,
    /// The principal that the outcome is charged to.
    pub(super) principal: Arc<str>,
    /// A digest of the tool's name and the arguments.
    pub(super) fingerprint: String,
    /// `None` if the call did not reach the provider, which frees its key.
    pub(super) outcome: Option<Outcome>,
}

impl Unsaved {
    pub(super) fn places(&self) -> Vec<String> {
        self.ends().by_place.keys().cloned().collect()
    }

    pub(super) fn get(&self, place: &str) -> Option<End> {
        self.ends().by_place.get(place).cloned()
    }

    /// Stores an outcome and replaces the earlier one with the same key. Returns `false` if the
    /// limit is reached.
    pub(super) fn remember(&self, place: String, end: End) -> bool {
        self.forget(&place);
        let mut ends = self.ends();
        let room = ends.bytes + end.weight() <= MAX;
        if room {
            ends.bytes += end.weight();
            ends.by_place.insert(place, end);
        }
        room
    }

    pub(super) fn forget(&self, place: &str) {
        let mut ends = self.ends();
        ends.bytes -= ends.by_place.remove(place).map_or(0, |end| end.weight());
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.ends().bytes
    }

    fn ends(&self) -> MutexGuard<'_, Ends> {
        self.0.lock()
    }
}

impl End {
    fn weight(&self) -> usize {
        size_of::<Self>() + self.outcome.as_ref().map_or(0, weight)
    }
}
