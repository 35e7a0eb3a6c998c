//! Rule: a provider receives a limited number of concurrent calls. A short burst is queued, and a
//! call without a slot in time is `overloaded`. A slot is released whenever and however a call
//! ends. If the provider disconnects, queued calls wait for its return. Otherwise their error names
//! the provider and the time since its disconnect.

mod support;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use sa_core::*;
use support::*;
use tokio::time::{Instant, advance};

#[tokio::test(start_paused = true)]
async fn the_51st_call_queues_and_is_refused_after_the_timeout() {
    let gateway = gateway(RouterOptions::default());
    let (connection, _registration) = gateway.connect();
    let first: Vec<_> = (0..50).map(|_| gateway.start(request("t.x"))).collect();
    settle().await;
    assert_eq!(gateway.directory.members("node")[0].running, 50);
    let started = Instant::now();
    let (id, late) = gateway.start(request("t.x"));
    let error = assert_error(
        &late.await.unwrap(),
        CallErrorKind::Overloaded,
        "50 running calls, which is its limit",
    );
    assert_eq!(started.elapsed(), Duration::from_secs(2));
    assert!(error.retryable && error.hint.is_some());
    assert!(!requests(&connection).contains(&id), "it never reached the provider");
    assert_eq!(gateway.log.records_of(id)[0].provider, None);
    for (id, task) in first {
        assert!(connection.complete(id, ok("1")));
        assert_eq!(task.await.unwrap().outcome, ok("1"));
    }
    gateway.assert_clean();
}

#[tokio::test(start_paused = true)]
async fn a_queued_call_gets_the_next_free_slot() {
    let gateway = gateway(RouterOptions::default());
    let (connection, _registration) = gateway.connect_with(1);
    let (first, _) = gateway.start(request("t.x"));
    let (second, task) = gateway.start(request("t.x"));
    settle().await;
    assert_eq!(requests(&connection), [first]);
    connection.complete(first, ok("1"));
    settle().await;
    assert_eq!(requests(&connection), [first, second]);
    connection.complete(second, ok("2"));
    assert_eq!(task.await.unwrap().outcome, ok("2"));
    gateway.assert_clean();
}

#[tokio::test(start_paused = true)]
async fn one_principal_cannot_have_all_calls_that_may_run() {
    let gateway = gateway(RouterOptions::default());
    let (connection, _registration) = gateway.connect_with(2_000);
    let of = |id: &str, role: Role| {
        let principal = Principal { id: id.into(), role, ..(*principal()).clone() };
        CallRequest { view: View::of(Arc::new(principal)), ..request("t.x") }
    };
    let calls: Vec<_> = (0..750).map(|_| gateway.start(request("t.x"))).collect();
    settle().await;
    let (_, over) = gateway.start(request("t.x"));
    let error =
        assert_error(&over.await.unwrap(), CallErrorKind::Overloaded, "750 of 1000 running calls");
    assert!(
        error.retryable && error.message.contains("750 of them by this principal"),
        "{error:?}"
    );
    assert!(error.hint.is_some_and(|hint| hint.contains("limits.pending_total")));
    // Others have an eighth each, up to the sixteenth that is reserved for operators.
    let others: Vec<_> = ["b", "c"].into_iter().flat_map(|id| (0..126).map(move |_| id)).collect();
    let others: Vec<_> = others.into_iter().map(|id| gateway.start(of(id, Role::Agent))).collect();
    settle().await;
    assert_eq!(requests(&connection).len(), 750 + 126 + 62);
    let operators: Vec<_> = (0..64).map(|_| gateway.start(of("o", Role::Operator))).collect();
    settle().await;
    assert_eq!(requests(&connection).len(), 1_000);
    for (_, task) in others.iter().chain(&operators) {
        task.abort();
    }
    settle().await;
    let cancelled = cancels(&connection).len();
    connection.complete(calls[0].0, ok("1"));
    settle().await;
    let (id, task) = gateway.start(request("t.x"));
    settle().await;
    assert!(connection.complete(id, ok("1")));
    assert_eq!(task.await.unwrap().outcome, ok("1"));
    for (_, task) in &calls {
        task.abort();
    }
    settle().await;
    assert_eq!(cancels(&connection).len() - cancelled, 749);
    gateway.assert_clean();
}

#[tokio::test(start_paused = true)]
async fn arguments_in_memory_are_bounded_in_bytes() {
    const PART: usize = sa_limits::offload::LARGE;
    let gateway = gateway(RouterOptions { max_bytes: 16 * PART, ..RouterOptions::default() });
    let (connection, _registration) = gateway.connect();
    let large = |bytes: usize| CallRequest {
        args: RawJson::parse(&format!("\"{}\"", "x".repeat(bytes - 2))).unwrap(),
        ..request("t.x")
    };
    let (id, task) = gateway.start(large(9 * PART));
    settle().await;
    let (_, over) = gateway.start(large(3 * PART + 1));
    assert_error(&over.await.unwrap(), CallErrorKind::Overloaded, "bytes of call arguments");
    let (fits, beside) = gateway.start(large(3 * PART));
    settle().await;
    for (id, task) in [(id, task), (fits, beside)] {
        assert!(connection.complete(id, ok("1")));
        assert_eq!(task.await.unwrap().outcome, ok("1"));
    }
    let (id, task) = gateway.start(large(20 * PART));
    settle().await;
    assert!(
        connection.complete(id, ok("1")),
        "what ended gave its part back, and one by itself always fits"
    );
    task.await.unwrap();
    gateway.assert_clean();
}

/// Ends a call in some way, and checks that the only slot is free again.
async fn gives_its_place_back(end: impl AsyncFnOnce(&Gateway, &Connection, CallId)) {
    let options = RouterOptions { max_running: 1, ..RouterOptions::default() };
    let gateway = gateway(options);
    let (connection, _registration) = gateway.connect_with(1);
    let (id, task) = gateway.start(request("t.x"));
    settle().await;
    end(&gateway, &connection, id).await;
    task.abort();
    settle().await;
    gateway.assert_clean();
    let (id, task) = gateway.start(request("t.x"));
    settle().await;
    assert!(connection.complete(id, ok("1")));
    assert_eq!(task.await.unwrap().outcome, ok("1"));
}

#[tokio::test(start_paused = true)]
async fn slots_are_released_on_every_path() {
    gives_its_place_back(async |_, connection, id| assert!(connection.complete(id, ok("1")))).await;
    let failure = || Err(CallError::new(CallErrorKind::Failed, "no"));
    gives_its_place_back(async |_, connection, id| assert!(connection.complete(id, failure())))
        .await;
    gives_its_place_back(async |gateway, _, id| {
        assert_eq!(gateway.router.cancel(id, CancelReason::Requested, |_| true), Some(true));
    })
    .await;
    gives_its_place_back(async |_, _, _| advance(Duration::from_secs(61)).await).await;
    gives_its_place_back(async |_, _, _| {}).await;
}

#[tokio::test(start_paused = true)]
async fn calls_that_queue_when_the_provider_leaves_wait_for_it() {
    let gateway = gateway(RouterOptions::default());
    let (old, registration) = gateway.connect_with(1);
    let (running, lost) = gateway.start(request("t.x"));
    let (waiting, task) = gateway.start(request("t.x"));
    settle().await;
    assert_eq!(requests(&old), [running]);
    drop(registration);
    old.close("the node went away in the middle of the call");
    let error =
        assert_error(&lost.await.unwrap(), CallErrorKind::Offline, "in the middle of the call");
    assert!(!error.retryable, "it may have had an effect");
    // Unrelated attaches and detaches do not end the wait.
    for n in 0..20 {
        advance(Duration::from_millis(400)).await;
        let other = attach(&format!("other{n}"), "g", prefixes(&["o"]), connection());
        drop(gateway.directory.attach(other).unwrap());
        settle().await;
    }
    let (new, _registration) = gateway.connect_with(1);
    settle().await;
    assert_eq!(requests(&new), [waiting]);
    new.complete(waiting, ok("1"));
    assert_eq!(task.await.unwrap().outcome, ok("1"));
    assert_eq!(requests(&old), [running], "what was queued had not reached the old one");
    gateway.assert_clean();
}

#[track_caller]
fn seconds_ago(error: &CallError, seconds: u64) {
    let words = format!("its node \"n\" disconnected {seconds} s ago");
    assert!(error.message.contains(&words), "{}", error.message);
    assert!(error.hint.is_some());
}

#[tokio::test(start_paused = true)]
async fn the_error_names_the_offline_provider() {
    let gateway = gateway(RouterOptions::default());
    let (_, registration) = gateway.connect();
    drop(registration);
    advance(Duration::from_secs(3)).await;
    // The caller's own timeout is shorter and ends first, and its error is correct.
    let (_, hasty) =
        gateway.start(CallRequest { timeout: Some(Duration::from_secs(2)), ..request("t.x") });
    let (_, patient) = gateway.start(request("t.x"));
    seconds_ago(&assert_error(&hasty.await.unwrap(), CallErrorKind::Offline, "exists"), 5);
    seconds_ago(&assert_error(&patient.await.unwrap(), CallErrorKind::Offline, "exists"), 10);
    advance(Duration::from_secs(90)).await;
    let started = Instant::now();
    let (_, late) = gateway.start(request("t.x"));
    seconds_ago(&assert_error(&late.await.unwrap(), CallErrorKind::Offline, "exists"), 100);
    assert_eq!(
        started.elapsed(),
        Duration::ZERO,
        "nobody waits for one that has been gone for long"
    );
    gateway.assert_clean();
}

#[tokio::test(start_paused = true)]
async fn a_stopped_provider_has_a_shorter_timeout() {
    let gateway = gateway(RouterOptions::default());
    let (_, registration) = gateway.connect();
    registration.stopped();
    assert!(gateway.directory.members("node")[0].stopped);
    // A restart announces the stop, too.
    let (id, during) = gateway.start(request("t.x"));
    advance(Duration::from_secs(2)).await;
    let (back, registration) = gateway.connect();
    settle().await;
    back.complete(id, ok("1"));
    assert_eq!(during.await.unwrap().outcome, ok("1"));
    assert!(!gateway.directory.members("node")[0].stopped);

    registration.stopped();
    let started = Instant::now();
    let (_, waits) = gateway.start(request("t.x"));
    assert_error(
        &waits.await.unwrap(),
        CallErrorKind::Offline,
        "its node \"n\" was stopped 2 s ago",
    );
    assert_eq!(
        started.elapsed(),
        Duration::from_millis(2_500),
        "a quarter of the time for one that was lost"
    );
    advance(Duration::from_secs(1)).await;
    let started = Instant::now();
    let (_, late) = gateway.start(request("t.x"));
    let error = assert_error(
        &late.await.unwrap(),
        CallErrorKind::Offline,
        "its node \"n\" was stopped 3 s ago",
    );
    assert!(error.hint.is_some_and(|hint| hint.contains("start the node again")));
    assert_eq!(started.elapsed(), Duration::ZERO);
    gateway.assert_clean();
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_dead_before_the_directory_knows_costs_nothing() {
    let gateway = gateway(RouterOptions::default());
    let (old, registration) = gateway.connect();
    old.close("gone");
    let (id, task) = gateway.start(request("t.x"));
    settle().await;
    assert_eq!(gateway.router.running_count(), 1, "it waits for the directory to hear of it");
    drop(registration);
    settle().await;
    let (new, _registration) = gateway.connect();
    settle().await;
    new.complete(id, ok("1"));
    assert_eq!(task.await.unwrap().outcome, ok("1"));
    assert!(requests(&old).is_empty());
    gateway.assert_clean();
}

#[tokio::test(start_paused = true)]
async fn a_returned_provider_is_checked_again() {
    let gateway = gateway(RouterOptions::default());
    let schema = |text: &str| Some(Schema::new(RawJson::parse(text).unwrap()));
    let with = |input: Option<Schema>| Catalog {
        tools: vec![Tool { input, ..Tool::named("t.x") }],
        ..Catalog::default()
    };
    let old = connection();
    let registration =
        gateway.directory.attach(attach("n", "g", with(schema("{}")), old.clone())).unwrap();
    old.link().broken.store(true, Ordering::Relaxed);
    let (_, task) = gateway.start(request("t.x"));
    settle().await;
    let new = connection();
    let strict = with(schema(r#"{"required":["a"]}"#));
    let _new = gateway.directory.attach(attach("n", "g", strict, new.clone())).unwrap();
    drop(registration);
    assert_error(&task.await.unwrap(), CallErrorKind::InvalidArgs, "missing \"a\"");
    assert!(requests(&new).is_empty());
    gateway.assert_clean();
}

#[test]
fn any_number_of_slots_is_accepted() {
    let gateway = gateway(RouterOptions::default());
    let _registration = gateway.connect_with(usize::MAX);
    assert_eq!(gateway.directory.members("node")[0].running, 0);
}

#[tokio::test(start_paused = true)]
async fn calls_that_wait_for_a_provider_go_on_in_the_order_in_which_they_came() {
    let gateway = gateway(RouterOptions::default());
    let (_gone, registration) = gateway.connect();
    drop(registration);
    let (started, tasks): (Vec<_>, Vec<_>) = (0..20).map(|_| gateway.start(request("t.x"))).unzip();
    settle().await;
    let (back, _registration) = gateway.connect();
    settle().await;
    assert_eq!(requests(&back), started);
    // The calls also end in that order when the connection ends.
    let ended = Arc::new(Mutex::new(Vec::new()));
    for (id, task) in started.iter().copied().zip(tasks) {
        let ended = Arc::clone(&ended);
        tokio::spawn(async move {
            task.await.unwrap().outcome.unwrap_err();
            ended.lock().push(id);
        });
    }
    settle().await;
    back.close("the connection broke");
    settle().await;
    assert_eq!(*ended.lock(), started);
    gateway.assert_clean();
}
