//! HTTP client that checks whether the server still knows the session of the connection.
//!
//! A restarted server has lost the session and its subscriptions. rmcp requests the session's
//! stream again without end, and reports no error.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::stream::BoxStream;
use reqwest::StatusCode;
use reqwest::header::{HeaderName, HeaderValue};
use rmcp::model::ClientJsonRpcMessage;
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
};
use sa_lines::MAX_MESSAGE;
use sse_stream::Sse;
use tokio_util::sync::CancellationToken;

pub(crate) type Failed = StreamableHttpError<reqwest::Error>;
pub(crate) type Events = BoxStream<'static, Result<Sse, SseError>>;
pub(crate) type Headers = HashMap<HeaderName, HeaderValue>;

#[derive(Clone)]
pub(crate) struct SessionCheck {
    pub(crate) http: reqwest::Client,
    /// A description of the server for messages.
    pub(crate) label: Arc<str>,
    /// Cancelled when the server is unreachable or no longer knows the session.
    suspect: CancellationToken,
    /// Whether the server ever opened an event stream. An error from a server without streams has
    /// no meaning.
    streamed: Arc<AtomicBool>,
}

impl SessionCheck {
    pub(crate) fn new(http: reqwest::Client, label: Arc<str>, suspect: CancellationToken) -> Self {
        Self { http, label, suspect, streamed: Arc::default() }
    }

    fn check_session(&self, answer: Result<Events, Failed>) -> Result<Events, Failed> {
        match answer {
            Ok(events) => {
                self.streamed.store(true, Ordering::Release);
                Ok(events)
            }
            Err(error) if self.streamed.load(Ordering::Acquire) && is_over(&error) => {
                self.suspect.cancel();
                // After this error, rmcp does not request the stream again.
                Err(StreamableHttpError::ServerDoesNotSupportSse)
            }
            Err(error) => Err(error),
        }
    }
}

/// Returns whether the error of a stream request is permanent: the server is unreachable, or does
/// not know the session. Servers use various status codes for the latter.
fn is_over(error: &Failed) -> bool {
    let StreamableHttpError::Client(error) = error else {
        return matches!(error, StreamableHttpError::SessionExpired);
    };
    error.is_connect()
        || matches!(
            error.status(),
            Some(StatusCode::NOT_FOUND | StatusCode::BAD_REQUEST | StatusCode::GONE)
        )
}

impl StreamableHttpClient for SessionCheck {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        token: Option<String>,
        headers: Headers,
    ) -> Result<StreamableHttpPostResponse, Failed> {
        self.post_message_with_max_sse_event_size(
            uri,
            message,
            session,
            token,
            headers,
            MAX_MESSAGE,
        )
        .await
    }

    async fn post_message_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        token: Option<String>,
        headers: Headers,
        max_bytes: usize,
    ) -> Result<StreamableHttpPostResponse, Failed> {
        self.post(&uri, &message, session, token, headers, max_bytes).await
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        token: Option<String>,
        headers: Headers,
    ) -> Result<(), Failed> {
        self.http.delete_session(uri, session, token, headers).await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        token: Option<String>,
        headers: Headers,
    ) -> Result<Events, Failed> {
        self.get_stream_with_max_sse_event_size(
            uri,
            session,
            last_event,
            token,
            headers,
            MAX_MESSAGE,
        )
        .await
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        token: Option<String>,
        headers: Headers,
        max_bytes: usize,
    ) -> Result<Events, Failed> {
        self.check_session(
            self.http
                .get_stream_with_max_sse_event_size(
                    uri, session, last_event, token, headers, max_bytes,
                )
                .await,
        )
    }
}
