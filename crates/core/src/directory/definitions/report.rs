//! The report for an operator about a provider's new list.

use std::sync::Arc;

use super::text::differences;
use sa_text::json::difference::Change;
use sa_text::json::shortened;

/// The number of tools in one list for which the audit event shows changes.
const MAX_TOOLS: usize = 3;
const MAX_CHANGES: usize = 3;

/// The changes in a provider's new list that an operator should know.
#[derive(Debug, Default)]
pub(in crate::directory) struct Report {
    pub(in crate::directory) changed: Vec<String>,
    pub(in crate::directory) held: bool,
    pub(in crate::directory) more_changed: usize,
    pub(in crate::directory) invisible: Vec<(Arc<str>, usize)>,
}

impl Report {
    pub(in crate::directory) fn is_empty(&self) -> bool {
        self.changed.is_empty() && self.invisible.is_empty()
    }

    pub(super) fn add(&mut self, name: &str, was: &str, now: &str) {
        if self.changed.len() == MAX_TOOLS {
            self.more_changed += 1;
            return;
        }
        let changes = differences(was, now);
        let text =
            changes.iter().take(MAX_CHANGES).map(|Change { path, was, now }| match (was, now) {
                (Some(was), Some(now)) => {
                    format!("{path} was {}, is {}", shortened(was), shortened(now))
                }
                (None, Some(now)) => format!("{path} was added: {}", shortened(now)),
                (Some(was), None) => format!("{path} was removed: {}", shortened(was)),
                (None, None) => path.clone(),
            });
        let text = text.collect::<Vec<_>>().join("; ");
        let more = changes.len().saturating_sub(MAX_CHANGES);
        let more = if more > 0 { format!("; and {more} more") } else { String::new() };
        self.changed.push(format!("{name}: {text}{more}"));
    }
}
