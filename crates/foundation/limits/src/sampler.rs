//! Limits how often an event is recorded that a client can cause at any rate. The others are
//! counted.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

const WINDOW: Duration = Duration::from_secs(60);

/// Selects a number of events per minute.
#[derive(Debug)]
pub struct Sampler {
    per_minute: u32,
    minute: Mutex<Minute>,
}

#[derive(Debug, Default)]
struct Minute {
    began: Option<Instant>,
    recorded: u32,
    suppressed: u64,
}

impl Sampler {
    pub fn new(per_minute: u32) -> Self {
        Self { per_minute, minute: Mutex::default() }
    }

    /// Returns whether to record this event: the number of events that were suppressed before, or
    /// `None`.
    pub fn next(&self, now: Instant) -> Option<u64> {
        let mut minute = self.minute.lock();
        if minute.began.is_none_or(|began| now.saturating_duration_since(began) >= WINDOW) {
            *minute = Minute { began: Some(now), recorded: 0, suppressed: minute.suppressed };
        }
        if minute.recorded == self.per_minute {
            minute.suppressed += 1;
            return None;
        }
        minute.recorded += 1;
        Some(std::mem::take(&mut minute.suppressed))
    }

    /// Returns and resets the number of events that were suppressed.
    pub fn take_suppressed(&self) -> u64 {
        std::mem::take(&mut self.minute.lock().suppressed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_a_few_events_and_a_number() {
        let (sampler, start) = (Sampler::new(10), Instant::now());
        let within = (0..5_000).map(|n| sampler.next(start + Duration::from_millis(n)));
        assert_eq!(within.filter(|recorded| *recorded == Some(0)).count(), 10);
        // The first event after the window reports the others.
        assert_eq!(sampler.next(start + WINDOW), Some(4_990));
        assert_eq!(sampler.take_suppressed(), 0);
        for _ in 0..12 {
            sampler.next(start + WINDOW);
        }
        assert_eq!((sampler.take_suppressed(), sampler.take_suppressed()), (3, 0));
        // Events that were reported within the window are not reported again, and no more events
        // are recorded in it.
        assert_eq!(sampler.next(start + WINDOW), None);
    }
}
