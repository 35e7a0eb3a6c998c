//! Rule: the timeout is 60 s by default, else the tool's limit, else the caller's. A caller's
//! `timeout` is a hard limit. Updates extend every other limit, up to a cap. A call that times out
//! reports that with a remedy, and its provider receives the reason.

mod support;

use std::sync::atomic::Ordering;
use std::time::Duration;

use sa_core::*;
use support::*;
use tokio::time::{Instant, advance};

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn described(timeout: Option<Duration>) -> Catalog {
    Catalog { tools: vec![Tool { timeout, ..Tool::named("t.x") }], ..Catalog::default() }
}

async fn check(tool: Option<u64>, caller: Option<u64>, expected: u64) {
    let gateway = gateway(RouterOptions::default());
    let connection = connection();
    let attach = attach("n", "g", described(tool.map(secs)), connection.clone());
    let _registration = gateway.directory.attach(attach).unwrap();
    let started = Instant::now();
    let (id, task) = gateway.start(CallRequest { timeout: caller.map(secs), ..request("t.x") });
    let error = assert_error(
        &task.await.unwrap(),
        CallErrorKind::Timeout,
        &format!("timed out after {} ms", expected * 1_000),
    );
    assert!(error.message.contains("before the node \"n\" answered"), "{}", error.message);
    assert!(error.hint.unwrap().contains("timeout_ms"));
    assert_eq!(started.elapsed().as_secs(), expected);
    assert_eq!(cancels(&connection), [(id, CancelReason::Deadline)], "the worker is told why");
    gateway.assert_clean();
}

#[tokio::test(start_paused = true)]
async fn whose_limit_counts() {
    check(None, None, 60).await;
    check(Some(5), None, 5).await;
    check(Some(300), None, 300).await;
    check(Some(5), Some(90), 90).await;
    check(Some(300), Some(2), 2).await;
    check(None, Some(1_000_000), 3_600).await;
}

#[tokio::test(start_paused = true)]
async fn ten_minutes_with_progress_are_no_timeout() {
    let gateway = gateway(RouterOptions::default());
    let (connection, _registration) = gateway.connect();
    let (id, task) = gateway.start(request("t.x"));
    for _ in 0..12 {
        settle().await;
        advance(secs(50)).await;
        assert!(connection.update(id, progress()));
    }
    settle().await;
    connection.complete(id, ok("1"));
    assert_eq!(task.await.unwrap().outcome, ok("1"));
    assert_eq!(gateway.log.records_of(id)[0].updates, 12);
}

/// Checks the duration of a call with a tool that reports progress every 5 s and never answers.
async fn check_progress(
    timeout: Option<u64>,
    idle_timeout: Option<u64>,
    expected: u64,
    words: &str,
) {
    let gateway = gateway(RouterOptions::default());
    let (connection, _registration) = gateway.connect();
    let started = Instant::now();
    let request = CallRequest {
        timeout: timeout.map(secs),
        idle_timeout: idle_timeout.map(secs),
        ..request("t.x")
    };
    let (id, mut task) = gateway.start(request);
    let outcome = loop {
        settle().await;
        tokio::select! {
            biased;
            outcome = &mut task => break outcome.unwrap(),
            () = tokio::time::sleep(secs(5)) => drop(connection.update(id, progress())),
        }
    };
    assert_error(&outcome, CallErrorKind::Timeout, words);
    assert_eq!(started.elapsed().as_secs(), expected);
    assert_eq!(cancels(&connection), [(id, CancelReason::Deadline)]);
    gateway.assert_clean();
}

#[tokio::test(start_paused = true)]
async fn progress_extends_only_limits_that_the_caller_did_not_set_as_hard() {
    check_progress(Some(17), None, 17, "timed out after 17000 ms").await;
    check_progress(Some(17), Some(6), 17, "timed out after 17000 ms").await;
    check_progress(Some(17), Some(4), 4, "timed out after 4000 ms").await;
    check_progress(None, Some(4), 4, "timed out after 4000 ms").await;
    check_progress(None, Some(6), 3_600, "the maximum of 3600000 ms").await;
    check_progress(None, None, 3_600, "the maximum of 3600000 ms").await;
    check_progress(Some(1_000_000), None, 3_600, "timed out after 3600000 ms").await;
}

#[tokio::test(start_paused = true)]
async fn nothing_extends_a_call_beyond_the_cap() {
    let options = RouterOptions { max_duration: secs(100), ..RouterOptions::default() };
    let gateway = gateway(options);
    let (connection, _registration) = gateway.connect();
    let started = Instant::now();
    let (id, task) = gateway.start(request("t.x"));
    for _ in 0..2 {
        settle().await;
        advance(secs(45)).await;
        connection.update(id, progress());
    }
    let error = assert_error(
        &task.await.unwrap(),
        CallErrorKind::Timeout,
        "reached the maximum of 100000 ms",
    );
    assert!(error.hint.is_some());
    assert_eq!(started.elapsed(), secs(100));
    assert_eq!(cancels(&connection), [(id, CancelReason::Deadline)]);
}

#[tokio::test(start_paused = true)]
async fn a_tools_own_limit_counts_though_the_call_had_to_wait_for_it() {
    let gateway = gateway(RouterOptions::default());
    let catalog = || described(Some(secs(5)));
    drop(gateway.directory.attach(attach("n", "g", catalog(), connection())).unwrap());
    let started = Instant::now();
    let (id, task) = gateway.start(request("t.x"));
    settle().await;
    advance(secs(2)).await;
    let back = connection();
    let _registration =
        gateway.directory.attach(attach("n", "g", catalog(), back.clone())).unwrap();
    assert_error(&task.await.unwrap(), CallErrorKind::Timeout, "after 5000 ms");
    assert_eq!(started.elapsed(), secs(5));
    assert_eq!(cancels(&back), [(id, CancelReason::Deadline)]);
}

/// The first provider of the tool disconnects before it receives the call. The next one has another
/// limit.
#[tokio::test(start_paused = true)]
async fn the_limit_of_the_tool_that_receives_the_call_counts() {
    for (first, hard, second, expected) in [
        (Some(5), false, None, 60),
        (Some(5), true, None, 3_600),
        (Some(300), false, None, 60),
        (Some(5), false, Some(20), 20),
        (None, false, Some(20), 20),
        (Some(20), true, Some(20), 3_600),
        (Some(20), false, Some(20), 20),
    ] {
        let gateway = gateway(RouterOptions::default());
        let lost = connection();
        lost.link().broken.store(true, Ordering::Relaxed);
        let mut catalog = described(first.map(secs));
        catalog.tools[0].hard_timeout = hard;
        let registration = gateway.directory.attach(attach("n", "g", catalog, lost)).unwrap();
        let started = Instant::now();
        let (id, mut task) = gateway.start(request("t.x"));
        settle().await;
        advance(secs(2)).await;
        drop(registration);
        let next = connection();
        let catalog = described(second.map(secs));
        let _registration =
            gateway.directory.attach(attach("n", "g", catalog, next.clone())).unwrap();
        let outcome = loop {
            settle().await;
            tokio::select! {
                biased;
                outcome = &mut task => break outcome.unwrap(),
                // The second provider of a hard limit reports progress.
                () = tokio::time::sleep(secs(1)) => if hard { next.update(id, progress()); },
            }
        };
        assert_error(&outcome, CallErrorKind::Timeout, "");
        assert_eq!(started.elapsed().as_secs(), expected, "{first:?} {hard} {second:?}");
        gateway.assert_clean();
    }
}

#[tokio::test(start_paused = true)]
async fn an_expired_call_reaches_no_provider() {
    let gateway = gateway(RouterOptions::default());
    let (connection, registration) = gateway.connect();
    let (_, task) = gateway.start(CallRequest { timeout: Some(Duration::ZERO), ..request("t.x") });
    assert_error(&task.await.unwrap(), CallErrorKind::Timeout, "before it got a slot");
    assert!(requests(&connection).is_empty());
    drop(registration);
    // Its tool's limit is only known, and exceeded, when the provider is back.
    let short = || attach("n", "g", described(Some(secs(1))), connection.clone());
    let (_, task) = gateway.start(request("t.x"));
    settle().await;
    advance(secs(3)).await;
    let _registration = gateway.directory.attach(short()).unwrap();
    assert_error(
        &task.await.unwrap(),
        CallErrorKind::Timeout,
        "after 1000 ms before it got a slot",
    );
    assert!(requests(&connection).is_empty());
    gateway.assert_clean();
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_call_reaches_no_provider() {
    let gateway = gateway(RouterOptions::default());
    let (connection, _registration) = gateway.connect();
    let (id, task) = gateway.start(request("t.x"));
    assert_eq!(
        gateway.router.cancel(id, CancelReason::Revoked, |_| false),
        Some(false),
        "not allowed to"
    );
    assert_eq!(gateway.router.cancel(id, CancelReason::Revoked, |_| true), Some(true));
    assert_eq!(
        gateway.router.cancel(id, CancelReason::Requested, |_| true),
        Some(false),
        "the first reason counts"
    );
    assert_error(&task.await.unwrap(), CallErrorKind::Cancelled, "token is no longer valid");
    assert!(requests(&connection).is_empty());
    assert_eq!(gateway.router.cancel(id, CancelReason::Requested, |_| true), None);
    gateway.assert_clean();
}

#[tokio::test(start_paused = true)]
async fn a_journal_that_is_stuck_does_not_hold_a_call_for_ever() {
    let gateway = gateway(RouterOptions::default());
    let (connection, _registration) = gateway.connect();
    gateway.log.behind.store(true, Ordering::Relaxed);
    let (id, cancelled) = gateway.start(request("t.x"));
    let (_, late) = gateway.start(request("t.x"));
    settle().await;
    gateway.router.cancel(id, CancelReason::Requested, |_| true);
    assert_error(&cancelled.await.unwrap(), CallErrorKind::Cancelled, "was cancelled");
    assert_error(
        &late.await.unwrap(),
        CallErrorKind::Timeout,
        "after 60000 ms before it got a slot",
    );
    assert!(requests(&connection).is_empty());
    gateway.assert_clean();
}
