//! The queue of a call's updates that its reader has not received yet.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use super::{Overrun, Update};
use crate::outcome::Attachment;

/// A queue of updates for one reader, bounded in number and in bytes. Cloning is cheap; only one of
/// the clones is read.
#[derive(Debug, Clone)]
pub struct Backlog(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    added: Notify,
    max_len: usize,
    max_bytes: usize,
}

#[derive(Debug, Default)]
struct Queue {
    updates: VecDeque<Update>,
    bytes: usize,
    closed: bool,
}

impl Backlog {
    pub fn new(max_len: usize, max_bytes: usize) -> Self {
        Self(Arc::new(Shared { queue: Mutex::default(), added: Notify::new(), max_len, max_bytes }))
    }

    /// Queues an update, if the limits allow it. An empty queue accepts one update of any size.
    pub fn push(&self, update: Update) -> Result<(), Overrun> {
        let bytes = update.weight();
        let mut queue = self.lock();
        let fits = queue.updates.len() < self.0.max_len
            && queue.bytes.saturating_add(bytes) <= self.0.max_bytes;
        if queue.closed || !(fits || queue.updates.is_empty()) {
            return Err(Overrun);
        }
        queue.bytes += bytes;
        queue.updates.push_back(update);
        drop(queue);
        self.0.added.notify_one();
        Ok(())
    }

    /// Discards all queued updates and accepts no more. For a reader that is too far behind.
    pub fn close(&self) {
        *self.lock() = Queue { closed: true, ..Queue::default() };
    }

    pub fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Returns the next update, if one is queued.
    pub fn try_next(&self) -> Option<Update> {
        let mut queue = self.lock();
        let update = queue.updates.pop_front()?;
        queue.bytes -= update.weight();
        Some(update)
    }

    /// Waits for the next update. This method is cancel safe.
    pub async fn next(&self) -> Update {
        loop {
            if let Some(update) = self.try_next() {
                return update;
            }
            self.0.added.notified().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.0.queue.lock()
    }
}

impl Update {
    /// Returns the approximate memory size in bytes.
    fn weight(&self) -> usize {
        let held = match self {
            Self::Progress { message, .. } => message.as_ref().map_or(0, String::len),
            Self::Chunk { content, attachments } => {
                content.len() + attachments.iter().map(Attachment::weight).sum::<usize>()
            }
            Self::Log { logger, data, .. } => logger.as_ref().map_or(0, String::len) + data.len(),
        };
        size_of::<Self>() + held
    }
}

#[cfg(test)]
mod tests {
    //! Rule: a reader's queue is bounded in bytes and in number, and is emptied when the reader is
    //! given up.

    use futures_util::FutureExt as _;

    use super::*;
    use sa_text::RawJson;

    fn chunk(bytes: usize) -> Update {
        Update::Chunk {
            content: RawJson::parse(&format!("\"{}\"", "x".repeat(bytes - 2))).unwrap(),
            attachments: vec![],
        }
    }

    #[track_caller]
    fn check(max_len: usize, max_bytes: usize, pushed: &[usize], accepted: usize) {
        let backlog = Backlog::new(max_len, max_bytes);
        let accepted_count =
            pushed.iter().take_while(|bytes| backlog.push(chunk(**bytes)).is_ok()).count();
        assert_eq!(accepted_count, accepted, "{pushed:?}");
    }

    #[test]
    fn the_queue_is_bounded_in_number_and_bytes() {
        check(3, 1 << 20, &[10, 10, 10, 10], 3);
        check(100, 10_000, &[4_000, 4_000, 4_000], 2);
        check(100, 10_000, &[50_000, 10], 1);
        check(100, 10_000, &[10, 50_000], 1);
        check(100, 1_000, &[2; 100], 1_000 / (size_of::<Update>() + 2));
    }

    #[test]
    fn all_parts_of_an_attachment_count() {
        let attachment = |mime_type: &str, name: Option<&str>, data: &'static [u8]| Attachment {
            mime_type: mime_type.into(),
            name: name.map(Into::into),
            data: data.into(),
        };
        let long = "x".repeat(6_000);
        let large: &'static [u8] = &[0; 6_000];
        let empty =
            || std::iter::repeat_with(|| attachment("", None, &[])).take(100).collect::<Vec<_>>();
        for attachments in [
            vec![attachment(&long, None, &[])],
            vec![attachment("a/b", Some(&long), &[])],
            vec![attachment("a/b", None, large)],
            empty(),
        ] {
            let backlog = Backlog::new(100, 10_000);
            let chunk = Update::Chunk { content: RawJson::empty_object(), attachments };
            assert_eq!((backlog.push(chunk.clone()), backlog.push(chunk)), (Ok(()), Err(Overrun)));
        }
    }

    #[test]
    fn a_received_update_frees_its_bytes() {
        let backlog = Backlog::new(2, 10_000);
        for _ in 0..10 {
            assert_eq!(
                (backlog.push(chunk(50_000)), backlog.push(chunk(2))),
                (Ok(()), Err(Overrun))
            );
            assert_eq!(backlog.next().now_or_never(), Some(chunk(50_000)));
        }
        assert_eq!(backlog.next().now_or_never(), None);
    }

    #[test]
    fn a_closed_queue_accepts_nothing() {
        let backlog = Backlog::new(10, 10_000);
        backlog.push(chunk(10)).unwrap();
        backlog.close();
        assert_eq!((backlog.try_next(), backlog.push(chunk(10))), (None, Err(Overrun)));
    }

    #[tokio::test]
    async fn a_reader_that_waits_is_woken() {
        let backlog = Backlog::new(10, 10_000);
        let reader = tokio::spawn({
            let backlog = backlog.clone();
            async move { (backlog.next().await, backlog.next().await) }
        });
        tokio::task::yield_now().await;
        backlog.push(chunk(3)).unwrap();
        backlog.push(chunk(4)).unwrap();
        assert_eq!(reader.await.unwrap(), (chunk(3), chunk(4)));
    }
}
