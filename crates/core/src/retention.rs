//! Deletes old records: one mechanism for calls, audit events, messages, session events and all
//! other records with limited retention.
//!
//! Records are deleted for one of two reasons:
//! - *Count*: a stream exceeds its limit of entries or bytes. The oldest are deleted immediately,
//!   because this limit bounds the disk.
//! - *Age*: entries are older than their retention. This depends on the wall clock, so it only
//!   happens while the clock is [trusted](TrustedClock).
//!
//! One round deletes at most 1 % of a stream by age (one entry of a small one). So after missing
//! every warning, an operator still has hours to react.

mod clock;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tracing::{info, warn};

pub use clock::{Cause, ClockMemory, ClockProblem, Reading, TrustedClock};

use crate::store::{Aged, Log, Retention, StoreError, Trimmed};

/// One round deletes at most this part of a stream by age: 1 %.
const ROUND_PART: u64 = 100;
/// One round may always delete this number of records by age, so that small streams shrink, too.
const ROUND_LEAST: u64 = 1;

/// Deletes records that are too old or exceed a limit, and counts and logs the deletions.
pub struct Trimmer {
    read: Box<dyn Fn() -> Reading + Send + Sync>,
    state: Mutex<State>,
    confirmed: Notify,
}

#[derive(Default)]
struct State {
    clock: TrustedClock,
    problem: Option<ClockProblem>,
    /// By kind of record and reason.
    deleted: BTreeMap<(&'static str, &'static str), u64>,
    rounds: u64,
}

impl Trimmer {
    /// `read` reads both clocks of the machine.
    pub fn new(clock: TrustedClock, read: impl Fn() -> Reading + Send + Sync + 'static) -> Self {
        let state = State { clock, ..State::default() };
        Self { read: Box::new(read), state: Mutex::new(state), confirmed: Notify::new() }
    }

    /// Deletes the oldest entries of a stream: all above `entries`, and a part of those older than
    /// `keep`.
    pub async fn trim(
        &self,
        log: &dyn Log,
        stream: &str,
        entries: Option<u64>,
        keep: Duration,
    ) -> Result<Trimmed, StoreError> {
        self.trim_to(log, stream, Retention { entries, ..Retention::default() }, keep).await
    }

    /// Deletes the oldest entries of a stream: all above `limits`, and a part of those older than
    /// `keep`.
    pub async fn trim_to(
        &self,
        log: &dyn Log,
        stream: &str,
        limits: Retention,
        keep: Duration,
    ) -> Result<Trimmed, StoreError> {
        let mut aged = None;
        if let Some(since_ms) = self.since_ms(keep) {
            let bounds = log.bounds(stream).await?;
            aged = Some(Aged {
                since_ms,
                at_most: round_limit((bounds.last + 1).saturating_sub(bounds.first)),
            });
        }
        log.trim(stream, Retention { aged, ..limits }).await
    }

    /// Returns the time before which records are too old. Returns `None` while the clock is not
    /// trusted: then no record is too old.
    pub fn since_ms(&self, keep: Duration) -> Option<i64> {
        let now = (self.read)();
        if self.observe(now).is_some() {
            return None;
        }
        Some(
            now.wall_ms
                .saturating_sub_unsigned(u64::try_from(keep.as_millis()).unwrap_or(u64::MAX)),
        )
    }

    /// Returns the time; `None` while the clock is not trusted. For all other actions that cannot
    /// be undone when the clock is right again.
    pub fn now_ms(&self) -> Option<i64> {
        self.since_ms(Duration::ZERO)
    }

    /// Returns the reason why no record is deleted by age at the moment, if there is one.
    pub fn clock_problem(&self) -> Option<ClockProblem> {
        self.observe((self.read)())
    }

    /// Trusts the clock, because an operator confirmed it. Returns the resolved doubt.
    pub fn confirm(&self) -> Option<ClockProblem> {
        let now = (self.read)();
        let problem = self.observe(now)?;
        let mut state = self.state();
        state.clock.confirm(now);
        state.problem = None;
        drop(state);
        info!("the clock was confirmed; old records are deleted by age again");
        self.confirmed.notify_one();
        Some(problem)
    }

    /// Completes when an operator has confirmed the clock, so that the next round can start early.
    pub async fn confirmed(&self) {
        self.confirmed.notified().await;
    }

    /// Logs and counts the deletions of one kind of records.
    pub fn report(&self, kind: &'static str, trimmed: Trimmed) {
        let Trimmed { over_limit, aged } = trimmed;
        for (reason, count) in [("count", over_limit), ("age", aged)] {
            if count > 0 {
                info!(kind, reason, count, "deleted old records");
                *self.state().deleted.entry((kind, reason)).or_default() += count;
            }
        }
    }

    /// Returns the number of deleted records since the start, by kind and reason.
    pub fn deleted(&self) -> Vec<((&'static str, &'static str), u64)> {
        self.state().deleted.iter().map(|(labels, count)| (*labels, *count)).collect()
    }

    /// Counts a complete round over all kinds of records.
    pub fn round_done(&self) {
        self.state().rounds += 1;
    }

    /// Returns the number of complete rounds since the start.
    pub fn rounds(&self) -> u64 {
        self.state().rounds
    }

    /// Returns the clock state to save for the next process.
    pub fn memory(&self) -> Option<ClockMemory> {
        self.state().clock.memory()
    }

    fn observe(&self, now: Reading) -> Option<ClockProblem> {
        let mut state = self.state();
        let problem = state.clock.observe(now);
        let before = std::mem::replace(&mut state.problem, problem);
        drop(state);
        match (before, problem) {
            (None, Some(problem)) => {
                warn!(
                    "deletion by age is paused: {problem}; if the clock is right, run `switchboard retention confirm`"
                );
            }
            (Some(_), None) => {
                info!("the clock is trusted again; old records are deleted by age again");
            }
            _ => {}
        }
        problem
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl fmt::Debug for Trimmer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trimmer").field("clock", &self.state().clock).finish_non_exhaustive()
    }
}

/// Returns the maximum number of records that one round may delete by age.
pub fn round_limit(records: u64) -> u64 {
    (records / ROUND_PART).max(ROUND_LEAST)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicI64, Ordering};

    use super::*;

    const DAY_MS: i64 = 86_400_000;

    #[test]
    fn nothing_is_too_old_while_the_clock_is_not_trusted() {
        let wall = Arc::new(AtomicI64::new(1_790_000_000_000));
        let read = Arc::clone(&wall);
        let trimmer = Trimmer::new(TrustedClock::new(None), move || Reading {
            wall_ms: read.load(Ordering::Relaxed),
            uptime_ms: 1_000,
        });
        let month = Duration::from_secs(30 * 86_400);
        let since_ms = trimmer.since_ms(month);
        assert_eq!(since_ms, Some(1_790_000_000_000 - 30 * DAY_MS));
        assert!(trimmer.since_ms(Duration::MAX).unwrap() < 0, "a history for ever");
        wall.fetch_add(400 * DAY_MS, Ordering::Relaxed);
        assert_eq!((trimmer.since_ms(month), trimmer.clock_problem().is_some()), (None, true));
        assert!(trimmer.confirm().is_some());
        assert_eq!(trimmer.since_ms(month), since_ms.map(|since_ms| since_ms + 400 * DAY_MS));
        assert!(trimmer.confirm().is_none(), "there is nothing to confirm");
        wall.fetch_sub(400 * DAY_MS, Ordering::Relaxed);
        assert_eq!(trimmer.since_ms(month), None);
    }

    #[test]
    fn a_round_deletes_one_percent_and_something_of_a_small_stream() {
        let check = |records, expected| assert_eq!(round_limit(records), expected);
        check(0, 1);
        check(26, 1);
        check(1_000, 10);
        check(250_000, 2_500);
    }
}
