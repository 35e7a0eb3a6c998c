//! Records every call and audit event: on disk, in the live feed, in the metrics, and as spans.

use std::borrow::{BorrowMut, Cow};
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use sa_core::audit::MAX_SUBJECT;
use sa_core::router::LiveCall;
use sa_core::store::{Log, Retention};
use sa_core::{
    AuditEvent, CallError, CallErrorKind, CallId, CallRecord, CallStarted, Journal, Principal,
    ProviderEvent, RawJson, clock,
};
use serde::Serialize;
use tokio::sync::broadcast;
use tokio::time::Instant;

use crate::metrics::Metrics;
use crate::recent::Recent;
use crate::refusals::{Refusals, Verdict};
use crate::telemetry::Spans;
use sa_http::provider::provider_event;
use sa_text::json::{ObjectWriter, to_json};
use sa_text::redact;

/// The stream of finished calls.
pub const CALLS: &str = "calls";
/// The stream of audit events.
pub const AUDIT: &str = "audit";

/// The timeout for pending writes before a read. They usually take milliseconds.
const ON_ITS_WAY: Duration = Duration::from_secs(2);

/// The timeout for writing the audit event of a request before its response is sent. A slower store
/// is reported elsewhere.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// The capacity of the live feed. A reader that falls further behind misses events.
const FEED: usize = 1_024;

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
    feed: broadcast::Sender<FeedEvent>,
    recent: Recent,
    refusals: Refusals,
    /// The maximum size of recorded arguments and results.
    payload_bytes: usize,
}

/// An event of the live feed.
#[derive(Debug, Clone)]
pub struct FeedEvent {
    /// `call_started`, `call_ended`, `node_event` or `audit`.
    pub name: &'static str,
    /// The principal of the call. `None` for events that only operators may see.
    pub principal: Option<Arc<str>>,
    pub json: Arc<str>,
}

impl StoreJournal {
    pub fn new(
        log: Arc<dyn Log>,
        metrics: Arc<Metrics>,
        spans: Option<Spans>,
        payload_bytes: usize,
    ) -> Self {
        let feed = broadcast::channel(FEED).0;
        let (recent, refusals) = (Recent::default(), Refusals::default());
        Self { log, metrics, spans, feed, recent, refusals, payload_bytes }
    }

    pub fn follow(&self) -> broadcast::Receiver<FeedEvent> {
        self.feed.subscribe()
    }

    /// Returns the statistics of the last minutes.
    pub fn recent(&self) -> &Recent {
        &self.recent
    }

    /// Records the number of refusals that were only counted. Called before the audit trail is
    /// read.
    pub(crate) fn tell_refusals(&self) {
        if let Some(more) = self.refusals.untold() {
            self.write_down(more_refusals(more));
        }
    }

    /// Waits until all earlier writes can be read. An empty trim is queued behind them. There is a
    /// timeout, in case the store is stuck.
    pub(crate) async fn settled(&self, stream: &str) {
        self.settled_within(ON_ITS_WAY, stream).await;
    }

    async fn settled_within(&self, timeout: Duration, stream: &str) -> bool {
        tokio::time::timeout(timeout, self.log.trim(stream, Retention::default())).await.is_ok()
    }

    /// Runs a request, and waits until its audit event is on disk. An action must not be confirmed
    /// before its audit event is durable. Refusals are not waited for, because they changed
    /// nothing. On a full disk, events are kept in memory like other records, and the response is
    /// not delayed.
    pub(crate) async fn answerable<T>(&self, work: impl Future<Output = T>) -> T {
        let work = async { (work.await, AUDITED.with(Cell::get)) };
        let (answer, audited) = AUDITED.scope(Cell::new(false), work).await;
        if audited && !self.settled_within(ANSWER_TIMEOUT, AUDIT).await {
            tracing::warn!(
                "the store is very slow: a response was sent, but its audit event may not be on disk yet"
            );
        }
        answer
    }

    fn write_down(&self, event: AuditEvent) {
        let written = Audited {
            what: event.what,
            who: sa_text::printable(&event.who),
            subject: sa_text::printable(&redact::mask_text(&event.subject)).into_owned().into(),
            detail: sa_text::printable(&redact::mask_text(&event.detail)).into_owned().into(),
            at_ms: clock::now_ms(),
        };
        let json = to_json(&written);
        self.publish("audit", None, || json.as_str().into());
        self.log.record(AUDIT, None, json.as_bytes());
    }

    fn publish(
        &self,
        name: &'static str,
        principal: Option<&Arc<str>>,
        json: impl FnOnce() -> Arc<str>,
    ) {
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
                what: "call.refused",
                who: format!("{} {}", record.principal.role, record.principal.name),
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
        self.publish("call_ended", Some(&record.principal.id), || json.as_str().into());
        self.log.record(CALLS, Some(id), json.as_bytes());
        if json.capacity() <= LARGEST_PAGE {
            PAGE.set(json);
        }
    }

    fn keep_pace(&self) -> Option<BoxFuture<'_, ()>> {
        self.log.keep_pace()
    }

    fn audit(&self, event: AuditEvent) {
        self.write_down(event);
        // Outside of a request there is no response that must wait.
        let _ = AUDITED.try_with(|audited| audited.set(true));
    }

    fn refused(&self, event: AuditEvent) {
        let Verdict { before, written } = self.refusals.take(Instant::now());
        if let Some(more) = before {
            self.write_down(more_refusals(more));
        }
        if written {
            self.write_down(event);
        }
    }

    fn provider_event(&self, event: &ProviderEvent) {
        self.publish("node_event", None, || provider_event(event).into());
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
    AuditEvent { what: "refused.more", who: "several".into(), subject: String::new(), detail }
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
    tool: Cow<'a, str>,
    principal: Who<'a>,
    surface: &'a str,
    at_ms: i64,
}

#[derive(Serialize)]
pub(crate) struct Failure<'a> {
    kind: &'static str,
    message: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<Cow<'a, str>>,
    retryable: bool,
}

impl<'a> From<&'a CallError> for Failure<'a> {
    fn from(error: &'a CallError) -> Self {
        let message = redact::mask_text(&error.message);
        let message = match message.char_indices().nth(2_000) {
            Some((cut, _)) => format!("{}…", &message[..cut]).into(),
            None => message,
        };
        Self {
            kind: error.kind.as_str(),
            message,
            hint: error.hint.as_deref().map(redact::mask_text),
            retryable: error.retryable,
        }
    }
}

/// Serializes a finished call for the history.
fn ended(record: &CallRecord, id: &str, payload_bytes: usize, page: String) -> String {
    let result = record.outcome.as_ref().ok().map(|output| &output.content);
    ObjectWriter::over(page)
        .text("id", id)
        .text("tool", &redact::mask_text(&record.tool))
        .maybe(record.exposed.as_deref(), |object, exposed| {
            object.text("exposed", &redact::mask_text(exposed))
        })
        .maybe(record.provider.as_ref(), |object, provider| {
            object.object("provider", |object| {
                object.text("kind", provider.kind).text("id", &provider.id)
            })
        })
        .object("principal", |object| {
            let Principal { id, name, role, .. } = &*record.principal;
            object.text("id", id).text("name", name).text("role", role.as_str())
        })
        .text("surface", record.surface)
        .maybe(record.session_key.as_deref(), |object, key| {
            object.text("session_key", &redact::mask_text(key))
        })
        .text("trace_id", record.trace.encode_trace_id(&mut [0; 32]))
        .plain("at_ms", record.at_ms)
        .maybe(record.waited, |object, waited| object.plain("waited_us", waited.as_micros() as u64))
        .plain("duration_us", record.duration.as_micros() as u64)
        .maybe(Some(record.updates).filter(|updates| *updates > 0), |object, updates| {
            object.plain("updates", updates)
        })
        .plain("ok", record.outcome.is_ok())
        .object("args", |object| payload(object, &record.args, payload_bytes))
        .maybe(result, |object, json| {
            object.object("result", |object| payload(object, json, payload_bytes))
        })
        .maybe(record.outcome.as_ref().err(), |object, error| {
            object.value("error", &Failure::from(error))
        })
        .end()
}

/// Serializes a running call in the format of a finished one. The duration is left out because it
/// differs each time.
pub(crate) fn running(call: &LiveCall, payload_bytes: usize) -> ObjectWriter<String> {
    let dispatched = call.dispatched();
    ObjectWriter::with_capacity(512 + call.args.len().min(payload_bytes))
        .text("id", call.id.encode(&mut [0; CallId::LEN]))
        .text("tool", &redact::mask_text(&call.tool))
        .maybe(call.exposed(), |object, exposed| {
            object.text("exposed", &redact::mask_text(exposed))
        })
        .maybe(dispatched.as_ref(), |object, (provider, _)| {
            object.object("provider", |object| {
                object.text("kind", provider.kind).text("id", &provider.id)
            })
        })
        .value("principal", &Who::from(&*call.principal))
        .text("surface", call.surface)
        .maybe(call.session_key.as_deref(), |object, key| {
            object.text("session_key", &redact::mask_text(key))
        })
        .text("trace_id", call.trace.encode_trace_id(&mut [0; 32]))
        .plain("at_ms", call.at_ms)
        .maybe(dispatched.as_ref(), |object, (_, waited)| {
            object.plain("waited_us", waited.as_micros() as u64)
        })
        .maybe(Some(call.updates()).filter(|updates| *updates > 0), |object, updates| {
            object.plain("updates", updates)
        })
        .object("args", |object| payload(object, &call.args, payload_bytes))
}

/// Serializes arguments or a result with secrets masked. Above the limit, only the size is
/// included.
pub(crate) fn payload<S: BorrowMut<String>>(
    object: ObjectWriter<S>,
    json: &RawJson,
    limit: usize,
) -> ObjectWriter<S> {
    let object = object.plain("bytes", json.len());
    if json.len() > limit {
        return object;
    }
    object.raw_text("json", &redact::mask_json(json.as_str()))
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
    use super::*;

    #[track_caller]
    fn check(text: &str, limit: usize, kept: bool) {
        let json = RawJson::parse(text).unwrap();
        let written = payload(ObjectWriter::with_capacity(64), &json, limit).end();
        let read: serde_json::Value = serde_json::from_str(&written).unwrap();
        assert_eq!(
            (read["bytes"].as_u64(), read.get("json").is_some()),
            (Some(text.len() as u64), kept),
            "{text}"
        );
    }

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
        let mut feed = journal.follow();
        journal.started(&CallStarted {
            id: CallId::new(),
            tool: token.as_str().into(),
            principal: Arc::clone(&principal),
            surface: "http",
            at_ms: 1,
        });
        journal.finished(record(&token));
        journal.audit(AuditEvent {
            what: "call.refused",
            who: "agent ann".into(),
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

    #[test]
    fn secrets_in_the_text_block_of_an_mcp_result_are_masked() {
        let text = r#"{"user":"ann","password":"canary"}"#;
        let result = serde_json::json!({ "content": [{ "type": "text", "text": text }] });
        let json = RawJson::of(&result);
        let written = payload(ObjectWriter::with_capacity(64), &json, 1_000).end();
        let read: serde_json::Value = serde_json::from_str(&written).unwrap();
        let shown = &read["json"]["content"][0]["text"];
        assert_eq!(shown, r#"{"user":"ann","password":"***"}"#, "{written}");
    }

    #[test]
    fn the_history_keeps_all_that_is_not_too_large() {
        for text in
            ["{\"a\":[1,2.5,-1e30]}", r#""\u00e4""#, r#""\ud83d\ude00""#, "\"1e999\"", "1e-999"]
        {
            check(text, text.len(), true);
            check(text, text.len() - 1, false);
        }
    }
}
