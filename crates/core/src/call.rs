//! One invocation of a tool, and what it says while it runs.

mod backlog;
mod id;
mod life;
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
pub(crate) use self::life::{CancelSignal, Deadline, Life, Reader};
pub use self::trace::TraceContext;
use crate::json::RawJson;
use crate::manner::{LogLevel, Manner};
use crate::outcome::{Attachment, CallError, CallErrorKind};
use crate::principal::{Principal, View};

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
    /// A hard limit: nothing extends it.
    pub timeout: Option<Duration>,
    /// Replaces the tool's own time limit. Each sign of life restarts it.
    pub idle_timeout: Option<Duration>,
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
    /// How long the call has left, as of now. Progress extends it if the caller set no hard limit.
    pub fn time_left(&self) -> Duration {
        self.life.deadline.ends().saturating_duration_since(Instant::now())
    }

    /// Why the call was ended before its outcome, if it was.
    pub fn cancel_reason(&self) -> Option<CancelReason> {
        self.life.cancel.reason()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelReason {
    /// Somebody asked for it.
    Requested,
    /// The caller went away.
    Disconnected,
    /// The time is up.
    Deadline,
    /// The caller's token was revoked, or has expired.
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
}

impl Updates {
    pub(crate) fn new(life: Arc<Life>) -> Self {
        Self { life }
    }

    /// Passes an update on, and takes it as a sign of life: the deadline moves. Once the call is over, or its reader
    /// is gone, nobody is told any more.
    pub fn send(&self, update: Update) {
        self.life.deadline.extend();
        self.life.updates.fetch_add(1, Ordering::Relaxed);
        if self.life.reader.tell(|| update).is_err() {
            self.life.cancel.fire(CancelReason::ReaderTooSlow);
        }
    }
}

impl Updates {
    /// How whoever made the call can be spoken to.
    pub fn manner(&self) -> Manner {
        self.life.reader.sink().map(|sink| sink.manner()).unwrap_or_default()
    }

    /// Asks whoever made the call, and waits for the answer. A question is a sign of life, and so is its answer.
    pub async fn ask(&self, question: Question) -> Result<RawJson, CallError> {
        self.life.deadline.extend();
        let Some(sink) = self.life.reader.sink() else {
            return Err(unanswerable(&question.what));
        };
        let answer = sink.ask(question).await;
        self.life.deadline.extend();
        answer
    }
}

impl fmt::Debug for Updates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Updates").field("read", &self.life.reader.sink().is_some()).finish_non_exhaustive()
    }
}
