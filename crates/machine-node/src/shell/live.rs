//! The output of a running command, for the caller that watches it.

use parking_lot::Mutex;

use tokio::sync::Notify;

/// The maximum size of buffered output. The newest output is the most useful: when the buffer is
/// full, the oldest is skipped and counted. A command never waits for its watcher.
const MAX_WAITING: usize = 64 * 1024;

/// Buffered text for a caller; `None` while no caller watches.
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
    /// Starts or stops buffering for a caller.
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

    /// Waits until there is new output.
    pub(super) async fn news(&self) {
        self.news.notified().await;
    }

    /// Returns the output since the last call, with a note about skipped output.
    pub(super) fn take(&self) -> Option<String> {
        let mut waiting = self.lock();
        let Waiting { text, skipped } = std::mem::take(waiting.as_mut()?);
        match skipped {
            0 => Some(text).filter(|text| !text.is_empty()),
            _ => Some(format!("\n[{skipped} bytes of output are not shown here]\n{text}")),
        }
    }

    fn lock(&self) -> parking_lot::MutexGuard<'_, Option<Waiting>> {
        self.waiting.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_is_kept_and_the_rest_is_counted() {
        let live = Live::default();
        live.push("not watched");
        assert_eq!(live.take(), None);
        live.watch(true);
        live.push("a");
        live.push("é");
        assert_eq!(live.take().as_deref(), Some("aé"));
        assert_eq!(live.take(), None);
        // The characters have two bytes each, so that the cut falls inside a character.
        live.push(&"é".repeat(MAX_WAITING / 2));
        live.push("x");
        let text = live.take().unwrap();
        assert!(text.starts_with("\n[2 bytes of output are not shown here]\né"), "{}", &text[..60]);
        assert!(text.ends_with("éx"));
        live.push(&"y".repeat(3 * MAX_WAITING));
        let text = live.take().unwrap();
        assert!(
            text.starts_with(&format!("\n[{} bytes", 2 * MAX_WAITING))
                && text.len() < MAX_WAITING + 100
        );
    }
}
