//! Behind a server of both eras, a caller is asked in the era that fits the caller.

mod dual_era;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use sa_core::call::{CallRequest, TraceContext};
use sa_core::{
    Asking, AuditEvent, CallError, CallRecord, CallStarted, Directory, Journal, Manner, Notices, Outcome, Overrun,
    Policy, Principal, Question, RawJson, Role, Router, RouterOptions, Update, UpdateSink, View,
};
use sa_store::{OpenOptions, Store};
use sa_upstream::{Spec, State, Upstreams};
use sa_vault::Vault;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use self::dual_era::{DualEra, NEWER, OLDER};

const TIMEOUT: Duration = Duration::from_secs(10);

struct NoJournal;

impl Journal for NoJournal {
    fn started(&self, _: &CallStarted) {}

    fn finished(&self, _: CallRecord) {}

    fn keep_pace(&self) -> Option<BoxFuture<'_, ()>> {
        None
    }

    fn audit(&self, _: AuditEvent) {}

    fn count(&self, _: &'static str, _: &'static str) {}
}

/// A caller that answers elicitations and samplings.
struct Caller(Asking);

impl UpdateSink for Caller {
    fn send(&self, _: Update) -> Result<(), Overrun> {
        Ok(())
    }

    fn manner(&self) -> Manner {
        let answers = RawJson::of(&json!({ "elicitation": {}, "sampling": {} }));
        Manner { asking: Some(self.0), answers: Some(answers), log: None }
    }

    fn ask(&self, question: Question) -> BoxFuture<'static, Result<RawJson, CallError>> {
        let answer = match &*question.what {
            "elicitation/create" => json!({ "action": "accept", "content": { "name": "Ada" } }),
            "sampling/createMessage" => {
                json!({ "role": "assistant", "model": "m-1", "content": { "type": "text", "text": "Hi" } })
            }
            other => panic!("unexpected question {other}"),
        };
        Box::pin(std::future::ready(Ok(RawJson::of(&answer))))
    }
}

/// A router with one upstream server, `dual`.
struct Gateway {
    router: Arc<Router>,
    _upstreams: Arc<Upstreams>,
    _dir: TempDir,
}

impl Gateway {
    async fn before(server: &Arc<DualEra>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(OpenOptions::new(dir.path().join("store.db"))).unwrap();
        let directory = Directory::new(Notices::new(), TIMEOUT);
        let vault = Arc::new(Vault::new(dir.path().join("key"), None));
        let spec = Spec { url: server.serve().await, ..Spec::default() };
        let configured = BTreeMap::from([("dual".to_owned(), spec)]);
        let closing = CancellationToken::new();
        let loaded = Upstreams::load(Arc::clone(&directory), Arc::new(store), vault, &configured, closing);
        let upstreams = loaded.await.unwrap();
        upstreams.reached(TIMEOUT).await;
        assert_eq!(upstreams.list()[0].health.state, State::Ready, "{:?}", upstreams.list());
        let router = Router::new(directory, Arc::new(NoJournal), None, Policy::default(), RouterOptions::default());
        Self { router, _upstreams: upstreams, _dir: dir }
    }

    async fn call(&self, tool: &str, asking: Asking) -> Outcome {
        let principal = Principal::new("t", "t", Role::Agent);
        let request = CallRequest {
            tool: format!("dual__{tool}"),
            args: RawJson::empty_object(),
            view: View::of(Arc::new(principal)),
            surface: "test",
            session_key: None,
            timeout: Some(TIMEOUT),
            idempotency_key: None,
            trace: TraceContext::root(),
        };
        self.router.start(request, Some(Arc::new(Caller(asking)))).outcome().await.outcome
    }
}

/// What the server received as the answer to its question.
#[track_caller]
fn answer(outcome: Outcome) -> Value {
    let content = outcome.unwrap().content.to_value().unwrap();
    serde_json::from_str(content["content"][0]["text"].as_str().unwrap()).unwrap()
}

#[tokio::test]
async fn a_question_is_answered_in_the_era_of_the_caller() {
    let server = Arc::new(DualEra::default());
    let gateway = Gateway::before(&server).await;
    assert_eq!(answer(gateway.call("elicit", Asking::Meanwhile).await)["content"]["name"], "Ada");
    assert_eq!(answer(gateway.call("sample", Asking::Meanwhile).await)["model"], "m-1");
    assert_eq!(answer(gateway.call("elicit_by_result", Asking::Instead).await)["content"]["name"], "Ada");
}

#[tokio::test]
async fn initialize_asks_for_the_newest_revision_that_has_it() {
    let server = Arc::new(DualEra::default());
    let gateway = Gateway::before(&server).await;
    gateway.call("elicit", Asking::Meanwhile).await.unwrap();
    assert_eq!(*server.requested.lock().unwrap(), [OLDER]);
}

#[tokio::test]
async fn a_server_that_initializes_with_the_newer_revision_is_used_in_the_newer_era() {
    let server = Arc::new(DualEra::insisting_on(NEWER));
    let gateway = Gateway::before(&server).await;
    assert_eq!(answer(gateway.call("elicit_by_result", Asking::Meanwhile).await)["content"]["name"], "Ada");
}
