//! Background entries that could not be written. They are kept in memory, in order, and retried.
//!
//! Only the operator can fix a full disk, and that may take long. Calls continue meanwhile, and
//! their records must not be lost silently. The records are kept up to a limit. Further records are
//! dropped, counted and logged as errors.

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
    /// Whether entries are being dropped. The first loss has been reported.
    losing: bool,
}

/// The size of one retry, small enough to fit when little disk space is free.
const CHUNK_BYTES: usize = 128 << 10;
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

impl Retained {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            entries: VecDeque::new(),
            bytes: 0,
            limit,
            next: Instant::now(),
            pause: FIRST_PAUSE,
            losing: false,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether it is time for another attempt.
    pub(crate) fn due(&self) -> bool {
        !self.entries.is_empty() && Instant::now() >= self.next
    }

    /// Returns the time until the next attempt.
    pub(crate) fn pause(&self) -> Option<Duration> {
        (!self.entries.is_empty()).then(|| self.next.saturating_duration_since(Instant::now()))
    }

    /// Adds entries after those that are already retained.
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
                        "the store cannot be written, and the memory budget for waiting entries is used up: the \
                         newest entries are being LOST; free space on that file system"
                    );
                }
                continue;
            }
            self.bytes += size(&entry);
            self.entries.push_back(entry);
        }
        self.count(shared);
    }

    /// Takes the oldest entries for an attempt.
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

    /// Puts back the entries of a failed attempt. The next attempt follows after a pause.
    pub(crate) fn put_back(&mut self, chunk: Vec<NewEntry>, shared: &Shared) {
        for entry in chunk.into_iter().rev() {
            self.bytes += size(&entry);
            self.entries.push_front(entry);
        }
        self.next = Instant::now() + self.pause;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        self.count(shared);
    }

    /// Records a successful attempt. The next one follows at once.
    pub(crate) fn succeeded(&mut self, shared: &Shared) {
        self.pause = FIRST_PAUSE;
        self.next = Instant::now();
        if self.entries.is_empty() {
            let lost = shared.counters.lost.load(Relaxed);
            tracing::info!(
                lost,
                "the store can be written again; all entries kept in memory are on disk"
            );
            self.losing = false;
        }
        self.count(shared);
    }

    /// Drops the remaining entries because the store closes.
    pub(crate) fn give_up(&mut self, shared: &Shared) -> Result<(), StoreError> {
        let lost = self.entries.len();
        self.entries.clear();
        self.count(shared);
        if lost == 0 {
            return Ok(());
        }
        shared.counters.lost.fetch_add(lost as u64, Relaxed);
        let message = format!(
            "the store {} was closed with {lost} entries that could not be written, and they are lost; free space on \
             that file system",
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
    // The body, and the approximate overhead of the entry.
    entry.body.len() + 128
}
