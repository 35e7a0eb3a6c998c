//! Rate limit for recording refusals. A client that tries many tokens must not fill the disk or
//! displace other audit events.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// The maximum number of refusals that are recorded one by one within [`WINDOW`].
const ROWS: u32 = 10;
const WINDOW: Duration = Duration::from_secs(60);

/// Decides which refusals are recorded, and counts the others.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    minute: Mutex<Minute>,
}

#[derive(Debug, Default)]
struct Minute {
    began: Option<Instant>,
    rows: u32,
    more: u64,
}

/// The decision about one refusal.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// The number of earlier refusals that were only counted and must be recorded now.
    pub(crate) before: Option<u64>,
    /// Whether this refusal is recorded itself.
    pub(crate) written: bool,
}

impl Refusals {
    pub(crate) fn take(&self, now: Instant) -> Verdict {
        let mut minute = self.minute.lock();
        let mut before = 0;
        if minute.began.is_none_or(|began| now.saturating_duration_since(began) >= WINDOW) {
            before = minute.more;
            *minute = Minute { began: Some(now), rows: 0, more: 0 };
        }
        let written = minute.rows < ROWS;
        if written {
            minute.rows += 1;
        } else {
            minute.more += 1;
        }
        Verdict { before: (before > 0).then_some(before), written }
    }

    /// Returns and resets the number of refusals that were only counted.
    pub(crate) fn untold(&self) -> Option<u64> {
        let mut minute = self.minute.lock();
        Some(std::mem::take(&mut minute.more)).filter(|more| *more > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_a_few_rows_and_a_number() {
        let (refusals, start) = (Refusals::default(), Instant::now());
        let within = (0..5_000).map(|n| refusals.take(start + Duration::from_millis(n)));
        assert_eq!(within.filter(|verdict| verdict.written).count(), 10);
        // The first refusal after the window reports the others.
        let next = refusals.take(start + WINDOW);
        assert_eq!(next, Verdict { before: Some(4_990), written: true });
        assert_eq!(refusals.untold(), None);
        for _ in 0..12 {
            refusals.take(start + WINDOW);
        }
        assert_eq!((refusals.untold(), refusals.untold()), (Some(3), None));
        // Refusals that were reported within the window are not reported again, and no more rows
        // are written in it.
        assert_eq!(refusals.take(start + WINDOW), Verdict { before: None, written: false });
    }
}
