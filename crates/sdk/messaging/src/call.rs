//! Calls to the methods of other participants.

use std::collections::HashMap;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::Stream;
use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;
use tokio::sync::{Notify, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::payload::{MethodCallRequest, MethodCancel, MethodResult, Payload as _};
use crate::queue::{Item, Queue, Reader};
use crate::shared::{Draft, Shared};
use crate::{Attachment, Error};

/// The idle timeout of a method that advertises no timeout.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// Options of a method call.
#[derive(Debug, Clone, Default)]
pub struct CallOptions {
    signal: Option<CancellationToken>,
    timeout: Option<Duration>,
    idle_timeout: Option<Duration>,
    schema: Option<Value>,
}

impl CallOptions {
    pub fn new() -> Self {
        Self::default()
    }

    /// Cancels the call when this token is cancelled.
    #[must_use]
    pub fn signal(mut self, signal: CancellationToken) -> Self {
        self.signal = Some(signal);
        self
    }

    /// Sets the maximum duration of the call. Progress does not extend it.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sets the maximum time without a message of the provider: each partial result and each
    /// progress report restarts it. The default, if no [`timeout`](Self::timeout) is set, is the
    /// timeout that the method advertises, or else 60 seconds.
    #[must_use]
    pub fn idle_timeout(mut self, timeout: Duration) -> Self {
        self.idle_timeout = Some(timeout);
        self
    }

    /// Checks the arguments against this JSON Schema before they are sent.
    #[must_use]
    pub fn validate_args(mut self, schema: Value) -> Self {
        self.schema = Some(schema);
        self
    }

    pub(crate) fn check(&self, args: &Value) -> Result<(), Error> {
        let Some(schema) = &self.schema else { return Ok(()) };
        let validator = jsonschema::validator_for(schema).map_err(|error| {
            Error::sent("the arguments", format!("their schema is invalid: {error}"))
        })?;
        crate::method::check_against(&validator, args)
            .map_err(|mistakes| Error::sent("the arguments", mistakes.join("; ")))
    }
}

/// A call in progress. Dropping it cancels the call.
#[must_use = "dropping a call cancels it"]
pub struct MethodCall {
    state: Arc<CallState>,
    cancel: CancellationToken,
    _cancel_on_drop: DropGuard,
}

/// The result of a successful call.
#[derive(Debug, Clone, PartialEq)]
pub struct MethodValue {
    pub content: Value,
    pub content_type: Option<String>,
    pub attachments: Vec<Attachment>,
}

/// A part of a result.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MethodChunk {
    pub content: Option<Value>,
    pub content_type: Option<String>,
    /// The progress in per cent.
    pub progress: Option<f64>,
    pub attachments: Vec<Attachment>,
    /// The number of parts that were dropped before this one, because they were not read in time.
    pub missed: u64,
}

impl MethodCall {
    /// Returns the call's id, as its provider sees it.
    pub fn id(&self) -> &str {
        &self.state.id
    }

    /// Waits for the result. It may be called more than once.
    pub async fn result(&self) -> Result<MethodValue, Error> {
        self.state.outcome().await
    }

    /// Returns the parts that the method sends before its result. The stream ends with the call;
    /// [`result`](Self::result) returns the outcome.
    pub fn stream(&self) -> MethodChunks {
        MethodChunks { reader: Reader::of(Arc::clone(&self.state.chunks)) }
    }

    /// Ends the call with [`Error::Cancelled`] at once, and asks the provider to stop. Later
    /// messages of the provider, such as a partial result, arrive as
    /// [`Event::MethodResult`](crate::Event::MethodResult).
    pub fn cancel(&self) {
        self.cancel.cancel();
    }

    /// Returns whether the call has ended.
    pub fn is_complete(&self) -> bool {
        self.state.ended.borrow().is_some()
    }

    /// Returns whether the call has ended with an error.
    pub fn is_error(&self) -> bool {
        matches!(&*self.state.ended.borrow(), Some(Err(_)))
    }

    /// Returns the progress that the method has reported, in per cent.
    pub fn progress(&self) -> Option<f64> {
        *self.state.progress.lock()
    }
}

/// The stream that [`MethodCall::stream`] returns. Several streams of one call share its parts:
/// each part goes to one of them.
pub struct MethodChunks {
    reader: Reader<MethodChunk>,
}

impl Stream for MethodChunks {
    type Item = MethodChunk;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<MethodChunk>> {
        Pin::new(&mut self.reader).poll_next(cx)
    }
}

impl Item for MethodChunk {
    fn weight(&self) -> usize {
        let content = self.content.as_ref().map_or(0, |content| content.to_string().len());
        256 + content
            + self.attachments.iter().map(|attachment| attachment.data.len()).sum::<usize>()
    }

    fn lagged(missed: u64) -> Self {
        Self { missed, ..Self::default() }
    }
}

/// The state of a call, as the connection uses it.
pub(crate) struct CallState {
    id: String,
    provider: String,
    chunks: Arc<Queue<MethodChunk>>,
    progress: Mutex<Option<f64>>,
    ended: watch::Sender<Option<Result<MethodValue, Error>>>,
    /// Notified when the provider has sent a message.
    heard: Notify,
}

impl CallState {
    async fn outcome(&self) -> Result<MethodValue, Error> {
        let mut ended = self.ended.subscribe();
        let outcome = ended.wait_for(Option::is_some).await;
        // The sender is part of `self`, so it cannot be dropped.
        outcome.ok().and_then(|outcome| outcome.clone()).unwrap_or_else(|| Err(Error::closed()))
    }

    /// Ends the call, unless it has already ended.
    fn end(&self, outcome: Result<MethodValue, Error>) {
        self.ended.send_if_modified(|ended| {
            let first = ended.is_none();
            if first {
                *ended = Some(outcome);
            }
            first
        });
        self.chunks.end();
    }
}

/// The calls in progress.
#[derive(Default)]
pub(crate) struct Calls(Mutex<HashMap<String, Arc<CallState>>>);

impl Calls {
    /// Handles a result. It counts only if its sender is the provider of the call.
    pub(crate) fn result(&self, sender: &str, result: MethodResult, attachments: Vec<Attachment>) {
        let call = {
            let mut calls = self.lock();
            let Some(call) =
                calls.get(&result.call_id).filter(|call| call.provider == sender).cloned()
            else {
                return;
            };
            if result.complete || result.is_error {
                calls.remove(&result.call_id);
            }
            call
        };
        if let Some(progress) = result.progress {
            *call.progress.lock() = Some(progress);
        }
        call.heard.notify_one();
        let MethodResult { content, content_type, .. } = result;
        if result.is_error {
            call.end(Err(failure(content.as_ref())));
        } else if result.complete {
            call.end(Ok(MethodValue {
                content: content.unwrap_or_default(),
                content_type,
                attachments,
            }));
        } else {
            let progress = result.progress;
            call.chunks.push(&MethodChunk {
                content,
                content_type,
                progress,
                attachments,
                missed: 0,
            });
        }
    }

    /// Fails the calls of a participant that has left. Used with servers that do not report this to
    /// callers.
    pub(crate) fn provider_left(&self, provider: &str) {
        self.end_where(
            |call| call.provider == provider,
            &Error::ProviderOffline(format!("the participant \"{provider}\" left during the call")),
        );
    }

    pub(crate) fn end_all(&self, error: &Error) {
        self.end_where(|_| true, error);
    }

    fn end_where(&self, which: impl Fn(&CallState) -> bool, error: &Error) {
        let ended: Vec<_> = self.lock().extract_if(|_, call| which(call)).collect();
        for (_, call) in ended {
            call.end(Err(error.clone()));
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<CallState>>> {
        self.0.lock()
    }
}

/// Converts an error result into an error.
fn failure(content: Option<&Value>) -> Error {
    let text = |key| content.and_then(|content| content.get(key)).and_then(Value::as_str);
    let message =
        text("error").or_else(|| content.and_then(Value::as_str)).unwrap_or("the method failed");
    Error::from_code(text("code").unwrap_or_default(), message)
}

/// Starts a call.
pub(crate) fn begin(
    shared: &Arc<Shared>,
    provider: &str,
    method: &str,
    args: Value,
    options: CallOptions,
) -> MethodCall {
    let (call, state, cancel) = new_call(shared, provider);
    let id = state.id.clone();
    let request = MethodCallRequest {
        call_id: id.clone(),
        method_name: method.into(),
        provider_id: provider.into(),
        args,
    };
    let wanted = match &options.signal {
        Some(signal) if signal.is_cancelled() => {
            Err(Error::Cancelled("the call was cancelled before it was sent".into()))
        }
        _ => Ok(()),
    };
    let checked = wanted
        .and_then(|()| options.check(&request.args))
        .and_then(|()| shared.find_method(provider, method))
        .and_then(|advertised| Ok((advertised, request.write()?)));
    let (advertised, payload) = match checked {
        Ok(checked) => checked,
        Err(error) => {
            state.end(Err(error));
            return call;
        }
    };
    let by_default = options.timeout.is_none().then(|| advertised.unwrap_or(IDLE_TIMEOUT));
    let timeouts = Timeouts {
        total: options.timeout.unwrap_or(Duration::MAX),
        idle: options.idle_timeout.or(by_default).unwrap_or(Duration::MAX),
    };
    shared.calls.lock().insert(id, Arc::clone(&state));
    tokio::spawn(see_through(Arc::clone(shared), state, payload, timeouts, cancel, options.signal));
    call
}

/// Returns a call that failed before it was sent.
pub(crate) fn failed(shared: &Arc<Shared>, error: Error) -> MethodCall {
    let (call, state, _) = new_call(shared, "");
    state.end(Err(error));
    call
}

fn new_call(
    shared: &Arc<Shared>,
    provider: &str,
) -> (MethodCall, Arc<CallState>, CancellationToken) {
    let state = Arc::new(CallState {
        id: uuid::Uuid::new_v4().to_string(),
        provider: provider.into(),
        chunks: Arc::new(Queue::new(shared.config.buffer, |_| true)),
        progress: Mutex::new(None),
        ended: watch::Sender::new(None),
        heard: Notify::new(),
    });
    let cancel = CancellationToken::new();
    let guard = cancel.clone().drop_guard();
    let call =
        MethodCall { state: Arc::clone(&state), cancel: cancel.clone(), _cancel_on_drop: guard };
    (call, state, cancel)
}

#[derive(Clone, Copy)]
struct Timeouts {
    total: Duration,
    /// Restarted by each message of the provider.
    idle: Duration,
}

impl Timeouts {
    /// Waits until one of them has expired, and returns it.
    async fn expired(self, call: &CallState) -> Duration {
        let active =
            async { while tokio::time::timeout(self.idle, call.heard.notified()).await.is_ok() {} };
        match tokio::time::timeout(self.total, active).await {
            Ok(()) => self.idle,
            Err(_) => self.total,
        }
    }
}

/// Sends the call and drives it until it ends for any reason.
async fn see_through(
    shared: Arc<Shared>,
    call: Arc<CallState>,
    payload: String,
    timeouts: Timeouts,
    cancel: CancellationToken,
    signal: Option<CancellationToken>,
) {
    let draft = Draft {
        subject: Some(call.id.clone()),
        ..Draft::new(MethodCallRequest::KIND, payload, true)
    };
    let publish = std::pin::pin!(shared.publish(draft));
    let refused = async {
        match publish.await {
            Ok(_) => std::future::pending().await,
            Err(error) => error,
        }
    };
    let timeout = async {
        let time = timeouts.expired(&call).await;
        Error::Timeout(format!(
            "\"{}\" returned no result within {time:?}; increase the timeout, or check the log of the participant",
            call.provider
        ))
    };
    let cancelled = async {
        match &signal {
            Some(signal) => {
                tokio::select! { () = signal.cancelled() => {}, () = cancel.cancelled() => {} }
            }
            None => cancel.cancelled().await,
        }
        Error::Cancelled("the call was cancelled".into())
    };
    let error = tokio::select! {
        biased;
        _ = call.outcome() => return,
        () = shared.ended.cancelled() => shared.why_ended(),
        error = refused => error,
        // When the caller stops waiting, the provider is asked to stop.
        error = async { tokio::select! { error = cancelled => error, error = timeout => error } } => {
            tell_provider(&shared, &call.id);
            error
        }
    };
    shared.calls.lock().remove(&call.id);
    call.end(Err(error));
}

/// Informs the provider that no caller waits any more.
fn tell_provider(shared: &Arc<Shared>, call: &str) {
    let shared = Arc::clone(shared);
    let Ok(payload) = (MethodCancel { call_id: call.into() }).write() else { return };
    tokio::spawn(async move {
        // A call that has already ended needs no cancel.
        let _ = shared.publish(Draft::new(MethodCancel::KIND, payload, true)).await;
    });
}

impl fmt::Debug for MethodCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MethodCall")
            .field("id", &self.state.id)
            .field("complete", &self.is_complete())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for MethodChunks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MethodChunks").finish_non_exhaustive()
    }
}
