use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::SystemTime;

use sa_protocol::node::{self, encode_event};
use sa_protocol::{CapabilityError, MAX_EVENT_BYTES, truncated_result, validate_capability};
use serde_json::Value;

/// How many events wait for a gateway. Beyond that the oldest is given up: what a node has to say outside of its calls is
/// news, and old news is worth least.
const MAX_WAITING: usize = 256;

/// What a node says outside of any call: that a process which it was left with has ended, say.
///
/// Events wait while there is no gateway, and are lost with the process, and with a connection that breaks just when they
/// were written to it. A gateway that knows nothing of events gets none. All clones are one queue, for one client.
#[derive(Clone, Default)]
pub struct NodeEvents {
    queue: Arc<Mutex<Queue>>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<String>,
    /// Wakes the connection that writes them.
    writer: Option<Waker>,
}

impl NodeEvents {
    /// Events that go to whichever gateway the client which they are given to is connected to.
    pub fn new() -> Self {
        Self::default()
    }

    /// Tells the gateway. The name is of lowercase words with dots between them, such as `process.finished`; one that is
    /// not is a mistake in the node, which is logged, and the event is not sent. Data of more than
    /// [`MAX_EVENT_BYTES`](crate::protocol::MAX_EVENT_BYTES) is cut as results are, and says so.
    pub fn send(&self, name: impl AsRef<str>, data: Value) {
        let name = name.as_ref();
        if let Err(error) = self.try_send(name, data) {
            tracing::error!(name, %error, "an event of this node cannot be sent");
        }
    }

    /// As [`send`](Self::send), but says what is wrong with the name.
    pub fn try_send(&self, name: &str, data: Value) -> Result<(), CapabilityError> {
        validate_capability(name)?;
        let data = (!data.is_null()).then(|| data.to_string()).map(|data| match data.len() {
            0..=MAX_EVENT_BYTES => data,
            _ => truncated_result(&data, MAX_EVENT_BYTES),
        });
        let mut frame = String::new();
        encode_event(&mut frame, &node::NodeEvent { event: name.into(), data: data.as_deref(), at_ms: Some(now_ms()) });
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

    /// The next frame to write; the connection that asks is woken when there is one.
    pub(crate) fn poll_next(&self, cx: &Context<'_>) -> Poll<String> {
        let mut queue = self.queue();
        if let Some(frame) = queue.waiting.pop_front() {
            return Poll::Ready(frame);
        }
        queue.writer = Some(cx.waker().clone());
        Poll::Pending
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[expect(clippy::disallowed_methods, reason = "an event carries the wall clock's time")]
fn now_ms() -> i64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_millis()).unwrap_or(i64::MAX)
}

impl fmt::Debug for NodeEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeEvents").field("waiting", &self.queue().waiting.len()).finish_non_exhaustive()
    }
}
