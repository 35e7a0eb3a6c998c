//! The committed state that the rest of the process sees: the names, and the followers of each
//! stream.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;

use crate::heads::{Head, Kind};

/// Shared by the handles and the writer. It is locked only briefly.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    streams: HashMap<Arc<str>, Stream>,
    buckets: HashMap<Arc<str>, u32>,
    /// The followers by stream name, since a stream may be followed before it exists.
    ///
    /// A sender is created for the first follower. It is dropped at the next commit after the last
    /// follower has left.
    followers: HashMap<Arc<str>, watch::Sender<u64>>,
    closed: bool,
}

#[derive(Debug)]
struct Stream {
    id: u32,
    last: u64,
}

impl Directory {
    /// Returns the id of a committed stream.
    pub(crate) fn stream(&self, name: &str) -> Option<u32> {
        self.lock().streams.get(name).map(|stream| stream.id)
    }

    /// Returns the id of a committed bucket.
    pub(crate) fn bucket(&self, name: &str) -> Option<u32> {
        self.lock().buckets.get(name).copied()
    }

    pub(crate) fn follow(&self, name: &str) -> watch::Receiver<u64> {
        let mut inner = self.lock();
        let last = inner.streams.get(name).map_or(0, |stream| stream.last);
        if inner.closed {
            // The sender is dropped. The follower sees the last number and the end of the channel.
            return watch::channel(last).1;
        }
        if let Some(sender) = inner.followers.get(name) {
            return sender.subscribe();
        }
        let (sender, receiver) = watch::channel(last);
        inner.followers.insert(name.into(), sender);
        receiver
    }

    /// Publishes a committed head: its name, and its last number to the followers.
    pub(crate) fn publish(&self, head: &Head) {
        let mut inner = self.lock();
        match head.kind {
            Kind::Store => {}
            Kind::Bucket => {
                if !inner.buckets.contains_key(&head.name) {
                    inner.buckets.insert(head.name.clone(), head.id);
                }
            }
            Kind::Stream => inner.publish_stream(head),
        }
    }

    /// Whether the store has been shut down.
    pub(crate) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Ends all followers.
    pub(crate) fn close(&self) {
        let mut inner = self.lock();
        inner.closed = true;
        inner.followers.clear();
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }
}

impl Inner {
    fn publish_stream(&mut self, head: &Head) {
        let last = head.numbers[1] as u64;
        if let Some(stream) = self.streams.get_mut(&head.name) {
            stream.last = last;
        } else {
            self.streams.insert(head.name.clone(), Stream { id: head.id, last });
        }
        if let Some(sender) = self.followers.get(&head.name) {
            if sender.is_closed() {
                self.followers.remove(&head.name);
            } else {
                sender.send_if_modified(|seen| std::mem::replace(seen, last) != last);
            }
        }
    }
}
