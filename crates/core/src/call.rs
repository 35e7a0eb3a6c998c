//! One invocation of a tool, and its updates while it runs.

mod backlog;
mod id;
mod state;
mod trace;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::Instant;

pub use self::backlog::Backlog;
pub(crate) use self::id::ByCallId;
pub use self::id::CallId;
pub(crate) use self::state::{CallState, CancelSignal, Deadline, Reader};
pub use self::trace::TraceContext;
use crate::client_capabilities::{ClientCapabilities, LogLevel};
use crate::outcome::{Attachment, CallError, CallErrorKind};
use crate::passthrough::Passthrough;
use crate::principal::{Principal, View};
use sa_text::json::RawJson;

/// The request that a surface passes to the router.
#[derive(Debug, Clone)]
pub struct CallRequest {
    /// The exposed name, or the provider's own.
    pub tool: String,
    pub args: RawJson,
    pub view: View,
    /// The surface that received the call, for the record.
    pub surface: &'static str,
    pub session_key: Option<Arc<str>>,
    /// A hard limit: nothing extends it.
    pub timeout: Option<Duration>,
    /// Replaces the tool's own timeout. Each update restarts it.
    pub idle_timeout: Option<Duration>,
    /// A retry with the same key returns the recorded outcome instead of a second run.
    pub idempotency_key: Option<Arc<str>>,
    pub trace: TraceContext,
}

/// The call that a provider receives.
#[derive(Debug)]
pub struct Call {
    pub id: CallId,
    /// The provider's own name of the tool.
    pub tool: Arc<str>,
    pub args: RawJson,
    pub principal: Arc<Principal>,
    pub session_key: Option<Arc<str>>,
    pub trace: TraceContext,
    pub(crate) state: Arc<CallState>,
}

impl Call {
    /// Returns the time left, as of now. Progress extends it if the caller set no hard limit.
    pub fn time_left(&self) -> Duration {
        self.state.deadline.ends().saturating_duration_since(Instant::now())
    }

    /// Returns the reason why the call was cancelled, if it was.
    pub fn cancel_reason(&self) -> Option<CancelReason> {
        self.state.cancel.reason()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelReason {
    /// A client requested it.
    Requested,
    /// The caller disconnected.
    Disconnected,
    /// The deadline has passed.
    Deadline,
    /// The caller's token was revoked, or has expired.
    Revoked,
    /// The gateway is shutting down.
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

/// An update that a call sends while it runs.
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
    /// A log message of the tool. It is for observers, and not a part of the result.
    Log {
        level: LogLevel,
        logger: Option<String>,
        data: RawJson,
    },
}

/// Receives a call's updates on the side of a surface.
///
/// `send` never waits. A surface has a bounded queue, and returns an error when it is full.
pub trait UpdateSink: Send + Sync + 'static {
    fn send(&self, update: Update) -> Result<(), Overrun>;

    /// Returns how the caller can be reached with questions and log messages.
    fn client_capabilities(&self) -> ClientCapabilities {
        ClientCapabilities::default()
    }

    /// Sends a provider's question to the caller, if the surface supports its format. The answer
    /// has the same format.
    fn ask(&self, question: Question) -> BoxFuture<'static, Result<RawJson, CallError>> {
        Box::pin(std::future::ready(Err(unanswerable(&question.kind))))
    }
}

/// A provider's question to the caller, such as a request for user input or for a sample of the
/// caller's model.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// The kind of question, as named by the provider's protocol.
    pub kind: String,
    pub params: Passthrough,
}

fn unanswerable(kind: &str) -> CallError {
    CallError::new(CallErrorKind::Failed, format!("the caller cannot answer questions ({kind})"))
}

/// The reader of the updates does not keep up. Its call ends, so that no other task has to wait for
/// it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overrun;

/// The provider's end of a call's updates.
#[derive(Clone)]
pub struct Updates {
    state: Arc<CallState>,
}

impl Updates {
    pub(crate) fn new(state: Arc<CallState>) -> Self {
        Self { state }
    }

    /// Sends an update and restarts the idle timeout. After the call has ended or its reader has
    /// disconnected, updates are discarded.
    pub fn send(&self, update: Update) {
        self.state.deadline.extend();
        self.state.updates.fetch_add(1, Ordering::Relaxed);
        if self.state.reader.send(|| update).is_err() {
            self.state.cancel.fire(CancelReason::ReaderTooSlow);
        }
    }
}

impl Updates {
    /// Returns how the caller can be reached with questions and log messages.
    pub fn client_capabilities(&self) -> ClientCapabilities {
        self.state.reader.sink().map(|sink| sink.client_capabilities()).unwrap_or_default()
    }

    /// Sends a question to the caller, and waits for the answer. Both the question and the answer
    /// restart the idle timeout.
    pub async fn ask(&self, question: Question) -> Result<RawJson, CallError> {
        self.state.deadline.extend();
        let Some(sink) = self.state.reader.sink() else {
            return Err(unanswerable(&question.kind));
        };
        let answer = sink.ask(question).await;
        self.state.deadline.extend();
        answer
    }
}

impl fmt::Debug for Updates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Updates")
            .field("read", &self.state.reader.sink().is_some())
            .finish_non_exhaustive()
    }
}
