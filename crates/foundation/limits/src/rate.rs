//! Rate limits, on the clock of the runtime, which a simulation can control.

use std::num::NonZeroU32;
use std::time::Duration;

use governor::clock::Clock;
use governor::middleware::NoOpMiddleware;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use tokio::time::Instant;

/// A rate limit: events per second, and the number of events that may arrive at once.
pub struct Rate(RateLimiter<NotKeyed, InMemoryState, RuntimeClock, NoOpMiddleware<Duration>>);

impl Rate {
    pub fn new(per_second: NonZeroU32, burst: NonZeroU32) -> Self {
        let quota = Quota::per_second(per_second).allow_burst(burst);
        Self(RateLimiter::direct_with_clock(quota, RuntimeClock(Instant::now())))
    }

    /// Counts an event, and returns whether it is within the limit.
    pub fn take(&self) -> bool {
        self.0.check().is_ok()
    }
}

impl std::fmt::Debug for Rate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rate").finish_non_exhaustive()
    }
}

/// The time since this moment, on the runtime's clock.
#[derive(Debug, Clone)]
struct RuntimeClock(Instant);

impl Clock for RuntimeClock {
    type Instant = Duration;

    fn now(&self) -> Duration {
        self.0.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_rate_is_refilled_as_time_passes() {
        let number = |number| NonZeroU32::new(number).unwrap();
        let rate = Rate::new(number(2), number(3));
        assert!(rate.take() && rate.take() && rate.take());
        assert!(!rate.take());
        tokio::time::advance(Duration::from_millis(500)).await;
        assert!(rate.take());
        assert!(!rate.take());
        tokio::time::advance(Duration::from_secs(60)).await;
        assert!(rate.take() && rate.take() && rate.take());
        assert!(!rate.take());
    }
}
