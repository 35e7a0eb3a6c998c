//! The only module that reads the wall clock. Deadlines use tokio's clock, which tests can pause.

use std::time::{SystemTime, UNIX_EPOCH};

/// Returns milliseconds since the Unix epoch.
#[expect(clippy::disallowed_methods, reason = "this is the one place")]
pub fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64)
}
