//! What the writer has committed, as the rest of the process sees it: the names, and who follows them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use crate::heads::{Head, Kind};

/// Shared by the handles and the writer. Locked for moments only.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    streams: HashMap<Arc<str>, Stream>,
    buckets: HashMap<Arc<str>, u32>,
    /// Followers by name, since a stream may be followed before it exists. Made when someone follows, dropped
    /// at the next commit when nobody does any more.
    followers: HashMap<Arc<str>, watch::Sender<u64>>,
    closed: bool,
}

#[derive(Debug)]
struct Stream {
    id: u32,
    last: u64,
}

impl Directory {
    /// The number of a stream that has been committed.
    pub(crate) fn stream(&self, name: &str) -> Option<u32> {
        self.lock().streams.get(name).map(|stream| stream.id)
    }

    /// The number of a bucket that has been committed.
    pub(crate) fn bucket(&self, name: &str) -> Option<u32> {
        self.lock().buckets.get(name).copied()
    }

    pub(crate) fn follow(&self, name: &str) -> watch::Receiver<u64> {
        let mut inner = self.lock();
        let last = inner.streams.get(name).map_or(0, |stream| stream.last);
        if inner.closed {
            // Without a sender: the follower sees the last number, and that there will be no other.
            return watch::channel(last).1;
        }
        if let Some(sender) = inner.followers.get(name) {
            return sender.subscribe();
        }
        let (sender, receiver) = watch::channel(last);
        inner.followers.insert(name.into(), sender);
        receiver
    }

    /// Makes a committed head known: its name, and its last number to those who follow.
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
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
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
