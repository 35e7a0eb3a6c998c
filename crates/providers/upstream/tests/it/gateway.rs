//! A router in front of one upstream server, and a caller that answers its questions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use sa_core::audit::NoJournal;
use sa_core::call::{CallRequest, TraceContext};
use sa_core::{
    CallError, ClientCapabilities, Directory, Notices, Outcome, Overrun, Passthrough, Policy,
    Principal, Question, QuestionMode, RawJson, Role, Router, RouterOptions, Update, UpdateSink,
    View,
};
use sa_http::MCP;
use sa_limits::budget::SharedBudget;
use sa_store::{OpenOptions, Store};
use sa_upstream::{Spec, State, Upstreams};
use sa_vault::Vault;
use serde_json::json;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use crate::answers::answers;

pub(crate) const TIMEOUT: Duration = Duration::from_secs(10);

/// A caller that answers elicitation and sampling requests.
struct Caller(QuestionMode);

impl UpdateSink for Caller {
    fn send(&self, _: Update) -> Result<(), Overrun> {
        Ok(())
    }

    fn client_capabilities(&self) -> ClientCapabilities {
        let answers = RawJson::of(&json!({ "elicitation": {}, "sampling": {} }));
        let passthrough = Some(Passthrough::new(MCP, answers));
        ClientCapabilities { question_mode: Some(self.0), passthrough, log: None }
    }

    fn ask(&self, question: Question) -> BoxFuture<'static, Result<RawJson, CallError>> {
        let answer = match &*question.kind {
            "elicitation/create" => json!({ "action": "accept", "content": { "name": "Ada" } }),
            "sampling/createMessage" => {
                json!({ "role": "assistant", "model": "m-1", "content": { "type": "text", "text": "Hi" } })
            }
            other => panic!("unexpected question {other}"),
        };
        Box::pin(std::future::ready(Ok(RawJson::of(&answer))))
    }
}

/// A router with one upstream server, `up`.
pub(crate) struct Gateway {
    pub(crate) router: Arc<Router>,
    _upstreams: Arc<Upstreams>,
    _dir: TempDir,
}

impl Gateway {
    pub(crate) async fn before(url: String) -> Self {
        Self::with(Spec { url, ..Spec::default() }, answers(1 << 30)).await
    }

    pub(crate) async fn with(spec: Spec, answers: Arc<SharedBudget>) -> Self {
        sa_process::set_program(env!("CARGO_BIN_EXE_sa-upstream-supervisor"));
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(OpenOptions::new(dir.path().join("store.db"))).unwrap();
        let directory = Directory::new(Notices::new(), TIMEOUT);
        let vault = Arc::new(Vault::new(dir.path().join("key"), None));
        let configured = BTreeMap::from([("up".to_owned(), spec)]);
        let closing = CancellationToken::new();
        let (registry, records) = (Arc::clone(&directory), Arc::new(store));
        let loaded = Upstreams::load(registry, records, vault, answers, &configured, closing);
        let upstreams = loaded.await.unwrap();
        upstreams.reached(TIMEOUT).await;
        assert_eq!(upstreams.list()[0].health.state, State::Ready, "{:?}", upstreams.list());
        let router = Router::new(
            directory,
            Arc::new(NoJournal),
            None,
            Policy::default(),
            RouterOptions::default(),
        );
        Self { router, _upstreams: upstreams, _dir: dir }
    }

    pub(crate) async fn call(
        &self,
        tool: &str,
        question_mode: QuestionMode,
        timeout: Duration,
    ) -> Outcome {
        self.call_of("t", tool, question_mode, timeout).await
    }

    pub(crate) async fn call_of(
        &self,
        principal: &str,
        tool: &str,
        question_mode: QuestionMode,
        timeout: Duration,
    ) -> Outcome {
        let principal = Principal::new(principal, principal, Role::Agent);
        let request = CallRequest {
            tool: format!("up__{tool}"),
            args: RawJson::empty_object(),
            view: View::of(Arc::new(principal)),
            surface: "test",
            session_key: None,
            timeout: Some(timeout),
            idle_timeout: None,
            idempotency_key: None,
            trace: TraceContext::root(),
        };
        self.router.start(request, Some(Arc::new(Caller(question_mode)))).outcome().await.outcome
    }
}
