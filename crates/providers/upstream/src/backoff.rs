//! The backoff between attempts to connect to a server.

use std::time::Duration;

/// The backoff doubles up to `LONGEST_WAIT`, with a random jitter of up to 25 %.
const FIRST_WAIT: Duration = Duration::from_millis(250);
const LONGEST_WAIT: Duration = Duration::from_secs(60);

pub(crate) fn wait(failures: u32) -> Duration {
    let grown =
        FIRST_WAIT.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(LONGEST_WAIT);
    grown.mul_f64(1.0 + rand::random::<f64>() / 4.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_a_bound_and_vary() {
        for failures in 1..100 {
            assert!(
                (FIRST_WAIT..=LONGEST_WAIT.mul_f64(1.25)).contains(&wait(failures)),
                "{failures}"
            );
        }
        assert!(wait(4) > wait(1));
        let waits: std::collections::HashSet<Duration> = (0..10).map(|_| wait(3)).collect();
        assert!(waits.len() > 1);
    }
}
