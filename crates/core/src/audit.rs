//! The record of every call, and of every event that an operator may have to answer for.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::call::CallId;
use crate::outcome::Outcome;
use crate::principal::Principal;
use crate::provider::ProviderId;
use sa_text::json::RawJson;

/// The maximum number of characters of an audit event's subject that any client can choose.
pub const MAX_SUBJECT: usize = 128;

/// Receives the reports of the router and the providers. The embedding program decides what to do
/// with them: a log on disk, a live feed, metrics.
pub trait Journal: Send + Sync + 'static {
    fn started(&self, call: &CallStarted);

    /// Records how a call ended. This method never waits and never fails, because a call may end in
    /// a destructor.
    fn finished(&self, record: CallRecord);

    /// Returns a future that a new call awaits while the journal is behind. This is the
    /// backpressure that bounds the journal's memory, because it refuses no record. `None` means
    /// that there is no backlog.
    fn backpressure(&self) -> Option<BoxFuture<'_, ()>>;

    fn audit(&self, event: AuditEvent);

    /// Records a refused request. Any client can repeat it at any rate, so a journal may record a
    /// few and count the rest.
    fn refused(&self, event: AuditEvent) {
        self.audit(event);
    }

    /// Forwards an event that a provider sends outside of any call to all watchers. It is not
    /// stored.
    fn provider_event(&self, event: &ProviderEvent) {
        let _ = event;
    }

    /// Counts a refused or dropped item: `what` is the boundary, `why` the reason.
    fn count(&self, what: &'static str, why: &'static str);
}

/// An event that a provider sends outside of any call.
#[derive(Debug, Clone)]
pub struct ProviderEvent {
    pub provider: ProviderId,
    /// Lowercase words with dots between them, such as `process.finished`.
    pub event: String,
    pub data: RawJson,
    pub at_ms: i64,
}

#[derive(Debug, Clone)]
pub struct CallStarted {
    pub id: CallId,
    /// The name that the caller used.
    pub tool: Arc<str>,
    pub principal: Arc<Principal>,
    pub surface: &'static str,
    pub at_ms: i64,
}

#[derive(Debug, Clone)]
pub struct CallRecord {
    pub id: CallId,
    /// The name that the caller used.
    pub tool: Arc<str>,
    /// The tool's name in lists, if it differs.
    pub exposed: Option<Arc<str>>,
    /// The provider of the call; absent if the call was never dispatched.
    pub provider: Option<ProviderId>,
    pub principal: Arc<Principal>,
    pub surface: &'static str,
    pub session_key: Option<Arc<str>>,
    pub trace: crate::call::TraceContext,
    pub args: RawJson,
    pub outcome: Outcome,
    pub at_ms: i64,
    /// The time from the start until the call was dispatched to the provider.
    pub waited: Option<Duration>,
    pub duration: Duration,
    pub updates: u32,
}

/// An event that an operator may have to answer for.
#[derive(Debug, Clone)]
pub struct AuditEvent {
    /// Words with dots between them: `node.connected`, `token.revoked`, `reply.forged`.
    pub name: &'static str,
    /// The principal or provider that caused the event.
    pub actor: String,
    /// The target of the action.
    pub subject: String,
    pub detail: String,
}

/// Records nothing. For tests, and for parts that are used on their own.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoJournal;

impl Journal for NoJournal {
    fn started(&self, _: &CallStarted) {}

    fn finished(&self, _: CallRecord) {}

    fn backpressure(&self) -> Option<BoxFuture<'_, ()>> {
        None
    }

    fn audit(&self, _: AuditEvent) {}

    fn count(&self, _: &'static str, _: &'static str) {}
}
