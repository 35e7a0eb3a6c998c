//! Decides whether the wall clock can be trusted to delete records by age.
//!
//! Two references are compared with the wall clock. While the process runs, the reference is the
//! time since boot: wall time must not move more than an hour against it. After a start, it is the
//! newest time that was trusted before. Wall time must not be more than a day ahead of that, nor
//! more than an hour behind. A clock that fails the comparison is trusted again when it returns,
//! has been steady for a day, or is confirmed by an operator.

use std::fmt;

/// The maximum movement of wall time against the time since boot. Corrections of a healthy clock
/// are far smaller.
const MAX_DRIFT_MS: i64 = HOUR_MS;
/// The maximum of wall time ahead of the newest trusted time after a start.
const MAX_GAP_MS: i64 = DAY_MS;
/// The time that an untrusted clock must be steady before it is trusted again.
const STEADY_MS: i64 = DAY_MS;

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;

/// Both clocks, read at the same moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    /// Milliseconds since the Unix epoch.
    pub wall_ms: i64,
    /// Milliseconds since boot, suspended time included. No user can set this clock.
    pub uptime_ms: i64,
}

/// A state machine without I/O: every time is supplied.
#[derive(Debug, Clone, Default)]
pub struct TrustedClock {
    /// The newest trusted wall time, including former processes.
    trusted_ms: Option<i64>,
    /// Wall time minus uptime when the clock was first trusted in this process. It is not updated,
    /// so that small steps add up.
    offset_ms: Option<i64>,
    untrusted: Option<Untrusted>,
}

/// The state that survives a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockMemory {
    /// The newest trusted wall time.
    pub trusted_ms: i64,
    /// Present while the clock is not trusted: the wall time seen last, and the duration for which
    /// it has been steady.
    pub untrusted: Option<(i64, i64)>,
}

/// The state of an untrusted wall clock.
#[derive(Debug, Clone, Copy)]
struct Untrusted {
    seen_ms: i64,
    steady_ms: i64,
    /// Its offset and the last uptime in this process. Absent if it is only known from a former
    /// process.
    here: Option<(i64, i64)>,
}

/// The reason why the clock is not trusted, and the time until it will be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockProblem {
    pub cause: Cause,
    /// The amount by which wall time is ahead; negative if it is behind.
    pub by_ms: i64,
    /// The clock is trusted after this time if it stays steady.
    pub trusted_in_ms: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// Wall time moved against the time since boot.
    Jumped,
    /// At the start, wall time was not near the newest record.
    Gap,
}

impl TrustedClock {
    /// Without saved state there is nothing to delete yet, and the first reading is trusted.
    pub fn new(memory: Option<ClockMemory>) -> Self {
        let untrusted = memory.and_then(|memory| memory.untrusted);
        Self {
            trusted_ms: memory.map(|memory| memory.trusted_ms),
            offset_ms: None,
            untrusted: untrusted.map(|(seen_ms, steady_ms)| Untrusted {
                seen_ms,
                steady_ms: steady_ms.max(0),
                here: None,
            }),
        }
    }

    /// Compares the clocks. Returns `None` if the wall clock is trusted.
    pub fn observe(&mut self, now: Reading) -> Option<ClockProblem> {
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
        self.untrusted = Some(Untrusted { seen_ms: now.wall_ms, steady_ms, here });
        Some(ClockProblem { cause, by_ms, trusted_in_ms: STEADY_MS - steady_ms })
    }

    /// Trusts the wall clock, because an operator confirmed it.
    pub fn confirm(&mut self, now: Reading) {
        self.trust(now, now.offset_ms());
    }

    /// Returns the state for the next process. `None` before the first reading of an empty store.
    pub fn memory(&self) -> Option<ClockMemory> {
        let untrusted = self.untrusted.map(|untrusted| (untrusted.seen_ms, untrusted.steady_ms));
        self.trusted_ms.map(|trusted_ms| ClockMemory { trusted_ms, untrusted })
    }

    fn trust(&mut self, now: Reading, offset_ms: i64) {
        *self = Self { trusted_ms: Some(now.wall_ms), offset_ms: Some(offset_ms), untrusted: None };
    }

    fn deviation(&self, now: Reading) -> Option<(Cause, i64)> {
        if let Some(offset_ms) = self.offset_ms {
            let by_ms = now.offset_ms().saturating_sub(offset_ms);
            return (by_ms.saturating_abs() > MAX_DRIFT_MS).then_some((Cause::Jumped, by_ms));
        }
        let by_ms = now.wall_ms.saturating_sub(self.trusted_ms?);
        (!is_near(by_ms)).then_some((Cause::Gap, by_ms))
    }

    /// Returns the offset of the untrusted clock, and the duration for which it has been steady.
    fn steady(&self, now: Reading) -> (i64, i64) {
        match self.untrusted {
            Some(Untrusted { here: Some((offset_ms, uptime_ms)), steady_ms, .. })
                if now.offset_ms().saturating_sub(offset_ms).saturating_abs() <= MAX_DRIFT_MS =>
            {
                (
                    offset_ms,
                    steady_ms.saturating_add(now.uptime_ms.saturating_sub(uptime_ms).max(0)),
                )
            }
            Some(Untrusted { here: None, seen_ms, steady_ms })
                if is_near(now.wall_ms.saturating_sub(seen_ms)) =>
            {
                (now.offset_ms(), steady_ms)
            }
            _ => (now.offset_ms(), 0),
        }
    }
}

/// Returns whether a clock seen last by a former process can have advanced by this amount.
fn is_near(by_ms: i64) -> bool {
    (-MAX_DRIFT_MS..=MAX_GAP_MS).contains(&by_ms)
}

impl Reading {
    fn offset_ms(self) -> i64 {
        self.wall_ms.saturating_sub(self.uptime_ms)
    }
}

impl fmt::Display for ClockProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (direction, far) =
            (if self.by_ms < 0 { "behind" } else { "ahead of" }, span(self.by_ms));
        match self.cause {
            Cause::Jumped if self.by_ms < 0 => {
                write!(f, "the clock was set back by {far} while the gateway ran")
            }
            Cause::Jumped => write!(f, "the clock was set forward by {far} while the gateway ran"),
            Cause::Gap => write!(f, "the clock is {far} {direction} the newest record"),
        }
    }
}

fn span(ms: i64) -> String {
    let hours = ms.saturating_abs() / HOUR_MS;
    if hours >= 48 { format!("{} days", hours / 24) } else { format!("{hours} hours") }
}

#[cfg(test)]
mod tests;
