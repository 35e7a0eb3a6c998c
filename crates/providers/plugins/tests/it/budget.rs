//! Rule: large answers take from a budget while they are received and in memory. A principal that
//! requests many is refused some of them, and other principals get theirs.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{Uri, header};
use axum::response::{IntoResponse as _, Response};
use futures_util::future::join_all;
use futures_util::{StreamExt as _, stream};
use sa_core::call::{CallRequest, TraceContext};
use sa_core::{CallErrorKind, Outcome, Principal, RawJson, Role, Router, View};
use sa_limits::budget::{Holder, SharedBudget};
use sa_plugins::{Addition, Asked, Plugins, Terms};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::support::{Disk, TIMEOUT, answers, router};

/// The size of a large answer.
const SIZE: usize = 1 << 20;
/// The number of large answers that the budget has space for. One principal gets three quarters.
const FITS: usize = 16;
const ALONE: usize = 12;
const CALLS: usize = 20;

struct Gateway {
    router: Arc<Router>,
    plugins: Arc<Plugins>,
    budget: Arc<SharedBudget>,
    /// Lets the unfinished answers end.
    released: watch::Sender<bool>,
    _disk: Disk,
}

impl Gateway {
    async fn start() -> Self {
        let released = watch::Sender::new(false);
        let (disk, router, budget) = (Disk::new(), router(), answers(FITS * SIZE));
        let address = serve(released.clone()).await;
        let plugins = disk.load_on(Arc::clone(&router), |options| {
            options.max_response_bytes = 2 * SIZE;
            options.max_running = CALLS;
            options.answers = Arc::clone(&budget);
        });
        let plugins = plugins.await;
        let api = |name: &str| json!({ "name": name, "description": "d", "url": format!("http://{address}/{name}"), "parameters": { "type": "object" } });
        let apis = ["quick", "stops"].map(api);
        let manifest = json!({ "identifier": "p", "meta": {}, "api": apis });
        let terms = Terms { replace: false, allow_private: vec![address] };
        plugins.add(Addition::Text(manifest.to_string()), &terms).await.unwrap();
        Self { router, plugins, budget, released, _disk: disk }
    }

    async fn call(&self, principal: &str, function: &str) -> Outcome {
        let request = CallRequest {
            tool: format!("p__{function}"),
            args: RawJson::empty_object(),
            view: view(principal),
            surface: "test",
            session_key: None,
            timeout: None,
            idle_timeout: None,
            idempotency_key: None,
            trace: TraceContext::root(),
        };
        self.router.start(request, None).outcome().await.outcome
    }
}

fn view(principal: &str) -> View {
    View::of(Arc::new(Principal::new(principal, principal, Role::Agent)))
}

/// Serves large answers. Some stop in the middle until they are released.
async fn serve(released: watch::Sender<bool>) -> String {
    let answer = move |uri: Uri| {
        let mut released = released.subscribe();
        let half = || Ok::<_, Infallible>(Bytes::from("x".repeat(SIZE / 2)));
        let rest = async move {
            if uri.path() == "/stops" {
                released.wait_for(|released| *released).await.unwrap();
            }
            half()
        };
        let body = Body::from_stream(stream::iter([half()]).chain(stream::once(rest)));
        let length = (header::CONTENT_LENGTH, SIZE.to_string());
        let answer: Response = ([length], body).into_response();
        async move { answer }
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async { axum::serve(listener, axum::Router::new().fallback(answer)).await });
    address
}

#[track_caller]
fn assert_large(outcome: &Outcome) {
    assert!(outcome.as_ref().unwrap().content.len() > SIZE);
}

#[tokio::test]
async fn many_unfinished_answers_of_one_principal_leave_space_for_others() {
    let gateway = Gateway::start().await;
    let calls = join_all((0..CALLS).map(|_| gateway.call("greedy", "stops")));
    let others = async {
        let enough = async {
            while gateway.budget.held_by(&Holder::named("greedy")) < ALONE * SIZE {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(TIMEOUT, enough).await.unwrap();
        assert_large(&gateway.call("modest", "quick").await);
        gateway.released.send_replace(true);
    };
    let (outcomes, ()) = tokio::join!(calls, others);
    let (large, refused): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(Result::is_ok);
    assert_eq!((large.len(), refused.len()), (ALONE, CALLS - ALONE));
    large.iter().for_each(assert_large);
    for error in refused.into_iter().filter_map(Result::err) {
        assert_eq!(
            (error.kind, sa_http::status(&error)),
            (CallErrorKind::Overloaded, 503),
            "{error}"
        );
        assert!(!error.retryable, "it may have had an effect");
        assert!(error.hint.unwrap().contains("limits.provider_answer_bytes"));
    }

    // The outcomes hold their parts until they are dropped. The plugin is still there.
    assert_eq!(gateway.budget.used(), ALONE * SIZE);
    drop(large);
    assert_eq!((gateway.budget.used(), gateway.budget.holders()), (0, 0));
    assert_large(&gateway.call("greedy", "quick").await);
}

#[tokio::test]
async fn a_plugin_host_is_refused_like_others() {
    let gateway = Gateway::start().await;
    let host = async || {
        let payload = json!({ "identifier": "p", "apiName": "quick", "arguments": "{}" });
        let (body, trace) = (payload.to_string(), TraceContext::root());
        let view = view("host");
        gateway.plugins.run(Asked { body: body.as_bytes(), settings: None, view, trace }).await
    };
    assert_eq!(host().await.body.len(), SIZE);
    let _held = gateway.budget.acquire(&Holder::named("host"), ALONE * SIZE).unwrap();
    let reply = host().await;
    let body: Value = serde_json::from_slice(&reply.body).unwrap();
    assert_eq!(reply.status, 503, "{body}");
    assert!(body.to_string().contains("limits.provider_answer_bytes"), "{body}");
}
