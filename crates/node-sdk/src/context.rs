use std::borrow::Cow;
use std::sync::Arc;

use sa_protocol::Attachment;
use sa_protocol::node::{ToolProgress, encode_progress};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::call::CallState;
use crate::{ToolError, live};

/// What a tool knows about the call it runs for.
///
/// It is plain data. One that a test puts together by hand is as good as any, and leads to no gateway: progress, chunks and
/// attachments go nowhere. So do those of a context whose call has ended, or whose [`cancel`](Self::cancel) was replaced:
/// the token is what the way back is found by. A clone, on whichever task, is the same call.
#[derive(Debug, Clone)]
pub struct ToolContext {
    /// Ties the response to the request. The SDK puts it there by itself.
    pub request_id: String,
    /// The full name under which the tool was called.
    pub tool_name: String,
    /// The session the call belongs to, when the gateway says so.
    pub session_key: Option<String>,
    /// Fires when the gateway cancels the call, when its time is up, when the connection is lost, and when the node
    /// shuts down. A tool that does not end soon after is dropped.
    pub cancel: CancellationToken,
}

/// The principal that makes a call, as the gateway has authenticated it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Principal {
    /// Stable for the life of the caller's token, and never the token itself.
    pub id: String,
    /// Its role, such as `operator` or `agent`.
    pub role: String,
}

impl Principal {
    /// A principal of this id and role.
    pub fn new(id: impl Into<String>, role: impl Into<String>) -> Self {
        Self { id: id.into(), role: role.into() }
    }

    /// Whether it is an operator of the gateway.
    pub fn is_operator(&self) -> bool {
        self.role == "operator"
    }
}

impl ToolContext {
    /// A context without a gateway, for the tests of a tool: progress, chunks and attachments go nowhere.
    pub fn for_test(tool_name: impl Into<String>) -> Self {
        Self {
            request_id: "test".to_owned(),
            tool_name: tool_name.into(),
            session_key: None,
            cancel: CancellationToken::new(),
        }
    }

    /// Tells the caller how far the tool has come. `progress` should grow; `total` is where it ends, when that is known.
    ///
    /// Nothing happens when the gateway does not take progress, or when the connection is too busy: progress that
    /// comes late is worth nothing.
    pub fn progress(&self, progress: f64, total: Option<f64>, message: Option<&str>) {
        let Some(call) = self.call().filter(|call| call.features().progress) else {
            return;
        };
        let mut text = String::new();
        let message = message.map(|message| Cow::Borrowed(sa_protocol::escaped_prefix(message, 4096)));
        let request_id = Cow::Borrowed(call.request_id());
        encode_progress(&mut text, &ToolProgress { request_id, progress, total, message });
        call.offer(text);
    }

    /// Sends a part of the result ahead. Waits while the connection is busy.
    ///
    /// Nothing happens when the gateway does not take chunks: what is returned at the end must be complete without
    /// them. Fails when the chunk is larger than a response may be.
    pub async fn chunk(&self, content: Value) -> Result<(), ToolError> {
        self.chunk_with(content, Vec::new()).await
    }

    /// As [`chunk`](Self::chunk), with files beside it. A gateway that takes chunks but no attachments gets the content.
    pub async fn chunk_with(&self, content: Value, attachments: Vec<Attachment<'_>>) -> Result<(), ToolError> {
        let Some(call) = self.call().filter(|call| call.features().chunk) else {
            return Ok(());
        };
        let attachments = if call.features().attachments { attachments } else { Vec::new() };
        call.send_part(&content.to_string(), attachments).await
    }

    /// Puts a file beside the result. It travels with the response.
    ///
    /// Nothing happens when the gateway does not take attachments. Fails when it would make the response too large.
    pub fn attach(&self, mime_type: impl Into<String>, name: Option<&str>, bytes: &[u8]) -> Result<(), ToolError> {
        match self.call().filter(|call| call.features().attachments) {
            Some(call) => call.attach(mime_type.into(), name, bytes),
            None => Ok(()),
        }
    }

    /// How many bytes the result may have, as JSON, beside what was attached to it. A larger result is cut, and then has lost
    /// its form; a tool that can give a part of its own choice had better do that.
    pub fn max_response_bytes(&self) -> usize {
        self.call().map_or(sa_protocol::MAX_TOOL_RESPONSE_BYTES, |call| call.room())
    }

    /// The trace the call belongs to, as W3C Trace Context writes it.
    pub fn traceparent(&self) -> Option<String> {
        self.call()?.traceparent().map(str::to_owned)
    }

    /// When the gateway stops waiting for the answer.
    pub fn deadline(&self) -> Option<tokio::time::Instant> {
        self.call()?.deadline()
    }

    /// The principal that makes the call, when the gateway sends it. Gateways that do not know this field send none.
    pub fn principal(&self) -> Option<Principal> {
        self.call()?.principal().cloned()
    }

    fn call(&self) -> Option<Arc<CallState>> {
        live::find(&self.cancel)
    }
}
