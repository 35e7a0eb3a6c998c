//! Waits for events, with a limit that only a broken test reaches.

use std::time::Duration;

/// The timeout after which a test counts an event as missing.
pub const TIMEOUT: Duration = Duration::from_secs(20);

/// Waits for a future that must complete.
pub async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(TIMEOUT, what).await.expect("this never happened")
}

/// Polls until there is a value. For conditions that no event reports.
pub async fn eventually<T, F: Future<Output = Option<T>>>(
    what: &str,
    mut look: impl FnMut() -> F,
) -> T {
    let until = tokio::time::Instant::now() + TIMEOUT;
    loop {
        if let Some(seen) = look().await {
            return seen;
        }
        assert!(tokio::time::Instant::now() < until, "never saw {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
