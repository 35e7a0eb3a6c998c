//! The live feed of calls and audit events.

use std::sync::Arc;

use tokio::sync::broadcast;

/// The capacity of the feed. A reader that falls further behind misses events.
const CAPACITY: usize = 1_024;

/// A handle that is cheap to clone.
#[derive(Debug, Clone)]
pub struct Feed(broadcast::Sender<FeedEvent>);

#[derive(Debug, Clone)]
pub struct FeedEvent {
    /// `call_started`, `call_ended`, `node_event` or `audit`.
    pub name: &'static str,
    /// The principal of the call. `None` for events that only operators may see.
    pub principal: Option<Arc<str>>,
    pub json: Arc<str>,
}

impl Feed {
    pub fn follow(&self) -> broadcast::Receiver<FeedEvent> {
        self.0.subscribe()
    }

    /// Sends an event to the readers. It is serialized only if there are any.
    pub fn publish(
        &self,
        name: &'static str,
        principal: Option<&Arc<str>>,
        json: impl FnOnce() -> Arc<str>,
    ) {
        if self.0.receiver_count() > 0 {
            let _ = self.0.send(FeedEvent { name, principal: principal.cloned(), json: json() });
        }
    }
}

impl Default for Feed {
    fn default() -> Self {
        Self(broadcast::channel(CAPACITY).0)
    }
}
