//! One call: it waits for a permit, runs the tool, and turns the outcome into the response.

use std::any::Any;
use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use parking_lot::Mutex;
use sa_protocol::node::{
    Failure, Features, ToolChunk, ToolResponse, encode_chunk, encode_response,
};
use sa_protocol::{Attachment, ErrorKind, escaped_prefix, truncated_result};
use serde_json::Value;
use tokio::sync::{Semaphore, SemaphorePermit, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::live::Place;
use crate::{NodeTool, Principal, ToolContext, ToolError, ToolResult};

/// The state that all calls of one connection share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// The limit of running tools. It outlives the connection, so that tools that are still ending
    /// after a lost connection count as well.
    pub(crate) permits: Arc<Semaphore>,
    /// The queue of outgoing frames. It is bounded: tools wait when the connection does not keep
    /// up.
    pub(crate) outgoing: mpsc::Sender<Outgoing>,
    /// The features that the gateway supports.
    pub(crate) features: Features,
    pub(crate) limits: Limits,
    /// The time that a tool has to end after it was cancelled.
    pub(crate) grace: Duration,
}

/// The size limits of a response.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// The limit of the payload: the result with its attachments, or the error. The rest of the
    /// frame does not count.
    pub(crate) payload: usize,
    /// The limit of the whole frame, as the gateway accepts it.
    pub(crate) frame: usize,
}

impl Limits {
    /// Returns the payload budget of a response to this request.
    fn room(self, request_id: &str) -> usize {
        // An escaped byte of the id may take six. The rest is slightly more than
        // `{"type":"tool_response",…,"attachments":[]}`.
        let envelope = request_id.len() * 6 + 96;
        self.payload.min(self.frame.saturating_sub(envelope))
    }
}

/// A frame of a call.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) call: u64,
    pub(crate) text: String,
    /// Whether the call ends with this frame.
    pub(crate) last: bool,
}

/// The state of one call, shared by its tool's context, its task and the connection.
#[derive(Debug)]
pub(crate) struct CallState {
    shared: Arc<Shared>,
    number: u64,
    request_id: Box<str>,
    traceparent: Option<Box<str>>,
    deadline: Option<Instant>,
    principal: Option<Principal>,
    attachments: Mutex<Vec<Attachment<'static>>>,
}

impl CallState {
    pub(crate) fn new(
        shared: Arc<Shared>,
        number: u64,
        request_id: &str,
        traceparent: Option<&str>,
        deadline: Option<Instant>,
    ) -> Self {
        Self {
            shared,
            number,
            request_id: request_id.into(),
            traceparent: traceparent.map(Into::into),
            deadline,
            principal: None,
            attachments: Mutex::default(),
        }
    }

    pub(crate) fn with_principal(self, principal: Option<Principal>) -> Self {
        Self { principal, ..self }
    }

    pub(crate) fn request_id(&self) -> &str {
        &self.request_id
    }

    /// Returns the remaining byte budget of the result as JSON, after the attachments.
    pub(crate) fn room(&self) -> usize {
        self.room_beside(&self.attachments.lock())
    }

    fn room_beside(&self, attachments: &[Attachment<'_>]) -> usize {
        self.shared.limits.room(&self.request_id).saturating_sub(encoded_len(attachments))
    }

    pub(crate) fn traceparent(&self) -> Option<&str> {
        self.traceparent.as_deref()
    }

    pub(crate) fn principal(&self) -> Option<&Principal> {
        self.principal.as_ref()
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Returns the limit that the node itself must enforce. A gateway that can cancel enforces it
    /// itself, and knows by how much progress has extended it.
    fn own_limit(&self, limit: Option<Instant>) -> Option<Instant> {
        if self.shared.features.cancel { None } else { limit }
    }

    pub(crate) fn features(&self) -> Features {
        self.shared.features
    }

    /// Sends a frame if the queue has space for it now.
    pub(crate) fn offer(&self, text: String) {
        let _ = self.shared.outgoing.try_send(Outgoing { call: self.number, text, last: false });
    }

    /// Sends a part of the result, once the queue has space for it.
    pub(crate) async fn send_part(
        &self,
        content: &str,
        attachments: Vec<Attachment<'_>>,
    ) -> Result<(), ToolError> {
        let (size, limit) =
            (content.len() + encoded_len(&attachments), self.shared.limits.room(&self.request_id));
        if size > limit {
            return Err(ToolError::Failed(format!(
                "a chunk of {size} bytes is larger than the limit of {limit} bytes; send smaller chunks"
            )));
        }
        let mut text = String::new();
        encode_chunk(
            &mut text,
            &ToolChunk { request_id: Cow::Borrowed(&self.request_id), content, attachments },
        );
        let frame = Outgoing { call: self.number, text, last: false };
        let sent = self.shared.outgoing.send(frame).await;
        sent.map_err(|_| ToolError::Cancelled("the connection to the gateway was lost".to_owned()))
    }

    pub(crate) fn attach(
        &self,
        mime_type: String,
        name: Option<&str>,
        bytes: &[u8],
    ) -> Result<(), ToolError> {
        let new = Attachment::from_bytes(mime_type, name, bytes);
        let limit = self.shared.limits.room(&self.request_id);
        let mut all = self.attachments.lock();
        let size = encoded_len(&all) + new.encoded_len();
        // The remaining bytes are for the result, or for the note that it was truncated.
        if size + 1024 > limit {
            return Err(ToolError::Failed(format!(
                "attachments of {size} bytes (as base64) do not fit into a response of {limit} bytes"
            )));
        }
        all.push(new);
        Ok(())
    }

    fn take_attachments(&self) -> Vec<Attachment<'static>> {
        std::mem::take(&mut *self.attachments.lock())
    }
}

/// Runs a call to its end and sends exactly one response, even if the tool panics.
pub(crate) async fn run(
    call: Arc<CallState>,
    place: Place,
    tool: Arc<dyn NodeTool>,
    ctx: ToolContext,
    args: Option<String>,
) {
    let outcome = AssertUnwindSafe(execute(&call, tool, ctx, args)).catch_unwind().await;
    let outcome = outcome.unwrap_or_else(|panic| Err(panicked(panic.as_ref())));
    let text = catch_unwind(AssertUnwindSafe(|| respond(&call, outcome)))
        .unwrap_or_else(|panic| respond(&call, Err(panicked(panic.as_ref()))));
    // After this, no other frame can be sent for the call.
    drop(place);
    // If the connection is closed, no caller waits for the response.
    let _ = call.shared.outgoing.send(Outgoing { call: call.number, text, last: true }).await;
}

async fn execute(
    call: &CallState,
    tool: Arc<dyn NodeTool>,
    ctx: ToolContext,
    args: Option<String>,
) -> ToolResult {
    let cancel = ctx.cancel.clone();
    let _permit = turn(call, &cancel).await?;
    let args = match args {
        Some(text) => serde_json::from_str(&text)?,
        None => Value::Null,
    };
    let own = tool.timeout().and_then(|timeout| Instant::now().checked_add(timeout));
    let deadline = call.own_limit([own, call.deadline].into_iter().flatten().min());

    let mut running = pin!(tool.call(ctx, args));
    let late = tokio::select! {
        // Most tools end here, before any timer or waker is registered.
        biased;
        outcome = &mut running => return outcome,
        () = cancel.cancelled() => cancelled("the tool was cancelled, but did not end in time"),
        () = at(deadline) => ToolError::Timeout("the tool did not end in time".to_owned()),
    };
    cancel.cancel();
    // The tool's own result is better than a generic error, if it comes in time.
    tokio::time::timeout(call.shared.grace, running).await.unwrap_or(Err(late))
}

/// Waits for a permit to run a tool.
async fn turn<'a>(
    call: &'a CallState,
    cancel: &CancellationToken,
) -> Result<SemaphorePermit<'a>, ToolError> {
    // The common case does not queue.
    if let Ok(permit) = call.shared.permits.try_acquire() {
        return Ok(permit);
    }
    tokio::select! {
        // A call that has ended gets no permit, even if one became free at the same moment.
        biased;
        () = cancel.cancelled() => Err(cancelled("the call was cancelled while it was queued")),
        permit = call.shared.permits.acquire() => permit.map_err(|_| cancelled("the node is shutting down")),
        () = at(call.own_limit(call.deadline)) => Err(ToolError::Timeout("the call timed out while it was queued".to_owned())),
    }
}

async fn at(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

fn cancelled(why: &str) -> ToolError {
    ToolError::Cancelled(why.to_owned())
}

fn panicked(panic: &(dyn Any + Send)) -> ToolError {
    let message = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");
    ToolError::Failed(format!("the tool panicked: {message}"))
}

fn respond(call: &CallState, outcome: ToolResult) -> String {
    match outcome {
        Ok(value) => {
            let attachments = call.take_attachments();
            let room = call.room_beside(&attachments);
            success(&call.request_id, &value, attachments, room)
        }
        Err(error) => failure(&call.request_id, error.kind(), error.message(), call.shared.limits),
    }
}

/// Writes a response with a result. A result that exceeds the budget is truncated and marked as
/// such.
fn success(
    request_id: &str,
    value: &Value,
    attachments: Vec<Attachment<'_>>,
    room: usize,
) -> String {
    trap("serialise");
    let mut result = value.to_string();
    if result.len() > room {
        trap("cut");
        result = truncated_result(&result, room);
    }
    let mut text = String::new();
    let request_id = Cow::Borrowed(request_id);
    encode_response(
        &mut text,
        &ToolResponse { request_id, outcome: Ok(Some(&result)), attachments },
    );
    text
}

/// Writes a response with an error. A message that exceeds the budget is truncated.
pub(crate) fn failure(request_id: &str, kind: ErrorKind, message: &str, limits: Limits) -> String {
    let around = r#"{"kind":"","message":""}"#.len() + kind.as_str().len();
    let message = escaped_prefix(message, limits.room(request_id).saturating_sub(around).max(64));
    let frame = ToolResponse {
        request_id: Cow::Borrowed(request_id),
        outcome: Err(Failure { kind, message: Cow::Borrowed(message) }),
        attachments: Vec::new(),
    };
    let mut text = String::new();
    encode_response(&mut text, &frame);
    text
}

fn encoded_len(attachments: &[Attachment<'_>]) -> usize {
    attachments.iter().map(Attachment::encoded_len).sum()
}

/// Does nothing. It marks the points where tests inject a panic that has no other cause.
#[cfg(not(test))]
fn trap(_place: &str) {}

#[cfg(test)]
use tests::trap;

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use serde_json::json;

    use super::*;
    use crate::ToolRegistry;

    thread_local!(static TRAP: Cell<&'static str> = const { Cell::new("") });

    pub(super) fn trap(place: &str) {
        assert!(TRAP.get() != place, "trapped");
    }

    struct Large;

    #[async_trait::async_trait]
    impl NodeTool for Large {
        async fn call(&self, ctx: ToolContext, _: Value) -> ToolResult {
            ctx.attach("text/plain", None, b"goes with the result, and not without it")?;
            Ok(json!("x".repeat(5000)))
        }
    }

    /// Returns the frames of one call. Its code panics at this point.
    async fn frames(place: &'static str) -> Vec<(bool, Value)> {
        TRAP.set(place);
        let (outgoing, mut frames) = mpsc::channel(16);
        let permits = Arc::new(Semaphore::new(1));
        let shared = Arc::new(Shared {
            permits: Arc::clone(&permits),
            outgoing,
            features: Features::ALL,
            limits: Limits { payload: 2000, frame: usize::MAX },
            grace: Duration::ZERO,
        });
        let call = Arc::new(CallState::new(shared, 7, "r", None, None));
        let ctx = ToolContext::for_test("t.large");
        let place = Place::take(&ctx.cancel, &call);
        let mut registry = ToolRegistry::new();
        registry.register("t.large", Large);
        run(call, place, registry.get("t.large").unwrap(), ctx.clone(), None).await;
        assert_eq!(permits.available_permits(), 1, "its turn is over");
        assert!(crate::live::find(&ctx.cancel).is_none());
        let mut all = Vec::new();
        while let Some(frame) = frames.recv().await {
            assert_eq!(frame.call, 7);
            all.push((frame.last, serde_json::from_str(&frame.text).unwrap()));
        }
        all
    }

    #[tokio::test]
    async fn a_panic_while_the_response_is_written_is_a_failed_call() {
        for place in ["serialise", "cut"] {
            let failed = json!({"type":"tool_response","request_id":"r","ok":false,
                                "error":{"kind":"failed","message":"the tool panicked: trapped"}});
            assert_eq!(frames(place).await, [(true, failed)], "{place}");
        }
        let [(true, answer)] = &frames("").await[..] else { panic!("one response") };
        assert_eq!(
            (&answer["ok"], &answer["result"]["_truncated"]),
            (&json!(true), &json!(true)),
            "{answer}"
        );
        assert_eq!(answer["attachments"].as_array().map(Vec::len), Some(1));
    }
}
