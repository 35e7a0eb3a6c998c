//! The record of every call and every audit event: on disk, in the live feed, in the metrics, and as spans.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use sa_core::store::{Log, NewEntry};
use sa_core::{AuditEvent, CallError, CallRecord, CallStarted, Journal, Principal, RawJson, clock};
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::sync::broadcast;

use crate::metrics::Metrics;
use crate::redact;
use crate::telemetry::Spans;

/// The stream of ended calls.
pub const CALLS: &str = "calls";
/// The stream of audit events.
pub const AUDIT: &str = "audit";

/// Live events that one slow reader may be behind before it misses some.
const FEED: usize = 1_024;

pub struct StoreJournal {
    log: Arc<dyn Log>,
    metrics: Arc<Metrics>,
    spans: Option<Spans>,
    feed: broadcast::Sender<FeedEvent>,
    /// How much of arguments and results is kept.
    payload_bytes: usize,
    calls: Arc<str>,
    audit: Arc<str>,
}

/// One event of the live feed.
#[derive(Debug, Clone)]
pub struct FeedEvent {
    /// `call_started`, `call_ended` or `audit`.
    pub name: &'static str,
    /// Whose call it is; audit events have none.
    pub principal: Option<Arc<str>>,
    pub json: Arc<str>,
}

impl StoreJournal {
    pub fn new(log: Arc<dyn Log>, metrics: Arc<Metrics>, spans: Option<Spans>, payload_bytes: usize) -> Self {
        let feed = broadcast::channel(FEED).0;
        Self { log, metrics, spans, feed, payload_bytes, calls: CALLS.into(), audit: AUDIT.into() }
    }

    pub fn follow(&self) -> broadcast::Receiver<FeedEvent> {
        self.feed.subscribe()
    }

    fn publish(&self, name: &'static str, principal: Option<&Arc<str>>, json: impl FnOnce() -> Arc<str>) {
        if self.feed.receiver_count() > 0 {
            let _ = self.feed.send(FeedEvent { name, principal: principal.cloned(), json: json() });
        }
    }
}

impl Journal for StoreJournal {
    fn started(&self, call: &CallStarted) {
        self.publish("call_started", Some(&call.principal.id), || {
            let started = Started {
                id: call.id.to_string(),
                tool: &call.tool,
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
        if let Some(spans) = &self.spans {
            spans.call(&record, outcome);
        }
        let id = record.id.to_string();
        tracing::debug!(
            call_id = id,
            trace_id = format_args!("{:032x}", record.trace.trace_id),
            tool = &*redact::printable(&record.tool),
            outcome,
            duration_us = record.duration.as_micros() as u64,
            "call ended"
        );
        let json = to_json(&Ended::of(&record, &id, self.payload_bytes));
        self.publish("call_ended", Some(&record.principal.id), || json.as_str().into());
        self.log.record(NewEntry { stream: Arc::clone(&self.calls), key: Some(id.into()), body: Bytes::from(json) });
    }

    fn keep_pace(&self) -> Option<BoxFuture<'_, ()>> {
        self.log.keep_pace()
    }

    fn audit(&self, event: AuditEvent) {
        let written = Audited {
            what: event.what,
            who: redact::printable(&event.who),
            subject: redact::printable(&event.subject),
            detail: redact::printable(&event.detail),
            at_ms: clock::now_ms(),
        };
        let json = to_json(&written);
        self.publish("audit", None, || json.as_str().into());
        self.log.record(NewEntry { stream: Arc::clone(&self.audit), key: None, body: Bytes::from(json) });
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

#[derive(Serialize)]
pub(crate) struct Who<'a> {
    id: &'a str,
    name: &'a str,
    role: &'static str,
}

impl<'a> From<&'a Principal> for Who<'a> {
    fn from(principal: &'a Principal) -> Self {
        Self { id: &principal.id, name: &principal.name, role: principal.role.as_str() }
    }
}

#[derive(Serialize)]
struct Started<'a> {
    id: String,
    tool: &'a str,
    principal: Who<'a>,
    surface: &'a str,
    at_ms: i64,
}

/// A call as the history has it.
#[derive(Serialize)]
struct Ended<'a> {
    id: &'a str,
    tool: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    provider: Option<Provider<'a>>,
    principal: Who<'a>,
    surface: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_key: Option<&'a str>,
    trace_id: String,
    at_ms: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    waited_us: Option<u64>,
    duration_us: u64,
    #[serde(skip_serializing_if = "is_zero")]
    updates: u32,
    ok: bool,
    args: Payload<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<Payload<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Failure<'a>>,
}

#[derive(Serialize)]
struct Provider<'a> {
    kind: &'static str,
    id: &'a str,
}

#[derive(Serialize)]
pub(crate) struct Failure<'a> {
    kind: &'static str,
    message: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<&'a str>,
    retryable: bool,
}

impl<'a> From<&'a CallError> for Failure<'a> {
    fn from(error: &'a CallError) -> Self {
        let message = match error.message.char_indices().nth(2_000) {
            Some((cut, _)) => format!("{}…", &error.message[..cut]).into(),
            None => Cow::Borrowed(error.message.as_str()),
        };
        Self { kind: error.kind.as_str(), message, hint: error.hint.as_deref(), retryable: error.retryable }
    }
}

/// Arguments or a result: as JSON while it is small, else its size alone.
#[derive(Serialize)]
struct Payload<'a> {
    bytes: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    json: Option<Text<'a>>,
}

/// JSON text within JSON text.
enum Text<'a> {
    Whole(&'a RawValue),
    Masked(Box<RawValue>),
}

impl Serialize for Text<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Whole(raw) => raw.serialize(serializer),
            Self::Masked(raw) => raw.serialize(serializer),
        }
    }
}

impl<'a> Payload<'a> {
    fn of(json: &'a RawJson, limit: usize) -> Self {
        let kept =
            (json.len() <= limit && is_readable(json.as_str())).then(|| match redact::mask_json(json.as_str()) {
                Cow::Borrowed(text) => serde_json::from_str(text).map(Text::Whole),
                Cow::Owned(text) => RawValue::from_string(text).map(Text::Masked),
            });
        Self { bytes: json.len(), json: kept.and_then(Result::ok) }
    }
}

/// Whether readers can make values of a JSON text. `1e999` and `"\ud800"` are JSON by its grammar, and one of them in the
/// history would make every page with it unreadable. Most texts have nothing of the kind, and are not parsed for it.
fn is_readable(text: &str) -> bool {
    let (mut digits, mut before) = (0_usize, b' ');
    for byte in text.bytes() {
        digits = if byte.is_ascii_digit() { digits + 1 } else { 0 };
        let exponent = matches!(byte, b'e' | b'E') && before.is_ascii_digit();
        if exponent || digits > 300 || (before == b'\\' && byte == b'u') {
            return serde_json::from_str::<serde_json::Value>(text).is_ok();
        }
        before = byte;
    }
    true
}

impl<'a> Ended<'a> {
    fn of(record: &'a CallRecord, id: &'a str, payload_bytes: usize) -> Self {
        Self {
            id,
            tool: &record.tool,
            provider: record.provider.as_ref().map(|provider| Provider { kind: provider.kind, id: &provider.id }),
            principal: (&*record.principal).into(),
            surface: record.surface,
            session_key: record.session_key.as_deref(),
            trace_id: format!("{:032x}", record.trace.trace_id),
            at_ms: record.at_ms,
            waited_us: record.waited.map(|waited| waited.as_micros() as u64),
            duration_us: record.duration.as_micros() as u64,
            updates: record.updates,
            ok: record.outcome.is_ok(),
            args: Payload::of(&record.args, payload_bytes),
            result: record.outcome.as_ref().ok().map(|output| Payload::of(&output.content, payload_bytes)),
            error: record.outcome.as_ref().err().map(Into::into),
        }
    }
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

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants a reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// JSON of our own structs, which cannot fail.
pub(crate) fn to_json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_else(|_| "null".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, kept: bool) {
        let json = RawJson::parse(text).unwrap();
        let payload = Payload::of(&json, 4_096);
        assert_eq!((payload.bytes, payload.json.is_some()), (text.len(), kept), "{text}");
        assert!(serde_json::from_str::<serde_json::Value>(&to_json(&payload)).is_ok(), "{text}");
    }

    #[test]
    fn the_history_keeps_what_can_be_read_back() {
        for text in ["{\"a\":[1,2.5,-1e30]}", r#""\u00e4""#, r#""\ud83d\ude00""#, "\"1e999\"", "1e-999"] {
            check(text, true);
        }
        for text in ["1e999", "{\"a\":[-1E999]}", r#""\ud800""#, r#"{"\udc00":1}"#, &"9".repeat(400)] {
            check(text, false);
        }
    }
}
