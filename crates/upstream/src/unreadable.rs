//! Answers that cannot be taken. Whoever waits for one is told so at once, in the server's stead.

use rmcp::model::{ErrorData, RequestId, ServerJsonRpcMessage};
use rmcp::transport::async_rw::DEFAULT_MAX_LINE_LENGTH;

/// How long a server's answer may be, however it comes: a line of a program, the body of an HTTP response, or an event.
pub(crate) const MAX_ANSWER: usize = DEFAULT_MAX_LINE_LENGTH;

pub(crate) fn too_long(server: &str, request: RequestId, most: usize) -> ServerJsonRpcMessage {
    let said = format!(
        "the upstream \"{server}\" answered with more than {} MiB, the most that is taken of one answer; ask it for less \
         at once",
        most >> 20
    );
    ServerJsonRpcMessage::error(ErrorData::internal_error(said, None), Some(request))
}

pub(crate) fn no_answer(server: &str, request: RequestId) -> ServerJsonRpcMessage {
    let said =
        format!("the upstream \"{server}\" answered with something that is no answer in MCP; look at its own log");
    ServerJsonRpcMessage::error(ErrorData::internal_error(said, None), Some(request))
}
