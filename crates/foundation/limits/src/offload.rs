//! Work that takes long, beside those who wait for their turn on the same thread.
//!
//! Megabytes of JSON take some 10 ms each, and nobody else's call is to wait for them: such work makes room for the other
//! tasks of its thread. It takes many times the memory of the text, too; so only a few are at it at once, and the others wait
//! for their turn without holding anybody up.

use std::cell::Cell;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, ready};

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::PollSemaphore;

/// So much text is read, checked and written in less time than it takes to make room for it.
pub const LARGE: usize = 64 * 1024;

/// How many are at it at once. More would take turns at the processors, and each has its memory meanwhile.
static TURNS: LazyLock<Arc<Semaphore>> = LazyLock::new(|| {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    Arc::new(Semaphore::new(processors.max(2)))
});

/// How much text has been worked on beside others.
static DONE: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// Whether this thread is at such work, and has made room already.
    static AT_IT: Cell<bool> = const { Cell::new(false) };
}

/// Waits for a turn at work on text of so many bytes, if that is large. To be given back before anything else is waited for.
pub async fn turn(bytes: usize) -> Option<OwnedSemaphorePermit> {
    if bytes < LARGE || AT_IT.get() {
        return None;
    }
    Arc::clone(&TURNS).acquire_owned().await.ok()
}

/// Does some work on text of so many bytes, in its turn if that is large.
pub async fn in_turn<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    if bytes < LARGE {
        return work();
    }
    // In a box, as all that is rare: what is small has no room for it in its future.
    let _turn = Box::pin(turn(bytes)).await;
    aside(bytes, work)
}

/// Does some work on text of so many bytes. While it is on a large one, the other tasks of this thread go on elsewhere.
pub fn aside<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    if bytes < LARGE || AT_IT.get() {
        return work();
    }
    AT_IT.set(true);
    let _back = Back;
    DONE.fetch_add(bytes as u64, Ordering::Relaxed);
    // A runtime of one thread has nowhere else to go on.
    let flavor = Handle::try_current().map(|handle| handle.runtime_flavor());
    if flavor.is_ok_and(|flavor| flavor == RuntimeFlavor::MultiThread) {
        tokio::task::block_in_place(work)
    } else {
        work()
    }
}

/// The same where there is no waiting for a turn: without one it is done here, as everything small is.
pub fn if_free<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    if bytes < LARGE || AT_IT.get() {
        return work();
    }
    match TURNS.try_acquire() {
        Ok(_turn) => aside(bytes, work),
        Err(_) => work(),
    }
}

/// How many bytes of text have been worked on in this way, since the process began: once for each time that it was read,
/// checked or written.
pub fn bytes_done() -> u64 {
    DONE.load(Ordering::Relaxed)
}

/// Work that panics is over as well.
struct Back;

impl Drop for Back {
    fn drop(&mut self) {
        AT_IT.set(false);
    }
}

/// How large something is. Whoever makes it says so, to whoever passes it on: who writes down what a handler has answered,
/// say, and cannot tell beforehand.
#[derive(Debug, Clone, Default)]
pub struct Weight(Arc<AtomicUsize>);

impl Weight {
    pub fn add(&self, bytes: usize) {
        self.0.fetch_add(bytes, Ordering::AcqRel);
    }

    fn bytes(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }
}

/// Turns at something that is worked on step by step, each step in its turn as soon as that is large.
#[derive(Debug)]
pub struct Turns {
    weight: Weight,
    turns: PollSemaphore,
}

impl Turns {
    pub fn at(weight: Weight) -> Self {
        Self { weight, turns: PollSemaphore::new(Arc::clone(&TURNS)) }
    }

    pub fn poll<T>(&mut self, cx: &mut Context<'_>, step: impl FnOnce(&mut Context<'_>) -> Poll<T>) -> Poll<T> {
        let bytes = self.weight.bytes();
        if bytes < LARGE || AT_IT.get() {
            return step(cx);
        }
        let _turn = ready!(self.turns.poll_acquire(cx));
        aside(bytes, || step(cx))
    }
}

/// A future whose every step is work on text of so many bytes, and has its turn.
#[derive(Debug)]
pub struct Aside<F> {
    turns: Turns,
    future: Pin<Box<F>>,
}

impl<F: Future> Aside<F> {
    pub fn new(bytes: usize, future: F) -> Self {
        let weight = Weight::default();
        weight.add(bytes);
        Self::once(weight, future)
    }

    /// One that may turn out to be large on its way.
    pub fn once(weight: Weight, future: F) -> Self {
        Self { turns: Turns::at(weight), future: Box::pin(future) }
    }
}

impl<F: Future> Future for Aside<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let Self { turns, future } = &mut *self;
        turns.poll(cx, |cx| future.as_mut().poll(cx))
    }
}

#[cfg(test)]
mod tests {
    //! Rule: whoever works on something large holds nobody up, and every runtime can do it.

    use std::sync::mpsc;

    use futures_util::FutureExt as _;

    use super::*;

    /// The work waits for another task of the only thread, which would be for ever if it did not make room for it.
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
                aside(LARGE, || work(&other))
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
            tokio::spawn(Aside::new(LARGE, step)).await.unwrap()
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
            tokio::spawn(Aside::once(weight, step)).await.unwrap()
        });
        assert_eq!(done, Ok("went on"));
    }

    #[test]
    fn so_it_does_beside_work_in_its_turn() {
        let done = one_worker().block_on(async {
            let step = async {
                let (tell, other) = mpsc::channel();
                tokio::spawn(async move { tell.send("went on") });
                in_turn(LARGE, move || work(&other)).await
            };
            tokio::spawn(step).await.unwrap()
        });
        assert_eq!(done, Ok("went on"));
    }

    #[tokio::test]
    async fn a_runtime_of_one_thread_does_it_itself() {
        assert_eq!(aside(LARGE, || 7), 7);
        assert_eq!(Aside::new(LARGE, async { 7 }).await, 7);
        // One within the other has its turn already, here as well, though nobody else has one left.
        let within = async { turn(LARGE).now_or_never().is_some_and(|turn| turn.is_none()) };
        assert!(Aside::new(LARGE, within).await);
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
                    // Long enough for others to come in, if they could.
                    (0..200_000).for_each(|number| _ = std::hint::black_box(number));
                    at_it.fetch_sub(1, Ordering::SeqCst);
                };
                tasks.spawn(Aside::new(LARGE, async move {
                    for _ in 0..3 {
                        // One within the other has its turn already.
                        let _turn = turn(LARGE).await;
                        aside(LARGE, &step);
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
        let all = Arc::clone(&TURNS).acquire_many_owned(TURNS.available_permits() as u32).await.unwrap();
        assert!(turn(LARGE - 1).await.is_none());
        assert!(turn(LARGE).now_or_never().is_none());
        drop(all);
        assert!(turn(LARGE).await.is_some());
    }

    #[test]
    fn without_a_runtime_it_is_just_done() {
        assert_eq!(aside(LARGE, || 7), 7);
    }
}
