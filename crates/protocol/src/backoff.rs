use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

/// The delay before the next attempt to reconnect.
///
/// ```
/// use std::time::Duration;
/// use sa_protocol::ReconnectBackoff;
///
/// let backoff = ReconnectBackoff::default();
/// assert_eq!(backoff.delay(0, 0.0), Duration::from_secs(1));
/// assert_eq!(backoff.delay(3, 0.0), Duration::from_secs(8));
/// assert_eq!(backoff.delay(30, 1.0), Duration::from_secs(75));
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct ReconnectBackoff {
    /// The delay before the first attempt. One second by default.
    pub initial_delay: Duration,
    /// The upper limit of the exponential growth; jitter is added on top. One minute by default.
    pub max_delay: Duration,
    /// The factor by which the delay grows per attempt. Two by default.
    pub backoff_factor: f64,
    /// The number of failures in a row that ends the attempts. 0, the default, means no limit.
    pub max_attempts: u32,
}

impl Default for ReconnectBackoff {
    fn default() -> Self {
        Self {
            initial_delay: Duration::from_secs(1),
            max_delay: Duration::from_mins(1),
            backoff_factor: 2.0,
            max_attempts: 0,
        }
    }
}

impl ReconnectBackoff {
    /// The largest fraction of a delay that jitter may add.
    pub const JITTER: f64 = 0.25;

    /// Returns the delay before attempt `attempt` (the first is 0):
    /// `min(initial · factor^attempt, max)`, plus up to a quarter of it as jitter.
    ///
    /// `jitter` ranges from 0 (none) to 1 (the whole quarter). It is an argument, so that this
    /// function is deterministic and the caller chooses the source of randomness. Values out of
    /// range are clamped; a factor that is not finite counts as 1.
    pub fn delay(&self, attempt: u32, jitter: f64) -> Duration {
        let factor =
            if self.backoff_factor.is_finite() { self.backoff_factor.max(0.0) } else { 1.0 };
        let max = self.max_delay.as_secs_f64();
        let grown = self.initial_delay.as_secs_f64()
            * factor.powi(i32::try_from(attempt).unwrap_or(i32::MAX));
        // 0 · ∞ is NaN, and `min` then returns the other operand.
        let base = grown.min(max);
        let jitter = if jitter.is_finite() { jitter.clamp(0.0, 1.0) } else { 0.0 };
        Duration::try_from_secs_f64(base * Self::JITTER.mul_add(jitter, 1.0))
            .unwrap_or(self.max_delay)
    }

    /// Returns the delay with random jitter.
    pub fn delay_for_attempt(&self, attempt: u32) -> Duration {
        // The standard library has no other source of random numbers. The delays of two nodes only
        // have to differ.
        let random = RandomState::new().hash_one(attempt);
        self.delay(attempt, random as f64 / u64::MAX as f64)
    }

    /// Returns whether this number of failures in a row ends the attempts.
    ///
    /// ```
    /// # use sa_protocol::ReconnectBackoff;
    /// let backoff = ReconnectBackoff { max_attempts: 5, ..ReconnectBackoff::default() };
    /// assert!(!backoff.should_give_up(4) && backoff.should_give_up(5));
    /// assert!(!ReconnectBackoff::default().should_give_up(u32::MAX));
    /// ```
    pub fn should_give_up(&self, attempt: u32) -> bool {
        self.max_attempts > 0 && attempt >= self.max_attempts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn random_jitter_adds_up_to_a_quarter() {
        let backoff = ReconnectBackoff::default();
        let delays: Vec<Duration> = (0..100).map(|_| backoff.delay_for_attempt(2)).collect();
        assert!(
            delays.iter().all(|delay| (4.0..=5.0).contains(&delay.as_secs_f64())),
            "{delays:?}"
        );
        assert!(delays.iter().any(|delay| delay != &delays[0]), "jitter is not random");
    }

    proptest! {
        #[test]
        fn stays_between_the_base_and_a_quarter_more(attempt: u32, jitter in 0.0..=1.0, initial in 0u64..100_000, max in 0u64..1_000_000) {
            let backoff = ReconnectBackoff {
                initial_delay: Duration::from_millis(initial),
                max_delay: Duration::from_millis(max),
                ..ReconnectBackoff::default()
            };
            let base = backoff.delay(attempt, 0.0);
            let delay = backoff.delay(attempt, jitter);
            prop_assert!(base <= backoff.max_delay);
            prop_assert!(base <= delay);
            prop_assert!(delay.as_secs_f64() <= base.as_secs_f64() * 1.25 + 1e-6);
        }

        #[test]
        fn never_panics(attempt: u32, factor: f64, jitter: f64, initial: u64, max: u64) {
            let backoff = ReconnectBackoff {
                initial_delay: Duration::from_secs(initial),
                max_delay: Duration::from_secs(max),
                backoff_factor: factor,
                max_attempts: 0,
            };
            let _ = backoff.delay(attempt, jitter);
        }
    }
}
