use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::SystemTime;

use parking_lot::{Mutex, MutexGuard};
use sa_protocol::node::{self, encode_event};
use sa_protocol::{CapabilityError, MAX_EVENT_BYTES, truncated_result, validate_capability};
use serde_json::Value;

/// The maximum number of queued events. Beyond it the oldest event is dropped, because old events
/// are the least useful.
const MAX_WAITING: usize = 256;

/// The events that a node sends outside of any call, for example that a background process has
/// ended.
///
/// Events are queued while there is no gateway. They are lost with the process, and with a
/// connection that breaks just after they were written to it. A gateway without support for events
/// receives none. All clones share one queue, for one client.
#[derive(Clone, Default)]
pub struct NodeEvents {
    queue: Arc<Mutex<Queue>>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<String>,
    /// Wakes the connection that writes the events.
    writer: Option<Waker>,
}

impl NodeEvents {
    /// Creates a queue of events. They are sent to the gateway of the client that uses this queue.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sends an event to the gateway.
    ///
    /// The name consists of lowercase words separated by dots, such as `process.finished`. An
    /// invalid name is an error in the node: it is logged, and the event is not sent. Data of more
    /// than [`MAX_EVENT_BYTES`](crate::protocol::MAX_EVENT_BYTES) is truncated and marked as such,
    /// like results.
    pub fn send(&self, name: impl AsRef<str>, data: Value) {
        let name = name.as_ref();
        if let Err(error) = self.try_send(name, data) {
            tracing::error!(name, %error, "cannot send an event of this node");
        }
    }

    /// Sends an event like [`send`](Self::send), but returns an error if the name is invalid.
    pub fn try_send(&self, name: &str, data: Value) -> Result<(), CapabilityError> {
        validate_capability(name)?;
        let data = (!data.is_null()).then(|| data.to_string()).map(|data| match data.len() {
            0..=MAX_EVENT_BYTES => data,
            _ => truncated_result(&data, MAX_EVENT_BYTES),
        });
        let mut frame = String::new();
        encode_event(
            &mut frame,
            &node::NodeEvent { event: name.into(), data: data.as_deref(), at_ms: Some(now_ms()) },
        );
        let writer = {
            let mut queue = self.queue();
            if queue.waiting.len() == MAX_WAITING {
                queue.waiting.pop_front();
            }
            queue.waiting.push_back(frame);
            queue.writer.take()
        };
        if let Some(writer) = writer {
            writer.wake();
        }
        Ok(())
    }

    /// Returns the next frame to write, or registers the calling connection to be woken.
    pub(crate) fn poll_next(&self, cx: &Context<'_>) -> Poll<String> {
        let mut queue = self.queue();
        if let Some(frame) = queue.waiting.pop_front() {
            return Poll::Ready(frame);
        }
        queue.writer = Some(cx.waker().clone());
        Poll::Pending
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock()
    }
}

#[expect(clippy::disallowed_methods, reason = "an event carries the wall clock's time")]
fn now_ms() -> i64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_millis()).unwrap_or(i64::MAX)
}

impl fmt::Debug for NodeEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeEvents")
            .field("waiting", &self.queue().waiting.len())
            .finish_non_exhaustive()
    }
}
