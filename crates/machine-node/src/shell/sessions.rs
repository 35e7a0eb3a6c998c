//! The sessions in the background: those that run, and for a while those that have ended.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sa_node_sdk::ToolError;

use super::session::Session;

/// How long a session that has ended is remembered.
pub(super) const RETENTION: Duration = Duration::from_secs(30 * 60);
/// How many are, at most. The one that ended first is forgotten first.
const MAX_FINISHED: usize = 100;
/// How many may run at once.
const MAX_RUNNING: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Sessions {
    known: Mutex<HashMap<String, Arc<Session>>>,
}

impl Sessions {
    /// Whether there is room for one more.
    pub(super) fn check_room(&self) -> Result<(), ToolError> {
        let running = self.all().iter().filter(|session| session.end().is_none()).count();
        if running < MAX_RUNNING {
            return Ok(());
        }
        Err(ToolError::Failed(format!(
            "{running} sessions run in the background, and no more may: end one with Process, action kill"
        )))
    }

    pub(super) fn insert(&self, session: &Arc<Session>) {
        self.known().insert(session.id.clone(), Arc::clone(session));
    }

    pub(super) fn get(&self, id: &str) -> Result<Arc<Session>, ToolError> {
        self.known().get(id).cloned().ok_or_else(|| {
            ToolError::NotFound(format!(
                "session {id} is not found or is not backgrounded; Process, action list, shows all"
            ))
        })
    }

    /// The newest first.
    pub(super) fn all(&self) -> Vec<Arc<Session>> {
        let mut all: Vec<_> = self.known().values().cloned().collect();
        all.sort_unstable_by(|a, b| (b.started_ms, &b.id).cmp(&(a.started_ms, &a.id)));
        all
    }

    /// Starts the time after which a session that has ended is forgotten.
    pub(super) fn finished(self: &Arc<Self>, session: &Arc<Session>) {
        let mut finished: Vec<_> =
            self.all().iter().filter_map(|session| Some((session.end()?.at_ms, session.id.clone()))).collect();
        finished.sort_unstable();
        for (_, id) in finished.iter().rev().skip(MAX_FINISHED) {
            self.known().remove(id);
        }
        let (sessions, id) = (Arc::downgrade(self), session.id.clone());
        tokio::spawn(async move {
            tokio::time::sleep(RETENTION).await;
            if let Some(sessions) = sessions.upgrade() {
                sessions.known().remove(&id);
            }
        });
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, Arc<Session>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
