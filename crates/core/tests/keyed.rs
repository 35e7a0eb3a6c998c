//! Rule: there is at most one run for each idempotency key, and the same answer for every retry. No
//! answer relies on a record that could not be stored. A caller that disconnects does not end its
//! call.

mod support;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use sa_core::idempotency::{Claim, KeyedCall, Ledger};
use sa_core::*;
use support::*;
use tokio::time::{Instant, advance};

/// The claimant of a key and the outcome of its call.
type Entry = (KeyedCall, CallId, Option<Outcome>);

/// A ledger in memory, which fails at configured steps.
#[derive(Default)]
struct Book {
    entries: Mutex<HashMap<Arc<str>, Entry>>,
    fails: Mutex<Option<&'static str>>,
}

impl Book {
    fn at(&self, step: &'static str) -> Result<(), CallError> {
        let fails = *self.fails.lock();
        assert_ne!(fails, Some("panic"), "told to panic");
        if fails == Some(step) {
            return Err(CallError::new(
                CallErrorKind::Failed,
                format!("the disk is full at {step}"),
            ));
        }
        Ok(())
    }

    fn fail_at(&self, step: Option<&'static str>) {
        *self.fails.lock() = step;
    }

    fn holds(&self, key: &str) -> bool {
        self.entries.lock().contains_key(key)
    }
}

impl Ledger for Book {
    fn claim<'a>(
        &'a self,
        call: &'a KeyedCall,
        id: CallId,
    ) -> BoxFuture<'a, Result<Claim, CallError>> {
        Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(1)).await;
            self.at("claim")?;
            let mut entries = self.entries.lock();
            Ok(match entries.get(&call.key) {
                None => {
                    entries.insert(call.key.clone(), (call.clone(), id, None));
                    Claim::Ours
                }
                Some((first, id, _)) if (&first.tool, &first.args) != (&call.tool, &call.args) => {
                    Claim::Different { id: *id }
                }
                Some((_, id, None)) => Claim::Unknown { id: *id },
                Some((_, id, Some(outcome))) => Claim::Ended { id: *id, outcome: outcome.clone() },
            })
        })
    }

    fn settle<'a>(
        &'a self,
        call: &'a KeyedCall,
        _: CallId,
        outcome: &'a Outcome,
    ) -> BoxFuture<'a, Result<(), CallError>> {
        Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(1)).await;
            self.at("settle")?;
            self.entries.lock().get_mut(&call.key).expect("claimed").2 = Some(outcome.clone());
            Ok(())
        })
    }

    fn release<'a>(
        &'a self,
        call: &'a KeyedCall,
        _: CallId,
    ) -> BoxFuture<'a, Result<(), CallError>> {
        Box::pin(async move {
            self.at("release")?;
            self.entries.lock().remove(&call.key);
            Ok(())
        })
    }
}

fn keeping() -> (Gateway, Arc<Book>) {
    let book = Arc::new(Book::default());
    (gateway_with(RouterOptions::default(), Some(book.clone())), book)
}

fn keyed(key: &str) -> CallRequest {
    CallRequest { idempotency_key: Some(key.into()), ..request("t.x") }
}

fn with_args(key: &str, args: &str) -> CallRequest {
    CallRequest { args: RawJson::parse(args).unwrap(), ..keyed(key) }
}

/// Long enough for the ledger, and short for everything else.
async fn pause() {
    tokio::time::sleep(Duration::from_millis(5)).await;
}

#[tokio::test(start_paused = true)]
async fn a_retry_joins_the_running_call_and_gets_the_recorded_outcome() {
    let (gateway, _book) = keeping();
    let (connection, _registration) = gateway.connect();
    let (first, one) = gateway.start(keyed("k"));
    let (_, two) = gateway.start(keyed("k"));
    pause().await;
    let (_, three) = gateway.start(keyed("k"));
    pause().await;
    assert_eq!(requests(&connection), [first]);
    connection.complete(first, ok("1"));
    for task in [one, two, three] {
        let finished = task.await.unwrap();
        assert_eq!((finished.id, finished.outcome), (first, ok("1")));
    }
    let (_, later) = gateway.start(keyed("k"));
    let finished = later.await.unwrap();
    assert_eq!((finished.id, finished.outcome), (first, ok("1")));
    assert_eq!(requests(&connection), [first]);
    assert_eq!(gateway.log.finished.lock().len(), 1, "retries are no calls of their own");
    gateway.assert_clean();
}

#[tokio::test(start_paused = true)]
async fn failures_are_recorded_too() {
    let (gateway, _book) = keeping();
    let (connection, _registration) = gateway.connect();
    let (first, task) = gateway.start(keyed("k"));
    pause().await;
    connection.complete(first, Err(CallError::new(CallErrorKind::Failed, "it broke")));
    assert_error(&task.await.unwrap(), CallErrorKind::Failed, "it broke");
    let (_, retry) = gateway.start(keyed("k"));
    assert_error(&retry.await.unwrap(), CallErrorKind::Failed, "it broke");
    let (lost, task) = gateway.start(keyed("k2"));
    pause().await;
    connection.close("went away in the middle");
    assert_error(&task.await.unwrap(), CallErrorKind::Offline, "in the middle");
    let (_, retry) = gateway.start(keyed("k2"));
    let finished = retry.await.unwrap();
    assert_error(&finished, CallErrorKind::Offline, "in the middle");
    assert_eq!(finished.id, lost);
    gateway.assert_clean();
}

#[tokio::test(start_paused = true)]
async fn other_arguments_are_a_conflict() {
    let (gateway, _book) = keeping();
    let (connection, _registration) = gateway.connect();
    let (first, task) = gateway.start(with_args("k", r#"{"a":1}"#));
    pause().await;
    let (_, during) = gateway.start(with_args("k", r#"{"a":2}"#));
    assert_error(&during.await.unwrap(), CallErrorKind::Conflict, &first.to_string());
    connection.complete(first, ok("1"));
    assert_eq!(task.await.unwrap().outcome, ok("1"));
    let (_, after) = gateway.start(with_args("k", r#"{"a":2}"#));
    let error = assert_error(&after.await.unwrap(), CallErrorKind::Conflict, "other arguments");
    assert!(error.hint.is_some());
    assert_eq!(requests(&connection), [first]);
    gateway.assert_clean();
}

#[tokio::test(start_paused = true)]
async fn an_unfinished_call_of_an_earlier_process_is_not_repeated() {
    let (gateway, book) = keeping();
    let (connection, _registration) = gateway.connect();
    let before = CallId::new();
    let call = KeyedCall {
        principal: "p1".into(),
        tool: "t.x".into(),
        key: "k".into(),
        args: RawJson::empty_object(),
    };
    book.entries.lock().insert("k".into(), (call, before, None));
    let (_, task) = gateway.start(keyed("k"));
    let error = assert_error(&task.await.unwrap(), CallErrorKind::Conflict, &before.to_string());
    assert!(error.message.contains("may have had an effect") && error.hint.is_some());
    assert!(requests(&connection).is_empty());
    gateway.assert_clean();
}

#[tokio::test(start_paused = true)]
async fn a_key_of_an_unknown_tool_is_free_again() {
    let (gateway, book) = keeping();
    let (_, task) = gateway.start(keyed("k"));
    assert_error(&task.await.unwrap(), CallErrorKind::NotFound, "no tool");
    assert!(!book.holds("k"));
    gateway.assert_clean();
}

#[tokio::test(start_paused = true)]
async fn a_key_of_an_undelivered_call_is_released() {
    let (gateway, book) = keeping();
    let (_, nobody) = gateway.start(keyed("k"));
    assert_error(&nobody.await.unwrap(), CallErrorKind::NotFound, "no tool");
    assert!(!book.holds("k"));
    let (connection, registration) = gateway.connect();
    // Cancelled during the request to the ledger.
    let (id, task) = gateway.start(keyed("k"));
    settle().await;
    gateway.router.cancel(id, CancelReason::Requested, |_| true);
    assert_error(&task.await.unwrap(), CallErrorKind::Cancelled, "was cancelled");
    assert!(!book.holds("k") && requests(&connection).is_empty());
    drop(registration);
    let (_, offline) = gateway.start(keyed("k"));
    assert_error(&offline.await.unwrap(), CallErrorKind::Offline, "disconnected");
    assert!(!book.holds("k"));
    let (connection, _registration) = gateway.connect();
    let (id, task) = gateway.start(keyed("k"));
    pause().await;
    connection.complete(id, ok("1"));
    assert_eq!(task.await.unwrap().outcome, ok("1"));
    gateway.assert_clean();
}

struct Full;

impl UpdateSink for Full {
    fn send(&self, _: Update) -> Result<(), Overrun> {
        Err(Overrun)
    }
}

#[tokio::test(start_paused = true)]
async fn a_keyed_call_continues_without_its_caller() {
    let (gateway, book) = keeping();
    let (connection, _registration) = gateway.connect();
    let running = gateway.router.start(keyed("k"), Some(Arc::new(Full)));
    let id = running.id();
    let task = tokio::spawn(running.outcome());
    pause().await;
    task.abort();
    pause().await;
    assert_eq!(connection.running(), 1);
    // The unread update queue does not end it either.
    assert!(connection.update(id, progress()));
    pause().await;
    let (_, retry) = gateway.start(keyed("k"));
    pause().await;
    assert!(connection.complete(id, ok("1")));
    assert_eq!(retry.await.unwrap().outcome, ok("1"));
    assert!(book.holds("k") && cancels(&connection).is_empty());
    gateway.assert_clean();
}

#[tokio::test(start_paused = true)]
async fn a_cancel_or_the_deadline_still_ends_it() {
    let (gateway, _book) = keeping();
    let (connection, _registration) = gateway.connect();
    let (id, task) = gateway.start(keyed("k"));
    pause().await;
    gateway.router.cancel(id, CancelReason::Requested, |_| true);
    assert_error(&task.await.unwrap(), CallErrorKind::Cancelled, "was cancelled");
    let (late, task) = gateway.start(keyed("k2"));
    assert_error(&task.await.unwrap(), CallErrorKind::Timeout, "after 60000 ms");
    assert_eq!(
        cancels(&connection),
        [(id, CancelReason::Requested), (late, CancelReason::Deadline)]
    );
    gateway.assert_clean();
}

#[tokio::test(start_paused = true)]
async fn a_retry_waits_no_longer_than_its_own_caller_wants() {
    let (gateway, _book) = keeping();
    let (connection, _registration) = gateway.connect();
    let (first, one) = gateway.start(keyed("k"));
    pause().await;
    let started = Instant::now();
    let (_, hasty) =
        gateway.start(CallRequest { timeout: Some(Duration::from_secs(2)), ..keyed("k") });
    let (second, cancelled) = gateway.start(keyed("k"));
    let (_, leaves) = gateway.start(keyed("k"));
    settle().await;
    leaves.abort();
    gateway.router.cancel(second, CancelReason::Requested, |_| true);
    assert_error(&cancelled.await.unwrap(), CallErrorKind::Cancelled, "was cancelled");
    assert_error(&hasty.await.unwrap(), CallErrorKind::Timeout, "was still running");
    assert_eq!(started.elapsed(), Duration::from_secs(2));
    assert_eq!(connection.running(), 1, "the first goes on");
    connection.complete(first, ok("1"));
    assert_eq!(one.await.unwrap().outcome, ok("1"));
    gateway.assert_clean();
}

#[tokio::test(start_paused = true)]
async fn a_ledger_that_fails_is_never_a_success() {
    let (gateway, book) = keeping();
    let (connection, registration) = gateway.connect();
    book.fail_at(Some("claim"));
    let (_, task) = gateway.start(keyed("k"));
    assert_error(&task.await.unwrap(), CallErrorKind::Failed, "at claim");
    assert!(requests(&connection).is_empty(), "nothing runs without a record");
    book.fail_at(Some("settle"));
    let (id, task) = gateway.start(keyed("k"));
    pause().await;
    connection.complete(id, ok("1"));
    assert_error(&task.await.unwrap(), CallErrorKind::Failed, "at settle");
    book.fail_at(None);
    let (_, retry) = gateway.start(keyed("k"));
    assert_error(&retry.await.unwrap(), CallErrorKind::Conflict, "may have had an effect");
    assert_eq!(requests(&connection), [id]);
    registration.withdraw();
    book.fail_at(Some("release"));
    let (_, task) = gateway.start(keyed("k2"));
    assert_error(&task.await.unwrap(), CallErrorKind::Failed, "at release");
    gateway.assert_clean();
}

#[tokio::test(start_paused = true)]
async fn a_ledger_that_panics_ends_its_call_alone() {
    let (gateway, book) = keeping();
    let (connection, _registration) = gateway.connect();
    book.fail_at(Some("panic"));
    let (id, task) = gateway.start(keyed("k"));
    let (_, joined) = gateway.start(keyed("k"));
    let finished = task.await.unwrap();
    assert_error(&finished, CallErrorKind::Failed, "inside the gateway");
    assert_eq!(finished.id, id);
    assert_error(&joined.await.unwrap(), CallErrorKind::Failed, "inside the gateway");
    book.fail_at(None);
    let (id, task) = gateway.start(keyed("k"));
    pause().await;
    connection.complete(id, ok("1"));
    assert_eq!(task.await.unwrap().outcome, ok("1"));
    gateway.assert_clean();
}

#[tokio::test(start_paused = true)]
async fn a_slow_ledger_counts_against_the_deadline() {
    let (gateway, book) = keeping();
    let (connection, _registration) = gateway.connect();
    let (_, task) =
        gateway.start(CallRequest { timeout: Some(Duration::from_micros(500)), ..keyed("k") });
    assert_error(&task.await.unwrap(), CallErrorKind::Timeout, "before it got a slot");
    assert!(requests(&connection).is_empty() && !book.holds("k"));
    gateway.assert_clean();
}

#[tokio::test(start_paused = true)]
async fn without_a_ledger_a_key_is_refused() {
    let gateway = gateway(RouterOptions::default());
    let _node = gateway.connect();
    let (_, task) = gateway.start(keyed("k"));
    assert_error(&task.await.unwrap(), CallErrorKind::Failed, "does not store idempotency keys");
    advance(Duration::from_secs(1)).await;
    gateway.assert_clean();
}

fn ceilings(max_running: usize, max_bytes: usize) -> Gateway {
    let options = RouterOptions { max_running, max_bytes, ..RouterOptions::default() };
    gateway_with(options, Some(Arc::new(Book::default())))
}

#[tokio::test(start_paused = true)]
async fn a_retry_uses_a_slot_until_its_caller_disconnects() {
    let gateway = ceilings(2, 1_000);
    let (connection, _registration) = gateway.connect();
    let (first, one) = gateway.start(keyed("k"));
    pause().await;
    let (_, two) = gateway.start(keyed("k"));
    pause().await;
    for request in [keyed("k"), keyed("other"), request("t.x")] {
        let (_, over) = gateway.start(request);
        assert_error(&over.await.unwrap(), CallErrorKind::Overloaded, "2 of 2 running calls");
    }
    two.abort();
    pause().await;
    let (_, three) = gateway.start(keyed("k"));
    pause().await;
    assert_eq!(requests(&connection), [first], "a caller that disconnects ends only its own wait");
    assert!(cancels(&connection).is_empty());
    connection.complete(first, ok("1"));
    for task in [one, three] {
        assert_eq!(task.await.unwrap().outcome, ok("1"));
    }
    gateway.assert_clean();
}

#[tokio::test(start_paused = true)]
async fn arguments_of_retries_are_in_memory_once() {
    // Three quarters are twelve parts, which is enough for the first call and a retry.
    const PART: usize = sa_limits::offload::LARGE;
    let text = |bytes: usize| format!("\"{}\"", "x".repeat(bytes - 2));
    let gateway = ceilings(100, 16 * PART);
    let (connection, _registration) = gateway.connect();
    let (first, one) = gateway.start(with_args("k", &text(6 * PART)));
    pause().await;
    let retries: Vec<_> =
        (0..10).map(|_| gateway.start(with_args("k", &text(6 * PART))).1).collect();
    pause().await;
    let running = gateway.router.running();
    assert_eq!(running.len(), 11);
    let place = |call: &router::LiveCall| call.args.as_str().as_ptr();
    assert!(
        running.iter().all(|call| place(call) == place(&running[0])),
        "each has arguments of its own"
    );
    let (_, over) = gateway.start(with_args("k", &text(6 * PART + 1)));
    assert_error(&over.await.unwrap(), CallErrorKind::Overloaded, "bytes of call arguments");
    connection.complete(first, ok("1"));
    for task in retries.into_iter().chain([one]) {
        assert_eq!(task.await.unwrap().outcome, ok("1"));
    }
    gateway.assert_clean();
}

#[tokio::test(start_paused = true)]
async fn another_name_is_a_conflict_and_another_case_is_not() {
    let (gateway, _book) = keeping();
    let (connection, _registration) = gateway.connect();
    let by = |name: &str| CallRequest { tool: name.to_owned(), ..keyed("k") };
    let (first, one) = gateway.start(by("t.x"));
    let (_, same) = gateway.start(by("t.X"));
    pause().await;
    assert_eq!(requests(&connection), [first]);
    let (_, other) = gateway.start(by("t_x"));
    assert_error(&other.await.unwrap(), CallErrorKind::Conflict, &first.to_string());
    connection.complete(first, ok("1"));
    for task in [one, same] {
        let finished = task.await.unwrap();
        assert_eq!((finished.id, finished.outcome), (first, ok("1")));
    }
    let (_, other) = gateway.start(by("t_x"));
    assert_error(&other.await.unwrap(), CallErrorKind::Conflict, &first.to_string());
    gateway.assert_clean();
}

#[tokio::test(start_paused = true)]
async fn a_retry_ignores_a_changed_resolution() {
    let (gateway, _book) = keeping();
    let host = |id| {
        let (connection, catalog) =
            (connection(), Catalog { bare_names: true, ..tools(&["Bash"]) });
        let provider = Arc::clone(&connection) as Arc<dyn Provider>;
        (connection, gateway.directory.attach(attach(id, "g", catalog, provider)).unwrap())
    };
    let ((one, first), (two, _second)) = (host("one"), host("two"));
    let bash = || CallRequest { tool: "Bash".into(), ..keyed("k") };
    let (id, call) = gateway.start(bash());
    pause().await;
    assert_eq!(requests(&one), [id]);
    // Its connection stays open, while the directory resolves the name to another provider.
    drop(first);
    let (_, retry) = gateway.start(bash());
    pause().await;
    assert!(requests(&two).is_empty());
    one.complete(id, ok("1"));
    for task in [call, retry] {
        assert_eq!(task.await.unwrap().outcome, ok("1"));
    }
    gateway.assert_clean();
}
