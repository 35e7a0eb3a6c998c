//! A journal that records everything in memory, and calls in the store as well.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use sa_core::audit::{AuditEvent, CallRecord, CallStarted, Journal, ProviderEvent};
use sa_core::store::Log;
use sa_http::call_json::ended;
use sa_http::feed::Feed;
use sa_http::history::CALLS;
use sa_http::provider::provider_event;

/// The maximum size of recorded arguments and results.
const PAYLOAD_BYTES: usize = 4_096;

/// Records calls, audit events and counts.
pub struct RecordingJournal {
    log: Arc<dyn Log>,
    feed: Feed,
    calls: Mutex<Vec<CallRecord>>,
    events: Mutex<Vec<AuditEvent>>,
    counts: Mutex<BTreeMap<(&'static str, &'static str), u64>>,
}

impl RecordingJournal {
    pub(crate) fn new(log: Arc<dyn Log>) -> Self {
        let (calls, events, counts) = (Mutex::default(), Mutex::default(), Mutex::default());
        Self { log, feed: Feed::default(), calls, events, counts }
    }

    pub(crate) fn feed(&self) -> Feed {
        self.feed.clone()
    }

    /// Returns the calls that have ended, oldest first.
    pub fn calls(&self) -> Vec<CallRecord> {
        self.calls.lock().clone()
    }

    /// Returns the audit events, oldest first.
    pub fn events(&self) -> Vec<AuditEvent> {
        self.events.lock().clone()
    }

    /// Returns how often this reason was counted at this boundary.
    pub fn counted(&self, at: &str, reason: &str) -> u64 {
        let counts = self.counts.lock();
        let mut matching = counts.iter().filter(|((its, why), _)| *its == at && *why == reason);
        matching.next().map_or(0, |(_, count)| *count)
    }
}

impl Journal for RecordingJournal {
    fn started(&self, _: &CallStarted) {}

    fn finished(&self, record: CallRecord) {
        let id = record.id.to_string();
        let json = ended(&record, &id, PAYLOAD_BYTES, String::new());
        self.feed.publish("call_ended", Some(&record.principal.id), || json.as_str().into());
        self.log.record(CALLS, Some(&id), json.as_bytes());
        self.calls.lock().push(record);
    }

    fn backpressure(&self) -> Option<BoxFuture<'_, ()>> {
        self.log.backpressure()
    }

    fn audit(&self, event: AuditEvent) {
        self.events.lock().push(event);
    }

    fn provider_event(&self, event: &ProviderEvent) {
        self.feed.publish("node_event", None, || provider_event(event).into());
    }

    fn count(&self, what: &'static str, why: &'static str) {
        *self.counts.lock().entry((what, why)).or_default() += 1;
    }
}

impl std::fmt::Debug for RecordingJournal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecordingJournal").field("counts", &self.counts).finish_non_exhaustive()
    }
}
