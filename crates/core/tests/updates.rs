//! Rule: a reader receives all updates before the outcome and none after it, even if the provider
//! continues to send from another thread.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use futures_util::FutureExt as _;
use parking_lot::Mutex;
use sa_core::*;
use support::*;
use tokio::sync::oneshot;

#[derive(Debug, PartialEq)]
enum Received {
    Update,
    Outcome,
}

/// A slow reader that signals when it has begun to handle an update.
struct Slow {
    started: SyncSender<()>,
    received: Arc<Mutex<Vec<Received>>>,
}

impl UpdateSink for Slow {
    fn send(&self, _: Update) -> Result<(), Overrun> {
        let _ = self.started.try_send(());
        for _ in 0..100 {
            thread::yield_now();
        }
        self.received.lock().push(Received::Update);
        Ok(())
    }
}

/// Ends a call in the middle of an update, and returns everything that its reader received.
async fn end(how: impl FnOnce(&Gateway, CallId, oneshot::Sender<()>)) -> Vec<Received> {
    let gateway = gateway(RouterOptions::default());
    let over = Arc::new(AtomicBool::new(false));
    let (answer, answered) = oneshot::channel::<()>();
    let (answered, speaking) = (answered.shared(), Arc::new(Mutex::new(None)));
    let (until, thread) = (Arc::clone(&over), Arc::clone(&speaking));
    let _registration = gateway.provide(move |_, updates| {
        let until = Arc::clone(&until);
        let speak = move || {
            while !until.load(Ordering::Acquire) {
                updates.send(progress());
                thread::yield_now();
            }
        };
        *thread.lock() = Some(thread::spawn(speak));
        let answered = answered.clone();
        Box::pin(async move {
            let _ = answered.await;
            ok("1")
        })
    });
    let received = Arc::new(Mutex::new(Vec::new()));
    let (started, begins) = sync_channel(0);
    let running = gateway
        .router
        .start(request("t.x"), Some(Arc::new(Slow { started, received: Arc::clone(&received) })));
    let id = running.id();
    let outcome = tokio::spawn({
        let received = Arc::clone(&received);
        async move {
            let finished = running.outcome().await;
            received.lock().push(Received::Outcome);
            finished
        }
    });
    tokio::task::spawn_blocking(move || begins.recv().unwrap()).await.unwrap();
    how(&gateway, id, answer);
    let _ = outcome.await.unwrap();
    over.store(true, Ordering::Release);
    let speaking = speaking.lock().take().unwrap();
    tokio::task::spawn_blocking(move || speaking.join().unwrap()).await.unwrap();
    gateway.assert_clean();
    std::mem::take(&mut *received.lock())
}

#[track_caller]
fn check(received: &[Received]) {
    let (last, before) = received.split_last().unwrap();
    assert_eq!(*last, Received::Outcome);
    assert!(
        !before.is_empty() && before.iter().all(|received| *received == Received::Update),
        "{received:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_comes_after_the_outcome_of_a_cancelled_call() {
    for _ in 0..50 {
        let cancel = |gateway: &Gateway, id, _| {
            _ = gateway.router.cancel(id, CancelReason::Requested, |_| true);
        };
        check(&end(cancel).await);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_comes_after_an_answer() {
    for _ in 0..50 {
        check(&end(|_, _, answer| answer.send(()).unwrap()).await);
    }
}
