//! Decides whether the wall clock can be trusted to delete records by age.
//!
//! Two references are compared with the wall clock. While the process runs, it is the time since boot: wall time must not
//! move more than an hour against it. After a start, it is the newest time that was trusted before: wall time must not be
//! more than a day ahead of it, nor more than an hour behind. A clock that fails the comparison is trusted again when it
//! returns, when it has been steady for a day, or when an operator confirms it.

use std::fmt;

/// How far wall time may move against the time since boot. No correction of a healthy clock comes close.
const MAX_DRIFT_MS: i64 = HOUR_MS;
/// How far wall time may be ahead of the newest trusted time after a start.
const MAX_GAP_MS: i64 = DAY_MS;
/// How long a clock that was not trusted must be steady before it is trusted.
const STEADY_MS: i64 = DAY_MS;

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;

/// Both clocks, read at the same moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    /// Milliseconds since the Unix epoch.
    pub wall_ms: i64,
    /// Milliseconds since boot, suspended time included. Nobody can set this clock.
    pub uptime_ms: i64,
}

/// Pure: every time is supplied.
#[derive(Debug, Clone, Default)]
pub struct TrustedClock {
    /// The newest wall time that was trusted, also by a former process.
    trusted_ms: Option<i64>,
    /// Wall time minus uptime when the clock was first trusted in this process. It stays, so that small steps add up.
    offset_ms: Option<i64>,
    doubted: Option<Doubted>,
}

/// What outlives a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockMemory {
    /// The newest wall time that was trusted.
    pub trusted_ms: i64,
    /// Present while the clock is not trusted: the wall time seen last, and for how long it has been steady.
    pub doubted: Option<(i64, i64)>,
}

/// A wall clock that is not trusted, as it goes on.
#[derive(Debug, Clone, Copy)]
struct Doubted {
    seen_ms: i64,
    steady_ms: i64,
    /// Its offset and the last uptime in this process. Absent when it is known from a former process only.
    here: Option<(i64, i64)>,
}

/// Why the clock is not trusted, and until when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Doubt {
    pub cause: Cause,
    /// How far wall time is ahead; negative when it is behind.
    pub by_ms: i64,
    /// The clock is trusted after this time if it stays steady.
    pub trusted_in_ms: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// Wall time moved against the time since boot.
    Jumped,
    /// At the start, wall time was not near the newest record.
    Apart,
}

impl TrustedClock {
    /// Without a memory there is nothing to delete yet, and the first reading is trusted.
    pub fn new(memory: Option<ClockMemory>) -> Self {
        let doubted = memory.and_then(|memory| memory.doubted);
        Self {
            trusted_ms: memory.map(|memory| memory.trusted_ms),
            offset_ms: None,
            doubted: doubted.map(|(seen_ms, steady_ms)| Doubted { seen_ms, steady_ms: steady_ms.max(0), here: None }),
        }
    }

    /// Compares the clocks. `None` when the wall clock is trusted.
    pub fn observe(&mut self, now: Reading) -> Option<Doubt> {
        let Some((cause, by_ms)) = self.deviation(now) else {
            self.trust(now, self.offset_ms.unwrap_or(now.offset_ms()));
            return None;
        };
        let (offset_ms, steady_ms) = self.steady(now);
        if steady_ms >= STEADY_MS {
            self.trust(now, now.offset_ms());
            return None;
        }
        let here = Some((offset_ms, now.uptime_ms));
        self.doubted = Some(Doubted { seen_ms: now.wall_ms, steady_ms, here });
        Some(Doubt { cause, by_ms, trusted_in_ms: STEADY_MS - steady_ms })
    }

    /// An operator says that the wall clock is right.
    pub fn confirm(&mut self, now: Reading) {
        self.trust(now, now.offset_ms());
    }

    /// What the next process starts with. `None` before the first reading of an empty store.
    pub fn memory(&self) -> Option<ClockMemory> {
        let doubted = self.doubted.map(|doubted| (doubted.seen_ms, doubted.steady_ms));
        self.trusted_ms.map(|trusted_ms| ClockMemory { trusted_ms, doubted })
    }

    fn trust(&mut self, now: Reading, offset_ms: i64) {
        *self = Self { trusted_ms: Some(now.wall_ms), offset_ms: Some(offset_ms), doubted: None };
    }

    fn deviation(&self, now: Reading) -> Option<(Cause, i64)> {
        if let Some(offset_ms) = self.offset_ms {
            let by_ms = now.offset_ms().saturating_sub(offset_ms);
            return (by_ms.saturating_abs() > MAX_DRIFT_MS).then_some((Cause::Jumped, by_ms));
        }
        let by_ms = now.wall_ms.saturating_sub(self.trusted_ms?);
        (!is_near(by_ms)).then_some((Cause::Apart, by_ms))
    }

    /// The offset of the doubted clock, and for how long it has been steady.
    fn steady(&self, now: Reading) -> (i64, i64) {
        match self.doubted {
            Some(Doubted { here: Some((offset_ms, uptime_ms)), steady_ms, .. })
                if now.offset_ms().saturating_sub(offset_ms).saturating_abs() <= MAX_DRIFT_MS =>
            {
                (offset_ms, steady_ms.saturating_add(now.uptime_ms.saturating_sub(uptime_ms).max(0)))
            }
            Some(Doubted { here: None, seen_ms, steady_ms }) if is_near(now.wall_ms.saturating_sub(seen_ms)) => {
                (now.offset_ms(), steady_ms)
            }
            _ => (now.offset_ms(), 0),
        }
    }
}

/// Whether a clock that was last seen by a former process can have gone on by this much.
fn is_near(by_ms: i64) -> bool {
    (-MAX_DRIFT_MS..=MAX_GAP_MS).contains(&by_ms)
}

impl Reading {
    fn offset_ms(self) -> i64 {
        self.wall_ms.saturating_sub(self.uptime_ms)
    }
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (direction, far) = (if self.by_ms < 0 { "behind" } else { "ahead of" }, span(self.by_ms));
        match self.cause {
            Cause::Jumped if self.by_ms < 0 => write!(f, "the clock was set back by {far} while the gateway ran"),
            Cause::Jumped => write!(f, "the clock was set forward by {far} while the gateway ran"),
            Cause::Apart => write!(f, "the clock is {far} {direction} the newest record"),
        }
    }
}

fn span(ms: i64) -> String {
    let hours = ms.saturating_abs() / HOUR_MS;
    if hours >= 48 { format!("{} days", hours / 24) } else { format!("{hours} hours") }
}

#[cfg(test)]
mod tests;
