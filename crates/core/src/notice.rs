//! What must reach a principal outside any call.

use std::sync::Arc;

use tokio::sync::broadcast;

use crate::json::RawJson;

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
    /// The list of tools is not what it was.
    ToolsChanged { revision: u64 },
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

/// Carries notices to every surface, each of which delivers them in its own way.
#[derive(Debug, Clone)]
pub struct Notices(broadcast::Sender<Arc<Notice>>);

impl Notices {
    pub fn new() -> Self {
        Self(broadcast::channel(CAPACITY).0)
    }

    pub fn send(&self, notice: Notice) {
        // Nobody listening is no error.
        let _ = self.0.send(Arc::new(notice));
    }

    pub fn subscribe(&self) -> broadcast::Receiver<Arc<Notice>> {
        self.0.subscribe()
    }
}

impl Default for Notices {
    fn default() -> Self {
        Self::new()
    }
}
