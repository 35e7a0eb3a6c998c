//! Messages to principals outside of any call.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use tokio::sync::{broadcast, watch};

use crate::principal::{Principal, Scope};
use crate::provider::ProviderId;
use sa_text::json::RawJson;

/// The capacity of a surface's notice queue. A surface that lags further behind misses notices,
/// receives an error, and then queries the state instead.
const CAPACITY: usize = 256;

#[derive(Debug, Clone)]
pub struct Notice {
    /// The principal's id; `None` addresses all principals.
    pub to: Option<Arc<str>>,
    pub body: NoticeBody,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoticeBody {
    /// The list of tools has changed in this scope; `None` if several scopes may be affected. Not
    /// every principal sees the change: see [`crate::shown::Shown`].
    ToolsChanged { revision: u64, scope: Option<Scope> },
    /// A provider's documents have changed; `None` if the provider is unknown. Not every principal
    /// sees the change: see [`crate::shown::Shown`].
    DocumentsChanged { provider: Option<ProviderId> },
    /// An event in one of the principal's sessions: an event of its agent, or a request for one of
    /// the caller's tools.
    Session { session: Arc<str>, kind: SessionNews, data: RawJson },
}

/// The two kinds of session notices. Surfaces name them differently, and deliver the second more
/// reliably.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionNews {
    /// An activity of the agent.
    Event,
    /// The agent waits for one of the caller's tools to run.
    CallerToolRequest,
}

/// Provides the notices that a principal has received and not handled yet. Notices are transient;
/// these persist.
pub trait Pending: Send + Sync + 'static {
    fn pending(&self, principal: &Principal) -> Vec<Notice>;
}

/// Broadcasts notices to every surface, and each surface delivers them in its own way.
#[derive(Clone)]
pub struct Notices {
    sender: broadcast::Sender<Arc<Notice>>,
    present: Arc<Present>,
    pending: Arc<OnceLock<Weak<dyn Pending>>>,
}

/// The principals that currently have a reader.
#[derive(Debug)]
struct Present {
    count: Mutex<HashMap<Arc<str>, usize>>,
    changes: watch::Sender<u64>,
}

impl Notices {
    pub fn new() -> Self {
        let present = Present { count: Mutex::default(), changes: watch::Sender::new(0) };
        Self {
            sender: broadcast::channel(CAPACITY).0,
            present: Arc::new(present),
            pending: Arc::default(),
        }
    }

    pub fn send(&self, notice: Notice) {
        // A send without a receiver is not an error.
        let _ = self.sender.send(Arc::new(notice));
    }

    pub fn subscribe(&self) -> broadcast::Receiver<Arc<Notice>> {
        self.sender.subscribe()
    }

    /// Sets the source of pending notices. Only the first call has an effect.
    pub fn remember(&self, pending: Weak<dyn Pending>) {
        let _ = self.pending.set(pending);
    }

    /// Returns the pending notices of a principal. A surface sends them to each new subscriber, and
    /// subscribes first. A concurrent notice is then delivered twice instead of being lost.
    pub fn pending(&self, principal: &Principal) -> Vec<Notice> {
        let pending = self.pending.get().and_then(Weak::upgrade);
        pending.map(|pending| pending.pending(principal)).unwrap_or_default()
    }

    /// Registers a reader until the returned value is dropped. The id is a principal's id for every
    /// open stream with notices, or a session's id for each watcher of that session.
    pub fn attend(&self, whom: &Arc<str>) -> Attendance {
        *self.present.lock().entry(Arc::clone(whom)).or_default() += 1;
        self.present.changed();
        Attendance { present: Arc::clone(&self.present), whom: Arc::clone(whom) }
    }

    /// Returns whether there is a reader for this id.
    pub fn attends(&self, whom: &str) -> bool {
        self.present.lock().contains_key(whom)
    }

    /// Returns a counter that changes whenever a reader is added or removed.
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
    fn lock(&self) -> parking_lot::MutexGuard<'_, HashMap<Arc<str>, usize>> {
        self.count.lock()
    }

    fn changed(&self) {
        self.changes.send_modify(|revision| *revision += 1);
    }
}

/// A registered reader. Dropping it removes the reader.
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
