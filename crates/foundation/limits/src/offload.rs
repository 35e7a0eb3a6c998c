//! Offloads CPU-heavy work, so that it does not block other tasks of the same thread.
//!
//! Work on JSON takes about 10 ms per megabyte, and other calls must not wait for it. The thread
//! hands its other tasks over before it starts such work. The work also needs many times the
//! memory of the text. Therefore a semaphore limits how many run at once. Waiting for it does not
//! block the thread.

use std::cell::Cell;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, ready};

use parking_lot::Mutex;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::PollSemaphore;

use crate::received::Held;

/// Work on smaller texts takes less time than offloading it.
pub const LARGE: usize = 64 * 1024;

/// Limits how many run at once. More would compete for the processors, and each uses memory
/// meanwhile.
static TURNS: LazyLock<Arc<Semaphore>> = LazyLock::new(|| {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    Arc::new(Semaphore::new(processors.max(2)))
});

/// The number of bytes processed by offloaded work.
static DONE: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// Whether this thread is doing offloaded work already.
    static OFFLOADED: Cell<bool> = const { Cell::new(false) };
}

/// Waits for a permit to work on a text of `bytes` bytes, if that is large. The caller must release
/// the permit before it waits for anything else.
pub async fn turn(bytes: usize) -> Option<OwnedSemaphorePermit> {
    if bytes < LARGE || OFFLOADED.get() {
        return None;
    }
    Arc::clone(&TURNS).acquire_owned().await.ok()
}

/// Runs `work` on a text of `bytes` bytes. If that is large, waits for a permit and offloads it.
pub async fn run_queued<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    if bytes < LARGE {
        return work();
    }
    // The future is boxed, because large texts are rare and should not enlarge the future of small
    // ones.
    let _turn = Box::pin(turn(bytes)).await;
    offload(bytes, work)
}

/// Runs `work` on a text of `bytes` bytes. If that is large, the other tasks of this thread
/// continue on other threads meanwhile.
pub fn offload<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    if bytes < LARGE || OFFLOADED.get() {
        return work();
    }
    OFFLOADED.set(true);
    let _back = Back;
    DONE.fetch_add(bytes as u64, Ordering::Relaxed);
    // A single-threaded runtime has no other thread to continue on.
    let flavor = Handle::try_current().map(|handle| handle.runtime_flavor());
    if flavor.is_ok_and(|flavor| flavor == RuntimeFlavor::MultiThread) {
        tokio::task::block_in_place(work)
    } else {
        work()
    }
}

/// Does the same as [`offload`] where waiting for a permit is not possible. Without a free permit,
/// the work runs on this thread like small work.
pub fn run_if_free<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    if bytes < LARGE || OFFLOADED.get() {
        return work();
    }
    match TURNS.try_acquire() {
        Ok(_turn) => offload(bytes, work),
        Err(_) => work(),
    }
}

/// Returns the number of bytes processed by offloaded work since the process started. A text counts
/// each time it is read, checked or written.
pub fn bytes_processed() -> u64 {
    DONE.load(Ordering::Relaxed)
}

/// Resets the thread's flag on drop, also after a panic.
struct Back;

impl Drop for Back {
    fn drop(&mut self) {
        OFFLOADED.set(false);
    }
}

/// A size that becomes known later. The producer adds to it, and the task that passes the value on
/// reads it. For example, the size of a handler's response is not known in advance.
#[derive(Debug, Clone, Default)]
pub struct Weight(Arc<Weighed>);

#[derive(Debug, Default)]
struct Weighed {
    bytes: AtomicUsize,
    held: Mutex<Vec<Held>>,
}

impl Weight {
    pub fn add(&self, bytes: usize) {
        self.0.bytes.fetch_add(bytes, Ordering::AcqRel);
    }

    /// Holds a part of a budget until the work on the value is done.
    pub fn hold(&self, held: Held) {
        if !held.is_empty() {
            self.0.held.lock().push(held);
        }
    }

    fn bytes(&self) -> usize {
        self.0.bytes.load(Ordering::Acquire)
    }
}

/// Polls work step by step. As soon as the size is large, each step waits for a permit and is
/// offloaded.
#[derive(Debug)]
pub struct Turns {
    weight: Weight,
    turns: PollSemaphore,
}

impl Turns {
    pub fn at(weight: Weight) -> Self {
        Self { weight, turns: PollSemaphore::new(Arc::clone(&TURNS)) }
    }

    pub fn poll<T>(
        &mut self,
        cx: &mut Context<'_>,
        step: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let bytes = self.weight.bytes();
        if bytes < LARGE || OFFLOADED.get() {
            return step(cx);
        }
        let _turn = ready!(self.turns.poll_acquire(cx));
        offload(bytes, || step(cx))
    }
}

/// A future over a text of a given size. If that is large, every poll waits for a permit and is
/// offloaded.
#[derive(Debug)]
pub struct Offloaded<F> {
    turns: Turns,
    future: Pin<Box<F>>,
}

impl<F: Future> Offloaded<F> {
    pub fn new(bytes: usize, future: F) -> Self {
        let weight = Weight::default();
        weight.add(bytes);
        Self::once(weight, future)
    }

    /// Creates one with a size that may become large later.
    pub fn once(weight: Weight, future: F) -> Self {
        Self { turns: Turns::at(weight), future: Box::pin(future) }
    }
}

impl<F: Future> Future for Offloaded<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let Self { turns, future } = &mut *self;
        turns.poll(cx, |cx| future.as_mut().poll(cx))
    }
}

#[cfg(test)]
mod tests {
    //! Rule: work on a large text does not block other tasks, and every runtime can do it.

    use std::sync::mpsc;

    use futures_util::FutureExt as _;

    use super::*;

    /// Waits for another task of the only thread. It would wait forever without offloading.
    fn work(other: &mpsc::Receiver<&'static str>) -> Result<&'static str, mpsc::RecvTimeoutError> {
        other.recv_timeout(std::time::Duration::from_secs(10))
    }

    fn one_worker() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap()
    }

    #[test]
    fn another_task_of_the_same_thread_goes_on_beside_work_on_something_large() {
        let done = one_worker().block_on(async {
            let worker = tokio::spawn(async {
                let (tell, other) = mpsc::channel();
                tokio::spawn(async move { tell.send("went on") });
                offload(LARGE, || work(&other))
            });
            worker.await.unwrap()
        });
        assert_eq!(done, Ok("went on"));
    }

    #[test]
    fn so_it_does_beside_each_step_of_a_future() {
        let done = one_worker().block_on(async {
            let step = async {
                let (tell, other) = mpsc::channel();
                tokio::spawn(async move { tell.send("went on") });
                work(&other)
            };
            tokio::spawn(Offloaded::new(LARGE, step)).await.unwrap()
        });
        assert_eq!(done, Ok("went on"));
    }

    #[test]
    fn so_it_does_beside_what_turns_out_to_be_large_on_its_way() {
        let done = one_worker().block_on(async {
            let weight = Weight::default();
            let grows = weight.clone();
            let step = async move {
                grows.add(LARGE);
                tokio::task::yield_now().await;
                let (tell, other) = mpsc::channel();
                tokio::spawn(async move { tell.send("went on") });
                work(&other)
            };
            tokio::spawn(Offloaded::once(weight, step)).await.unwrap()
        });
        assert_eq!(done, Ok("went on"));
    }

    #[test]
    fn so_it_does_beside_work_in_its_turn() {
        let done = one_worker().block_on(async {
            let step = async {
                let (tell, other) = mpsc::channel();
                tokio::spawn(async move { tell.send("went on") });
                run_queued(LARGE, move || work(&other)).await
            };
            tokio::spawn(step).await.unwrap()
        });
        assert_eq!(done, Ok("went on"));
    }

    #[tokio::test]
    async fn a_runtime_of_one_thread_does_it_itself() {
        assert_eq!(offload(LARGE, || 7), 7);
        assert_eq!(Offloaded::new(LARGE, async { 7 }).await, 7);
        // Nested work needs no second permit, even if no other permit is free.
        let within = async { turn(LARGE).now_or_never().is_some_and(|turn| turn.is_none()) };
        assert!(Offloaded::new(LARGE, within).await);
    }

    #[test]
    fn only_a_few_are_at_it_at_once_and_nobody_waits_for_ever() {
        let (at_it, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        one_worker().block_on(async {
            let mut tasks = tokio::task::JoinSet::new();
            for _ in 0..64 {
                let (at_it, most) = (Arc::clone(&at_it), Arc::clone(&most));
                let step = move || {
                    most.fetch_max(at_it.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    // Long enough for other tasks to overlap, if they could.
                    (0..200_000).for_each(|number| _ = std::hint::black_box(number));
                    at_it.fetch_sub(1, Ordering::SeqCst);
                };
                tasks.spawn(Offloaded::new(LARGE, async move {
                    for _ in 0..3 {
                        // Nested work needs no second permit.
                        let _turn = turn(LARGE).await;
                        offload(LARGE, &step);
                        tokio::task::yield_now().await;
                    }
                }));
            }
            while let Some(done) = tasks.join_next().await {
                done.unwrap();
            }
        });
        let (most, turns) = (most.load(Ordering::SeqCst), TURNS.available_permits());
        assert!(most <= turns, "{most} at once, of {turns}");
    }

    #[tokio::test]
    async fn what_is_small_waits_for_nobody() {
        let all =
            Arc::clone(&TURNS).acquire_many_owned(TURNS.available_permits() as u32).await.unwrap();
        assert!(turn(LARGE - 1).await.is_none());
        assert!(turn(LARGE).now_or_never().is_none());
        drop(all);
        assert!(turn(LARGE).await.is_some());
    }

    #[test]
    fn without_a_runtime_it_is_just_done() {
        assert_eq!(offload(LARGE, || 7), 7);
    }
}
