//! The queue in front of the writer: bounded for those who can wait, open for those who cannot, one order for all.
//!
//! A channel would need a second one for `record` when it is full, and two queues have no common order. So
//! it is one vector under a mutex, which the writer swaps for an empty one; the bound is a semaphore that
//! `record` passes by, and that its users keep to by way of `keep_pace`. Pushing costs an uncontended lock, and wakes
//! the writer only when it sleeps and the push is a reason to get up.
//!
//! There is a record for every call. What it says is copied behind the ones before it, into memory that goes to the
//! writer as a whole and comes back from it: pieces that are allocated on one thread and freed on another cost more than
//! all the rest, and so does memory that nobody has touched before.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use sa_core::store::NewEntry;
use tokio::sync::{Notify, Semaphore};

use crate::op::Op;

/// An operation and the room it takes in the queue until it is settled.
pub(crate) struct Queued {
    pub op: Op,
    pub permits: u32,
}

pub(crate) struct Queue {
    state: Mutex<State>,
    wake: Condvar,
    room: Semaphore,
    capacity: u32,
    /// What `state.bytes` says, readable without the lock.
    waiting: AtomicUsize,
    taken: Notify,
}

struct State {
    load: Load,
    /// The text of the load that the writer has.
    lent: Bytes,
    bytes: usize,
    /// Someone waits for one of them.
    urgent: bool,
    sleeping: Sleep,
    closed: bool,
}

/// What has come in since the writer looked last.
#[derive(Default)]
struct Load {
    items: Vec<Item>,
    /// The keys and bodies of all records, in their order.
    text: BytesMut,
    /// The streams that they are for.
    streams: Vec<Arc<str>>,
}

enum Item {
    Op(Queued),
    Record { stream: usize, key: Option<usize>, body: usize },
}

#[derive(PartialEq)]
enum Sleep {
    Awake,
    /// Until the first operation.
    Idle,
    /// For company: until something urgent, or a good load.
    Lingering,
}

/// Room is counted in these units.
const UNIT: usize = 1024;
/// So many bytes are worth a transaction without waiting for more.
const GOOD_LOAD: usize = 2 << 20;
/// Memory for so many is not worth giving back.
const SMALL_LOAD: usize = 64 << 10;

impl Queue {
    pub(crate) fn new(bytes: usize, largest: usize) -> Self {
        let capacity = (bytes / UNIT).max(largest / UNIT + 2) as u32;
        let state = State {
            load: Load::default(),
            lent: Bytes::new(),
            bytes: 0,
            urgent: false,
            sleeping: Sleep::Awake,
            closed: false,
        };
        Self {
            state: Mutex::new(state),
            wake: Condvar::new(),
            room: Semaphore::new(capacity as usize),
            capacity,
            waiting: AtomicUsize::new(0),
            taken: Notify::new(),
        }
    }

    /// Adds an operation, once there is room for it. Gives it back when the store is closed.
    pub(crate) async fn push(&self, op: Op) -> Result<(), Op> {
        let permits = (1 + op.size() / UNIT) as u32;
        if let Ok(permit) = self.room.try_acquire_many(permits) {
            permit.forget();
        } else if let Ok(permit) = self.room.acquire_many(permits.min(self.capacity)).await {
            permit.forget();
        }
        self.put(Queued { op, permits })
    }

    fn put(&self, queued: Queued) -> Result<(), Op> {
        let mut state = self.lock();
        if state.closed {
            drop(state);
            self.release(queued.permits);
            return Err(queued.op);
        }
        let (size, awaited) = (queued.op.size(), queued.op.awaited());
        state.load.items.push(Item::Op(queued));
        self.added(state, size, awaited);
        Ok(())
    }

    /// Adds an entry that nobody waits for, room or not. `false` when the store is closed.
    pub(crate) fn record(&self, stream: &str, key: Option<&str>, body: &[u8]) -> bool {
        let mut state = self.lock();
        if !state.closed {
            state.load.record(stream, key, body);
            self.added(state, body.len(), false);
            return true;
        }
        false
    }

    fn added(&self, mut state: MutexGuard<'_, State>, size: usize, awaited: bool) {
        state.bytes += size;
        self.waiting.store(state.bytes, Ordering::Release);
        state.urgent |= awaited;
        let get_up = match state.sleeping {
            Sleep::Awake => false,
            Sleep::Idle => true,
            Sleep::Lingering => state.urgent || state.bytes >= GOOD_LOAD,
        };
        if get_up {
            state.sleeping = Sleep::Awake;
            drop(state);
            self.wake.notify_one();
        }
    }

    /// Gives the writer all that is queued. Waits for the first operation, at most `idle` long, and then up to
    /// `linger` for company unless someone waits. `true` once closed.
    pub(crate) fn take(&self, into: &mut VecDeque<Queued>, idle: Option<Duration>, linger: Duration) -> bool {
        let mut state = self.lock();
        let idle_until = idle.map(|idle| Instant::now() + idle);
        while state.load.items.is_empty() && !state.closed {
            state.sleeping = Sleep::Idle;
            match self.sleep(state, idle_until) {
                Ok(woken) => state = woken,
                Err(timed_out) => {
                    state = timed_out;
                    break;
                }
            }
        }
        let linger_until = Instant::now() + linger;
        while !(state.load.items.is_empty() || state.urgent || state.closed || state.bytes >= GOOD_LOAD) {
            state.sleeping = Sleep::Lingering;
            match self.sleep(state, Some(linger_until)) {
                Ok(woken) => state = woken,
                Err(timed_out) => {
                    state = timed_out;
                    break;
                }
            }
        }
        state.sleeping = Sleep::Awake;
        (state.urgent, state.bytes) = (false, 0);
        self.waiting.store(0, Ordering::Release);
        self.taken.notify_waiters();
        let lent = std::mem::take(&mut state.lent);
        let next = state.load.successor(lent);
        let mut load = std::mem::replace(&mut state.load, next);
        let text = std::mem::take(&mut load.text).freeze();
        state.lent = text.clone();
        let closed = state.closed;
        drop(state);
        load.unpack(text, into);
        closed
    }

    /// Whether more waits than the queue is meant to hold.
    pub(crate) fn is_behind(&self) -> bool {
        self.waiting.load(Ordering::Acquire) > self.capacity as usize * UNIT
    }

    pub(crate) async fn caught_up(&self) {
        loop {
            let taken = self.taken.notified();
            if !self.is_behind() {
                return;
            }
            taken.await;
        }
    }

    /// The operations that held this much room are settled.
    pub(crate) fn release(&self, permits: u32) {
        self.room.add_permits(permits as usize);
    }

    /// Nothing is taken from now on; what is queued is still settled.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.wake.notify_one();
    }

    fn sleep<'a>(
        &self,
        state: MutexGuard<'a, State>,
        until: Option<Instant>,
    ) -> Result<MutexGuard<'a, State>, MutexGuard<'a, State>> {
        let Some(until) = until else {
            return Ok(self.wake.wait(state).unwrap_or_else(PoisonError::into_inner));
        };
        let Some(left) = until.checked_duration_since(Instant::now()).filter(|d| !d.is_zero()) else {
            return Err(state);
        };
        let (state, _) = self.wake.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner);
        Ok(state)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Load {
    fn record(&mut self, name: &str, key: Option<&str>, body: &[u8]) {
        // Most are for the same stream as the one before, and hardly ever are there many.
        let known = self.streams.iter().rev().take(4).position(|known| **known == *name);
        let stream = known.map_or(self.streams.len(), |back| self.streams.len() - 1 - back);
        if known.is_none() {
            self.streams.push(name.into());
        }
        self.items.push(Item::Record { stream, key: key.map(str::len), body: body.len() });
        self.text.extend_from_slice(key.unwrap_or_default().as_bytes());
        self.text.extend_from_slice(body);
    }

    /// What comes after this one, in the memory of the one before if the writer is done with that. Most of what a rush has
    /// taken would lie idle, and is given back.
    fn successor(&self, lent: Bytes) -> Self {
        let enough = 4 * self.text.len().max(SMALL_LOAD);
        let lent = lent.try_into_mut().ok().filter(|text| text.capacity() <= enough);
        let mut text = lent.unwrap_or_default();
        text.clear();
        Self { items: Vec::with_capacity(self.items.len()), text, streams: Vec::new() }
    }

    fn unpack(self, mut text: Bytes, into: &mut VecDeque<Queued>) {
        into.extend(self.items.into_iter().map(|item| match item {
            Item::Op(queued) => queued,
            Item::Record { stream, key, body } => {
                // It was a key when it came, so it is text.
                let key = key.map(|len| std::str::from_utf8(&text.split_to(len)).unwrap_or_default().into());
                let entry = NewEntry { stream: Arc::clone(&self.streams[stream]), key, body: text.split_to(body) };
                Queued { op: Op::Append { entry, reply: None }, permits: 0 }
            }
        }));
    }
}

#[cfg(test)]
mod tests {
    //! Rule: records come out as they went in, in memory that is used again once nobody reads in it.

    use super::*;

    /// Records a text of so many bytes, and takes all there is.
    fn round(queue: &Queue, bytes: usize) -> NewEntry {
        assert!(queue.record("calls", Some("a key"), &vec![b'x'; bytes]));
        let mut taken = VecDeque::new();
        queue.take(&mut taken, None, Duration::ZERO);
        let Some(Queued { op: Op::Append { entry, reply: None }, .. }) = taken.pop_back() else { panic!("no record") };
        assert!(taken.is_empty());
        assert_eq!((&*entry.stream, entry.key.as_deref(), entry.body.len()), ("calls", Some("a key"), bytes));
        entry
    }

    fn place(entry: &NewEntry) -> usize {
        entry.body.as_ptr().addr()
    }

    #[test]
    fn memory_comes_back_from_the_writer() {
        let queue = Queue::new(1 << 20, 1 << 10);
        let first = place(&round(&queue, 1_000));
        let second = round(&queue, 1_000);
        // Its place alone would not tell: an allocator may give that out again.
        assert!(queue.lock().load.text.capacity() >= 1_000, "it is there before anybody asks for it");
        assert_eq!(place(&round(&queue, 900)), first);
        assert_ne!(place(&round(&queue, 1_000)), place(&second), "it is still read in");
        assert!(second.body.iter().all(|byte| *byte == b'x'));
    }

    #[test]
    fn what_a_rush_took_is_given_back() {
        let queue = Queue::new(1 << 20, 1 << 10);
        for bytes in [8 << 20, 8 << 20, 100, 100, 100] {
            round(&queue, bytes);
        }
        let state = queue.lock();
        assert!(state.load.text.capacity() <= 4 * SMALL_LOAD, "{} bytes are kept", state.load.text.capacity());
        assert!(state.lent.len() <= 4 * SMALL_LOAD);
    }
}
