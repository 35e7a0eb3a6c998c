//! The answer that a message to a server expects, and its part of the budget for answers.

use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, ErrorData, GetExtensions as _, JsonRpcError, RequestId,
};
use sa_limits::budget::Refused;
use sa_limits::received::Received;

use crate::table::Marker;

/// What is known about the answer to a message.
pub(crate) struct Expected {
    /// The id of the request. A notification has no answer.
    pub(crate) request_id: Option<RequestId>,
    pub(crate) waiting: Option<Marker>,
    /// Whether a large answer is handed to its waiting caller directly. rmcp reads the answers to
    /// list requests itself.
    pub(crate) is_direct: bool,
    /// The maximum size.
    pub(crate) max_bytes: usize,
    pub(crate) received: Received,
}

impl Expected {
    pub(crate) fn after(message: &ClientJsonRpcMessage, max_bytes: usize) -> Self {
        let waiting = waiting(message);
        let received = waiting.as_ref().map_or_else(Received::uncounted, Marker::received);
        Self {
            request_id: request_id(message),
            waiting,
            is_direct: is_direct(message),
            max_bytes,
            received,
        }
    }

    /// Tells the waiting caller why the budget refuses its answer. Returns the error that rmcp
    /// receives in its stead. The answer takes nothing from the budget any more.
    pub(crate) fn refuse(&mut self, refused: Refused) -> JsonRpcError {
        self.received.shrink(0);
        let error = ErrorData::internal_error(refused.message.clone(), None);
        if let Some(waiting) = &self.waiting {
            waiting.refuse(refused);
        }
        JsonRpcError::new(self.request_id.clone(), error)
    }

    /// Passes the counter of a received answer to the waiting caller.
    pub(crate) fn deliver_count(self) {
        if let Some(waiting) = self.waiting {
            waiting.count(self.received);
        }
    }
}

pub(crate) fn request_id(message: &ClientJsonRpcMessage) -> Option<RequestId> {
    if let ClientJsonRpcMessage::Request(request) = message {
        Some(request.id.clone())
    } else {
        None
    }
}

/// Returns the marker of the caller that waits for the answer.
fn waiting(message: &ClientJsonRpcMessage) -> Option<Marker> {
    let ClientJsonRpcMessage::Request(request) = message else { return None };
    request.request.extensions().get::<Marker>().cloned()
}

fn is_direct(message: &ClientJsonRpcMessage) -> bool {
    let ClientJsonRpcMessage::Request(request) = message else { return false };
    matches!(
        request.request,
        ClientRequest::CallToolRequest(_)
            | ClientRequest::ReadResourceRequest(_)
            | ClientRequest::GetPromptRequest(_)
    )
}
