//! A question of an upstream server reaches only the client that made the call, and the answer is
//! returned to the server.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use sa_core::call::{CallRequest, TraceContext};
use sa_core::{
    CallError, CallErrorKind, Outcome, Overrun, Principal, Question, RawJson, Role, Update,
    UpdateSink, View,
};
use sa_testkit::upstream::{HttpServer, noted, until};
use sa_testkit::{Gateway, Setup};
use serde_json::{Value, json};

use crate::serve::Serve as _;
use crate::server::{server_program, stdio};

/// A client that answers every question.
pub(crate) struct Client {
    answer: Value,
    asked: Mutex<Vec<Question>>,
}

impl UpdateSink for Client {
    fn send(&self, _update: Update) -> Result<(), Overrun> {
        Ok(())
    }

    fn ask(&self, question: Question) -> BoxFuture<'static, Result<RawJson, CallError>> {
        self.asked.lock().push(question);
        Box::pin(std::future::ready(Ok(RawJson::of(&self.answer))))
    }
}

fn client(answer: Value) -> Arc<Client> {
    Arc::new(Client { answer, asked: Mutex::default() })
}

pub(crate) fn named(name: &str) -> Arc<Client> {
    client(json!({ "action": "accept", "content": { "name": name } }))
}

/// Calls a tool that asks questions, as this principal.
pub(crate) async fn call(
    gateway: &Gateway,
    who: &str,
    tool: &str,
    sink: Option<Arc<Client>>,
) -> Outcome {
    let principal = Principal::new(who, who, Role::Agent);
    let request = CallRequest {
        tool: tool.into(),
        args: RawJson::empty_object(),
        view: View::of(Arc::new(principal)),
        surface: "test",
        session_key: None,
        timeout: None,
        idle_timeout: None,
        idempotency_key: None,
        trace: TraceContext::root(),
    };
    gateway.inner().router.start(request, sink.map(|sink| sink as _)).outcome().await.outcome
}

#[track_caller]
pub(crate) fn text(outcome: Outcome) -> String {
    let content = outcome.unwrap().content.to_value().unwrap();
    content["content"][0]["text"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_question_is_answered_by_the_client_in_both_eras_over_stdio() {
    for era in ["old", "new"] {
        let config = format!(
            "[upstream.test]\ncommand = {}\nenv = {{ SERVER_ERA = \"{era}\" }}\n",
            json!([server_program()])
        );
        let gateway = Setup::new().config(&config).serve().await;
        until(&gateway, "test", "ready").await;
        let ada = named("Ada");
        assert_eq!(
            text(call(&gateway, "a", "test__ask", Some(Arc::clone(&ada))).await),
            "\"Ada\"",
            "{era}"
        );
        let asked = ada.asked.lock();
        assert_eq!(asked.len(), 1);
        assert_eq!(asked[0].kind, "elicitation/create");
        assert_eq!(asked[0].params.json.to_value().unwrap()["message"], "your name?");
    }
}

#[tokio::test]
async fn a_model_is_asked_too() {
    let config = format!(
        "[upstream.test]\ncommand = {}\nenv = {{ SERVER_ERA = \"old\" }}\n",
        json!([server_program()])
    );
    let gateway = Setup::new().config(&config).serve().await;
    until(&gateway, "test", "ready").await;
    let answer = json!({ "role": "assistant", "content": { "type": "text", "text": "hello" }, "model": "m-1" });
    let model = client(answer);
    assert_eq!(text(call(&gateway, "a", "test__sample", Some(Arc::clone(&model))).await), "m-1");
    assert_eq!(model.asked.lock()[0].kind, "sampling/createMessage");
}

#[tokio::test]
async fn each_of_many_callers_is_asked_its_own_question() {
    for (era, isolate) in [("old", true), ("old", false), ("new", false)] {
        let server = HttpServer::start(&server_program(), "127.0.0.1:0", era).await;
        let gateway =
            Setup::new().config(&server.config(&format!("isolate = {isolate}"))).serve().await;
        until(&gateway, "web", "ready").await;
        let gateway = &gateway;
        let calls = (0..20).map(|number| async move {
            let name = format!("caller {number}");
            let answered = text(call(gateway, &name, "web__ask", Some(named(&name))).await);
            assert_eq!(answered, format!("\"{name}\""), "{era} {isolate}");
        });
        futures_util::future::join_all(calls).await;
    }
}

#[tokio::test]
async fn a_question_that_could_be_for_two_is_put_to_neither() {
    let dir = tempfile::tempdir().unwrap();
    let config =
        stdio("test", &[], dir.path(), "").replace("env = { ", "env = { SERVER_ERA = \"old\", ");
    let gateway = Setup::new().config(&config).serve().await;
    until(&gateway, "test", "ready").await;
    let (waits, asks) = (named("waits"), named("asks"));
    let waiting = call(&gateway, "a", "test__wait", Some(Arc::clone(&waits)));
    let asking = async {
        noted(dir.path(), "waiting").await;
        call(&gateway, "b", "test__ask", Some(Arc::clone(&asks))).await
    };
    let refused = tokio::select! {
        refused = asking => refused.unwrap_err(),
        _ = waiting => panic!("it waits"),
    };
    assert_eq!(refused.kind, CallErrorKind::Failed);
    assert!(waits.asked.lock().is_empty() && asks.asked.lock().is_empty());
}

#[tokio::test]
async fn a_caller_that_cannot_be_asked_is_no_answer() {
    let config = format!("[upstream.test]\ncommand = {}\n", json!([server_program()]));
    let gateway = Setup::new().config(&config).serve().await;
    until(&gateway, "test", "ready").await;
    assert_eq!(
        call(&gateway, "a", "test__ask", None).await.unwrap_err().kind,
        CallErrorKind::Failed
    );
}

#[tokio::test]
async fn a_program_for_each_caller_is_bounded_and_a_full_house_disturbs_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let gateway =
        Setup::new().config(&stdio("test", &[], dir.path(), "isolate = true")).serve().await;
    until(&gateway, "test", "ready").await;
    let mut waiting = tokio::task::JoinSet::new();
    let gateway = Arc::new(gateway);
    for who in 0..16 {
        std::fs::remove_file(dir.path().join("waiting")).ok();
        let gateway = Arc::clone(&gateway);
        waiting.spawn(
            async move { call(&gateway, &format!("caller-{who}"), "test__wait", None).await },
        );
        noted(dir.path(), "waiting").await;
    }
    let refused = call(&gateway, "one-too-many", "test__fail", None).await.unwrap_err();
    assert_eq!(refused.kind, CallErrorKind::Overloaded, "{refused:?}");
    assert_eq!(
        until(&gateway, "test", "ready").await["restarts"],
        0,
        "the server is not taken for gone"
    );
    assert_eq!(waiting.len(), 16);
    assert!(waiting.try_join_next().is_none(), "those who were there go on");
    waiting.shutdown().await;
    let failed = sa_testkit::eventually("a free place", || async {
        let error = call(&gateway, "one-too-many", "test__fail", None).await.unwrap_err();
        (error.kind != CallErrorKind::Overloaded).then_some(error)
    })
    .await;
    assert_eq!(&*failed.message, "no such thing");
}
