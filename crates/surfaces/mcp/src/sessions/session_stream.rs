//! The streams of a session.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use futures_util::{Stream, StreamExt as _};
use rmcp::model::{
    CancelledNotification, CancelledNotificationParam, ClientJsonRpcMessage, ClientNotification,
    RequestId,
};
use rmcp::transport::streamable_http_server::session::ServerSseMessage;
use sa_core::ReaderGuard;
use tokio::sync::mpsc;

use super::Session;
use crate::json_answer::{KEEP_ALIVE, is_answer};

/// A stream to the client. It detects when the client leaves before its end.
pub(super) struct SessionStream {
    pub(super) inner: mpsc::Receiver<ServerSseMessage>,
    pub(super) over: Pin<Box<dyn Future<Output = ()> + Send + Sync>>,
    pub(super) session: Arc<Session>,
    /// The request that is answered on this stream, until it is answered.
    pub(super) request: Option<(u64, RequestId)>,
    /// Marks the owner as present, if this stream carries notices.
    pub(super) reader_guard: Option<ReaderGuard>,
}

impl Stream for SessionStream {
    type Item = ServerSseMessage;

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<ServerSseMessage>> {
        let polled = loop {
            let polled = match self.over.as_mut().poll(context) {
                Poll::Ready(()) => Poll::Ready(None),
                Poll::Pending => self.inner.poll_recv(context),
            };
            match &polled {
                Poll::Ready(Some(event))
                    if event.message.is_none() && !self.session.supports_empty_events() => {}
                _ => break polled,
            }
        };
        let is_over = match &polled {
            Poll::Ready(Some(event)) => event.message.as_deref().is_some_and(is_answer),
            Poll::Ready(None) => true,
            Poll::Pending => false,
        };
        // A client may reuse the id as soon as it has the answer.
        if is_over && let Some((_, request)) = self.request.take() {
            self.session.running().remove(&request);
        }
        polled
    }
}

impl SessionStream {
    /// Returns the request that is still to be answered.
    pub(super) fn request_id(&self) -> Option<RequestId> {
        self.request.as_ref().map(|(_, id)| id.clone())
    }

    /// Waits for the first message, at most for [`KEEP_ALIVE`]. Returns the events received by
    /// then, which may include an empty one before the message.
    pub(super) async fn first(&mut self) -> Vec<ServerSseMessage> {
        let mut events = Vec::new();
        let message = async {
            while let Some(event) = self.next().await {
                let is_empty = event.message.is_none();
                events.push(event);
                if !is_empty {
                    break;
                }
            }
        };
        let _ = tokio::time::timeout(KEEP_ALIVE, message).await;
        events
    }
}

impl Drop for SessionStream {
    fn drop(&mut self) {
        self.session.touch();
        self.session.open.fetch_sub(1, Ordering::AcqRel);
        let Some((stream, request)) = self.request.take() else { return };
        let session = Arc::clone(&self.session);
        session.broken().insert(stream, request);
        tokio::spawn(async move {
            tokio::select! {
                () = tokio::time::sleep(session.resume) => {}
                () = session.ended.cancelled() => return,
            }
            let abandoned = session.broken().remove(&stream);
            if let Some(request) = abandoned {
                session.running().remove(&request);
                let gone = CancelledNotificationParam::new(
                    Some(request),
                    Some("the client did not reconnect".into()),
                );
                let word =
                    ClientNotification::CancelledNotification(CancelledNotification::new(gone));
                session
                    .handle
                    .push_message(ClientJsonRpcMessage::notification(word), None)
                    .await
                    .ok();
            }
        });
    }
}
