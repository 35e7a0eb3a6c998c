//! Rule: the stages of a call run in the order of `STAGES`. A call that would fail at several
//! stages fails at the first of them, and is recorded once.

mod support;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use sa_core::idempotency::{Claim, KeyedCall, Ledger};
use sa_core::router::{STAGES, Stage};
use sa_core::*;
use support::*;

/// A ledger in which every key was used with other arguments.
struct UsedKeys;

impl Ledger for UsedKeys {
    fn claim<'a>(
        &'a self,
        _: &'a KeyedCall,
        id: CallId,
    ) -> BoxFuture<'a, Result<Claim, CallError>> {
        Box::pin(std::future::ready(Ok(Claim::Different { id })))
    }

    fn settle<'a>(
        &'a self,
        _: &'a KeyedCall,
        _: CallId,
        _: &'a Outcome,
    ) -> BoxFuture<'a, Result<(), CallError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn release<'a>(&'a self, _: &'a KeyedCall, _: CallId) -> BoxFuture<'a, Result<(), CallError>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// Runs a call that fails at this stage and at each later one. Returns its outcome and the number
/// of its records.
async fn fail_from(first: Stage) -> (Outcome, usize) {
    let position = |stage: Stage| STAGES.iter().position(|other| *other == stage).unwrap();
    let fails = |stage: Stage| position(stage) >= position(first);

    let denied = fails(Stage::Authorise).then(|| Pattern::new("*check"));
    let options = RouterOptions {
        max_running: if fails(Stage::Admit) { 1 } else { 100 },
        queue_timeout: Duration::ZERO,
        ..RouterOptions::default()
    };
    let policy = Policy { deny: denied.into_iter().collect() };
    let gateway = gateway_under(policy, options, Some(Arc::new(UsedKeys)));

    let schema = r#"{"type":"object","required":["q"]}"#;
    let check = Tool {
        input: Some(Schema::new(RawJson::parse(schema).unwrap())),
        ..Tool::named("t.check")
    };
    let fails_in_provider = fails(Stage::Dispatch);
    let provider = answering(move |call: Arc<Call>, _| match &*call.tool {
        "t.hang" => Box::pin(std::future::pending()),
        _ if fails_in_provider => {
            Box::pin(async { Err(CallError::new(CallErrorKind::Failed, "it failed")) })
        }
        _ => Box::pin(async { ok("1") }),
    });
    let catalog = Catalog { tools: vec![check, Tool::named("t.hang")], ..Catalog::default() };
    let max_running = if fails(Stage::Limit) { 1 } else { 10 };
    let attach = Attach { max_running, ..attach("n", "g", catalog, provider) };
    let _node = gateway.directory.attach(attach).unwrap();
    // This call takes the only slot, if there is only one.
    let hanging = gateway.router.start(request("t.hang"), None).outcome();
    tokio::pin!(hanging);
    assert!(futures_util::poll!(&mut hanging).is_pending());

    let args = if fails(Stage::Validate) { "{}" } else { r#"{"q":"a"}"# };
    let call = gateway.router.start(
        CallRequest {
            args: RawJson::parse(args).unwrap(),
            idempotency_key: fails(Stage::Deduplicate).then(|| "used".into()),
            ..request(if fails(Stage::Resolve) { "x.check" } else { "t.check" })
        },
        None,
    );
    let id = call.id();
    let finished = call.outcome().await;
    (finished.outcome, gateway.log.records_of(id).len())
}

#[tokio::test]
async fn a_call_fails_at_the_first_stage_that_refuses_it() {
    for stage in STAGES {
        let expected = match stage {
            Stage::Admit => Err((CallErrorKind::Overloaded, "running calls")),
            Stage::Deduplicate => Err((CallErrorKind::Conflict, "idempotency key")),
            Stage::Resolve => Err((CallErrorKind::NotFound, "no tool")),
            Stage::Authorise => Err((CallErrorKind::NotAllowed, "policy")),
            Stage::Validate => Err((CallErrorKind::InvalidArgs, "\"q\"")),
            Stage::Limit => Err((CallErrorKind::Overloaded, "which is its limit")),
            Stage::Dispatch => Err((CallErrorKind::Failed, "it failed")),
            Stage::Record => Ok(()),
        };
        let (outcome, records) = fail_from(stage).await;
        match (&outcome, expected) {
            (Ok(_), Ok(())) => {}
            (Err(error), Err((kind, part))) => {
                assert_eq!(error.kind, kind, "{stage:?}: {}", error.message);
                assert!(error.message.contains(part), "{stage:?}: {}", error.message);
            }
            (outcome, expected) => panic!("{stage:?}: {outcome:?}, expected {expected:?}"),
        }
        assert_eq!(records, 1, "{stage:?}");
    }
}
