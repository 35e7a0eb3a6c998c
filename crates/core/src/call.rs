//! One invocation of a tool, and what it says while it runs.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::Notify;
use tokio::time::Instant;
use uuid::Uuid;

use crate::json::RawJson;
use crate::manner::{LogLevel, Manner};
use crate::outcome::{Attachment, CallError, CallErrorKind};
use crate::principal::{Principal, View};
use crate::provider::ProviderId;

/// What a surface hands to the router.
#[derive(Debug, Clone)]
pub struct CallRequest {
    /// The exposed name, or the provider's own.
    pub tool: String,
    pub args: RawJson,
    pub view: View,
    /// Which surface it came through, for the record.
    pub surface: &'static str,
    pub session_key: Option<Arc<str>>,
    /// Overrides the tool's own time limit.
    pub timeout: Option<Duration>,
    /// A retry with the same key gets the recorded outcome instead of a second run.
    pub idempotency_key: Option<Arc<str>>,
    pub trace: TraceContext,
}

/// What a provider is given.
#[derive(Debug)]
pub struct Call {
    pub id: CallId,
    /// The provider's own name of the tool.
    pub tool: Arc<str>,
    pub args: RawJson,
    pub principal: Arc<Principal>,
    pub session_key: Option<Arc<str>>,
    pub trace: TraceContext,
    pub(crate) life: Arc<Life>,
}

impl Call {
    /// How long the call has left, as of now; progress extends it.
    pub fn time_left(&self) -> Duration {
        self.life.deadline.ends().saturating_duration_since(Instant::now())
    }

    /// Why the call was ended before its outcome, if it was.
    pub fn cancel_reason(&self) -> Option<CancelReason> {
        self.life.cancel.reason()
    }
}

/// Unique, and ordered by the time of the call.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallId(Uuid);

/// A table of calls by their id.
pub(crate) type ByCallId<T> = HashMap<CallId, T, BuildHasherDefault<CallIdHasher>>;

impl Hash for CallId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // The half that is random.
        state.write_u64(self.0.as_u64_pair().1);
    }
}

/// Takes an id for what it is: a random number that the gateway has chosen itself, which needs no hashing to be spread
/// evenly, nor to be unknown to an attacker.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct CallIdHasher(u64);

impl Hasher for CallIdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, number: u64) {
        // Tables take their top bits for a tag, and the variant of a UUID is always the same there.
        self.0 = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32);
    }
}

impl CallId {
    pub fn new() -> Self {
        Self(Uuid::now_v7())
    }

    /// Its text, without an allocation.
    pub fn encode(self, buffer: &mut [u8; Self::LEN]) -> &str {
        self.0.as_hyphenated().encode_lower(buffer)
    }

    /// The length of its text.
    pub const LEN: usize = uuid::fmt::Hyphenated::LENGTH;
}

impl Default for CallId {
    fn default() -> Self {
        Self::new()
    }
}

impl FromStr for CallId {
    type Err = uuid::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Uuid::from_str(text).map(Self)
    }
}

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The W3C trace context that a call belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceContext {
    pub trace_id: u128,
    /// The caller's span; 0 when the trace begins here.
    pub parent: u64,
    /// The call's own span, which the provider's spans hang under.
    pub span: u64,
    pub sampled: bool,
}

impl TraceContext {
    /// A trace that begins here.
    pub fn root() -> Self {
        let (trace_id, span) = Uuid::new_v4().as_u64_pair();
        Self { trace_id: Uuid::new_v4().as_u128(), parent: 0, span: span ^ trace_id, sampled: true }
    }

    /// Goes on with the caller's trace, or begins one when the header is missing or malformed.
    pub fn continue_from(traceparent: Option<&str>) -> Self {
        traceparent.and_then(Self::parse).unwrap_or_else(Self::root)
    }

    fn parse(header: &str) -> Option<Self> {
        let mut parts = header.trim().split('-');
        let (version, trace, parent, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let shaped =
            version.len() == 2 && version != "ff" && trace.len() == 32 && parent.len() == 16 && flags.len() == 2;
        let future_version = version != "00";
        if !shaped || (parts.next().is_some() && !future_version) {
            return None;
        }
        let trace_id = u128::from_str_radix(trace, 16).ok().filter(|id| *id != 0)?;
        let parent = u64::from_str_radix(parent, 16).ok().filter(|id| *id != 0)?;
        let sampled = u8::from_str_radix(flags, 16).ok()? & 1 == 1;
        Some(Self { trace_id, parent, sampled, ..Self::root() })
    }

    /// The header for whoever comes next.
    pub fn traceparent(&self) -> String {
        let (mut trace, mut span) = ([0; 32], [0; 32]);
        let trace = self.encode_trace_id(&mut trace);
        // Every call has one of these, and `{:016x}` takes several times as long.
        let span = &hex(u128::from(self.span), &mut span)[16..];
        ["00-", trace, "-", span, if self.sampled { "-01" } else { "-00" }].concat()
    }

    /// The trace's id as 32 hexadecimal digits.
    pub fn encode_trace_id<'b>(&self, buffer: &'b mut [u8; 32]) -> &'b str {
        hex(self.trace_id, buffer)
    }
}

fn hex(number: u128, buffer: &mut [u8; 32]) -> &str {
    Uuid::from_u128(number).as_simple().encode_lower(buffer)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelReason {
    /// Somebody asked for it.
    Requested,
    /// The caller went away.
    Disconnected,
    /// The time is up.
    Deadline,
    /// The caller's token was revoked.
    Revoked,
    /// The gateway stops.
    Shutdown,
    /// The caller does not read its updates.
    ReaderTooSlow,
}

impl CancelReason {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Requested => "requested",
            Self::Disconnected => "disconnected",
            Self::Deadline => "deadline",
            Self::Revoked => "revoked",
            Self::Shutdown => "shutdown",
            Self::ReaderTooSlow => "reader_too_slow",
        }
    }
}

/// What a call says while it runs.
#[derive(Debug, Clone, PartialEq)]
pub enum Update {
    Progress {
        progress: f64,
        total: Option<f64>,
        message: Option<String>,
    },
    Chunk {
        content: RawJson,
        attachments: Vec<Attachment>,
    },
    /// What the tool would write into a log: for whoever follows along, and no part of its result.
    Log {
        level: LogLevel,
        logger: Option<String>,
        data: RawJson,
    },
}

/// Where a surface takes a call's updates.
///
/// `send` never waits: a surface has a bounded queue, and says so when it is full.
pub trait UpdateSink: Send + Sync + 'static {
    fn send(&self, update: Update) -> Result<(), Overrun>;

    /// How whoever made the call can be spoken to.
    fn manner(&self) -> Manner {
        Manner::default()
    }

    /// Puts a provider's question to whoever made the call, if the surface has a way to.
    fn ask(&self, question: Question) -> BoxFuture<'static, Result<RawJson, CallError>> {
        Box::pin(std::future::ready(Err(unanswerable(&question.what))))
    }
}

/// What a provider wants to know from whoever made the call: something typed by a person, say, or a word of their model.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// What kind of question it is, in the words of the protocol that it came by, such as `elicitation/create`.
    pub what: String,
    pub params: RawJson,
}

fn unanswerable(what: &str) -> CallError {
    CallError::new(CallErrorKind::Failed, format!("whoever made the call cannot be asked ({what})"))
}

/// The reader of the updates does not keep up. Its call ends, so that nobody else has to wait for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overrun;

/// The provider's end of a call's updates.
#[derive(Clone)]
pub struct Updates {
    life: Arc<Life>,
    sink: Option<Arc<dyn UpdateSink>>,
}

impl Updates {
    pub(crate) fn new(life: Arc<Life>, sink: Option<Arc<dyn UpdateSink>>) -> Self {
        Self { life, sink }
    }

    /// Passes an update on, and takes it as a sign of life: the deadline moves. Once the call is over, or its reader
    /// is gone, nobody is told any more.
    pub fn send(&self, update: Update) {
        self.life.deadline.extend();
        self.life.updates.fetch_add(1, Ordering::Relaxed);
        if let Some(sink) = &self.sink
            && !self.life.unread.load(Ordering::Acquire)
            && sink.send(update).is_err()
        {
            self.life.cancel.fire(CancelReason::ReaderTooSlow);
        }
    }
}

impl Updates {
    /// How whoever made the call can be spoken to.
    pub fn manner(&self) -> Manner {
        self.sink.as_ref().map(|sink| sink.manner()).unwrap_or_default()
    }

    /// Asks whoever made the call, and waits for the answer. A question is a sign of life, and so is its answer.
    pub async fn ask(&self, question: Question) -> Result<RawJson, CallError> {
        self.life.deadline.extend();
        let Some(sink) = self.sink.as_ref().filter(|_| !self.life.unread.load(Ordering::Acquire)) else {
            return Err(unanswerable(&question.what));
        };
        let answer = sink.ask(question).await;
        self.life.deadline.extend();
        answer
    }
}

impl fmt::Debug for Updates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Updates").field("read", &self.sink.is_some()).finish_non_exhaustive()
    }
}

/// What the router, the provider and whoever cancels share of one running call.
#[derive(Debug)]
pub(crate) struct Life {
    pub(crate) deadline: Deadline,
    pub(crate) cancel: CancelSignal,
    pub(crate) updates: AtomicU32,
    /// Nobody takes updates any more: the call is over, or goes on without its caller.
    pub(crate) unread: AtomicBool,
    /// Whom the call was given to, and when.
    pub(crate) dispatched: Mutex<Option<(ProviderId, Instant)>>,
}

/// A time limit that signs of life push further out, up to a cap that nothing moves.
#[derive(Debug)]
pub(crate) struct Deadline {
    started: Instant,
    /// Milliseconds after `started`.
    ends: AtomicU64,
    limit_ms: AtomicU64,
    cap_ms: u64,
    /// Wakes whoever sleeps until an end that has come nearer meanwhile.
    moved: Notify,
}

impl Deadline {
    pub(crate) fn new(limit: Duration, cap: Duration) -> Self {
        let cap_ms = cap.as_millis() as u64;
        let limit_ms = (limit.as_millis() as u64).min(cap_ms);
        Self {
            started: Instant::now(),
            ends: AtomicU64::new(limit_ms),
            limit_ms: AtomicU64::new(limit_ms),
            cap_ms,
            moved: Notify::new(),
        }
    }

    pub(crate) fn limit(&self) -> Duration {
        Duration::from_millis(self.limit_ms.load(Ordering::Relaxed))
    }

    pub(crate) fn cap(&self) -> Duration {
        Duration::from_millis(self.cap_ms)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.ends() <= Instant::now()
    }

    /// Whether it was the cap that ended it, after signs of life.
    pub(crate) fn is_at_cap(&self) -> bool {
        let ends = self.ends.load(Ordering::Acquire);
        ends == self.cap_ms && ends > self.limit_ms.load(Ordering::Relaxed)
    }

    /// Changes the limit, which counts from the call's start.
    pub(crate) fn set_limit(&self, limit: Duration) {
        let limit_ms = (limit.as_millis() as u64).min(self.cap_ms);
        self.limit_ms.store(limit_ms, Ordering::Relaxed);
        self.ends.store(limit_ms, Ordering::Release);
        self.moved.notify_one();
    }

    pub(crate) fn extend(&self) {
        let now = self.started.elapsed().as_millis() as u64;
        let limit = self.limit_ms.load(Ordering::Relaxed);
        self.ends.fetch_max(now.saturating_add(limit).min(self.cap_ms), Ordering::AcqRel);
    }

    pub(crate) fn ends(&self) -> Instant {
        self.started + Duration::from_millis(self.ends.load(Ordering::Acquire))
    }

    /// Resolves when the time is really up, however often it was extended meanwhile.
    pub(crate) async fn expired(&self) {
        loop {
            let ends = self.ends();
            tokio::select! {
                () = tokio::time::sleep_until(ends) => {}
                () = self.moved.notified() => {}
            }
            if self.is_over() {
                return;
            }
        }
    }
}

/// Fires once, with the first reason given.
#[derive(Debug, Default)]
pub(crate) struct CancelSignal {
    reason: OnceLock<CancelReason>,
    news: Notify,
}

impl CancelSignal {
    /// `false` when it had fired before.
    pub(crate) fn fire(&self, reason: CancelReason) -> bool {
        let first = self.reason.set(reason).is_ok();
        self.news.notify_waiters();
        first
    }

    pub(crate) fn reason(&self) -> Option<CancelReason> {
        self.reason.get().copied()
    }

    pub(crate) async fn fired(&self) -> CancelReason {
        loop {
            // Made before the look at the reason, so that what fires in between is not missed.
            let news = self.news.notified();
            if let Some(reason) = self.reason() {
                return reason;
            }
            news.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_trace(header: &str, accepted: bool) {
        let trace = TraceContext::continue_from(Some(header));
        assert_eq!(trace.parent != 0, accepted, "{header}");
        assert_ne!(trace.trace_id, 0);
        assert_ne!(trace.span, 0);
    }

    #[test]
    fn trace_headers() {
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        check_trace(good, true);
        check_trace("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-what-the-future-brings", true);
        check_trace("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more", false);
        check_trace("ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", false);
        check_trace("00-00000000000000000000000000000000-00f067aa0ba902b7-01", false);
        check_trace("00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01", false);
        check_trace("00-é", false);
        check_trace("", false);
        let trace = TraceContext::continue_from(Some(good));
        assert!(trace.traceparent().starts_with("00-4bf92f3577b34da6a3ce929d0e0e4736-"));
        assert!(trace.traceparent().ends_with("-01"));
        let trace = TraceContext { trace_id: 0xa, parent: 0, span: 0xb, sampled: false };
        assert_eq!(trace.traceparent(), "00-0000000000000000000000000000000a-000000000000000b-00");
        assert_ne!(trace.span, trace.parent);
    }

    proptest::proptest! {
        #[test]
        fn no_trace_header_breaks_the_reader(header in proptest::prelude::any::<String>(), hex in "[0-9a-fA-F-]{0,60}") {
            for header in [header, hex] {
                let trace = TraceContext::continue_from(Some(&header));
                proptest::prop_assert_eq!(TraceContext::continue_from(Some(&trace.traceparent())).trace_id, trace.trace_id);
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_sign_of_life_moves_the_deadline_up_to_its_cap() {
        let deadline = Deadline::new(Duration::from_secs(60), Duration::from_secs(100));
        let started = Instant::now();
        tokio::time::advance(Duration::from_secs(30)).await;
        deadline.extend();
        assert_eq!(deadline.ends() - started, Duration::from_secs(90));
        tokio::time::advance(Duration::from_secs(30)).await;
        deadline.extend();
        assert_eq!(deadline.ends() - started, Duration::from_secs(100));
        deadline.expired().await;
        assert_eq!(Instant::now() - started, Duration::from_secs(100));
    }
}
