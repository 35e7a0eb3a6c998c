//! A future that is polled again immediately if it was woken during its poll.
//!
//! An HTTP connection does this for every request with a body: the handler reads the body, which
//! wakes the connection, and both are the same task. The runtime treats a task that is woken while
//! it runs as yielding. It moves the task to the end of the queue and wakes another worker for it.
//! For a single request, this costs more than the rest of the work.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::task::AtomicWaker;

/// The maximum number of polls in a row, so that other tasks can run.
const TURNS: usize = 8;

/// The future is not being polled. A wake-up wakes its task.
const RESTING: u8 = 0;
const POLLED: u8 = 1;
/// The future was woken since the current poll started.
const POLLED_AND_WOKEN: u8 = 2;

pub(crate) struct RepollOnWake<F> {
    future: Pin<Box<F>>,
    waker: Waker,
    state: Arc<State>,
}

struct State {
    phase: AtomicU8,
    task: AtomicWaker,
}

impl<F: Future> RepollOnWake<F> {
    pub(crate) fn new(future: F) -> Self {
        let state = Arc::new(State { phase: AtomicU8::new(RESTING), task: AtomicWaker::new() });
        Self { future: Box::pin(future), waker: Arc::clone(&state).into(), state }
    }
}

impl<F: Future> Future for RepollOnWake<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        this.state.task.register(cx.waker());
        for _ in 0..TURNS {
            this.state.phase.store(POLLED, Ordering::SeqCst);
            if let Poll::Ready(output) =
                this.future.as_mut().poll(&mut Context::from_waker(&this.waker))
            {
                return Poll::Ready(output);
            }
            let rested = this.state.phase.compare_exchange(
                POLLED,
                RESTING,
                Ordering::SeqCst,
                Ordering::SeqCst,
            );
            if rested.is_ok() {
                return Poll::Pending;
            }
        }
        this.state.phase.store(RESTING, Ordering::SeqCst);
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Wake for State {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let woken = self.phase.compare_exchange(
            POLLED,
            POLLED_AND_WOKEN,
            Ordering::SeqCst,
            Ordering::SeqCst,
        );
        if woken == Err(RESTING) {
            self.task.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use futures_util::FutureExt as _;
    use futures_util::future::poll_fn;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn counted() -> (Arc<Count>, Waker) {
        let count = Arc::<Count>::default();
        (Arc::clone(&count), count.into())
    }

    #[test]
    fn one_that_wakes_itself_goes_on_without_its_task_being_woken() {
        let (count, waker) = counted();
        let mut polls = 0;
        let mut future = RepollOnWake::new(poll_fn(|cx| {
            polls += 1;
            cx.waker().wake_by_ref();
            if polls == 3 { Poll::Ready(polls) } else { Poll::Pending }
        }));
        assert_eq!(future.poll_unpin(&mut Context::from_waker(&waker)), Poll::Ready(3));
        assert_eq!(count.0.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn one_that_never_stops_waking_itself_lets_others_have_their_turn() {
        let (count, waker) = counted();
        let mut polls = 0;
        let mut future = RepollOnWake::new(poll_fn(|cx| {
            polls += 1;
            cx.waker().wake_by_ref();
            Poll::<()>::Pending
        }));
        assert_eq!(future.poll_unpin(&mut Context::from_waker(&waker)), Poll::Pending);
        assert_eq!(count.0.load(Ordering::SeqCst), 1);
        drop(future);
        assert_eq!(polls, TURNS);
    }

    #[test]
    fn one_that_is_woken_while_it_rests_wakes_its_task() {
        let (count, waker) = counted();
        let inner = parking_lot::Mutex::new(None);
        let mut future = RepollOnWake::new(poll_fn(|cx| {
            *inner.lock() = Some(cx.waker().clone());
            Poll::<()>::Pending
        }));
        for wakes in 1..=3 {
            assert_eq!(future.poll_unpin(&mut Context::from_waker(&waker)), Poll::Pending);
            inner.lock().as_ref().unwrap().wake_by_ref();
            assert_eq!(count.0.load(Ordering::SeqCst), wakes);
        }
    }

    /// Checks that no wake-up is lost: each is seen by a later poll.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn wakes_from_another_thread_are_not_lost() {
        for _ in 0..20_000 {
            let (send, receive) = tokio::sync::oneshot::channel();
            let waits = tokio::spawn(RepollOnWake::new(async {
                tokio::task::yield_now().await;
                receive.await
            }));
            send.send(7).unwrap();
            let seen = tokio::time::timeout(std::time::Duration::from_secs(30), waits).await;
            assert_eq!(seen.unwrap().unwrap(), Ok(7));
        }
    }
}
