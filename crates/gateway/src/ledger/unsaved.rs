//! How calls ended for which there was no room on disk. Their claims are there, and say that they never ended.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use sa_core::outcome::weight;
use sa_core::{CallId, Outcome};

/// How much of them is kept in memory.
pub(super) const MAX: usize = 32 << 20;

/// Ends of calls, by the places of their claims.
#[derive(Default)]
pub(super) struct Unkept(Mutex<Ends>);

#[derive(Default)]
struct Ends {
    by_place: HashMap<String, End>,
    bytes: usize,
}

#[derive(Clone)]
pub(super) struct End {
    pub(super) id: CallId,
    /// A digest of the arguments.
    pub(super) args: String,
    /// Absent where it reached nobody, which leaves its key free.
    pub(super) outcome: Option<Outcome>,
    /// What the tool itself leads to the claim by.
    pub(super) leads: Vec<String>,
}

impl Unkept {
    pub(super) fn places(&self) -> Vec<String> {
        self.ends().by_place.keys().cloned().collect()
    }

    pub(super) fn get(&self, place: &str) -> Option<End> {
        self.ends().by_place.get(place).cloned()
    }

    /// In place of what was remembered there before; whether there was room for it.
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
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl End {
    fn weight(&self) -> usize {
        size_of::<Self>() + self.outcome.as_ref().map_or(0, weight)
    }
}
