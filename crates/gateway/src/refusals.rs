//! How much of what is refused is written down: whoever tries tokens as fast as they can must not fill the disk, nor push
//! everything else out of the audit trail.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Refusals that are written one by one within [`WINDOW`].
const ROWS: u32 = 10;
const WINDOW: Duration = Duration::from_secs(60);

/// Decides which refusals are written, and counts the others.
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

/// What is to be written about one refusal.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// This many before it were only counted, and are told now.
    pub(crate) before: Option<u64>,
    /// Whether it is written itself.
    pub(crate) written: bool,
}

impl Refusals {
    pub(crate) fn take(&self, now: Instant) -> Verdict {
        let mut minute = self.minute.lock().unwrap_or_else(PoisonError::into_inner);
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

    /// How many were counted and not told. They count as told from here on.
    pub(crate) fn untold(&self) -> Option<u64> {
        let mut minute = self.minute.lock().unwrap_or_else(PoisonError::into_inner);
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
        // The next one after the minute tells of the others, which are then told.
        let next = refusals.take(start + WINDOW);
        assert_eq!(next, Verdict { before: Some(4_990), written: true });
        assert_eq!(refusals.untold(), None);
        for _ in 0..12 {
            refusals.take(start + WINDOW);
        }
        assert_eq!((refusals.untold(), refusals.untold()), (Some(3), None));
        // Told before the minute was over, they are not told again, and no more rows are written in it.
        assert_eq!(refusals.take(start + WINDOW), Verdict { before: None, written: false });
    }
}
