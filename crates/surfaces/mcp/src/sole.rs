//! An answer without streamed messages before it. It is sent as JSON instead of as a stream with
//! one event: some clients limit the size of an event, and none limits that of a JSON answer.

use std::sync::{Arc, OnceLock};

use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderMap, Response, StatusCode};
use rmcp::model::{Extensions, ServerJsonRpcMessage};

use crate::short::respond;

const SESSION_ID: &str = "mcp-session-id";

/// Carries the answer from the session to the HTTP response, because rmcp converts every answer of
/// a session into a stream. It is stored in the extensions of the request.
#[derive(Debug, Clone, Default)]
pub(crate) struct SoleAnswer(Arc<OnceLock<Arc<ServerJsonRpcMessage>>>);

impl SoleAnswer {
    pub(crate) fn find(extensions: &Extensions) -> Option<&Self> {
        extensions.get::<Parts>().and_then(|parts| parts.extensions.get::<Self>())
    }

    pub(crate) fn set(&self, answer: Arc<ServerJsonRpcMessage>) {
        let _ = self.0.set(answer);
    }

    /// Returns the response that replaces rmcp's stream with these headers, if the answer was
    /// immediate.
    pub(crate) fn response(&self, headers: &HeaderMap) -> Option<Response<Body>> {
        let mut response = respond(StatusCode::OK, self.0.get()?.as_ref());
        if let Some(id) = headers.get(SESSION_ID) {
            response.headers_mut().insert(SESSION_ID, id.clone());
        }
        Some(response)
    }
}
