//! The audit events that `doctor` checks.

use serde_json::Value;

use crate::lists::text;

/// The maximum age of the events.
const MAX_AGE_MS: i64 = 24 * 3_600 * 1_000;

/// The maximum number of pages that are read. If this machine's clock is wrong, every event may
/// seem new.
pub(super) const MAX_PAGES: usize = 400;

/// The checked events, newest first.
#[derive(Default)]
pub(super) struct Recent {
    pub(super) events: Vec<Value>,
    /// Whether there are more pages than the maximum.
    pub(super) is_partial: bool,
}

/// Reads the events of these kinds of the last day, however many other events are among them.
/// `page` returns the page at a cursor; `None` if it cannot be read.
pub(super) async fn recent(
    now_ms: i64,
    kinds: &[&str],
    page: impl AsyncFn(Option<u64>) -> Option<Value>,
) -> Recent {
    let mut recent = Recent::default();
    let mut cursor = None;
    for _ in 0..MAX_PAGES {
        let Some(mut page) = page(cursor).await else { return recent };
        for event in page["events"].as_array_mut().into_iter().flatten() {
            if event["at_ms"].as_i64() < Some(now_ms - MAX_AGE_MS) {
                return recent;
            }
            if kinds.contains(&text(&event["what"])) {
                recent.events.push(event.take());
            }
        }
        cursor = page["next_cursor"].as_u64();
        if cursor.is_none() {
            return recent;
        }
    }
    recent.is_partial = true;
    recent
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use serde_json::json;

    use super::*;

    const NOW_MS: i64 = 1_790_000_000_000;
    const PAGE: u64 = 500;

    /// Reads the events of a log with one event per second, the newest at this time, and returns
    /// their seconds and the number of pages read.
    async fn read(
        newest_ms: i64,
        log: u64,
        what: impl Fn(u64) -> &'static str,
    ) -> (Vec<i64>, usize, bool) {
        let pages = Cell::new(0);
        let page = async |cursor: Option<u64>| {
            pages.set(pages.get() + 1);
            let from = cursor.unwrap_or(0);
            let to = (from + PAGE).min(log);
            let event =
                |at: u64| json!({ "what": what(at), "at_ms": newest_ms - 1_000 * at as i64 });
            let events: Vec<Value> = (from..to).map(event).collect();
            Some(json!({ "events": events, "next_cursor": (to < log).then_some(to) }))
        };
        let Recent { events, is_partial } = recent(NOW_MS, &["node.connected"], page).await;
        let seconds =
            events.iter().map(|event| (newest_ms - event["at_ms"].as_i64().unwrap()) / 1_000);
        (seconds.collect(), pages.get(), is_partial)
    }

    #[tokio::test]
    async fn many_other_events_hide_none_of_the_last_day() {
        let seldom = |at: u64| if at % 10_000 == 9_999 { "node.connected" } else { "call.refused" };
        let (seconds, pages, is_partial) = read(NOW_MS, 200_000, seldom).await;
        assert_eq!(seconds, (1..=8).map(|n| n * 10_000 - 1).collect::<Vec<_>>());
        assert_eq!((pages, is_partial), (86_400 / 500 + 1, false), "older pages are not read");
        let (seconds, pages, is_partial) = read(NOW_MS, 12_000, seldom).await;
        assert_eq!((seconds, pages, is_partial), (vec![9_999], 24, false));
    }

    #[tokio::test]
    async fn a_clock_that_is_behind_does_not_read_everything() {
        let (_, pages, is_partial) = read(NOW_MS + 10 * MAX_AGE_MS, 1_000_000, |_| "").await;
        assert_eq!((pages, is_partial), (MAX_PAGES, true));
    }

    #[tokio::test]
    async fn an_unreadable_page_ends_the_list() {
        assert!(recent(NOW_MS, &[""], async |_| None).await.events.is_empty());
    }
}
