//! What must reach a principal outside any call.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use tokio::sync::{broadcast, watch};

use crate::json::RawJson;
use crate::principal::{Principal, Scope};
use crate::provider::ProviderId;

/// How many notices a surface may lag behind before it misses some. A surface that does is told so, and asks for the
/// state instead.
const CAPACITY: usize = 256;

#[derive(Debug, Clone)]
pub struct Notice {
    /// The principal's id; `None` is for everybody.
    pub to: Option<Arc<str>>,
    pub body: NoticeBody,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoticeBody {
    /// The list of tools is not what it was, in this scope; `None` where the change may be in several. Not everybody is
    /// shown the change: see [`crate::shown::Shown`].
    ToolsChanged { revision: u64, scope: Option<Scope> },
    /// What a provider has to read beside its tools is not what it was; `None` where it is not known which one. Not everybody
    /// is shown the change: see [`crate::shown::Shown`].
    DocumentsChanged { provider: Option<ProviderId> },
    /// Something happened in a session of the principal's: an event of its agent, or a request for one of the caller's
    /// tools.
    Session { session: Arc<str>, kind: SessionNews, data: RawJson },
}

/// What a session has to say. Surfaces name the two differently, and deliver the second with more care.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionNews {
    /// What the agent does.
    Event,
    /// The agent wants one of the caller's tools to run, and waits.
    CallerToolRequest,
}

/// Somebody who knows what a principal was told and has not dealt with: notices pass, and these stay.
pub trait Pending: Send + Sync + 'static {
    fn pending(&self, principal: &Principal) -> Vec<Notice>;
}

/// Carries notices to every surface, each of which delivers them in its own way.
#[derive(Clone)]
pub struct Notices {
    sender: broadcast::Sender<Arc<Notice>>,
    present: Arc<Present>,
    pending: Arc<OnceLock<Weak<dyn Pending>>>,
}

/// Who can be told something right now.
#[derive(Debug)]
struct Present {
    count: Mutex<HashMap<Arc<str>, usize>>,
    changes: watch::Sender<u64>,
}

impl Notices {
    pub fn new() -> Self {
        let present = Present { count: Mutex::default(), changes: watch::Sender::new(0) };
        Self { sender: broadcast::channel(CAPACITY).0, present: Arc::new(present), pending: Arc::default() }
    }

    pub fn send(&self, notice: Notice) {
        // Nobody listening is no error.
        let _ = self.sender.send(Arc::new(notice));
    }

    pub fn subscribe(&self) -> broadcast::Receiver<Arc<Notice>> {
        self.sender.subscribe()
    }

    /// Says whom to ask what is still pending. The first one counts.
    pub fn remember(&self, pending: Weak<dyn Pending>) {
        let _ = self.pending.set(pending);
    }

    /// What waits for a principal. A surface tells it to whoever begins to listen, and subscribes first: what comes at
    /// the same time is then told twice rather than not at all.
    pub fn pending(&self, principal: &Principal) -> Vec<Notice> {
        let pending = self.pending.get().and_then(Weak::upgrade);
        pending.map(|pending| pending.pending(principal)).unwrap_or_default()
    }

    /// Says that somebody reads along, for as long as the answer is kept: a principal by its id, which a surface says
    /// for every open stream on which it delivers notices, or whoever watches one session, by the session's id.
    pub fn attend(&self, whom: &Arc<str>) -> Attendance {
        *self.present.lock().entry(Arc::clone(whom)).or_default() += 1;
        self.present.changed();
        Attendance { present: Arc::clone(&self.present), whom: Arc::clone(whom) }
    }

    /// Whether somebody reads along under this id.
    pub fn attends(&self, whom: &str) -> bool {
        self.present.lock().contains_key(whom)
    }

    /// Changes whenever somebody comes or goes.
    pub fn attendance(&self) -> watch::Receiver<u64> {
        self.present.changes.subscribe()
    }
}

impl fmt::Debug for Notices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notices").field("present", &self.present).finish_non_exhaustive()
    }
}

impl Default for Notices {
    fn default() -> Self {
        Self::new()
    }
}

impl Present {
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Arc<str>, usize>> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn changed(&self) {
        self.changes.send_modify(|revision| *revision += 1);
    }
}

/// Somebody reads along. Dropping it says that they left.
#[derive(Debug)]
pub struct Attendance {
    present: Arc<Present>,
    whom: Arc<str>,
}

impl Drop for Attendance {
    fn drop(&mut self) {
        {
            let mut count = self.present.lock();
            if let Some(left) = count.get_mut(&self.whom) {
                *left -= 1;
                if *left == 0 {
                    count.remove(&self.whom);
                }
            }
        }
        self.present.changed();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn somebody_is_there_until_the_last_of_their_streams_ends() {
        let notices = Notices::new();
        let mut changes = notices.attendance();
        let (ant, bee): (Arc<str>, Arc<str>) = ("ant".into(), "bee".into());
        let first = notices.attend(&ant);
        let second = notices.attend(&ant);
        drop(first);
        assert!(notices.attends(&ant) && !notices.attends(&bee));
        changes.borrow_and_update();
        drop(second);
        assert!(!notices.attends(&ant) && changes.has_changed().unwrap());
        assert!(notices.present.lock().is_empty(), "nothing stays of who left");
    }
}
