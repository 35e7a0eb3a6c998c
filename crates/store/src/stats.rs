//! Counters for the operator.

use std::sync::atomic::{AtomicU64, Ordering};

/// The counters since the store was opened, and its current state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Committed transactions.
    pub commits: u64,
    /// Log entries on disk. `entries / commits` is the average number of entries per commit.
    pub entries: u64,
    /// Failed commits, because of a full disk or for other reasons.
    pub failures: u64,
    /// Background entries that could not be written yet and are retried.
    pub retained: u64,
    /// Background entries that were dropped, because they exceeded the limit or were rejected.
    pub lost: u64,
    /// Pages in the write-ahead log.
    pub wal_frames: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub commits: AtomicU64,
    pub entries: AtomicU64,
    pub failures: AtomicU64,
    pub retained: AtomicU64,
    pub lost: AtomicU64,
    pub wal_frames: AtomicU64,
}

impl Counters {
    pub(crate) fn read(&self) -> Stats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            commits: get(&self.commits),
            entries: get(&self.entries),
            failures: get(&self.failures),
            retained: get(&self.retained),
            lost: get(&self.lost),
            wal_frames: get(&self.wal_frames),
        }
    }
}
