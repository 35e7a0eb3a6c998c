//! The record of what happened: every call, and every event that an operator may have to answer for.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::call::CallId;
use crate::json::RawJson;
use crate::outcome::Outcome;
use crate::principal::Principal;
use crate::provider::ProviderId;

/// Where the router and the providers report to. What becomes of it (a log on disk, a live feed, metrics) is not
/// the core's business.
pub trait Journal: Send + Sync + 'static {
    fn started(&self, call: &CallStarted);

    /// Takes the record of how a call ended. Never waits and never refuses: a call may end in a destructor.
    fn finished(&self, record: CallRecord);

    /// What a new call waits for while the journal is behind, so that what it holds in memory stays bounded though
    /// it refuses no record. `None` when there is nothing to wait for.
    fn keep_pace(&self) -> Option<BoxFuture<'_, ()>>;

    fn audit(&self, event: AuditEvent);

    /// The same for what was refused, which anybody can do again as fast as they can: of many, a journal may write down a
    /// few and a number for the rest.
    fn refused(&self, event: AuditEvent) {
        self.audit(event);
    }

    /// Passes on what a provider says outside of any call, to whoever watches. It is news, and not kept.
    fn provider_event(&self, event: &ProviderEvent) {
        let _ = event;
    }

    /// Counts something that was refused or dropped: `what` is the boundary, `why` the reason.
    fn count(&self, what: &'static str, why: &'static str);
}

/// What a provider says outside of any call.
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
    /// As the caller named it.
    pub tool: Arc<str>,
    pub principal: Arc<Principal>,
    pub surface: &'static str,
    pub at_ms: i64,
}

#[derive(Debug, Clone)]
pub struct CallRecord {
    pub id: CallId,
    /// As the caller named it.
    pub tool: Arc<str>,
    /// The name that the tool has in lists, where that is another one.
    pub exposed: Option<Arc<str>>,
    /// Who was asked; absent when it never came to that.
    pub provider: Option<ProviderId>,
    pub principal: Arc<Principal>,
    pub surface: &'static str,
    pub session_key: Option<Arc<str>>,
    pub trace: crate::call::TraceContext,
    pub args: RawJson,
    pub outcome: Outcome,
    pub at_ms: i64,
    /// From the start until the provider was given the call.
    pub waited: Option<Duration>,
    pub duration: Duration,
    pub updates: u32,
}

/// Something that an operator may have to answer for.
#[derive(Debug, Clone)]
pub struct AuditEvent {
    /// What happened, in dotted form: `node.connected`, `token.revoked`, `reply.forged`.
    pub what: &'static str,
    /// Who did it.
    pub who: String,
    /// To what it was done.
    pub subject: String,
    pub detail: String,
}

/// Keeps nothing: for tests, and for parts that are used on their own.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoJournal;

impl Journal for NoJournal {
    fn started(&self, _: &CallStarted) {}

    fn finished(&self, _: CallRecord) {}

    fn keep_pace(&self) -> Option<BoxFuture<'_, ()>> {
        None
    }

    fn audit(&self, _: AuditEvent) {}

    fn count(&self, _: &'static str, _: &'static str) {}
}
