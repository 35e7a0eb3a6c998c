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
    /// every principal sees the change: see [`crate::visible_tools::VisibleTools`].
    ToolsChanged { revision: u64, scope: Option<Scope> },
    /// A provider's documents have changed; `None` if the provider is unknown. Not every principal
    /// sees the change: see [`crate::visible_tools::VisibleTools`].
    DocumentsChanged { provider: Option<ProviderId> },
    /// An event in one of the principal's sessions: an event of its agent, or a request for one of
    /// the caller's tools.
    Session { session: Arc<str>, kind: SessionNoticeKind, data: RawJson },
}

/// The two kinds of session notices. Surfaces name them differently, and deliver the second more
/// reliably.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionNoticeKind {
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
    readers: Arc<Readers>,
    pending: Arc<OnceLock<Weak<dyn Pending>>>,
}

/// The principals that currently have a reader.
#[derive(Debug)]
struct Readers {
    count: Mutex<HashMap<Arc<str>, usize>>,
    changes: watch::Sender<u64>,
}

impl Notices {
    pub fn new() -> Self {
        let readers = Readers { count: Mutex::default(), changes: watch::Sender::new(0) };
        Self {
            sender: broadcast::channel(CAPACITY).0,
            readers: Arc::new(readers),
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
    pub fn add_reader(&self, id: &Arc<str>) -> ReaderGuard {
        *self.readers.lock().entry(Arc::clone(id)).or_default() += 1;
        self.readers.changed();
        ReaderGuard { readers: Arc::clone(&self.readers), id: Arc::clone(id) }
    }

    /// Returns whether there is a reader for this id.
    pub fn has_reader(&self, id: &str) -> bool {
        self.readers.lock().contains_key(id)
    }

    /// Returns a counter that changes whenever a reader is added or removed.
    pub fn readers_changed(&self) -> watch::Receiver<u64> {
        self.readers.changes.subscribe()
    }
}

impl fmt::Debug for Notices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notices").field("present", &self.readers).finish_non_exhaustive()
    }
}

impl Default for Notices {
    fn default() -> Self {
        Self::new()
    }
}

impl Readers {
    fn lock(&self) -> parking_lot::MutexGuard<'_, HashMap<Arc<str>, usize>> {
        self.count.lock()
    }

    fn changed(&self) {
        self.changes.send_modify(|revision| *revision += 1);
    }
}

/// A registered reader. Dropping it removes the reader.
#[derive(Debug)]
pub struct ReaderGuard {
    readers: Arc<Readers>,
    id: Arc<str>,
}

impl Drop for ReaderGuard {
    fn drop(&mut self) {
        {
            let mut count = self.readers.lock();
            if let Some(left) = count.get_mut(&self.id) {
                *left -= 1;
                if *left == 0 {
                    count.remove(&self.id);
                }
            }
        }
        self.readers.changed();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_is_present_until_its_last_stream_ends() {
        let notices = Notices::new();
        let mut changes = notices.readers_changed();
        let (ant, bee): (Arc<str>, Arc<str>) = ("ant".into(), "bee".into());
        let first = notices.add_reader(&ant);
        let second = notices.add_reader(&ant);
        drop(first);
        assert!(notices.has_reader(&ant) && !notices.has_reader(&bee));
        changes.borrow_and_update();
        drop(second);
        assert!(!notices.has_reader(&ant) && changes.has_changed().unwrap());
        assert!(notices.readers.lock().is_empty(), "no reader is left");
    }
}
