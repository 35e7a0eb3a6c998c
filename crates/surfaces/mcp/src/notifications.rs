//! Notifications to a client outside of its calls: changes of lists, and events in its sessions.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use rmcp::model::{LoggingLevel, LoggingMessageNotificationParam};
use rmcp::service::SubscriptionContext;
use rmcp::{Peer, RoleServer};
use sa_core::notice::{Notice, NoticeBody, SessionNoticeKind};
use sa_core::visible_tools::VisibleTools;
use sa_core::{LogLevel, Notices, Principal, QuestionMode, ReaderGuard, Router, View, Watch};
use tokio::sync::{broadcast, mpsc};

use crate::passthrough::Passthrough;
use crate::sessions::Sessions;
use crate::shared::Shared;

/// The maximum number of queued notices for one client.
const QUEUE: usize = 1_024;
/// The log level of events in a session.
const LEVEL: LoggingLevel = LoggingLevel::Info;

/// Receives every notice, and forwards it to the sessions that it is for.
pub(crate) async fn distribute(shared: Arc<Shared>, sessions: Arc<Sessions>) {
    let (notices, closing) = (&shared.notices, &shared.closing);
    let mut receiver = notices.subscribe();
    loop {
        let notice = tokio::select! {
            notice = receiver.recv() => notice,
            () = closing.cancelled() => return,
        };
        match notice {
            Ok(notice) => sessions.notify(&notice),
            Err(broadcast::error::RecvError::Lagged(missed)) => {
                // The missed notices may include a change of a list; requesting it once too often
                // does no harm.
                tracing::warn!(missed, "MCP sessions missed notices");
                let tools = NoticeBody::ToolsChanged { revision: 0, scope: None };
                for body in [tools, NoticeBody::DocumentsChanged { provider: None }] {
                    sessions.notify(&Arc::new(Notice { to: None, body }));
                }
                sessions.notify_pending(notices);
            }
            Err(broadcast::error::RecvError::Closed) => return,
        }
    }
}

/// The queue of notices for one session's client.
#[derive(Debug)]
pub(crate) struct Outbox {
    send: mpsc::Sender<Arc<Notice>>,
    receive: Mutex<Option<mpsc::Receiver<Arc<Notice>>>>,
    /// Whether a notification about the list of tools, or of documents, is already queued: one is
    /// enough.
    tools_changed: AtomicBool,
    documents_changed: AtomicBool,
}

impl Default for Outbox {
    fn default() -> Self {
        let (send, receive) = mpsc::channel(QUEUE);
        let receive = Mutex::new(Some(receive));
        Self {
            send,
            receive,
            tools_changed: AtomicBool::default(),
            documents_changed: AtomicBool::default(),
        }
    }
}

impl Outbox {
    /// Queues a notice. Fails if the client does not keep up.
    pub(crate) fn put(&self, notice: &Arc<Notice>) -> Result<(), ()> {
        let changed = match notice.body {
            NoticeBody::ToolsChanged { .. } => Some(&self.tools_changed),
            NoticeBody::DocumentsChanged { .. } => Some(&self.documents_changed),
            NoticeBody::Session { .. } => None,
        };
        if changed.is_some_and(|changed| changed.swap(true, Ordering::AcqRel)) {
            return Ok(());
        }
        match self.send.try_send(Arc::clone(notice)) {
            Err(mpsc::error::TrySendError::Full(_)) => Err(()),
            _ => Ok(()),
        }
    }

    /// Sends queued notices to the client, one after the other.
    pub(crate) async fn deliver(&self, peer: Peer<RoleServer>) {
        let Some(mut receiver) = self.receive.lock().take() else {
            return;
        };
        while let Some(notice) = receiver.recv().await {
            match &notice.body {
                NoticeBody::ToolsChanged { .. } => {
                    // The flag is cleared before the notification: a later change needs another
                    // one.
                    self.tools_changed.store(false, Ordering::Release);
                    peer.notify_tool_list_changed().await.ok();
                }
                NoticeBody::DocumentsChanged { .. } => {
                    self.documents_changed.store(false, Ordering::Release);
                    peer.notify_resource_list_changed().await.ok();
                    peer.notify_prompt_list_changed().await.ok();
                }
                body @ NoticeBody::Session { .. } => send_event(&peer, body).await,
            }
        }
    }
}

/// The events in the principal's sessions, during one of its calls.
pub(crate) struct Listener {
    receiver: broadcast::Receiver<Arc<Notice>>,
    /// The events that were queued before.
    pending: std::vec::IntoIter<Notice>,
    principal: Arc<Principal>,
    level: LogLevel,
    _reader_guard: ReaderGuard,
}

impl Listener {
    pub(crate) fn new(notices: &Notices, principal: Arc<Principal>, level: LogLevel) -> Self {
        let (receiver, reader_guard) = (notices.subscribe(), notices.add_reader(&principal.id));
        let pending = notices.pending(&principal).into_iter();
        Self { receiver, pending, principal, level, _reader_guard: reader_guard }
    }

    /// Sends events to the client while it is polled.
    pub(crate) async fn deliver(&mut self, peer: &Peer<RoleServer>) {
        for notice in self.pending.by_ref() {
            send_event(peer, &notice.body).await;
        }
        loop {
            let notice = match self.receiver.recv().await {
                Ok(notice) => notice,
                Err(broadcast::error::RecvError::Lagged(_)) => continue,
                Err(broadcast::error::RecvError::Closed) => return,
            };
            if self.wants(&notice) {
                send_event(peer, &notice.body).await;
            }
        }
    }

    fn wants(&self, notice: &Notice) -> bool {
        let is_for_principal = notice.to.as_ref().is_some_and(|to| *to == self.principal.id);
        // A request for a tool needs an answer, so it is sent at every level.
        let is_at_level = match &notice.body {
            NoticeBody::Session { kind: SessionNoticeKind::CallerToolRequest, .. } => true,
            NoticeBody::Session { kind: SessionNoticeKind::Event, .. } => {
                self.level <= LogLevel::Info
            }
            NoticeBody::ToolsChanged { .. } | NoticeBody::DocumentsChanged { .. } => false,
        };
        is_for_principal && is_at_level
    }
}

async fn send_event(peer: &Peer<RoleServer>, body: &NoticeBody) {
    let NoticeBody::Session { kind, data, .. } = body else { return };
    let logger = match kind {
        SessionNoticeKind::CallerToolRequest => "oubliette.caller_tool",
        SessionNoticeKind::Event => "oubliette.session",
    };
    let data = serde_json::from_str(data.as_str()).unwrap_or_default();
    let message = LoggingMessageNotificationParam::new(LEVEL, data).with_logger(logger);
    peer.notify_logging_message(message).await.ok();
}

/// Notifies a client about its subscriptions while it is polled.
pub(crate) async fn follow(
    context: &SubscriptionContext,
    shared: &Shared,
    view: View,
    documents: &Passthrough<'_>,
) {
    let (wants, sink) = (context.accepted(), context.sink());
    let mut notices = shared.notices.subscribe();
    let visible_tools = VisibleTools::new(&shared.router, view);
    let mut watched = FuturesUnordered::new();
    for uri in wants.resource_subscriptions.iter().flatten() {
        // A document that cannot be watched counts as unchanged.
        if let Ok(watch) = documents.watch(uri, QuestionMode::Response).await {
            watched.push(next_change(uri, watch));
        }
    }
    loop {
        let sent = tokio::select! {
            changed = lists_changed(&mut notices, &visible_tools, &shared.router) => {
                let mut sent = Ok(());
                if changed.tools && wants.tools_list_changed == Some(true) {
                    sent = sink.notify_tool_list_changed().await;
                }
                if sent.is_ok() && changed.documents && wants.resources_list_changed == Some(true) {
                    sent = sink.notify_resource_list_changed().await;
                }
                if sent.is_ok() && changed.documents && wants.prompts_list_changed == Some(true) {
                    sent = sink.notify_prompt_list_changed().await;
                }
                sent
            }
            Some((uri, watch)) = watched.next() => match watch {
                Some(watch) => {
                    watched.push(next_change(uri, watch));
                    sink.notify_resource_updated(uri).await
                }
                None => Ok(()),
            },
        };
        if sent.is_err() {
            return;
        }
    }
}

async fn next_change(uri: &str, mut watch: Watch) -> (&str, Option<Watch>) {
    let changed = watch.changed().await;
    (uri, changed.then_some(watch))
}

/// The lists of a client that have changed.
struct ListsChanged {
    tools: bool,
    documents: bool,
}

/// Resolves when the lists of tools or documents that the client can see have changed.
async fn lists_changed(
    notices: &mut broadcast::Receiver<Arc<Notice>>,
    visible_tools: &VisibleTools,
    router: &Router,
) -> ListsChanged {
    loop {
        let (tools, documents) = match notices.recv().await {
            Ok(notice) => match &notice.body {
                NoticeBody::ToolsChanged { scope, .. } => {
                    (visible_tools.changed(router, scope.as_ref()), false)
                }
                NoticeBody::DocumentsChanged { provider } => {
                    (false, visible_tools.documents_changed(provider.as_ref()))
                }
                NoticeBody::Session { .. } => (false, false),
            },
            // The missed notices may include a change of each list.
            Err(broadcast::error::RecvError::Lagged(_)) => {
                (visible_tools.changed(router, None), visible_tools.documents_changed(None))
            }
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
        };
        if tools || documents {
            return ListsChanged { tools, documents };
        }
    }
}
