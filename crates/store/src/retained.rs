//! Entries that nobody waits for and that could not be written: kept in memory, in order, and tried again.
//!
//! A full disk is the operator's to solve, and takes as long as it takes. Meanwhile calls go on, and the record
//! of them must not be lost in silence: it is kept up to a bound, and what exceeds the bound is counted and
//! reported loudly.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use sa_core::store::{NewEntry, StoreError, StoreErrorKind};

use crate::Shared;

pub(crate) struct Retained {
    entries: VecDeque<NewEntry>,
    bytes: usize,
    limit: usize,
    next: Instant,
    pause: Duration,
    /// Entries are being lost: the first loss has been reported.
    losing: bool,
}

/// So much is tried at once, little enough to fit into little room.
const CHUNK_BYTES: usize = 128 << 10;
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

impl Retained {
    pub(crate) fn new(limit: usize) -> Self {
        Self { entries: VecDeque::new(), bytes: 0, limit, next: Instant::now(), pause: FIRST_PAUSE, losing: false }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// It is time for another attempt.
    pub(crate) fn due(&self) -> bool {
        !self.entries.is_empty() && Instant::now() >= self.next
    }

    /// How long until the next attempt.
    pub(crate) fn pause(&self) -> Option<Duration> {
        (!self.entries.is_empty()).then(|| self.next.saturating_duration_since(Instant::now()))
    }

    /// Keeps entries, behind those that are kept already.
    pub(crate) fn add(&mut self, entries: Vec<NewEntry>, shared: &Shared) {
        if self.entries.is_empty() && !entries.is_empty() {
            self.pause = FIRST_PAUSE;
            self.next = Instant::now() + self.pause;
        }
        for entry in entries {
            if self.bytes + size(&entry) > self.limit {
                shared.counters.lost.fetch_add(1, Relaxed);
                if !std::mem::replace(&mut self.losing, true) {
                    tracing::error!(
                        path = %shared.options.path.display(), kept = self.entries.len(), bytes = self.bytes,
                        "the store cannot be written and more entries wait than may be kept in memory: the \
                         newest ones are being LOST; make room on that file system"
                    );
                }
                continue;
            }
            self.bytes += size(&entry);
            self.entries.push_back(entry);
        }
        self.count(shared);
    }

    /// The oldest ones, to be tried.
    pub(crate) fn take_chunk(&mut self) -> Vec<NewEntry> {
        let (mut chunk, mut bytes) = (Vec::new(), 0);
        while bytes < CHUNK_BYTES
            && let Some(entry) = self.entries.pop_front()
        {
            bytes += size(&entry);
            chunk.push(entry);
        }
        self.bytes -= bytes;
        chunk
    }

    /// The attempt failed: the next one comes later.
    pub(crate) fn put_back(&mut self, chunk: Vec<NewEntry>, shared: &Shared) {
        for entry in chunk.into_iter().rev() {
            self.bytes += size(&entry);
            self.entries.push_front(entry);
        }
        self.next = Instant::now() + self.pause;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        self.count(shared);
    }

    /// The attempt succeeded: the next one comes at once.
    pub(crate) fn succeeded(&mut self, shared: &Shared) {
        self.pause = FIRST_PAUSE;
        self.next = Instant::now();
        if self.entries.is_empty() {
            let lost = shared.counters.lost.load(Relaxed);
            tracing::info!(lost, "the store can be written again; all entries kept in memory are on disk");
            self.losing = false;
        }
        self.count(shared);
    }

    /// The store closes: what is left is lost.
    pub(crate) fn give_up(&mut self, shared: &Shared) -> Result<(), StoreError> {
        let lost = self.entries.len();
        self.entries.clear();
        self.count(shared);
        if lost == 0 {
            return Ok(());
        }
        shared.counters.lost.fetch_add(lost as u64, Relaxed);
        let message = format!(
            "the store {} was closed with {lost} entries that could not be written, and they are lost; make \
             room on that file system",
            shared.options.path.display()
        );
        tracing::error!("{message}");
        Err(StoreError { kind: StoreErrorKind::Full, message })
    }

    fn count(&self, shared: &Shared) {
        shared.counters.retained.store(self.entries.len() as u64, Relaxed);
    }
}

fn size(entry: &NewEntry) -> usize {
    // The body, and about what the entry costs besides.
    entry.body.len() + 128
}
