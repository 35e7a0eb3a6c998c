use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use tokio::sync::Notify;

/// How many events wait for a gateway. Beyond that the oldest is given up: what a node has to say outside of its calls is
/// news, and old news is worth least.
const MAX_WAITING: usize = 256;

/// What a node says outside of any call: that a process which it was left with has ended, say.
///
/// Events wait while there is no gateway, and are lost with the process. A gateway that knows nothing of events gets none.
#[derive(Clone, Default)]
pub struct NodeEvents {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    waiting: Mutex<VecDeque<NodeEvent>>,
    news: Notify,
}

pub(crate) struct NodeEvent {
    pub(crate) name: String,
    pub(crate) data: Value,
}

impl NodeEvents {
    /// Events that go to whichever gateway the client which they are given to is connected to.
    pub fn new() -> Self {
        Self::default()
    }

    /// Tells the gateway. The name is of lowercase words with dots between them, such as `process.ended`.
    pub fn send(&self, name: impl Into<String>, data: Value) {
        let mut waiting = self.shared.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() == MAX_WAITING {
            waiting.pop_front();
        }
        waiting.push_back(NodeEvent { name: name.into(), data });
        drop(waiting);
        self.shared.news.notify_one();
    }
}

impl fmt::Debug for NodeEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeEvents").finish_non_exhaustive()
    }
}
