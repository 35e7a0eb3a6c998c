//! What a running command writes, for the caller who watches.

use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;

/// The most that waits for a caller. The newest is worth most: what does not fit is skipped, oldest first, and counted. A
/// command never waits for whoever watches it.
const MAX_WAITING: usize = 64 * 1024;

/// Text on its way to a caller; nothing while nobody watches.
#[derive(Debug, Default)]
pub(super) struct Live {
    waiting: Mutex<Option<Waiting>>,
    news: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    text: String,
    skipped: usize,
}

impl Live {
    /// Somebody watches from now on, or nobody any more.
    pub(super) fn watch(&self, watched: bool) {
        *self.lock() = watched.then(Waiting::default);
    }

    pub(super) fn push(&self, text: &str) {
        let mut waiting = self.lock();
        let Some(waiting) = waiting.as_mut() else { return };
        if text.is_empty() {
            return;
        }
        let excess = (waiting.text.len() + text.len()).saturating_sub(MAX_WAITING);
        let old = waiting.text.ceil_char_boundary(excess.min(waiting.text.len()));
        waiting.text.drain(..old);
        let new = text.ceil_char_boundary(excess.saturating_sub(old));
        waiting.text.push_str(&text[new..]);
        waiting.skipped += old + new;
        self.news.notify_one();
    }

    /// Waits until there is something.
    pub(super) async fn news(&self) {
        self.news.notified().await;
    }

    /// What has come since the last time, with a word about what was skipped.
    pub(super) fn take(&self) -> Option<String> {
        let mut waiting = self.lock();
        let Waiting { text, skipped } = std::mem::take(waiting.as_mut()?);
        match skipped {
            0 => Some(text).filter(|text| !text.is_empty()),
            _ => Some(format!("\n[{skipped} bytes of output are not shown here]\n{text}")),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_is_kept_and_the_rest_is_counted() {
        let live = Live::default();
        live.push("nobody watches");
        assert_eq!(live.take(), None);
        live.watch(true);
        live.push("a");
        live.push("é");
        assert_eq!(live.take().as_deref(), Some("aé"));
        assert_eq!(live.take(), None);
        // Two bytes each, so that the cut falls into a character.
        live.push(&"é".repeat(MAX_WAITING / 2));
        live.push("x");
        let text = live.take().unwrap();
        assert!(text.starts_with("\n[2 bytes of output are not shown here]\né"), "{}", &text[..60]);
        assert!(text.ends_with("éx"));
        live.push(&"y".repeat(3 * MAX_WAITING));
        let text = live.take().unwrap();
        assert!(text.starts_with(&format!("\n[{} bytes", 2 * MAX_WAITING)) && text.len() < MAX_WAITING + 100);
    }
}
