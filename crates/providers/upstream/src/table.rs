//! The table of running requests of a connection, which routes progress, logs and questions to
//! their callers.

#![expect(deprecated, reason = "logging is deprecated in MCP, but servers still use it")]

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, MutexGuard};
use rmcp::model::{GetExtensions as _, GetMeta as _};
use rmcp::model::{
    JsonRpcMessage, LoggingMessageNotificationParam, ProgressNotificationParam, ProgressToken,
    RequestId, ServerNotification, ServerResult,
};
use rmcp::service::{InboundStreamOrigin, RoleClient, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use sa_core::{
    CallError, CallErrorKind, ClientCapabilities, LogLevel, Passthrough, Question, QuestionMode,
    RawJson, Update, UpdateSink, Updates,
};
use sa_http::MCP;
use sa_limits::budget::{Refused, Share};
use sa_limits::received::Received;
use tokio_util::sync::CancellationToken;

/// The receiver of a server's questions and updates during a request.
#[derive(Clone)]
pub(crate) enum Requester {
    Call(Updates),
    Reader(Arc<dyn UpdateSink>),
    /// A client that accepts no questions.
    Nobody,
    /// The gateway itself, for a list or a subscription. Servers ask no questions about those.
    Gateway,
}

impl Requester {
    pub(crate) async fn ask(&self, what: &str, params: RawJson) -> Result<RawJson, CallError> {
        let question = Question { kind: what.to_owned(), params: Passthrough::new(MCP, params) };
        match self {
            Self::Call(updates) => updates.ask(question).await,
            Self::Reader(sink) => sink.ask(question).await,
            Self::Nobody | Self::Gateway => {
                Err(CallError::new(CallErrorKind::Failed, "no client can answer the request"))
            }
        }
    }

    /// Returns how the caller can be reached while it waits.
    pub(crate) fn client_capabilities(&self) -> ClientCapabilities {
        match self {
            Self::Call(updates) => updates.client_capabilities(),
            Self::Reader(_) => ClientCapabilities {
                question_mode: Some(QuestionMode::Request),
                ..ClientCapabilities::default()
            },
            Self::Nobody | Self::Gateway => ClientCapabilities::default(),
        }
    }

    fn send_update(&self, update: Update) {
        match self {
            Self::Call(updates) => updates.send(update),
            Self::Reader(sink) => drop(sink.send(update)),
            Self::Nobody | Self::Gateway => {}
        }
    }
}

/// Identifies a request that waits for its answer. It travels with the request as an extension,
/// which is never sent.
#[derive(Clone)]
pub(crate) struct Marker {
    running: Weak<Running>,
    answers: Option<Share>,
}

impl Marker {
    /// Returns a counter for the answer. It counts for the caller even if that is gone.
    pub(crate) fn received(&self) -> Received {
        received(self.answers.as_ref())
    }

    /// Stores an answer for the waiting caller. Returns `false` if the caller is no longer
    /// waiting.
    pub(crate) fn set_answer(&self, answer: ServerResult) -> bool {
        let running = self.running.upgrade();
        running.map(|running| running.side_channel().answer.replace(answer)).is_some()
    }

    /// Passes the counter of a received answer to the waiting caller.
    pub(crate) fn count(&self, received: Received) {
        if let Some(running) = self.running.upgrade() {
            running.side_channel().received = Some(received);
        }
    }

    /// Tells the waiting caller why the budget refuses its answer.
    pub(crate) fn refuse(&self, refused: Refused) {
        if let Some(running) = self.running.upgrade() {
            running.side_channel().refused = Some(refused);
        }
    }
}

pub(crate) struct Running {
    pub(crate) requester: Requester,
    /// The caller's share of the budget for answers. The gateway's own requests have none.
    answers: Option<Share>,
    /// The last progress. Lower or equal values are not forwarded.
    progress: Mutex<f64>,
    side_channel: Mutex<SideChannel>,
}

/// What the transport leaves for the caller besides the message that rmcp passes on.
#[derive(Default)]
pub(crate) struct SideChannel {
    /// A large answer, parsed by the transport.
    pub(crate) answer: Option<ServerResult>,
    received: Option<Received>,
    pub(crate) refused: Option<Refused>,
}

impl Running {
    pub(crate) fn new(requester: Requester, answers: Share) -> Arc<Self> {
        Self::with(requester, Some(answers))
    }

    /// Creates one for a request of the gateway itself, whose answer is not counted: lists are read
    /// one after the other, and a server that is refused them would be offline for everyone.
    pub(crate) fn of_gateway() -> Arc<Self> {
        Self::with(Requester::Gateway, None)
    }

    fn with(requester: Requester, answers: Option<Share>) -> Arc<Self> {
        let (progress, side_channel) = (Mutex::new(f64::NEG_INFINITY), Mutex::default());
        Arc::new(Self { requester, answers, progress, side_channel })
    }

    pub(crate) fn side_channel(&self) -> MutexGuard<'_, SideChannel> {
        self.side_channel.lock()
    }

    pub(crate) fn marker(self: &Arc<Self>) -> Marker {
        Marker { running: Arc::downgrade(self), answers: self.answers.clone() }
    }

    /// Returns the counter of the last answer, which has this size. A transport without a counter
    /// of its own reads one message at a time, and its answers are counted from here on.
    pub(crate) fn counted(&self, bytes: usize) -> Result<Received, Refused> {
        let counted = self.side_channel().received.take();
        let mut received = counted.unwrap_or_else(|| received(self.answers.as_ref()));
        received.grow(bytes)?;
        Ok(received)
    }
}

fn received(answers: Option<&Share>) -> Received {
    answers.cloned().map_or_else(Received::uncounted, Received::counted)
}

/// The running requests of one connection. An entry expires when its last waiting caller is
/// dropped.
#[derive(Default)]
pub(crate) struct Table(Mutex<HashMap<RequestId, Entry>>);

type Entry = (Option<ProgressToken>, Weak<Running>);

impl Table {
    fn insert(&self, id: RequestId, token: Option<ProgressToken>, running: Weak<Running>) {
        let mut table = self.0.lock();
        table.retain(|_, (_, running)| running.strong_count() > 0);
        table.insert(id, (token, running));
    }

    pub(crate) fn running(&self) -> usize {
        let table = self.0.lock();
        table.values().filter(|(_, running)| running.strong_count() > 0).count()
    }

    fn progress(&self, report: &ProgressNotificationParam) {
        let table = self.0.lock();
        let found =
            table.values().find(|(token, _)| token.as_ref() == Some(&report.progress_token));
        let Some(running) = found.and_then(|(_, running)| running.upgrade()) else { return };
        drop(table);
        let mut last = running.progress.lock();
        if report.progress > *last {
            *last = report.progress;
            let (total, message) = (report.total, report.message.clone());
            running.requester.send_update(Update::Progress {
                progress: report.progress,
                total,
                message,
            });
        }
    }

    /// Forwards a log message to the caller that it may belong to.
    fn log(&self, message: &LoggingMessageNotificationParam) {
        let Ok(requester) = self.requester_of(None) else { return };
        let level = serde_json::to_value(message.level).ok();
        let level = level.as_ref().and_then(|level| level.as_str()).and_then(LogLevel::parse);
        let (logger, data) = (message.logger.clone(), RawJson::of(&message.data));
        requester.send_update(Update::Log { level: level.unwrap_or(LogLevel::Info), logger, data });
    }

    /// Returns the caller that a server's question is for. A transport with a stream per request
    /// identifies it. Otherwise there must be only one candidate: a question must never reach the
    /// wrong client.
    pub(crate) fn requester_of(
        &self,
        origin: Option<&InboundStreamOrigin>,
    ) -> Result<Requester, &'static str> {
        let table = self.0.lock();
        if let Some(InboundStreamOrigin::OutboundRequest(id)) = origin {
            let running = table.get(id).and_then(|(_, running)| running.upgrade());
            return running
                .map(|running| running.requester.clone())
                .ok_or("the request that this belongs to has ended");
        }
        // A server may change its lists while a client calls a tool. The gateway then reads them
        // concurrently.
        let running = table.values().filter_map(|(_, running)| running.upgrade());
        let mut running =
            running.filter(|running| !matches!(running.requester, Requester::Gateway));
        let first = running.next().ok_or("no request is running that this could belong to")?;
        // One call may consist of several requests.
        if running.all(|other| Arc::ptr_eq(&other, &first)) {
            Ok(first.requester.clone())
        } else {
            Err("several requests are running, and this could belong to any of them")
        }
    }
}

/// A transport that records requests as they are sent, and handles progress as it arrives. This
/// keeps progress in order, before the answer.
pub(crate) struct Tapped<T> {
    pub(crate) inner: T,
    pub(crate) table: Arc<Table>,
    /// Cancelled as soon as the server can no longer answer.
    pub(crate) closed: CancellationToken,
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for Tapped<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        if let JsonRpcMessage::Request(message) = &item
            && let Some(Marker { running, .. }) = message.request.extensions().get::<Marker>()
        {
            let token = message.request.get_meta().get_progress_token();
            self.table.insert(message.id.clone(), token, running.clone());
        }
        self.inner.send(item)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            let message = self.inner.receive().await;
            match &message {
                None => self.closed.cancel(),
                Some(JsonRpcMessage::Notification(notification)) => {
                    match &notification.notification {
                        ServerNotification::ProgressNotification(report) => {
                            self.table.progress(&report.params);
                            continue;
                        }
                        ServerNotification::LoggingMessageNotification(message) => {
                            self.table.log(&message.params);
                            continue;
                        }
                        _ => {}
                    }
                }
                Some(_) => {}
            }
            return message;
        }
    }

    fn close(&mut self) -> impl Future<Output = Result<(), Self::Error>> + Send {
        self.closed.cancel();
        self.inner.close()
    }
}

impl<T> Drop for Tapped<T> {
    fn drop(&mut self) {
        self.closed.cancel();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requester_of(requesters: &[Requester]) -> Result<Requester, &'static str> {
        let table = Table::default();
        let running: Vec<_> =
            requesters.iter().map(|requester| Running::with(requester.clone(), None)).collect();
        for (id, running) in (0..).zip(&running) {
            table.insert(RequestId::Number(id), None, Arc::downgrade(running));
        }
        table.requester_of(None)
    }

    #[test]
    fn a_question_belongs_to_the_only_request_of_a_client() {
        assert!(matches!(requester_of(&[Requester::Nobody]), Ok(Requester::Nobody)));
        assert!(matches!(
            requester_of(&[Requester::Gateway, Requester::Nobody, Requester::Gateway]),
            Ok(Requester::Nobody)
        ));
        assert!(requester_of(&[Requester::Nobody, Requester::Nobody]).is_err());
        assert!(requester_of(&[Requester::Gateway]).is_err());
    }
}
