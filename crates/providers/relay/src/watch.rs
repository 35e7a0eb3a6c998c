//! Background tasks: tracking the presence of callers, and deleting old sessions.

use std::sync::{Arc, Weak};
use std::time::Duration;

use sa_core::store::Trimmed;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::Options;
use crate::link;
use crate::session::Session;
use crate::sessions::Sessions;

/// The interval of housekeeping.
const HOUSEKEEPING: Duration = Duration::from_secs(60);

/// Tracks the presence of callers. When a caller is gone, its open requests fail.
pub(crate) async fn callers(sessions: Weak<Sessions>, stop: CancellationToken) {
    let Some(mut readers) = sessions.upgrade().map(|sessions| sessions.notices.readers_changed())
    else {
        return;
    };
    loop {
        let due = {
            let Some(sessions) = sessions.upgrade() else { return };
            readers.borrow_and_update();
            let now = Instant::now();
            let open = sessions.all();
            for session in &open {
                sessions.update_presence(session, now);
            }
            open.iter().filter_map(|session| session.presence.due()).min()
        };
        let changed = async {
            let Some(sessions) = sessions.upgrade() else { return };
            // Dropped while waiting: a strong reference to the sessions keeps the gateway alive.
            let presence_changed = Arc::clone(&sessions.presence_changed);
            drop(sessions);
            presence_changed.notified().await;
        };
        let due = async {
            match due {
                Some(due) => tokio::time::sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = stop.cancelled() => return,
            changed = readers.changed() => if changed.is_err() { return },
            () = changed => {}
            () = due => {}
        }
    }
}

pub(crate) async fn delete_expired(sessions: Weak<Sessions>, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(HOUSEKEEPING) => {}
            () = stop.cancelled() => return,
        }
        let Some(sessions) = sessions.upgrade() else { return };
        let Options { trimmer, keep, .. } = &sessions.options;
        let mut deleted = Trimmed::default();
        for session in sessions.all() {
            if session.idle_for() >= sessions.options.idle && *session.agents.borrow() == 0 {
                sessions.end_session(&session, "it was idle for too long").await;
            }
            deleted += session.events.trim(Some(*keep)).await;
        }
        trimmer.report("session_event", deleted);
        if let Err(error) = sessions.archive.expire().await {
            warn!(%error, "cannot delete old sessions");
        }
    }
}

impl Sessions {
    /// Returns whether the session's caller has an open stream or long poll.
    pub(crate) fn is_attended(&self, session: &Session) -> bool {
        self.notices.has_reader(&session.id) || self.notices.has_reader(&session.owner.id)
    }

    /// Updates whether a session's caller is listening. If it is gone, its requests fail.
    pub(crate) fn update_presence(&self, session: &Session, now: Instant) {
        if session.presence.update(self.is_attended(session), now) {
            info!(session = &*session.id, "the session's caller disconnected");
            for (id, _) in session.requests.all() {
                if session.requests.take(id).is_some() {
                    session.provider.complete(id, Err(link::gone()));
                }
            }
        }
    }
}
