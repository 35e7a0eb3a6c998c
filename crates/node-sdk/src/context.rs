use std::borrow::Cow;
use std::sync::Arc;

use sa_protocol::Attachment;
use sa_protocol::node::{ToolProgress, encode_progress};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::call::CallState;
use crate::{ToolError, live};

/// The data that a tool has about its call.
///
/// It is plain data. A context that a test builds by hand works too, but has no gateway: its
/// progress, chunks and attachments are dropped. The same is true once the call has ended, or if
/// [`cancel`](Self::cancel) was replaced, because the token is the key to the connection. A clone,
/// on any task, belongs to the same call.
#[derive(Debug, Clone)]
pub struct ToolContext {
    /// The id that links the response to the request. The SDK sets it on the response.
    pub request_id: String,
    /// The full name under which the tool was called.
    pub tool_name: String,
    /// The session the call belongs to, if the gateway sends one.
    pub session_key: Option<String>,
    /// Fires when the gateway cancels the call, when its time limit expires, when the connection is
    /// lost, and when the node shuts down. A tool that does not end soon after is dropped.
    pub cancel: CancellationToken,
}

/// The principal that makes a call, as the gateway has authenticated it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Principal {
    /// The id: stable for the life of the caller's token, and never the token itself.
    pub id: String,
    /// The role, such as `operator` or `agent`.
    pub role: String,
}

impl Principal {
    /// Creates a principal with this id and role.
    pub fn new(id: impl Into<String>, role: impl Into<String>) -> Self {
        Self { id: id.into(), role: role.into() }
    }

    /// Returns whether it is an operator of the gateway.
    pub fn is_operator(&self) -> bool {
        self.role == "operator"
    }
}

impl ToolContext {
    /// Creates a context without a gateway, for the tests of a tool: progress, chunks and
    /// attachments are dropped.
    pub fn for_test(tool_name: impl Into<String>) -> Self {
        Self {
            request_id: "test".to_owned(),
            tool_name: tool_name.into(),
            session_key: None,
            cancel: CancellationToken::new(),
        }
    }

    /// Reports the tool's progress to the caller. `progress` should grow; `total` is its final
    /// value, when known.
    ///
    /// Does nothing if the gateway does not support progress, or if the connection is busy: late
    /// progress is useless.
    pub fn progress(&self, progress: f64, total: Option<f64>, message: Option<&str>) {
        let Some(call) = self.call().filter(|call| call.features().progress) else {
            return;
        };
        let mut text = String::new();
        let message =
            message.map(|message| Cow::Borrowed(sa_protocol::escaped_prefix(message, 4096)));
        let request_id = Cow::Borrowed(call.request_id());
        encode_progress(&mut text, &ToolProgress { request_id, progress, total, message });
        call.offer(text);
    }

    /// Sends a part of the result early. Waits while the connection is busy.
    ///
    /// Does nothing if the gateway does not support chunks: the final result must be complete
    /// without them. Fails if the chunk exceeds the limit of a response.
    pub async fn chunk(&self, content: Value) -> Result<(), ToolError> {
        self.chunk_with(content, Vec::new()).await
    }

    /// Sends a chunk like [`chunk`](Self::chunk), with files. A gateway that supports chunks but no
    /// attachments receives only the content.
    pub async fn chunk_with(
        &self,
        content: Value,
        attachments: Vec<Attachment<'_>>,
    ) -> Result<(), ToolError> {
        let Some(call) = self.call().filter(|call| call.features().chunk) else {
            return Ok(());
        };
        let attachments = if call.features().attachments { attachments } else { Vec::new() };
        call.send_part(&content.to_string(), attachments).await
    }

    /// Attaches a file to the result. It is sent with the response.
    ///
    /// Does nothing if the gateway does not support attachments. Fails if the response would become
    /// too large.
    pub fn attach(
        &self,
        mime_type: impl Into<String>,
        name: Option<&str>,
        bytes: &[u8],
    ) -> Result<(), ToolError> {
        match self.call().filter(|call| call.features().attachments) {
            Some(call) => call.attach(mime_type.into(), name, bytes),
            None => Ok(()),
        }
    }

    /// Returns the remaining byte budget of the result as JSON, after the attachments.
    ///
    /// A larger result is truncated, and then loses its structure. A tool that can select a part
    /// itself should do so.
    pub fn max_response_bytes(&self) -> usize {
        self.call().map_or(sa_protocol::MAX_TOOL_RESPONSE_BYTES, |call| call.room())
    }

    /// Returns the trace the call belongs to, as W3C Trace Context writes it.
    pub fn traceparent(&self) -> Option<String> {
        self.call()?.traceparent().map(str::to_owned)
    }

    /// Returns the time at which the gateway stops waiting for the response.
    pub fn deadline(&self) -> Option<tokio::time::Instant> {
        self.call()?.deadline()
    }

    /// Returns the principal that makes the call. Old gateways do not send it.
    pub fn principal(&self) -> Option<Principal> {
        self.call()?.principal().cloned()
    }

    fn call(&self) -> Option<Arc<CallState>> {
        live::find(&self.cancel)
    }
}
