//! Waiting for what must happen, with a bound that only a broken test reaches.

use std::time::Duration;

/// How long anything may take before a test counts it as never happening.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Waits for something that must happen.
pub async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, what).await.expect("this never happened")
}

/// Looks again and again until there is something to see. For what no event tells.
pub async fn eventually<T, F: Future<Output = Option<T>>>(what: &str, mut look: impl FnMut() -> F) -> T {
    let until = tokio::time::Instant::now() + PATIENCE;
    loop {
        if let Some(seen) = look().await {
            return seen;
        }
        assert!(tokio::time::Instant::now() < until, "never saw {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
