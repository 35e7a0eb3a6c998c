use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

/// How long to wait before connecting again.
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
    /// Before the first new attempt. One second unless told.
    pub initial_delay: Duration,
    /// The most that growth leads to; jitter comes on top. One minute unless told.
    pub max_delay: Duration,
    /// The growth from one attempt to the next. Two unless told.
    pub backoff_factor: f64,
    /// How many failures in a row end the attempts; 0, the default, means none do.
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
    /// The part of a delay that jitter may add at most.
    pub const JITTER: f64 = 0.25;

    /// The wait before attempt `attempt` (the first is 0): `min(initial · factor^attempt, max)`, and up to a quarter
    /// of it more.
    ///
    /// `jitter` runs from 0 (none) to 1 (the whole quarter). It is an argument, so that this stays a function of what
    /// it is given, and so that the source of chance is the caller's choice. Numbers out of range are brought into
    /// it: a factor that is no number counts as 1.
    pub fn delay(&self, attempt: u32, jitter: f64) -> Duration {
        let factor = if self.backoff_factor.is_finite() { self.backoff_factor.max(0.0) } else { 1.0 };
        let max = self.max_delay.as_secs_f64();
        let grown = self.initial_delay.as_secs_f64() * factor.powi(i32::try_from(attempt).unwrap_or(i32::MAX));
        // 0 · ∞ is not a number, and `min` then takes the other side.
        let base = grown.min(max);
        let jitter = if jitter.is_finite() { jitter.clamp(0.0, 1.0) } else { 0.0 };
        Duration::try_from_secs_f64(base * Self::JITTER.mul_add(jitter, 1.0)).unwrap_or(self.max_delay)
    }

    /// The same with random jitter.
    pub fn delay_for_attempt(&self, attempt: u32) -> Duration {
        // The standard library has no other source of random numbers, and two nodes need only differ.
        let random = RandomState::new().hash_one(attempt);
        self.delay(attempt, random as f64 / u64::MAX as f64)
    }

    /// Whether this many failures in a row end the attempts.
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
        assert!(delays.iter().all(|delay| (4.0..=5.0).contains(&delay.as_secs_f64())), "{delays:?}");
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
