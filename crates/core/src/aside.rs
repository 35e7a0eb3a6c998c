//! Work that takes long, beside those who wait for their turn on the same thread.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::{Handle, RuntimeFlavor};

/// So much text is read, checked and written in less time than it takes to make room for it.
pub const LARGE: usize = 64 * 1024;

/// Does some work on text of so many bytes. While it is on a large one, the other tasks of this thread go on elsewhere:
/// megabytes of JSON take some 10 ms each, and nobody else's call is to wait for them.
pub fn aside<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    // A runtime of one thread has nowhere else to go on.
    let elsewhere = || Handle::try_current().is_ok_and(|handle| handle.runtime_flavor() == RuntimeFlavor::MultiThread);
    if bytes >= LARGE && elsewhere() { tokio::task::block_in_place(work) } else { work() }
}

/// A future whose every step is work on text of so many bytes.
#[derive(Debug)]
pub struct Aside<F> {
    pub bytes: usize,
    pub future: Pin<Box<F>>,
}

impl<F: Future> Future for Aside<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let bytes = self.bytes;
        aside(bytes, || self.future.as_mut().poll(cx))
    }
}

#[cfg(test)]
mod tests {
    //! Rule: whoever works on something large holds nobody up, and every runtime can do it.

    use std::sync::mpsc;

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
            tokio::spawn(Aside { bytes: LARGE, future: Box::pin(step) }).await.unwrap()
        });
        assert_eq!(done, Ok("went on"));
    }

    #[tokio::test]
    async fn a_runtime_of_one_thread_does_it_itself() {
        assert_eq!(aside(LARGE, || 7), 7);
        assert_eq!(Aside { bytes: LARGE, future: Box::pin(async { 7 }) }.await, 7);
    }

    #[test]
    fn without_a_runtime_it_is_just_done() {
        assert_eq!(aside(LARGE, || 7), 7);
    }
}
