//! What a client is told outside of its calls: that the list has changed, and what happens in its sessions.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rmcp::model::{LoggingLevel, LoggingMessageNotificationParam};
use rmcp::{Peer, RoleServer};
use sa_core::notice::{Notice, NoticeBody, SessionNews};
use sa_core::{Directory, Notices, Principal};
use tokio::sync::{broadcast, mpsc};
use tokio_util::sync::CancellationToken;

use crate::sessions::Sessions;

/// Notices that may wait for one client.
const QUEUE: usize = 1_024;
/// The level of what happens in a session.
const LEVEL: LoggingLevel = LoggingLevel::Info;

/// Takes every notice as it comes, and passes it on to the sessions that it is for.
pub(crate) async fn distribute(notices: Notices, sessions: Arc<Sessions>, closing: CancellationToken) {
    let mut news = notices.subscribe();
    loop {
        let notice = tokio::select! {
            notice = news.recv() => notice,
            () = closing.cancelled() => return,
        };
        match notice {
            Ok(notice) => sessions.tell(&notice),
            Err(broadcast::error::RecvError::Lagged(missed)) => {
                // Among what was missed may have been a change of the list; asking for it once too often does no harm.
                tracing::warn!(missed, "MCP sessions missed notices");
                sessions.tell(&Arc::new(Notice { to: None, body: NoticeBody::ToolsChanged { revision: 0 } }));
            }
            Err(broadcast::error::RecvError::Closed) => return,
        }
    }
}

/// What waits to be told to one session's client.
#[derive(Debug)]
pub(crate) struct Outbox {
    send: mpsc::Sender<Arc<Notice>>,
    receive: Mutex<Option<mpsc::Receiver<Arc<Notice>>>>,
    /// Whether the client is about to be told that the list has changed: once is enough.
    changed: AtomicBool,
}

impl Default for Outbox {
    fn default() -> Self {
        let (send, receive) = mpsc::channel(QUEUE);
        Self { send, receive: Mutex::new(Some(receive)), changed: AtomicBool::new(false) }
    }
}

impl Outbox {
    /// Fails when the client does not keep up.
    pub(crate) fn put(&self, notice: &Arc<Notice>) -> Result<(), ()> {
        let is_change = matches!(notice.body, NoticeBody::ToolsChanged { .. });
        if is_change && self.changed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        match self.send.try_send(Arc::clone(notice)) {
            Err(mpsc::error::TrySendError::Full(_)) => Err(()),
            _ => Ok(()),
        }
    }

    /// Tells the client what comes, one after the other.
    pub(crate) async fn deliver(&self, peer: Peer<RoleServer>) {
        let Some(mut news) = self.receive.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
        while let Some(notice) = news.recv().await {
            match &notice.body {
                NoticeBody::ToolsChanged { .. } => {
                    // Before it is told: a change from here on is one that it has not heard of.
                    self.changed.store(false, Ordering::Release);
                    peer.notify_tool_list_changed().await.ok();
                }
                body @ NoticeBody::Session { .. } => tell(&peer, body).await,
            }
        }
    }
}

/// What happens in the principal's sessions, while one call of theirs runs.
pub(crate) struct Listener {
    news: broadcast::Receiver<Arc<Notice>>,
    principal: Arc<Principal>,
    level: LoggingLevel,
}

impl Listener {
    pub(crate) fn new(notices: &Notices, principal: Arc<Principal>, level: LoggingLevel) -> Self {
        Self { news: notices.subscribe(), principal, level }
    }

    /// Tells the client for as long as it is polled.
    pub(crate) async fn deliver(&mut self, peer: &Peer<RoleServer>) {
        loop {
            let notice = match self.news.recv().await {
                Ok(notice) => notice,
                Err(broadcast::error::RecvError::Lagged(_)) => continue,
                Err(broadcast::error::RecvError::Closed) => return,
            };
            if self.wants(&notice) {
                tell(peer, &notice.body).await;
            }
        }
    }

    fn wants(&self, notice: &Notice) -> bool {
        let mine = notice.to.as_ref().is_some_and(|to| *to == self.principal.id);
        // A request for a tool is an errand, not talk: whoever asked for any level gets it.
        let loud_enough = match &notice.body {
            NoticeBody::Session { kind: SessionNews::CallerToolRequest, .. } => true,
            NoticeBody::Session { kind: SessionNews::Event, .. } => severity(self.level) <= severity(LEVEL),
            NoticeBody::ToolsChanged { .. } => false,
        };
        mine && loud_enough
    }
}

fn severity(level: LoggingLevel) -> u8 {
    match level {
        LoggingLevel::Debug => 0,
        LoggingLevel::Info => 1,
        LoggingLevel::Notice => 2,
        LoggingLevel::Warning => 3,
        LoggingLevel::Error => 4,
        LoggingLevel::Critical => 5,
        LoggingLevel::Alert => 6,
        LoggingLevel::Emergency => 7,
    }
}

async fn tell(peer: &Peer<RoleServer>, body: &NoticeBody) {
    let NoticeBody::Session { kind, data, .. } = body else { return };
    let logger = match kind {
        SessionNews::CallerToolRequest => "oubliette.caller_tool",
        SessionNews::Event => "oubliette.session",
    };
    let data = serde_json::from_str(data.as_str()).unwrap_or_default();
    let message = LoggingMessageNotificationParam::new(LEVEL, data).with_logger(logger);
    peer.notify_logging_message(message).await.ok();
}

/// Resolves when what there is has changed since `seen`, which is brought up to date.
pub(crate) async fn changed(directory: &Directory, seen: &mut u64) {
    let mut revision = directory.subscribe();
    if let Ok(now) = revision.wait_for(|now| now != seen).await {
        *seen = *now;
    }
}
