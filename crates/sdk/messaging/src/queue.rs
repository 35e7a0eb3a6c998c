//! Bounded queues for the readers of a stream, so that a reader that does not read costs a bounded
//! amount of memory.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use futures_util::Stream;
use futures_util::task::AtomicWaker;
use parking_lot::{Mutex, MutexGuard};

/// An item of a queue.
pub(crate) trait Item: Clone + Send + 'static {
    /// Returns the approximate memory of the item in bytes.
    fn weight(&self) -> usize;
    /// Creates the item that replaces dropped items.
    fn lagged(missed: u64) -> Self;
}

type Filter<T> = Box<dyn Fn(&T) -> bool + Send + Sync>;

/// The limits of one reader's queue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) items: usize,
    pub(crate) bytes: usize,
}

pub(crate) struct Queue<T> {
    state: Mutex<State<T>>,
    waker: AtomicWaker,
    filter: Filter<T>,
    bounds: Bounds,
}

struct State<T> {
    items: VecDeque<T>,
    bytes: usize,
    missed: u64,
    ended: bool,
}

impl<T: Item> Queue<T> {
    pub(crate) fn new(bounds: Bounds, filter: impl Fn(&T) -> bool + Send + Sync + 'static) -> Self {
        let state = State { items: VecDeque::new(), bytes: 0, missed: 0, ended: false };
        Self {
            state: Mutex::new(state),
            waker: AtomicWaker::new(),
            filter: Box::new(filter),
            bounds,
        }
    }

    /// Adds an item that matches the reader's filter. The oldest items are dropped if the queue is
    /// full.
    pub(crate) fn push(&self, item: &T) {
        if !(self.filter)(item) {
            return;
        }
        let mut state = self.lock();
        if state.ended {
            return;
        }
        state.bytes += item.weight();
        state.items.push_back(item.clone());
        while state.items.len() > 1
            && (state.items.len() > self.bounds.items || state.bytes > self.bounds.bytes)
        {
            let oldest = state.items.pop_front();
            state.bytes -= oldest.map_or(0, |oldest| oldest.weight());
            state.missed += 1;
        }
        drop(state);
        self.waker.wake();
    }

    /// Ends the queue. Queued items can still be read.
    pub(crate) fn end(&self) {
        self.lock().ended = true;
        self.waker.wake();
    }

    pub(crate) fn poll(&self, cx: &Context<'_>) -> Poll<Option<T>> {
        self.waker.register(cx.waker());
        let mut state = self.lock();
        if state.missed > 0 {
            return Poll::Ready(Some(T::lagged(std::mem::take(&mut state.missed))));
        }
        match state.items.pop_front() {
            Some(item) => {
                state.bytes -= item.weight();
                Poll::Ready(Some(item))
            }
            None if state.ended => Poll::Ready(None),
            None => Poll::Pending,
        }
    }

    fn take(&self) -> (VecDeque<T>, u64) {
        let mut state = self.lock();
        (std::mem::take(&mut state.items), state.missed)
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock()
    }
}

/// All readers of one kind of item.
pub(crate) struct Hub<T> {
    readers: Mutex<Readers<T>>,
    bounds: Bounds,
}

struct Readers<T> {
    queues: Vec<Weak<Queue<T>>>,
    /// The items that arrived before the first reader, for that reader.
    early: Option<Arc<Queue<T>>>,
    ended: bool,
}

impl<T: Item> Hub<T> {
    /// Creates a hub. With `early`, items that arrive before the first reader are kept for it.
    pub(crate) fn new(bounds: Bounds, early: bool) -> Self {
        let early = early.then(|| Arc::new(Queue::new(bounds, |_| true)));
        Self { readers: Mutex::new(Readers { queues: Vec::new(), early, ended: false }), bounds }
    }

    pub(crate) fn push(&self, item: &T) {
        let mut readers = self.lock();
        if let Some(early) = &readers.early {
            early.push(item);
        }
        readers.queues.retain(|queue| queue.upgrade().inspect(|queue| queue.push(item)).is_some());
    }

    /// Adds a reader. It receives `first`, then all earlier items if it is the first reader, then
    /// new items.
    pub(crate) fn read(
        &self,
        first: impl IntoIterator<Item = T>,
        filter: impl Fn(&T) -> bool + Send + Sync + 'static,
    ) -> Reader<T> {
        let mut readers = self.lock();
        let early = readers.early.take();
        self.add(readers, first, early, filter)
    }

    /// Adds a reader of new items.
    pub(crate) fn read_later(
        &self,
        filter: impl Fn(&T) -> bool + Send + Sync + 'static,
    ) -> Reader<T> {
        self.add(self.lock(), [], None, filter)
    }

    fn add(
        &self,
        mut readers: MutexGuard<'_, Readers<T>>,
        first: impl IntoIterator<Item = T>,
        early: Option<Arc<Queue<T>>>,
        filter: impl Fn(&T) -> bool + Send + Sync + 'static,
    ) -> Reader<T> {
        let queue = Arc::new(Queue::new(self.bounds, filter));
        let mut state = queue.lock();
        // The initial items do not count against the limits, because they are in memory anyway.
        let (waiting, missed) = early.map(|early| early.take()).unwrap_or_default();
        state.missed = missed;
        state.items.extend(first.into_iter().chain(waiting).filter(|item| (queue.filter)(item)));
        state.bytes = state.items.iter().map(Item::weight).sum();
        state.ended = readers.ended;
        drop(state);
        readers.queues.push(Arc::downgrade(&queue));
        Reader { queue }
    }

    pub(crate) fn end(&self) {
        let mut readers = self.lock();
        readers.ended = true;
        for queue in readers.queues.iter().filter_map(Weak::upgrade) {
            queue.end();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Readers<T>> {
        self.readers.lock()
    }
}

/// The reading end of a queue.
pub(crate) struct Reader<T> {
    queue: Arc<Queue<T>>,
}

impl<T: Item> Reader<T> {
    pub(crate) fn of(queue: Arc<Queue<T>>) -> Self {
        Self { queue }
    }
}

impl<T: Item> Stream for Reader<T> {
    type Item = T;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        self.queue.poll(cx)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt as _;

    use super::*;

    #[derive(Debug, Clone, PartialEq)]
    enum Number {
        Some(usize),
        Missed(u64),
    }

    impl Item for Number {
        fn weight(&self) -> usize {
            10
        }

        fn lagged(missed: u64) -> Self {
            Self::Missed(missed)
        }
    }

    fn hub(items: usize, bytes: usize) -> Hub<Number> {
        Hub::new(Bounds { items, bytes }, true)
    }

    async fn rest(hub: &Hub<Number>, reader: Reader<Number>) -> Vec<Number> {
        hub.end();
        reader.collect().await
    }

    #[tokio::test]
    async fn the_first_reader_gets_what_came_before_it() {
        let hub = hub(10, 1_000);
        hub.push(&Number::Some(1));
        let first = hub.read([Number::Some(0)], |_| true);
        let second = hub.read([], |number| *number != Number::Some(2));
        hub.push(&Number::Some(2));
        hub.push(&Number::Some(3));
        assert_eq!(rest(&hub, first).await, [0, 1, 2, 3].map(Number::Some));
        assert_eq!(rest(&hub, second).await, [Number::Some(3)]);
    }

    #[tokio::test]
    async fn who_does_not_read_is_told_how_much_it_missed() {
        for hub in [hub(2, 1_000), hub(100, 25)] {
            let reader = hub.read([], |_| true);
            for number in 0..5 {
                hub.push(&Number::Some(number));
            }
            assert_eq!(
                rest(&hub, reader).await,
                [Number::Missed(3), Number::Some(3), Number::Some(4)]
            );
        }
    }

    #[tokio::test]
    async fn a_reader_that_is_gone_costs_nothing() {
        let hub = hub(10, 1_000);
        drop(hub.read([], |_| true));
        hub.push(&Number::Some(1));
        assert!(hub.lock().queues.is_empty());
    }
}
