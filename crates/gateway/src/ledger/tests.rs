//! Rule: a key runs its call at most once, and its stored outcome is limited in size.

use std::sync::atomic::{AtomicI64, Ordering};

use sa_core::retention::{Reading, TrustedClock};
use sa_core::{Output, RawJson};

use super::*;
use crate::records_for_tests::MemoryRecords;

fn ledger_on(records: &Arc<MemoryRecords>) -> StoreLedger {
    StoreLedger::new(Arc::clone(records) as _, 100 << 20)
}

fn keyed(key: &str) -> KeyedCall {
    let (principal, args) = ("p".into(), RawJson::empty_object());
    KeyedCall { principal, key: key.into(), tool: "t".into(), args }
}

#[tokio::test]
async fn a_key_is_for_one_tool_and_its_arguments() {
    let records = Arc::new(MemoryRecords::default());
    let ledger = ledger_on(&records);
    let (call, id) = (keyed("k"), CallId::new());
    assert!(matches!(ledger.claim(&call, id).await.unwrap(), Claim::Ours));
    let other_tool = KeyedCall { tool: "u".into(), ..call.clone() };
    let other_args = KeyedCall { args: RawJson::parse("[1]").unwrap(), ..call.clone() };
    for other in [other_tool, other_args] {
        let claim = ledger.claim(&other, CallId::new()).await.unwrap();
        assert!(matches!(claim, Claim::Different { id: first } if first == id), "{claim:?}");
    }
    let other_principal = KeyedCall { principal: "q".into(), ..call.clone() };
    assert!(matches!(ledger.claim(&other_principal, CallId::new()).await.unwrap(), Claim::Ours));
    ledger.release(&call, id).await.unwrap();
    let claim = ledger.claim(&call, CallId::new()).await.unwrap();
    assert!(matches!(claim, Claim::Ours), "it is free again: {claim:?}");
}

/// Two gateways on one store, or two tasks of one: the store decides.
#[tokio::test]
async fn a_key_that_two_ledgers_claim_at_once_is_claimed_once() {
    let records = Arc::new(MemoryRecords::default());
    let ledgers = [ledger_on(&records), ledger_on(&records)];
    let (call, ids) = (keyed("k"), [CallId::new(), CallId::new()]);
    let claims = futures_util::future::join_all(
        ledgers.iter().zip(ids).map(|(ledger, id)| ledger.claim(&call, id)),
    );
    let ours = |claim: &Result<Claim, CallError>| matches!(claim, Ok(Claim::Ours));
    assert_eq!(claims.await.iter().filter(|claim| ours(claim)).count(), 1);
}

#[tokio::test]
async fn outcomes_are_kept_and_forgetting_does_not_read_them() {
    let records = Arc::new(MemoryRecords::default());
    let ledger = ledger_on(&records);
    let call = keyed("k");
    let id = CallId::new();
    assert!(matches!(ledger.claim(&call, id).await.unwrap(), Claim::Ours));
    assert!(
        matches!(ledger.claim(&call, CallId::new()).await.unwrap(), Claim::Unknown { id: first } if first == id)
    );
    let large = RawJson::parse(&format!("\"{}\"", "x".repeat(100_000))).unwrap();
    ledger.settle(&call, id, &Ok(Output::json(large.clone()))).await.unwrap();
    let Claim::Ended { outcome, .. } = ledger.claim(&call, CallId::new()).await.unwrap() else {
        panic!()
    };
    assert_eq!(outcome.unwrap().content.as_str(), large.as_str());

    let later = AtomicI64::new(0);
    let trimmer = Trimmer::new(TrustedClock::new(None), move || Reading {
        wall_ms: clock::now_ms() + later.fetch_add(400 * 86_400_000, Ordering::Relaxed),
        uptime_ms: 0,
    });
    ledger.sweep(&trimmer).await.unwrap();
    assert_eq!(records.len(), 2, "it is not old yet");
    ledger.sweep(&trimmer).await.unwrap();
    assert_eq!(records.len(), 2, "the clock was set forward");
    assert!(records.listed.load(Ordering::Relaxed) < 1_000, "the outcome was read");
    while ledger.forget(i64::MAX).await.unwrap() > 0 {}
    assert_eq!(records.len(), 0);
}

#[tokio::test]
async fn one_sweep_deletes_one_percent_of_the_keys_and_the_oldest_first() {
    let records = Arc::new(MemoryRecords::default());
    let ledger = ledger_on(&records);
    let entry = |at_ms: u64| {
        format!(r#"{{"call_id":"c","fingerprint":"f","principal":"p","at_ms":{at_ms}}}"#)
    };
    for number in 0..2_000 {
        let key = format!("{:05}", 9_999 - number);
        records.put(CLAIMS, &key, entry(number).into(), Expect::Absent).await.unwrap();
    }
    let now = || Reading { wall_ms: clock::now_ms(), uptime_ms: clock::now_ms() };
    let trimmer = Trimmer::new(TrustedClock::new(None), now);
    for left in [1_980, 1_961, 1_942] {
        ledger.sweep(&trimmer).await.unwrap();
        assert_eq!(records.len(), left);
    }
    let newest = records.list(CLAIMS).await.unwrap().pop().unwrap().0;
    assert_eq!(newest, "09941", "58 older ones are deleted");
    assert_eq!(trimmer.deleted(), [(("idempotency_key", "age"), 58)]);
}

#[tokio::test]
async fn an_outcome_that_finds_no_room_is_there_once_there_is_some() {
    let records = Arc::new(MemoryRecords::default());
    let ledger = ledger_on(&records);
    let (call, id) = (keyed("k"), CallId::new());
    assert!(matches!(ledger.claim(&call, id).await.unwrap(), Claim::Ours));
    records.full.store(true, Ordering::Relaxed);
    let outcome = Ok(Output::json(RawJson::parse("5").unwrap()));
    let error = ledger.settle(&call, id, &outcome).await.unwrap_err();
    assert!(
        error.kind == CallErrorKind::Store && error.retryable && error.message.contains("effect"),
        "{error}"
    );
    let error = ledger.claim(&call, CallId::new()).await.unwrap_err();
    assert!(
        error.kind == CallErrorKind::Store && error.retryable,
        "nobody relies on what is not on disk: {error}"
    );
    records.full.store(false, Ordering::Relaxed);
    let other = KeyedCall { args: RawJson::parse("{\"a\":1}").unwrap(), ..call.clone() };
    assert!(matches!(ledger.claim(&other, CallId::new()).await.unwrap(), Claim::Different { .. }));
    let Claim::Ended { outcome, id: first } = ledger.claim(&call, CallId::new()).await.unwrap()
    else {
        panic!()
    };
    assert_eq!((outcome.unwrap().content.as_str(), first), ("5", id));
    assert_eq!(ledger.unsaved.bytes(), 0);
}

#[tokio::test]
async fn what_finds_no_room_for_long_is_written_by_itself_and_not_kept_without_bound() {
    let records = Arc::new(MemoryRecords::default());
    let ledger = ledger_on(&records);
    records.full.store(true, Ordering::Relaxed);
    let half = RawJson::parse(&format!("\"{}\"", "x".repeat(unsaved::MAX / 2 - 1_000))).unwrap();
    let outcome = Ok(Output::json(half));
    let mut kept = Vec::new();
    for key in ["a", "b", "c"] {
        kept.push(ledger.settle(&keyed(key), CallId::new(), &outcome).await.unwrap_err().retryable);
    }
    assert_eq!(kept, [true, true, false]);
    records.full.store(false, Ordering::Relaxed);
    ledger.catch_up().await;
    assert_eq!((records.len(), ledger.unsaved.bytes()), (4, 0), "two claims and their outcomes");
}

#[tokio::test]
async fn a_key_that_is_released_late_is_released_once() {
    let records = Arc::new(MemoryRecords::default());
    let ledger = ledger_on(&records);
    let (call, id) = (keyed("k"), CallId::new());
    assert!(matches!(ledger.claim(&call, CallId::new()).await.unwrap(), Claim::Ours));
    records.fail_at(Some(place(&call)), StoreErrorKind::Io);
    let error = ledger.release(&call, CallId::new()).await.unwrap_err();
    assert!(error.retryable, "{error}");
    records.fail_at(None, StoreErrorKind::Io);
    assert!(matches!(ledger.claim(&call, id).await.unwrap(), Claim::Ours));
    ledger.settle(&call, id, &Ok(Output::json(RawJson::empty_object()))).await.unwrap();
    ledger.catch_up().await;
    let claim = ledger.claim(&call, CallId::new()).await.unwrap();
    assert!(
        matches!(claim, Claim::Ended { id: first, .. } if first == id),
        "it would run twice: {claim:?}"
    );
}

#[tokio::test]
async fn what_can_never_be_written_is_not_remembered() {
    let records = Arc::new(MemoryRecords::default());
    let ledger = ledger_on(&records);
    let (call, id) = (keyed("k"), CallId::new());
    assert!(matches!(ledger.claim(&call, id).await.unwrap(), Claim::Ours));
    records.fail_at(Some(place(&call)), StoreErrorKind::Invalid);
    let error =
        ledger.settle(&call, id, &Ok(Output::json(RawJson::empty_object()))).await.unwrap_err();
    assert!(!error.retryable && ledger.unsaved.places().is_empty(), "{error}");
    assert!(
        matches!(ledger.claim(&call, CallId::new()).await.unwrap(), Claim::Unknown { id: first } if first == id)
    );
}

/// Claims a call and settles it with a result of this size.
async fn end_with(ledger: &StoreLedger, call: &KeyedCall, bytes: usize) {
    let id = CallId::new();
    assert!(matches!(ledger.claim(call, id).await.unwrap(), Claim::Ours));
    let text = RawJson::parse(&format!("\"{}\"", "x".repeat(bytes))).unwrap();
    ledger.settle(call, id, &Ok(Output::json(text))).await.unwrap();
}

#[tokio::test]
async fn outcomes_share_a_budget_and_a_call_whose_outcome_finds_no_room_is_not_made_twice() {
    const TOTAL: usize = 1_000_000;
    let records = Arc::new(MemoryRecords::default());
    let ledger = StoreLedger::new(Arc::clone(&records) as _, TOTAL);
    let of = |principal: &str, key: &str| KeyedCall { principal: principal.into(), ..keyed(key) };
    for number in 0..20 {
        end_with(&ledger, &of("greedy", &number.to_string()), 70_000).await;
    }
    let (greedy, modest) = (Holder::named("greedy"), Holder::named("modest"));
    let held = ledger.budget().held_by(&greedy);
    assert!((700_000..750_000).contains(&held), "{held}: above three quarters it gets no more");
    let stored: usize = records.sizes(OUTCOMES).await.unwrap().iter().map(|(_, size)| size).sum();
    assert_eq!(stored, held);
    assert!(matches!(
        ledger.claim(&of("greedy", "9"), CallId::new()).await.unwrap(),
        Claim::Ended { .. }
    ));
    for again in ["10", "19"] {
        let error = ledger.claim(&of("greedy", again), CallId::new()).await.unwrap_err();
        assert!(error.kind == CallErrorKind::Conflict && !error.retryable, "{error}");
        assert!(
            error.message.contains("has ended")
                && error.message.contains("limits.idempotency_bytes"),
            "{error}"
        );
    }
    let different = KeyedCall { args: RawJson::parse("{\"a\":1}").unwrap(), ..of("greedy", "10") };
    assert!(matches!(
        ledger.claim(&different, CallId::new()).await.unwrap(),
        Claim::Different { .. }
    ));
    end_with(&ledger, &of("modest", "0"), 70_000).await;
    assert!(matches!(
        ledger.claim(&of("modest", "0"), CallId::new()).await.unwrap(),
        Claim::Ended { .. }
    ));
    let used = ledger.budget().used();
    drop(ledger);

    // After a restart, stored outcomes are counted once, and a sweep does not count them again.
    let ledger = StoreLedger::new(Arc::clone(&records) as _, TOTAL);
    ledger.load().await.unwrap();
    let amounts = || {
        [ledger.budget().used(), ledger.budget().held_by(&greedy), ledger.budget().held_by(&modest)]
    };
    assert_eq!(amounts(), [used, held, used - held]);
    assert_eq!(ledger.forget(0).await.unwrap(), 0);
    assert_eq!(amounts(), [used, held, used - held]);
    let error = ledger.claim(&of("greedy", "10"), CallId::new()).await.unwrap_err();
    assert_eq!(error.kind, CallErrorKind::Conflict, "also after a restart: {error}");
    while ledger.forget(i64::MAX).await.unwrap() > 0 {}
    assert_eq!((ledger.budget().used(), ledger.budget().holders(), records.len()), (0, 0, 0));
    end_with(&ledger, &of("greedy", "10"), 70_000).await;
    assert!(matches!(
        ledger.claim(&of("greedy", "10"), CallId::new()).await.unwrap(),
        Claim::Ended { .. }
    ));
}

#[tokio::test]
async fn an_outcome_that_is_written_in_two_attempts_counts_once() {
    let records = Arc::new(MemoryRecords::default());
    let ledger = ledger_on(&records);
    let (call, id) = (keyed("k"), CallId::new());
    assert!(matches!(ledger.claim(&call, id).await.unwrap(), Claim::Ours));
    let text = RawJson::parse(&format!("\"{}\"", "x".repeat(10_000))).unwrap();
    records.full.store(true, Ordering::Relaxed);
    ledger.settle(&call, id, &Ok(Output::json(text))).await.unwrap_err();
    assert_eq!(ledger.budget().used(), 0, "it is not on disk");
    records.full.store(false, Ordering::Relaxed);
    ledger.catch_up().await;
    let used = ledger.budget().used();
    assert!((10_000..11_000).contains(&used), "{used}");
}
