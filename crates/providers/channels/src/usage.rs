//! The number of bytes that a channel has stored, per participant.
//!
//! A message counts from its acceptance until it is deleted. Messages are deleted from the oldest
//! on, so the bytes are counted in segments. A segment is released when its last message is
//! deleted, with a precision of about 1/64 of the channel's limit. The totals are written to the
//! store from time to time. Messages that a crash has left out are counted again when the channel
//! is opened.
//!
//! In channels the name of a token identifies the sender, and here it identifies the holder that
//! a message is charged to.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use sa_core::clock;
use sa_limits::budget::{Holder, Permit, Refused, SharedBudget};
use serde::{Deserialize, Serialize};

/// The number of parts into which the bytes, messages and days of a channel are divided.
const SEGMENTS: u64 = 64;

/// The limits of one channel, which also determine the size of its segments.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) max_bytes: usize,
    pub(crate) keep_messages: u64,
    pub(crate) keep: Duration,
}

#[derive(Debug)]
pub(crate) struct Usage {
    channel: Arc<str>,
    budget: Arc<SharedBudget>,
    bounds: Bounds,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    segments: VecDeque<Segment>,
    /// The bytes of all segments, and of messages that are being stored.
    bytes: usize,
    /// The last message that is counted.
    through: u64,
    /// Whether older messages are still being counted.
    counting: bool,
    changed: bool,
}

#[derive(Debug)]
struct Segment {
    first: u64,
    last: u64,
    since_ms: i64,
    bytes: usize,
    held: BTreeMap<Arc<str>, Permit>,
}

/// The totals, as they are stored.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UsageRecord {
    through: u64,
    segments: Vec<SegmentRecord>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct SegmentRecord {
    first: u64,
    last: u64,
    since_ms: i64,
    held: BTreeMap<String, usize>,
}

/// The budget of a message that is being stored. If it is dropped, it releases the budget and
/// deletes the file of the attachments.
#[derive(Debug)]
pub(crate) struct Reservation {
    usage: Arc<Usage>,
    permit: Option<Permit>,
    pub(crate) file: Option<PathBuf>,
}

impl Usage {
    pub(crate) fn new(channel: &str, budget: &Arc<SharedBudget>, bounds: Bounds) -> Arc<Self> {
        Arc::new(Self {
            channel: channel.into(),
            budget: Arc::clone(budget),
            bounds,
            state: Mutex::default(),
        })
    }

    /// Restores the stored totals.
    pub(crate) fn restore(&self, record: UsageRecord) {
        let mut state = self.state();
        state.through = record.through;
        for SegmentRecord { first, last, since_ms, held } in record.segments {
            let charge = |(name, bytes): (String, usize)| {
                let permit = self.budget.charge(&Holder::named(name), bytes);
                (Arc::clone(permit.holder().id()), permit)
            };
            let bytes = held.values().fold(0_usize, |sum, bytes| sum.saturating_add(*bytes));
            let held = held.into_iter().map(charge).collect();
            state.bytes = state.bytes.saturating_add(bytes);
            state.segments.push_back(Segment { first, last, since_ms, bytes, held });
        }
    }

    /// Reserves bytes for a message of a holder, within the limits of the channel, the holder and
    /// the gateway.
    pub(crate) fn reserve(
        self: &Arc<Self>,
        holder: &Holder,
        bytes: usize,
    ) -> Result<Reservation, Refused> {
        let mut state = self.state();
        let max = self.bounds.max_bytes;
        if state.bytes.saturating_add(bytes) > max {
            return Err(Refused {
                message: format!(
                    "the channel \"{}\" uses {} of the {max} bytes allowed per channel; {bytes} more do not fit",
                    self.channel, state.bytes
                ),
                hint:
                    "use another channel, delete this one, or ask the operator to raise channels.max_bytes_per_channel"
                        .into(),
                transient: false,
            });
        }
        let permit = self.budget.acquire(holder, bytes)?;
        state.bytes += bytes;
        drop(state);
        Ok(Reservation { usage: Arc::clone(self), permit: Some(permit), file: None })
    }

    /// Counts bytes that are stored even beyond the limits: the gateway's own messages.
    pub(crate) fn charge(self: &Arc<Self>, name: &Arc<str>, bytes: usize) -> Reservation {
        self.state().bytes += bytes;
        let permit = self.budget.charge(&Holder::named(Arc::clone(name)), bytes);
        Reservation { usage: Arc::clone(self), permit: Some(permit), file: None }
    }

    /// Releases the segments of messages before this one, which were deleted.
    pub(crate) fn trimmed(&self, first: u64) {
        let mut state = self.state();
        while let Some(oldest) = state.segments.pop_front_if(|oldest| oldest.last < first) {
            state.bytes = state.bytes.saturating_sub(oldest.bytes);
            state.changed = true;
        }
    }

    /// Returns the message after which messages are not counted yet, if the last one is `head`.
    /// They must be counted before totals are written.
    pub(crate) fn missing(&self, head: u64) -> Option<u64> {
        let mut state = self.state();
        if state.counting || state.through >= head {
            return None;
        }
        state.counting = true;
        Some(state.through)
    }

    /// Records that all messages up to this one are counted.
    pub(crate) fn counted(&self, through: u64) {
        let mut state = self.state();
        state.through = state.through.max(through);
        (state.counting, state.changed) = (false, true);
    }

    /// Returns the totals, if they have changed since the last call.
    pub(crate) fn record(&self) -> Option<UsageRecord> {
        let mut state = self.state();
        if state.counting || !std::mem::take(&mut state.changed) {
            return None;
        }
        let segments = state.segments.iter().map(|segment| SegmentRecord {
            first: segment.first,
            last: segment.last,
            since_ms: segment.since_ms,
            held: segment
                .held
                .iter()
                .map(|(name, permit)| (name.to_string(), permit.amount()))
                .collect(),
        });
        Some(UsageRecord { through: state.through, segments: segments.collect() })
    }

    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.state().bytes
    }

    fn add(&self, seq: u64, permit: Permit) {
        let Bounds { max_bytes, keep_messages, keep } = self.bounds;
        let age_limit_ms = u64::try_from(keep.as_millis()).unwrap_or(u64::MAX) / SEGMENTS;
        let now = clock::now_ms();
        let is_full = |segment: &Segment| {
            segment.bytes as u64 >= max_bytes as u64 / SEGMENTS
                || segment.last.saturating_sub(segment.first) >= (keep_messages / SEGMENTS).max(1)
                || now.saturating_sub(segment.since_ms).unsigned_abs() >= age_limit_ms
        };
        let mut state = self.state();
        state.through = state.through.max(seq);
        state.changed = true;
        if state.segments.back().is_none_or(is_full) {
            let new =
                Segment { first: seq, last: seq, since_ms: now, bytes: 0, held: BTreeMap::new() };
            state.segments.push_back(new);
        }
        let Some(segment) = state.segments.back_mut() else { return };
        segment.last = segment.last.max(seq);
        segment.bytes += permit.amount();
        match segment.held.get_mut(permit.holder().id()) {
            Some(held) => held.merge(permit),
            None => drop(segment.held.insert(Arc::clone(permit.holder().id()), permit)),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl Reservation {
    /// Counts the message, stored with this number, until it is deleted.
    pub(crate) fn stored(mut self, seq: u64) {
        self.file = None;
        if let Some(permit) = self.permit.take() {
            self.usage.add(seq, permit);
        }
    }

    /// Keeps the file, because the message may be on disk. The file is deleted together with old
    /// ones.
    pub(crate) fn failed(mut self) {
        self.file = None;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if let Some(permit) = self.permit.take() {
            let mut state = self.usage.state();
            state.bytes = state.bytes.saturating_sub(permit.amount());
        }
        let file = self.file.take().zip(tokio::runtime::Handle::try_current().ok());
        if let Some((file, runtime)) = file {
            drop(runtime.spawn_blocking(move || std::fs::remove_file(file)));
        }
    }
}

#[cfg(test)]
mod tests {
    use sa_limits::budget::{Limit, Quota};

    use super::*;

    fn budget() -> Arc<SharedBudget> {
        let limit = Limit {
            name: "stored",
            what: "bytes",
            key: "x.total",
            remedy: "delete",
            total: 100_000,
        };
        SharedBudget::with_quota(limit, Quota { key: "x.each", max: 2_000 })
    }

    fn usage(budget: &Arc<SharedBudget>) -> Arc<Usage> {
        Usage::new(
            "room",
            budget,
            Bounds {
                max_bytes: 6_400,
                keep_messages: 6_400,
                keep: Duration::from_secs(64 * 86_400),
            },
        )
    }

    #[test]
    fn what_is_stored_counts_until_it_is_deleted_and_what_is_not_stored_does_not() {
        let (budget, ann) = (budget(), Holder::named("ann"));
        let usage = usage(&budget);
        for seq in 1..=10 {
            usage.reserve(&ann, 100).unwrap().stored(seq);
        }
        drop(usage.reserve(&ann, 500).unwrap());
        assert_eq!((usage.bytes(), budget.held_by(&ann)), (1_000, 1_000));
        usage.trimmed(4);
        assert_eq!(
            (usage.bytes(), budget.held_by(&ann)),
            (700, 700),
            "each is a segment of its own"
        );
        usage.trimmed(11);
        assert_eq!((usage.bytes(), budget.used()), (0, 0));
    }

    #[test]
    fn the_quotas_of_channel_and_principal_are_refused_apart() {
        let budget = budget();
        let usage = usage(&budget);
        usage.reserve(&Holder::named("ann"), 2_000).unwrap().stored(1);
        let refused = usage.reserve(&Holder::named("ann"), 1).err().unwrap();
        assert!(
            refused.message.contains("2000 of the 2000") && refused.hint.ends_with("x.each"),
            "{refused:?}"
        );
        for (seq, name) in [(2, "bob"), (3, "cas")] {
            usage.reserve(&Holder::named(name), 2_000).unwrap().stored(seq);
        }
        let refused = usage.reserve(&Holder::named("dan"), 401).err().unwrap();
        assert!(
            refused.message.contains("6000 of the 6400") && refused.message.contains("\"room\""),
            "{refused:?}"
        );
        assert!(refused.hint.ends_with("channels.max_bytes_per_channel") && !refused.transient);
        assert_eq!(budget.held_by(&Holder::named("dan")), 0);
    }

    #[test]
    fn sums_outlive_a_restart() {
        let before = budget();
        let first = usage(&before);
        for seq in 1..=3 {
            first.reserve(&Holder::named("ann"), 60).unwrap().stored(seq);
            first.charge(&"switchboard".into(), 10).stored(seq);
        }
        let record = first.record().unwrap();
        assert_eq!(first.record(), None, "nothing has changed since");
        let json = serde_json::to_string(&record).unwrap();
        let after = budget();
        let second = usage(&after);
        second.restore(serde_json::from_str(&json).unwrap());
        assert_eq!(
            (second.bytes(), after.held_by(&Holder::named("ann")), after.used()),
            (210, 180, 210)
        );
        assert_eq!(
            (second.missing(3), second.missing(5), second.missing(5)),
            (None, Some(3), None)
        );
        assert_eq!(second.record(), None, "not while it counts");
        second.counted(5);
        assert!(second.record().is_some());
        second.reserve(&Holder::named("ann"), 60).unwrap().stored(6);
        second.trimmed(7);
        assert_eq!((second.bytes(), after.used()), (0, 0));
    }

    #[test]
    fn a_channel_of_any_length_has_few_segments() {
        let budget = budget();
        let usage = usage(&budget);
        for seq in 1..=6_400 {
            usage.charge(&"ann".into(), 1).stored(seq);
        }
        let segments = usage.record().unwrap().segments.len();
        assert!((32..=65).contains(&segments), "{segments}");
    }
}
