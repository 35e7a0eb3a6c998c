//! Counters for the operator.

use std::sync::atomic::{AtomicU64, Ordering};

/// What the store has done since it was opened, and how it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Transactions on disk.
    pub commits: u64,
    /// Log entries on disk; `entries / commits` tells how well commits are shared.
    pub entries: u64,
    /// Attempts to commit that failed, for want of room or otherwise.
    pub failures: u64,
    /// Entries that nobody waits for and that could not be written yet; they are tried again.
    pub retained: u64,
    /// Entries that nobody waits for and that were given up: more than may be retained, or refused for good.
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
