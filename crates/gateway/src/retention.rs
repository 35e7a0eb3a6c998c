//! Deletes old records periodically, and stores the state of the trusted clock between starts.

use std::sync::Arc;

use sa_core::Trimmer;
use sa_core::clock::now_ms;
use sa_core::retention::{ClockMemory, Reading, TrustedClock};
use sa_core::store::{Expect, Log, Records, StoreError};
use sa_http::history::CALLS;
use sa_settings::days;
use sa_store::Store;
use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::assemble::{Gateway, Settings};
use crate::journal::AUDIT;

const BUCKET: &str = "retention";
const KEY: &str = "clock";

/// The maximum age of the stored time while nothing else changes.
const SAVE_EVERY_MS: i64 = 600_000;

/// The stored form of [`ClockMemory`].
#[derive(Serialize, Deserialize)]
struct Stored {
    trusted_ms: i64,
    #[serde(rename = "doubted", default, skip_serializing_if = "Option::is_none")]
    untrusted: Option<(i64, i64)>,
}

/// Restores the trusted clock. Must be called before anything is written: if no time is stored yet,
/// the newest entry is the reference.
pub(crate) async fn open(store: &Store) -> Result<Arc<Trimmer>, StoreError> {
    let memory = match remembered(store).await? {
        Some(memory) => Some(memory),
        None => {
            store.newest_ms().await?.map(|trusted_ms| ClockMemory { trusted_ms, untrusted: None })
        }
    };
    let trimmer = Trimmer::new(TrustedClock::new(memory), read_clocks);
    // A wrong clock is reported now, not only in the first round.
    trimmer.clock_problem();
    Ok(Arc::new(trimmer))
}

async fn remembered(records: &dyn Records) -> Result<Option<ClockMemory>, StoreError> {
    let record = records.get(BUCKET, KEY).await?;
    let stored: Option<Stored> =
        record.and_then(|record| serde_json::from_slice(&record.value).ok());
    Ok(stored.map(|Stored { trusted_ms, untrusted }| ClockMemory { trusted_ms, untrusted }))
}

/// Stores the state of the clock for the next start.
pub(crate) async fn save(trimmer: &Trimmer, records: &dyn Records) -> Result<(), StoreError> {
    let Some(ClockMemory { trusted_ms, untrusted }) = trimmer.memory() else { return Ok(()) };
    let value = serde_json::to_vec(&Stored { trusted_ms, untrusted }).unwrap_or_default();
    records.put(BUCKET, KEY, value.into(), Expect::Anything).await.map(drop)
}

/// Reports whether the state has changed enough to be stored.
fn is_news(saved: Option<ClockMemory>, now: Option<ClockMemory>) -> bool {
    let (Some(saved), Some(now)) = (saved, now) else { return saved != now };
    let progress =
        |memory: ClockMemory| memory.untrusted.map_or(memory.trusted_ms, |(seen_ms, _)| seen_ms);
    saved.untrusted.is_some() != now.untrusted.is_some()
        || progress(now).abs_diff(progress(saved)) >= SAVE_EVERY_MS as u64
}

/// Reads the wall clock, and the time since boot, which continues while the machine is suspended.
fn read_clocks() -> Reading {
    #[cfg(target_os = "linux")]
    const SINCE_BOOT: rustix::time::ClockId = rustix::time::ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    const SINCE_BOOT: rustix::time::ClockId = rustix::time::ClockId::Monotonic;
    let uptime = rustix::time::clock_gettime(SINCE_BOOT);
    Reading { wall_ms: now_ms(), uptime_ms: uptime.tv_sec * 1_000 + uptime.tv_nsec / 1_000_000 }
}

/// Deletes old records in rounds.
pub(crate) struct Rounds {
    saved: Option<ClockMemory>,
    round: u64,
}

impl Rounds {
    pub(crate) fn new() -> Self {
        Self { saved: None, round: 0 }
    }

    /// Runs one round. Channels and idempotency keys are included in every tenth round, or if
    /// `everything` is set.
    pub(crate) async fn run(&mut self, gateway: &Gateway, everything: bool) {
        let due = |every: u64| everything || self.round.is_multiple_of(every);
        let trimmer = &gateway.trimmer;
        let settings = &gateway.config.settings;
        trim_journal(trimmer, &*gateway.log, settings).await;
        if due(10) {
            gateway.trim_providers().await;
            if let Err(error) = gateway.ledger.sweep(trimmer).await {
                warn!(%error, "cannot delete old idempotency keys");
            }
        }
        let memory = trimmer.memory();
        if is_news(self.saved, memory) {
            match save(trimmer, &gateway.store).await {
                Ok(()) => self.saved = memory,
                Err(error) => warn!(%error, "cannot save the clock state for the next start"),
            }
        }
        self.round += 1;
        trimmer.round_done();
    }
}

/// Deletes old calls and audit events, each by the limits of their own.
async fn trim_journal(trimmer: &Trimmer, log: &dyn Log, settings: &Settings) {
    let Settings { journal: calls, audit, .. } = settings;
    let calls = (CALLS, "call", Some(calls.keep_calls), days(calls.keep_days));
    let audit = (AUDIT, "audit_event", None, days(audit.keep_days));
    for (stream, kind, entries, keep) in [calls, audit] {
        match trimmer.trim(log, stream, entries, keep).await {
            Ok(trimmed) => trimmer.report(kind, trimmed),
            Err(error) => warn!(stream, %error, "cannot delete old records"),
        }
    }
}

#[cfg(test)]
mod tests {
    //! Rule: a store deletes nothing by age while the clock is not trusted, and only a little per
    //! round otherwise.

    use std::sync::atomic::{AtomicI64, Ordering};

    use sa_core::store::NewEntry;
    use sa_store::OpenOptions;

    use super::*;

    const DAY_MS: i64 = 86_400_000;

    /// Both clocks of a machine. The wall clock starts at the real time, because the store stamps
    /// entries with it.
    #[derive(Clone)]
    struct Machine {
        wall_ms: Arc<AtomicI64>,
        uptime_ms: Arc<AtomicI64>,
    }

    impl Machine {
        fn new() -> Self {
            Self { wall_ms: Arc::new(now_ms().into()), uptime_ms: Arc::new(1_000.into()) }
        }

        fn pass(&self, ms: i64) {
            self.wall_ms.fetch_add(ms, Ordering::Relaxed);
            self.uptime_ms.fetch_add(ms, Ordering::Relaxed);
        }

        fn set(&self, by_ms: i64) {
            self.wall_ms.fetch_add(by_ms, Ordering::Relaxed);
        }

        async fn start(&self, store: &Store) -> Trimmer {
            let memory = match remembered(store).await.unwrap() {
                Some(memory) => Some(memory),
                None => store
                    .newest_ms()
                    .await
                    .unwrap()
                    .map(|trusted_ms| ClockMemory { trusted_ms, untrusted: None }),
            };
            let machine = self.clone();
            Trimmer::new(TrustedClock::new(memory), move || Reading {
                wall_ms: machine.wall_ms.load(Ordering::Relaxed),
                uptime_ms: machine.uptime_ms.load(Ordering::Relaxed),
            })
        }
    }

    async fn fill(store: &Store, entries: usize) {
        for _ in 0..entries {
            store.record("calls", None, b"{}");
        }
        store
            .append(NewEntry { stream: "calls".into(), key: None, body: "{}".into() })
            .await
            .unwrap();
    }

    async fn left(store: &Store) -> u64 {
        let bounds = store.bounds("calls").await.unwrap();
        bounds.last + 1 - bounds.first
    }

    #[tokio::test]
    async fn a_jump_of_400_days_deletes_nothing_until_the_clock_is_confirmed() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(OpenOptions::new(dir.path().join("store.db"))).unwrap();
        fill(&store, 1_999).await;
        let machine = Machine::new();
        for jump in [400 * DAY_MS, -400 * DAY_MS] {
            let trimmer = machine.start(&store).await;
            let round = || trimmer.trim(&store, "calls", None, days(30));
            assert_eq!(round().await.unwrap().total(), 0, "nothing is old");
            machine.set(jump);
            for _ in 0..3 {
                machine.pass(60_000);
                assert_eq!(round().await.unwrap().total(), 0);
            }
            // The next process has the same clock, and entries with its timestamps.
            save(&trimmer, &store).await.unwrap();
            let trimmer = machine.start(&store).await;
            assert_eq!(trimmer.trim(&store, "calls", None, days(30)).await.unwrap().total(), 0);
            assert_eq!((left(&store).await, trimmer.clock_problem().is_some()), (2_000, true));
            machine.set(-jump);
            assert!(trimmer.clock_problem().is_none(), "it is right again");
            save(&trimmer, &store).await.unwrap();
        }
        let trimmer = machine.start(&store).await;
        assert!(trimmer.clock_problem().is_none());
        machine.set(400 * DAY_MS);
        assert!(trimmer.confirm().is_some());
        for expected in [1_980, 1_961, 1_942] {
            trimmer.trim(&store, "calls", None, days(30)).await.unwrap();
            assert_eq!(left(&store).await, expected, "1 % a round");
        }
        trimmer.trim(&store, "calls", Some(30), days(30)).await.unwrap();
        assert_eq!(left(&store).await, 11, "a limit by count holds at once");
        trimmer.trim(&store, "calls", None, days(30)).await.unwrap();
        assert_eq!(left(&store).await, 10, "a small stream shrinks, too");
    }

    #[tokio::test]
    async fn a_machine_that_boots_in_the_future_deletes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(OpenOptions::new(dir.path().join("store.db"))).unwrap();
        fill(&store, 199).await;
        let machine = Machine::new();
        machine.set(400 * DAY_MS);
        let trimmer = machine.start(&store).await;
        assert_eq!(trimmer.trim(&store, "calls", None, days(30)).await.unwrap().total(), 0);
        machine.pass(DAY_MS);
        assert_eq!(
            trimmer.trim(&store, "calls", None, days(30)).await.unwrap().aged,
            2,
            "it was steady for a day"
        );
    }

    #[tokio::test]
    async fn calls_and_audit_events_have_limits_of_their_own() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(OpenOptions::new(dir.path().join("store.db"))).unwrap();
        let mut settings = Settings::default();
        (settings.journal.keep_days, settings.audit.keep_days) = (30, 90);
        for stream in [CALLS, AUDIT] {
            let entry = || NewEntry { stream: stream.into(), key: None, body: "{}".into() };
            for _ in 0..20 {
                store.append(entry()).await.unwrap();
            }
        }
        let machine = Machine::new();
        let trimmer = machine.start(&store).await;
        for (days_later, calls, audit) in [(20, false, false), (60, true, false), (100, true, true)]
        {
            machine.set(days_later * DAY_MS);
            trimmer.clock_problem();
            trimmer.confirm();
            trim_journal(&trimmer, &store, &settings).await;
            for (stream, is_trimmed) in [(CALLS, calls), (AUDIT, audit)] {
                let first = store.bounds(stream).await.unwrap().first;
                assert_eq!(first > 1, is_trimmed, "{stream} after {days_later} days: {first}");
            }
            machine.set(-days_later * DAY_MS);
        }
    }

    #[test]
    fn the_clock_is_remembered_when_something_has_changed() {
        let memory = |trusted_ms, untrusted| Some(ClockMemory { trusted_ms, untrusted });
        assert!(!is_news(None, None));
        assert!(is_news(None, memory(1, None)));
        assert!(!is_news(memory(1, None), memory(60_000, None)));
        assert!(is_news(memory(1, None), memory(700_000, None)));
        assert!(is_news(memory(1, None), memory(1, Some((5, 0)))));
        assert!(!is_news(memory(1, Some((5, 0))), memory(1, Some((60_000, 59_995)))));
        assert!(is_news(memory(1, Some((5, 0))), memory(1, Some((700_000, 699_995)))));
    }

    #[test]
    fn the_machine_s_clocks_can_be_read() {
        let reading = read_clocks();
        assert!(reading.uptime_ms > 0 && reading.wall_ms > reading.uptime_ms);
    }
}
