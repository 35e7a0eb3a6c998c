//! Limits how often a warning is logged, because a client can cause it as often as it likes.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// The number of warnings that are logged per minute.
const MAX: u32 = 20;
const WINDOW: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(crate) struct Warnings(Mutex<Minute>);

#[derive(Debug, Default)]
struct Minute {
    began: Option<Instant>,
    logged: u32,
    suppressed: u64,
}

impl Warnings {
    /// Returns whether to log this warning: the number of warnings that were suppressed before, or
    /// `None`.
    pub(crate) fn next(&self, now: Instant) -> Option<u64> {
        let mut minute = self.0.lock();
        if minute.began.is_none_or(|began| now.saturating_duration_since(began) >= WINDOW) {
            *minute = Minute { began: Some(now), logged: 0, suppressed: minute.suppressed };
        }
        if minute.logged == MAX {
            minute.suppressed += 1;
            return None;
        }
        minute.logged += 1;
        Some(std::mem::take(&mut minute.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_warnings_per_minute_are_logged_and_the_others_are_counted() {
        let (warnings, start) = (Warnings::default(), Instant::now());
        for _ in 0..MAX {
            assert_eq!(warnings.next(start), Some(0));
        }
        assert_eq!((warnings.next(start), warnings.next(start + WINDOW / 2)), (None, None));
        assert_eq!(warnings.next(start + WINDOW), Some(2));
        assert_eq!(warnings.next(start + WINDOW), Some(0));
    }
}
