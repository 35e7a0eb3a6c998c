//! What runs on one connection, so that what the server says of a request reaches whoever made it.

#![expect(deprecated, reason = "logging has no future, but servers that use it")]

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rmcp::model::{GetExtensions as _, GetMeta as _};
use rmcp::model::{
    JsonRpcMessage, LoggingMessageNotificationParam, ProgressNotificationParam, ProgressToken, RequestId,
    ServerNotification, ServerResult,
};
use rmcp::service::{InboundStreamOrigin, RoleClient, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use sa_core::{Asking, CallError, CallErrorKind, LogLevel, Manner, Question, RawJson, Update, UpdateSink, Updates};
use tokio_util::sync::CancellationToken;

/// Somebody who waits for an answer and can be asked.
#[derive(Clone)]
pub(crate) enum Asker {
    Call(Updates),
    Reader(Arc<dyn UpdateSink>),
    /// A client that cannot be asked.
    Nobody,
    /// The gateway itself, for a list or a subscription. Servers ask nothing about those.
    Gateway,
}

impl Asker {
    pub(crate) async fn ask(&self, what: &str, params: RawJson) -> Result<RawJson, CallError> {
        let question = Question { what: what.to_owned(), params };
        match self {
            Self::Call(updates) => updates.ask(question).await,
            Self::Reader(sink) => sink.ask(question).await,
            Self::Nobody | Self::Gateway => Err(CallError::new(CallErrorKind::Failed, "there is nobody to be asked")),
        }
    }

    /// How they can be spoken to while they wait.
    pub(crate) fn manner(&self) -> Manner {
        match self {
            Self::Call(updates) => updates.manner(),
            Self::Reader(_) => Manner { asking: Some(Asking::Meanwhile), ..Manner::default() },
            Self::Nobody | Self::Gateway => Manner::default(),
        }
    }

    fn tell(&self, update: Update) {
        match self {
            Self::Call(updates) => updates.send(update),
            Self::Reader(sink) => drop(sink.send(update)),
            Self::Nobody | Self::Gateway => {}
        }
    }
}

/// One request that waits for its answer. Travels with the request, as an extension that is never sent.
#[derive(Clone)]
pub(crate) struct Marker(Weak<Running>);

impl Marker {
    /// Leaves an answer with whoever waits for it; `false` when nobody does.
    pub(crate) fn leave(&self, answer: ServerResult) -> bool {
        let running = self.0.upgrade();
        running.map(|running| running.left().replace(answer)).is_some()
    }
}

pub(crate) struct Running {
    pub(crate) asker: Asker,
    /// Progress that does not grow is not passed on.
    progress: Mutex<f64>,
    /// A large answer, which was read on its way.
    left: Mutex<Option<ServerResult>>,
}

impl Running {
    pub(crate) fn new(asker: Asker) -> Arc<Self> {
        Arc::new(Self { asker, progress: Mutex::new(f64::NEG_INFINITY), left: Mutex::default() })
    }

    pub(crate) fn left(&self) -> MutexGuard<'_, Option<ServerResult>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn marker(self: &Arc<Self>) -> Marker {
        Marker(Arc::downgrade(self))
    }
}

/// The requests that run on one connection. An entry goes with the last one who waits for it.
#[derive(Default)]
pub(crate) struct Table(Mutex<HashMap<RequestId, Entry>>);

type Entry = (Option<ProgressToken>, Weak<Running>);

impl Table {
    fn enter(&self, id: RequestId, token: Option<ProgressToken>, running: Weak<Running>) {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        table.retain(|_, (_, running)| running.strong_count() > 0);
        table.insert(id, (token, running));
    }

    pub(crate) fn running(&self) -> usize {
        let table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        table.values().filter(|(_, running)| running.strong_count() > 0).count()
    }

    fn progress(&self, report: &ProgressNotificationParam) {
        let table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = table.values().find(|(token, _)| token.as_ref() == Some(&report.progress_token));
        let Some(running) = found.and_then(|(_, running)| running.upgrade()) else { return };
        drop(table);
        let mut last = running.progress.lock().unwrap_or_else(PoisonError::into_inner);
        if report.progress > *last {
            *last = report.progress;
            let (total, message) = (report.total, report.message.clone());
            running.asker.tell(Update::Progress { progress: report.progress, total, message });
        }
    }

    /// Passes on what a server logs, to whoever it may be about.
    fn log(&self, message: &LoggingMessageNotificationParam) {
        let Ok(asker) = self.asked_by(None) else { return };
        let level = serde_json::to_value(message.level).ok();
        let level = level.as_ref().and_then(|level| level.as_str()).and_then(LogLevel::parse);
        let (logger, data) = (message.logger.clone(), RawJson::of(&message.data));
        asker.tell(Update::Log { level: level.unwrap_or(LogLevel::Info), logger, data });
    }

    /// Whom a server's question is for. A transport with a stream for each request tells; where it does not, there must be
    /// only one who can be meant: a question that reached the wrong client would be worse than none.
    pub(crate) fn asked_by(&self, origin: Option<&InboundStreamOrigin>) -> Result<Asker, &'static str> {
        let table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(InboundStreamOrigin::OutboundRequest(id)) = origin {
            let running = table.get(id).and_then(|(_, running)| running.upgrade());
            return running.map(|running| running.asker.clone()).ok_or("the request that this belongs to is over");
        }
        // A server may change its lists while a client calls a tool. The gateway then reads them at the same time.
        let running = table.values().filter_map(|(_, running)| running.upgrade());
        let mut running = running.filter(|running| !matches!(running.asker, Asker::Gateway));
        let first = running.next().ok_or("no request is running that this could belong to")?;
        // One call may take several requests.
        if running.all(|other| Arc::ptr_eq(&other, &first)) {
            Ok(first.asker.clone())
        } else {
            Err("several requests are running, and nothing says to which of them this belongs")
        }
    }
}

/// A transport that enters requests as they leave, and takes progress as it comes: in order, before the answer.
pub(crate) struct Tapped<T> {
    pub(crate) inner: T,
    pub(crate) table: Arc<Table>,
    /// Fires as soon as the server cannot answer any more.
    pub(crate) closed: CancellationToken,
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for Tapped<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        if let JsonRpcMessage::Request(message) = &item
            && let Some(Marker(running)) = message.request.extensions().get::<Marker>()
        {
            let token = message.request.get_meta().get_progress_token();
            self.table.enter(message.id.clone(), token, running.clone());
        }
        self.inner.send(item)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            let message = self.inner.receive().await;
            match &message {
                None => self.closed.cancel(),
                Some(JsonRpcMessage::Notification(notification)) => match &notification.notification {
                    ServerNotification::ProgressNotification(report) => {
                        self.table.progress(&report.params);
                        continue;
                    }
                    ServerNotification::LoggingMessageNotification(message) => {
                        self.table.log(&message.params);
                        continue;
                    }
                    _ => {}
                },
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

    fn asked_by(askers: &[Asker]) -> Result<Asker, &'static str> {
        let table = Table::default();
        let running: Vec<_> = askers.iter().cloned().map(Running::new).collect();
        for (id, running) in (0..).zip(&running) {
            table.enter(RequestId::Number(id), None, Arc::downgrade(running));
        }
        table.asked_by(None)
    }

    #[test]
    fn a_question_belongs_to_the_only_request_of_a_client() {
        assert!(matches!(asked_by(&[Asker::Nobody]), Ok(Asker::Nobody)));
        assert!(matches!(asked_by(&[Asker::Gateway, Asker::Nobody, Asker::Gateway]), Ok(Asker::Nobody)));
        assert!(asked_by(&[Asker::Nobody, Asker::Nobody]).is_err());
        assert!(asked_by(&[Asker::Gateway]).is_err());
    }
}
