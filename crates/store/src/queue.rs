//! The queue of the writer. It has a limit for callers that can wait, no limit for `record`, and
//! one common order.
//!
//! A channel would need a second one for `record` when it is full, and two queues have no common
//! order. The queue is therefore one vector under a mutex, and the writer swaps it for an empty
//! one. The limit is a semaphore. `record` bypasses it, and its callers use `backpressure` instead.
//! A push takes an uncontended lock. It wakes the writer only if the writer sleeps and the push is
//! a reason to wake up.
//!
//! There is a record for every call. Its text is appended to the text of earlier records, in one
//! buffer. The whole buffer goes to the writer and comes back. Allocating on one thread and freeing
//! on another costs more than all other steps, and so does fresh memory.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use parking_lot::{Condvar, Mutex, MutexGuard};
use sa_core::store::NewEntry;
use tokio::sync::{Notify, Semaphore};

use crate::op::Op;

/// An operation, and the queue space that it takes until it is settled.
pub(crate) struct Queued {
    pub op: Op,
    pub permits: u32,
}

pub(crate) struct Queue {
    state: Mutex<State>,
    wake: Condvar,
    room: Semaphore,
    capacity: u32,
    /// A copy of `state.bytes` that can be read without the lock.
    waiting: AtomicUsize,
    taken: Notify,
}

struct State {
    load: Load,
    /// The text of the load that the writer is processing.
    lent: Bytes,
    bytes: usize,
    /// Whether a caller waits for one of the operations.
    urgent: bool,
    sleeping: Sleep,
    closed: bool,
}

/// The operations since the writer last took some.
#[derive(Default)]
struct Load {
    items: Vec<Item>,
    /// The keys and bodies of all records, in their order.
    text: BytesMut,
    /// The streams of the records.
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
    /// Until an urgent operation arrives, or enough bytes for a transaction.
    Lingering,
}

/// The unit of queue space in bytes.
const UNIT: usize = 1024;
/// The number of bytes that is worth a transaction without waiting for more.
const GOOD_LOAD: usize = 2 << 20;
/// The size up to which a buffer is always kept for reuse.
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

    /// Adds an operation as soon as there is space for it. Returns it if the store is closed.
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

    /// Adds a background entry, even if the queue is full. Returns `false` if the store is closed.
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

    /// Moves all queued operations to the writer.
    ///
    /// Waits for the first operation for at most `idle`. Then waits up to `linger` for more, unless
    /// a caller waits for an answer. Returns `true` if the queue is closed.
    pub(crate) fn take(
        &self,
        into: &mut VecDeque<Queued>,
        idle: Option<Duration>,
        linger: Duration,
    ) -> bool {
        let mut state = self.lock();
        let idle_until = idle.map(|idle| Instant::now() + idle);
        while state.load.items.is_empty() && !state.closed {
            state.sleeping = Sleep::Idle;
            if !self.sleep(&mut state, idle_until) {
                break;
            }
        }
        let linger_until = Instant::now() + linger;
        while !(state.load.items.is_empty()
            || state.urgent
            || state.closed
            || state.bytes >= GOOD_LOAD)
        {
            state.sleeping = Sleep::Lingering;
            if !self.sleep(&mut state, Some(linger_until)) {
                break;
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

    /// Whether the queue holds more than its capacity.
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

    /// Returns queue space after its operations are settled.
    pub(crate) fn release(&self, permits: u32) {
        self.room.add_permits(permits as usize);
    }

    /// Closes the queue. New operations are refused, and queued ones are still settled.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.wake.notify_one();
    }

    /// Waits for a notification. Returns `false` if `until` has passed.
    fn sleep(&self, state: &mut MutexGuard<'_, State>, until: Option<Instant>) -> bool {
        match until {
            None => self.wake.wait(state),
            Some(until) if until <= Instant::now() => return false,
            Some(until) => drop(self.wake.wait_until(state, until)),
        }
        true
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl Load {
    fn record(&mut self, name: &str, key: Option<&str>, body: &[u8]) {
        // Most records are for the same stream as the previous one, and there are rarely many
        // streams.
        let known = self.streams.iter().rev().take(4).position(|known| **known == *name);
        let stream = known.map_or(self.streams.len(), |back| self.streams.len() - 1 - back);
        if known.is_none() {
            self.streams.push(name.into());
        }
        self.items.push(Item::Record { stream, key: key.map(str::len), body: body.len() });
        self.text.extend_from_slice(key.unwrap_or_default().as_bytes());
        self.text.extend_from_slice(body);
    }

    /// Returns the next load. It reuses the buffer of the previous one if the writer is done with
    /// it.
    ///
    /// A buffer that is much larger than needed after a burst is freed.
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
                // It was a valid string when it was added.
                let key = key
                    .map(|len| std::str::from_utf8(&text.split_to(len)).unwrap_or_default().into());
                let entry = NewEntry {
                    stream: Arc::clone(&self.streams[stream]),
                    key,
                    body: text.split_to(body),
                };
                Queued { op: Op::Append { entry, reply: None }, permits: 0 }
            }
        }));
    }
}

#[cfg(test)]
mod tests {
    //! Rule: records come out unchanged, and their buffer is reused once no reader uses it.

    use super::*;

    /// Records a body of `bytes` bytes, and takes all queued operations.
    fn round(queue: &Queue, bytes: usize) -> NewEntry {
        assert!(queue.record("calls", Some("a key"), &vec![b'x'; bytes]));
        let mut taken = VecDeque::new();
        queue.take(&mut taken, None, Duration::ZERO);
        let Some(Queued { op: Op::Append { entry, reply: None }, .. }) = taken.pop_back() else {
            panic!("no record")
        };
        assert!(taken.is_empty());
        assert_eq!(
            (&*entry.stream, entry.key.as_deref(), entry.body.len()),
            ("calls", Some("a key"), bytes)
        );
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
        // The address alone proves nothing, because an allocator may return the same one again.
        assert!(
            queue.lock().load.text.capacity() >= 1_000,
            "it is there before anybody asks for it"
        );
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
        assert!(
            state.load.text.capacity() <= 4 * SMALL_LOAD,
            "{} bytes are kept",
            state.load.text.capacity()
        );
        assert!(state.lent.len() <= 4 * SMALL_LOAD);
    }
}
