//! The streams of a session.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use futures_util::Stream;
use rmcp::model::{
    CancelledNotification, CancelledNotificationParam, ClientJsonRpcMessage, ClientNotification, RequestId,
    ServerJsonRpcMessage,
};
use rmcp::transport::streamable_http_server::session::ServerSseMessage;
use sa_core::Attendance;
use tokio::sync::mpsc;

use super::Session;

/// A stream to the client, which notices when it is left before its end.
pub(super) struct Watched {
    pub(super) inner: mpsc::Receiver<ServerSseMessage>,
    pub(super) over: Pin<Box<dyn Future<Output = ()> + Send + Sync>>,
    pub(super) session: Arc<Session>,
    /// The request that is answered here, until it is.
    pub(super) request: Option<(u64, RequestId)>,
    /// Says that its owner hears notices, where it is a stream that carries them.
    pub(super) attending: Option<Attendance>,
}

impl Stream for Watched {
    type Item = ServerSseMessage;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<ServerSseMessage>> {
        let polled = match self.over.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(None),
            Poll::Pending => self.inner.poll_recv(context),
        };
        let is_over = match &polled {
            Poll::Ready(Some(event)) => event.message.as_deref().is_some_and(is_answer),
            Poll::Ready(None) => true,
            Poll::Pending => false,
        };
        // A client may use the id again as soon as it has the answer.
        if is_over && let Some((_, request)) = self.request.take() {
            self.session.running().remove(&request);
        }
        polled
    }
}

fn is_answer(message: &ServerJsonRpcMessage) -> bool {
    matches!(message, ServerJsonRpcMessage::Response(_) | ServerJsonRpcMessage::Error(_))
}

impl Drop for Watched {
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
                let gone = CancelledNotificationParam::new(Some(request), Some("nobody came back for it".into()));
                let word = ClientNotification::CancelledNotification(CancelledNotification::new(gone));
                session.handle.push_message(ClientJsonRpcMessage::notification(word), None).await.ok();
            }
        });
    }
}
