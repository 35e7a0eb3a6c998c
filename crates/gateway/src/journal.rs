//! Records every call and audit event: on disk, in the live feed, in the metrics, and as spans.

use std::borrow::Cow;
use std::cell::Cell;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use sa_core::audit::MAX_SUBJECT;
use sa_core::store::Log;
use sa_core::{
    AuditEvent, CallErrorKind, CallId, CallRecord, CallStarted, Journal, ProviderEvent, clock,
};
use sa_http::call_json::{Who, ended};
use sa_http::feed::Feed;
use sa_http::history::{CALLS, labels, settled_within};
use sa_http::provider::provider_event;
use sa_limits::sampler::Sampler;
use sa_store::{Labelled, OpenOptions};
use sa_text::json::to_json;
use sa_text::redact;
use serde::Serialize;
use tokio::time::Instant;

use crate::metrics::Metrics;
use crate::recent::Recent;
use crate::telemetry::Spans;

/// Returns the options for opening the gateway's store. All openers must use them, because each
/// writer must maintain the index.
pub fn store_options(file: PathBuf) -> OpenOptions {
    OpenOptions { labelled: Some(Labelled { stream: CALLS, of: labels }), ..OpenOptions::new(file) }
}

/// The stream of audit events.
pub const AUDIT: &str = "audit";

/// The timeout for writing the audit event of a request before its response is sent. A slower store
/// is reported elsewhere.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// The maximum number of refusals per minute that are recorded one by one. A client that tries many
/// tokens must not fill the disk or displace other audit events.
const REFUSALS: u32 = 10;

thread_local! {
    /// A buffer that each thread reuses to serialize the records of calls.
    static PAGE: Cell<String> = const { Cell::new(String::new()) };
}

tokio::task_local! {
    /// Whether the current request has produced an audit event, see [`StoreJournal::answerable`].
    static AUDITED: Cell<bool>;
}

/// The maximum capacity of the buffer that is kept for reuse.
const LARGEST_PAGE: usize = 64 * 1024;

pub struct StoreJournal {
    log: Arc<dyn Log>,
    metrics: Arc<Metrics>,
    spans: Option<Spans>,
    feed: Feed,
    recent: Recent,
    refusals: Sampler,
    /// The maximum size of recorded arguments and results.
    payload_bytes: usize,
}

impl StoreJournal {
    pub fn new(
        log: Arc<dyn Log>,
        metrics: Arc<Metrics>,
        spans: Option<Spans>,
        payload_bytes: usize,
    ) -> Self {
        let (feed, recent) = (Feed::default(), Recent::default());
        let refusals = Sampler::new(REFUSALS);
        Self { log, metrics, spans, feed, recent, refusals, payload_bytes }
    }

    pub fn feed(&self) -> &Feed {
        &self.feed
    }

    /// Returns the statistics of the last minutes.
    pub fn recent(&self) -> &Recent {
        &self.recent
    }

    /// Records the number of refusals that were only counted. Called before the audit trail is
    /// read.
    pub(crate) fn tell_refusals(&self) {
        self.write_suppressed(self.refusals.take_suppressed());
    }

    fn write_suppressed(&self, more: u64) {
        if more > 0 {
            self.write_down(more_refusals(more));
        }
    }

    /// Runs a request, and waits until its audit event is on disk. An action must not be confirmed
    /// before its audit event is durable. Refusals are not waited for, because they changed
    /// nothing. On a full disk, events are kept in memory like other records, and the response is
    /// not delayed.
    pub(crate) async fn answerable<T>(&self, work: impl Future<Output = T>) -> T {
        let work = async { (work.await, AUDITED.with(Cell::get)) };
        let (answer, audited) = AUDITED.scope(Cell::new(false), work).await;
        if audited && !settled_within(ANSWER_TIMEOUT, &*self.log, AUDIT).await {
            tracing::warn!(
                "the store is very slow: a response was sent, but its audit event may not be on disk yet"
            );
        }
        answer
    }

    fn write_down(&self, event: AuditEvent) {
        let written = Audited {
            what: event.name,
            who: sa_text::printable(&event.actor),
            subject: sa_text::printable(&redact::mask_text(&event.subject)).into_owned().into(),
            detail: sa_text::printable(&redact::mask_text(&event.detail)).into_owned().into(),
            at_ms: clock::now_ms(),
        };
        let json = to_json(&written);
        self.feed.publish("audit", None, || json.as_str().into());
        self.log.record(AUDIT, None, json.as_bytes());
    }
}

impl Journal for StoreJournal {
    fn started(&self, call: &CallStarted) {
        self.feed.publish("call_started", Some(&call.principal.id), || {
            let started = Started {
                id: call.id.to_string(),
                tool: redact::mask_text(&call.tool),
                principal: (&*call.principal).into(),
                surface: call.surface,
                at_ms: call.at_ms,
            };
            to_json(&started).into()
        });
    }

    fn finished(&self, record: CallRecord) {
        let outcome = record.outcome.as_ref().map_or_else(|error| error.kind.as_str(), |_| "ok");
        let provider = record.provider.as_ref().map_or("none", |provider| provider.kind);
        self.metrics.call_ended(record.surface, provider, outcome, record.duration.as_secs_f64());
        self.recent.ended(
            clock::now_ms(),
            record.outcome.as_ref().err().map(|error| error.kind),
            record.duration,
        );
        if let Some(spans) = &self.spans {
            spans.call(&record, outcome);
        }
        // A refusal by the provider itself is not an audit event. The call history contains it.
        if let (Err(error), None) = (&record.outcome, &record.provider)
            && error.is_refusal()
        {
            let why = match error.kind {
                CallErrorKind::NotAllowed => error.message.as_str(),
                _ => {
                    "the token does not include the tool; the caller received the error for an unknown tool"
                }
            };
            self.refused(AuditEvent {
                name: "call.refused",
                actor: format!("{} {}", record.principal.role, record.principal.name),
                subject: record.tool.chars().take(MAX_SUBJECT).collect(),
                detail: why.chars().take(2 * MAX_SUBJECT).collect(),
            });
        }
        let mut id = [0; CallId::LEN];
        let id = record.id.encode(&mut id);
        tracing::debug!(
            call_id = id,
            trace_id = format_args!("{:032x}", record.trace.trace_id),
            tool = &*sa_text::printable(&redact::mask_text(&record.tool)),
            outcome,
            duration_us = record.duration.as_micros() as u64,
            "call ended"
        );
        let json = ended(&record, id, self.payload_bytes, PAGE.take());
        self.feed.publish("call_ended", Some(&record.principal.id), || json.as_str().into());
        self.log.record(CALLS, Some(id), json.as_bytes());
        if json.capacity() <= LARGEST_PAGE {
            PAGE.set(json);
        }
    }

    fn backpressure(&self) -> Option<BoxFuture<'_, ()>> {
        self.log.backpressure()
    }

    fn audit(&self, event: AuditEvent) {
        self.write_down(event);
        // Outside of a request there is no response that must wait.
        let _ = AUDITED.try_with(|audited| audited.set(true));
    }

    fn refused(&self, event: AuditEvent) {
        if let Some(more) = self.refusals.next(Instant::now()) {
            self.write_suppressed(more);
            self.write_down(event);
        }
    }

    fn provider_event(&self, event: &ProviderEvent) {
        self.feed.publish("node_event", None, || provider_event(event).into());
    }

    fn count(&self, what: &'static str, why: &'static str) {
        self.metrics.refused(what, why);
    }
}

impl std::fmt::Debug for StoreJournal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoreJournal").finish_non_exhaustive()
    }
}

fn more_refusals(more: u64) -> AuditEvent {
    let were = if more == 1 { "was" } else { "were" };
    let detail = format!("and {more} more {were} refused, within a minute");
    AuditEvent { name: "refused.more", actor: "several".into(), subject: String::new(), detail }
}

#[derive(Serialize)]
struct Started<'a> {
    id: String,
    tool: Cow<'a, str>,
    principal: Who<'a>,
    surface: &'a str,
    at_ms: i64,
}

#[derive(Serialize)]
struct Audited<'a> {
    what: &'a str,
    who: Cow<'a, str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    subject: Cow<'a, str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    detail: Cow<'a, str>,
    at_ms: i64,
}

#[cfg(test)]
mod tests {
    use sa_core::{CallError, Principal, RawJson};

    use super::*;

    /// Somebody pasted a token where the name of a tool belongs.
    #[test]
    fn a_token_in_the_place_of_a_name_is_masked() {
        let token = format!("sb_{}", "a1".repeat(20));
        let principal = Arc::new(Principal::new("p", "ann", sa_core::Role::Agent));
        let record = |tool: &str| CallRecord {
            id: CallId::new(),
            tool: tool.into(),
            exposed: Some(tool.into()),
            provider: None,
            principal: Arc::clone(&principal),
            surface: "http",
            session_key: Some(tool.into()),
            trace: sa_core::call::TraceContext::root(),
            args: RawJson::parse("{}").unwrap(),
            at_ms: 1,
            waited: None,
            duration: Duration::ZERO,
            updates: 0,
            outcome: Err(CallError::new(CallErrorKind::NotFound, format!("no tool {tool}"))
                .hint(format!("did you mean x{tool}?"))),
        };
        let written = |tool: &str| ended(&record(tool), "id", 100, String::new());
        assert!(!written(&token).contains("a1a1"), "{}", written(&token));
        let read: serde_json::Value = serde_json::from_str(&written(&token)).unwrap();
        let (error, key) = (&read["error"], &read["session_key"]);
        let texts = [&read["tool"], &read["exposed"], key, &error["message"], &error["hint"]];
        let masked = texts.map(|text| text.as_str().unwrap().contains(sa_text::mask::MASK));
        assert_eq!(masked, [true; 5], "{read}");
        for tool in ["demo.echo", "sb_search", "search__find_pages"] {
            let read: serde_json::Value = serde_json::from_str(&written(tool)).unwrap();
            assert_eq!((&read["tool"], &read["exposed"]), (&tool.into(), &tool.into()));
        }
        let dir = tempfile::tempdir().unwrap();
        let options = sa_store::OpenOptions::new(dir.path().join("store.db"));
        let store: Arc<dyn Log> = Arc::new(sa_store::Store::open(options).unwrap());
        let journal = StoreJournal::new(store, Arc::new(Metrics::new()), None, 100);
        let mut feed = journal.feed().follow();
        journal.started(&CallStarted {
            id: CallId::new(),
            tool: token.as_str().into(),
            principal: Arc::clone(&principal),
            surface: "http",
            at_ms: 1,
        });
        journal.finished(record(&token));
        journal.audit(AuditEvent {
            name: "call.refused",
            actor: "agent ann".into(),
            subject: token.clone(),
            detail: format!("no tool {token}"),
        });
        for name in ["call_started", "call_ended", "audit"] {
            let event = feed.try_recv().unwrap();
            assert_eq!(event.name, name);
            assert!(event.json.contains(sa_text::mask::MASK), "{}", event.json);
            assert!(!event.json.contains("a1a1"), "{}", event.json);
        }
    }
}
