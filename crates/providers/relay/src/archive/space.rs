//! The stream of one session, and the size of its events.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use sa_limits::budget::{Holder, Permit, STEP};

/// The size that each session may use even if the budget is exhausted.
const MIN_BYTES: u64 = 4 * STEP as u64;

/// The numbers of all streams.
#[derive(Debug, Default)]
pub(super) struct Streams(Mutex<Numbers>);

#[derive(Debug, Default)]
struct Numbers {
    free: BTreeSet<u32>,
    /// The first number that was never used.
    next: u32,
}

impl Streams {
    fn take(&self) -> u32 {
        let mut numbers = self.0.lock();
        numbers.free.pop_first().unwrap_or_else(|| {
            numbers.next += 1;
            numbers.next - 1
        })
    }

    fn reserve_number(&self, number: u32) {
        let mut numbers = self.0.lock();
        let unused = numbers.next..number;
        numbers.free.extend(unused);
        numbers.free.remove(&number);
        numbers.next = numbers.next.max(number + 1);
    }
}

/// The stream belongs to the session until this is dropped.
#[derive(Debug)]
pub(crate) struct Space {
    pub(crate) stream: Arc<str>,
    pub(crate) number: u32,
    streams: Arc<Streams>,
    used: Mutex<Used>,
}

#[derive(Debug)]
struct Used {
    /// The maximum size of the stored events. Events that were deleted by number or age may still
    /// count.
    bytes: u64,
    permit: Permit,
}

impl Space {
    pub(super) fn new(streams: &Arc<Streams>, permit: Permit) -> Arc<Self> {
        Self::with(streams, streams.take(), permit)
    }

    /// Creates the space of a stored session.
    pub(super) fn stored(streams: &Arc<Streams>, number: u32, permit: Permit) -> Arc<Self> {
        streams.reserve_number(number);
        Self::with(streams, number, permit)
    }

    fn with(streams: &Arc<Streams>, number: u32, permit: Permit) -> Arc<Self> {
        let used = Mutex::new(Used { bytes: 0, permit });
        let stream = stream_name(number);
        Arc::new(Self { stream, number, streams: Arc::clone(streams), used })
    }

    pub(crate) fn owner(&self) -> Holder {
        self.used().permit.holder().clone()
    }

    /// Returns the size that counts in the budget.
    pub(super) fn charged(&self) -> usize {
        self.used().permit.amount()
    }

    /// Returns the size of the stored events.
    pub(crate) fn bytes(&self) -> u64 {
        self.used().bytes
    }

    /// Counts a new event, even if the budget refuses it. [`super::Archive::make_space`] then makes
    /// space for it.
    pub(crate) fn grow(&self, bytes: usize) {
        let mut used = self.used();
        used.bytes += bytes as u64;
        let _ = used.fit();
    }

    /// Counts events that are stored already. The budget refuses nothing.
    pub(crate) fn charge(&self, bytes: u64) {
        let mut used = self.used();
        used.bytes += bytes;
        let (budget, holder) = (Arc::clone(used.permit.budget()), used.permit.holder().clone());
        let missing = round_up(used.bytes).saturating_sub(used.permit.amount());
        used.permit.merge(budget.charge(&holder, missing));
    }

    /// Records that the stream was reduced to at most this size.
    pub(crate) fn reduced(&self, limit: u64) {
        let mut used = self.used();
        used.bytes = used.bytes.min(limit);
        let _ = used.fit();
    }

    /// Returns whether the budget still refuses a part of the events.
    pub(super) fn is_refused(&self) -> bool {
        !self.used().fit()
    }

    /// Returns the maximum size of the events: `limit`, or less if the budget refuses more.
    pub(crate) fn limit(&self, limit: u64) -> u64 {
        let mut used = self.used();
        if used.fit() { limit } else { limit.min(MIN_BYTES.max(used.permit.amount() as u64)) }
    }

    fn used(&self) -> MutexGuard<'_, Used> {
        self.used.lock()
    }
}

impl Used {
    /// Adjusts the permit to the size. Returns `false` if the budget refuses it.
    fn fit(&mut self) -> bool {
        self.permit.resize(round_up(self.bytes)).is_ok()
    }
}

pub(super) fn stream_name(number: u32) -> Arc<str> {
    format!("session:{number}").into()
}

/// Sizes count in whole steps, so that most events do not change the permit.
fn round_up(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX) / STEP * STEP
}

impl Drop for Space {
    fn drop(&mut self) {
        self.streams.0.lock().free.insert(self.number);
    }
}
