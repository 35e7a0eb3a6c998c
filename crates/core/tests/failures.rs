//! Rule: problems on either side of a call affect that call only. A provider's panic makes its call
//! `failed`, and a slow reader loses its own call. Updates after the end reach no reader, and a
//! provider learns why its call was dropped.

mod support;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sa_core::*;
use support::*;

#[tokio::test(start_paused = true)]
async fn a_panic_is_that_calls_failure() {
    let gateway = gateway(RouterOptions { max_running: 1, ..RouterOptions::default() });
    let at_once = gateway.provide(|_, _| panic!("at once"));
    let (id, task) = gateway.start(request("t.x"));
    assert_error(
        &task.await.unwrap(),
        CallErrorKind::Failed,
        "the node \"n\" failed inside the gateway",
    );
    assert!(gateway.log.records_of(id)[0].provider.is_some(), "it may have had an effect");
    at_once.withdraw();
    let _later = gateway.provide(|_, _| {
        Box::pin(async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            panic!("later")
        })
    });
    let (_, task) = gateway.start(request("t.x"));
    assert_error(&task.await.unwrap(), CallErrorKind::Failed, "failed inside the gateway");
    assert_eq!(gateway.log.counted.lock().as_slice(), [("provider", "panic"); 2]);
    gateway.assert_clean();
}

/// Records the cancel reason of its call, as seen by its destructor.
struct Witness(Arc<Call>, Arc<Mutex<Vec<Option<CancelReason>>>>);

impl Drop for Witness {
    fn drop(&mut self) {
        self.1.lock().push(self.0.cancel_reason());
    }
}

#[tokio::test(start_paused = true)]
async fn a_provider_learns_why_its_call_was_dropped() {
    let gateway = gateway(RouterOptions::default());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let witnessed = Arc::clone(&seen);
    let _registration = gateway.provide(move |call: Arc<Call>, _| {
        let witness = Witness(call, Arc::clone(&witnessed));
        Box::pin(async move {
            let _witness = witness;
            std::future::pending().await
        })
    });
    for reason in [CancelReason::Requested, CancelReason::Revoked, CancelReason::Shutdown] {
        let (id, task) = gateway.start(request("t.x"));
        settle().await;
        gateway.router.cancel(id, reason, |_| true);
        task.await.unwrap().outcome.unwrap_err();
        assert_eq!(seen.lock().pop(), Some(Some(reason)));
    }
    let (_, task) = gateway.start(request("t.x"));
    task.await.unwrap().outcome.unwrap_err();
    assert_eq!(seen.lock().pop(), Some(Some(CancelReason::Deadline)));
    let (id, task) = gateway.start(request("t.x"));
    settle().await;
    task.abort();
    settle().await;
    assert_eq!(seen.lock().pop(), Some(Some(CancelReason::Disconnected)));
    let error = gateway.log.records_of(id)[0].outcome.clone().unwrap_err();
    assert_eq!(
        (error.kind, error.message.as_str()),
        (CallErrorKind::Cancelled, "the caller disconnected")
    );
    gateway.assert_clean();
}

/// Accepts a limited number of updates.
struct Bounded(Mutex<usize>);

impl UpdateSink for Bounded {
    fn send(&self, _: Update) -> Result<(), Overrun> {
        let mut left = self.0.lock();
        *left = left.checked_sub(1).ok_or(Overrun)?;
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_does_not_keep_up_loses_its_call() {
    let gateway = gateway(RouterOptions::default());
    let (connection, _registration) = gateway.connect();
    let running = gateway.router.start(request("t.x"), Some(Arc::new(Bounded(Mutex::new(2)))));
    let id = running.id();
    let task = tokio::spawn(running.outcome());
    let (other, fine) = gateway.start(request("t.x"));
    settle().await;
    for _ in 0..3 {
        assert!(connection.update(id, progress()));
    }
    assert_error(&task.await.unwrap(), CallErrorKind::Overloaded, "did not read");
    assert_eq!(cancels(&connection), [(id, CancelReason::ReaderTooSlow)]);
    connection.complete(other, ok("1"));
    assert_eq!(fine.await.unwrap().outcome, ok("1"));
    gateway.assert_clean();
}

#[tokio::test(start_paused = true)]
async fn an_answer_does_not_hide_that_an_update_was_lost() {
    let gateway = gateway(RouterOptions::default());
    let (connection, _registration) = gateway.connect();
    let running = gateway.router.start(request("t.x"), Some(Arc::new(Bounded(Mutex::new(0)))));
    let id = running.id();
    let task = tokio::spawn(running.outcome());
    settle().await;
    connection.update(id, progress());
    connection.complete(id, ok("1"));
    assert_error(&task.await.unwrap(), CallErrorKind::Overloaded, "did not read");
    gateway.assert_clean();
}

#[tokio::test(start_paused = true)]
async fn updates_after_the_end_are_discarded() {
    let gateway = gateway(RouterOptions::default());
    let kept = Arc::new(Mutex::new(None));
    let keep = Arc::clone(&kept);
    let _registration = gateway.provide(move |_, updates: Updates| {
        updates.send(progress());
        *keep.lock() = Some(updates);
        Box::pin(async { ok("1") })
    });
    let sink = Arc::new(Bounded(Mutex::new(5)));
    let finished = gateway.router.start(request("t.x"), Some(sink.clone())).outcome().await;
    assert_eq!(finished.outcome, ok("1"));
    kept.lock().as_ref().unwrap().send(progress());
    assert_eq!(*sink.0.lock(), 4);
    gateway.assert_clean();
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_never_awaited_is_recorded_too() {
    let gateway = gateway(RouterOptions::default());
    let (connection, _registration) = gateway.connect();
    drop(gateway.router.start(request("t.x"), None));
    drop(
        gateway
            .router
            .start(CallRequest { idempotency_key: Some("k".into()), ..request("t.x") }, None),
    );
    assert_eq!(gateway.log.finished.lock().len(), 2);
    assert!(requests(&connection).is_empty());
    gateway.assert_clean();
}

#[tokio::test(start_paused = true)]
async fn a_drain_takes_no_more_calls_and_waits_for_those_that_run() {
    let gateway = gateway(RouterOptions::default());
    let (connection, _registration) = gateway.connect();
    let (id, task) = gateway.start(request("t.x"));
    settle().await;
    let router = Arc::clone(&gateway.router);
    let drain =
        tokio::spawn(
            async move { router.drain(Duration::from_secs(30), std::future::pending()).await },
        );
    settle().await;
    let (_, refused) = gateway.start(request("t.x"));
    assert_error(&refused.await.unwrap(), CallErrorKind::Offline, "shutting down");
    tokio::time::advance(Duration::from_secs(29)).await;
    assert!(!drain.is_finished());
    connection.complete(id, ok("1"));
    drain.await.unwrap();
    assert_eq!(
        gateway.log.finished.lock().len(),
        2,
        "every record is there when the drain is over"
    );
    assert_eq!(task.await.unwrap().outcome, ok("1"));
    gateway.assert_clean();
}

#[tokio::test(start_paused = true)]
async fn a_drain_cancels_calls_at_its_timeout() {
    let gateway = gateway(RouterOptions::default());
    let (connection, _registration) = gateway.connect();
    let (id, task) = gateway.start(request("t.x"));
    settle().await;
    gateway.router.drain(Duration::from_secs(30), std::future::pending()).await;
    let cut_off = task.await.unwrap();
    assert_error(&cut_off, CallErrorKind::Offline, "shut down");
    assert!(!cut_off.outcome.unwrap_err().retryable, "it may have had an effect");
    assert_eq!(cancels(&connection), [(id, CancelReason::Shutdown)]);
    gateway.assert_clean();
    // With no running calls it completes immediately.
    gateway.router.drain(Duration::from_secs(30), std::future::pending()).await;
}

#[tokio::test(start_paused = true)]
async fn an_immediate_drain_does_not_wait() {
    let gateway = gateway(RouterOptions::default());
    let (connection, registration) = gateway.connect();
    let (reached, task) = gateway.start(request("t.x"));
    settle().await;
    drop(registration);
    // Its provider is offline, so the call may be repeated.
    let (_, waiting) = gateway.start(request("t.x"));
    settle().await;
    let began = tokio::time::Instant::now();
    gateway.router.drain(Duration::from_secs(30), std::future::ready(())).await;
    assert_eq!(began.elapsed(), Duration::ZERO);
    assert_error(&task.await.unwrap(), CallErrorKind::Offline, "may have had an effect");
    let never_reached = waiting.await.unwrap();
    assert_error(&never_reached, CallErrorKind::Offline, "before the call reached its tool");
    assert!(never_reached.outcome.unwrap_err().retryable);
    assert_eq!(cancels(&connection), [(reached, CancelReason::Shutdown)]);
    gateway.assert_clean();
}

#[tokio::test(start_paused = true)]
async fn a_call_without_permission_does_not_wait() {
    let gateway = gateway(RouterOptions::default());
    let (_connection, registration) = gateway.connect();
    drop(registration);
    let narrow = Principal { tools: vec![Pattern::new("other*")], ..(*principal()).clone() };
    let node = Principal { role: Role::Node, ..(*principal()).clone() };
    for (principal, kind) in [(narrow, CallErrorKind::NotFound), (node, CallErrorKind::NotAllowed)]
    {
        let started = tokio::time::Instant::now();
        let refused = CallRequest { view: View::of(Arc::new(principal)), ..request("t.x") };
        let (_, task) = gateway.start(refused);
        assert_error(&task.await.unwrap(), kind, "t");
        assert_eq!(started.elapsed(), Duration::ZERO);
    }
}
