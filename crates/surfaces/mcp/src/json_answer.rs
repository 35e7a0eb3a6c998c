//! An answer without streamed messages before it. It is sent as JSON instead of as a stream with
//! one event: some clients limit the size of an event, and none limits that of a JSON answer.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{StreamExt as _, stream};
use parking_lot::Mutex;
use rmcp::ErrorData;
use rmcp::model::{Extensions, RequestId, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_server::session::ServerSseMessage;
use sa_limits::offload::Weight;
use tokio::time::{Interval, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::body::offloaded;
use crate::fast_path::respond;

const SESSION_ID: &str = "mcp-session-id";
/// Tells nginx not to collect the response, which would hold the whitespace back.
const UNBUFFERED: (HeaderName, &str) = (HeaderName::from_static("x-accel-buffering"), "no");

/// The time after which a response begins and, until the answer, the interval of its whitespace.
/// Clients depend on a response that begins early. An `httpx` client without a timeout, as many
/// Python programs create it for their token, gives up after 5 s without data. The Rust SDK before
/// 3.2 sends no other request and no cancellation until a response begins.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(4);

/// Carries the answer from the session to the HTTP response, because rmcp converts every answer of
/// a session into a stream. It is stored in the extensions of the request.
#[derive(Clone, Default)]
pub(crate) struct JsonAnswer(Arc<Mutex<Option<Answer>>>);

enum Answer {
    Ready(Arc<ServerJsonRpcMessage>),
    Later(Later),
}

impl JsonAnswer {
    pub(crate) fn find(extensions: &Extensions) -> Option<&Self> {
        extensions.get::<Parts>().and_then(|parts| parts.extensions.get::<Self>())
    }

    pub(crate) fn set(&self, answer: Arc<ServerJsonRpcMessage>) {
        *self.0.lock() = Some(Answer::Ready(answer));
    }

    /// Sets the stream of a request that can carry no message but the answer.
    pub(crate) fn set_later(&self, id: RequestId, stream: BoxStream<'static, ServerSseMessage>) {
        *self.0.lock() = Some(Answer::Later(Later { id, stream }));
    }

    /// Returns the response that replaces rmcp's stream with these headers, if there is one.
    /// `over` ends a response that waits for its answer.
    pub(crate) fn response(
        &self,
        headers: &HeaderMap,
        weight: Weight,
        over: &CancellationToken,
    ) -> Option<Response<Body>> {
        let answer = self.0.lock().take()?;
        let mut response = match answer {
            Answer::Ready(answer) => respond(StatusCode::OK, answer.as_ref()),
            Answer::Later(later) => later.response(weight, over.clone()),
        };
        if let Some(id) = headers.get(SESSION_ID) {
            response.headers_mut().insert(SESSION_ID, id.clone());
        }
        Some(response)
    }
}

/// An answer that is not available yet.
struct Later {
    id: RequestId,
    /// Dropping the stream reports that the client has left.
    stream: BoxStream<'static, ServerSseMessage>,
}

impl Later {
    /// Returns a response that begins at once. JSON allows whitespace before the answer.
    fn response(self, weight: Weight, over: CancellationToken) -> Response<Body> {
        let mut alive = interval(KEEP_ALIVE);
        alive.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let pieces = stream::unfold(Some((self, alive, over)), async |waiting| {
            let (mut later, mut alive, over) = waiting?;
            Some(match later.next(&mut alive, &over).await {
                Some(answer) => (Ok::<_, Infallible>(answer), None),
                None => (Ok(Bytes::from_static(b" ")), Some((later, alive, over))),
            })
        });
        let mut response = Response::new(offloaded(pieces.boxed(), weight));
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(UNBUFFERED.0, HeaderValue::from_static(UNBUFFERED.1));
        response
    }

    /// Returns the answer, or `None` if it is time for whitespace.
    async fn next(&mut self, alive: &mut Interval, over: &CancellationToken) -> Option<Bytes> {
        let answer = tokio::select! {
            biased;
            answer = self.answer() => answer,
            () = over.cancelled() => None,
            _ = alive.tick() => return None,
        };
        let answer = answer.unwrap_or_else(|| {
            let error = ErrorData::internal_error("the request ended without an answer", None);
            Arc::new(ServerJsonRpcMessage::error(error, Some(self.id.clone())))
        });
        let text = serde_json::to_vec(answer.as_ref());
        Some(text.unwrap_or_else(|error| error.to_string().into_bytes()).into())
    }

    /// Returns the answer, or `None` if the stream ends without one.
    async fn answer(&mut self) -> Option<Arc<ServerJsonRpcMessage>> {
        while let Some(event) = self.stream.next().await {
            if let Some(message) = event.message.filter(|message| is_answer(message)) {
                return Some(message);
            }
        }
        None
    }
}

pub(crate) fn is_answer(message: &ServerJsonRpcMessage) -> bool {
    matches!(message, ServerJsonRpcMessage::Response(_) | ServerJsonRpcMessage::Error(_))
}
