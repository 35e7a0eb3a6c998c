//! Rule: large answers of models take from a budget while they are received and kept. A principal
//! that requests many is refused some of them, and other principals get theirs.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::Json;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use futures_util::future::join_all;
use futures_util::{StreamExt as _, stream};
use sa_chat::{Api, Caller, Chat, ChatError, ChatRequest, Event, Spec};
use sa_core::audit::NoJournal;
use sa_core::{
    Directory, Notices, Policy, Principal, Role, Router, RouterOptions, TraceContext, View,
};
use sa_limits::budget::{Holder, Limit, SharedBudget};
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc, watch};

const TIMEOUT: Duration = Duration::from_secs(20);
/// The size of a large answer.
const SIZE: usize = 1 << 20;
/// The number of large answers that the budget has space for. One principal gets three quarters.
const FITS: usize = 16;
const ALONE: usize = 12;
const CALLS: usize = 20;

struct Gateway {
    chat: Chat,
    budget: Arc<SharedBudget>,
    /// Lets the unfinished answers end.
    released: watch::Sender<bool>,
}

impl Gateway {
    async fn start() -> Self {
        let released = watch::Sender::new(false);
        let spec = Spec { base_url: serve(released.clone()).await, ..Spec::default() };
        let models = ["quick", "stops"].map(|name| (name.to_owned(), spec.clone()));
        let budget = SharedBudget::new(Limit {
            name: "provider_answers",
            what: "bytes of answers",
            key: "limits.provider_answer_bytes",
            remedy: "request less",
            total: FITS * SIZE,
        });
        let router = Router::new(
            Directory::new(Notices::new(), TIMEOUT),
            Arc::new(NoJournal),
            None,
            Policy::default(),
            RouterOptions::default(),
        );
        let chat = Chat::new(router, BTreeMap::from(models), Arc::clone(&budget)).unwrap();
        Self { chat, budget, released }
    }

    async fn complete(&self, principal: &str, model: &str) -> Result<String, ChatError> {
        let chat_request = chat_request(Api::ChatCompletions, model, false);
        self.chat.complete(chat_request, &caller(principal)).await.map(|(answer, _)| answer)
    }

    /// Reads a stream to its end. Returns the number of its bytes, or the text of its error.
    async fn stream(&self, api: Api, principal: &str, model: &str) -> Result<usize, String> {
        let (sender, mut events) = mpsc::channel(1);
        let caller = caller(principal);
        let run =
            async move { self.chat.stream(chat_request(api, model, true), &caller, &sender).await };
        let read = async {
            let mut bytes = 0;
            while let Some(event) = events.recv().await {
                match event {
                    Event::Named { name: "response.failed", data } => return Err(data),
                    Event::Data(data) | Event::Named { data, .. } => bytes += data.len(),
                    Event::Failed(error) => return Err(error.message),
                    Event::Started { .. } | Event::Done => {}
                }
            }
            Ok(bytes)
        };
        let ((), read) = tokio::join!(run, read);
        read
    }

    /// Waits until the unfinished answers of one principal take at least this amount.
    async fn held(&self, principal: &str, amount: usize) {
        let enough = async {
            while self.budget.held_by(&Holder::named(principal)) < amount {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(TIMEOUT, enough).await.unwrap();
    }
}

fn chat_request(api: Api, model: &str, stream: bool) -> ChatRequest {
    let (field, text) = match api {
        Api::ChatCompletions => ("messages", json!([{ "role": "user", "content": "hi" }])),
        Api::Responses => ("input", json!("hi")),
    };
    let body = json!({ "model": model, "stream": stream, field: text }).to_string();
    ChatRequest::read(api, body.as_bytes(), None).unwrap()
}

fn caller(principal: &str) -> Caller {
    let principal = Principal::new(principal, principal, Role::Agent);
    Caller { view: View::of(Arc::new(principal)), session_key: None, trace: TraceContext::root() }
}

/// Serves large answers. Those of the model `stops` stop before their end until they are released.
async fn serve(released: watch::Sender<bool>) -> String {
    let answer = async move |Json(request): Json<Value>| answer(&request, &released);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let app = axum::Router::new().route("/v1/chat/completions", post(answer));
    tokio::spawn(async { axum::serve(listener, app).await });
    url
}

fn answer(request: &Value, released: &watch::Sender<bool>) -> Response {
    let is_stream = request["stream"] == true;
    let (first, last, kind) = if is_stream {
        let delta = json!({ "content": "x".repeat(SIZE / 16) });
        let piece = json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": null }] });
        let end = json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "stop" }] });
        let first = format!("data: {piece}\n\n").repeat(16);
        (first, format!("data: {end}\n\ndata: [DONE]\n\n"), "text/event-stream")
    } else {
        let message = json!({ "role": "assistant", "content": "x".repeat(SIZE) });
        let choice = json!({ "index": 0, "message": message, "finish_reason": "stop" });
        let mut text = json!({ "choices": [choice] }).to_string();
        let last = text.split_off(SIZE / 2);
        (text, last, "application/json")
    };
    let length = (!is_stream).then(|| (header::CONTENT_LENGTH, first.len() + last.len()));
    let stops = request["model"] == "stops";
    let mut released = released.subscribe();
    let last = async move {
        if stops {
            released.wait_for(|released| *released).await.unwrap();
        }
        Ok(Bytes::from(last))
    };
    let first = Ok::<_, Infallible>(Bytes::from(first));
    let body = Body::from_stream(stream::iter([first]).chain(stream::once(last)));
    let mut response = ([(header::CONTENT_TYPE, kind)], body).into_response();
    if let Some((name, length)) = length {
        response.headers_mut().insert(name, length.into());
    }
    response
}

#[track_caller]
fn assert_refused(error: &ChatError) {
    assert_eq!((error.status, &*error.code, error.retry), (503, "overloaded", Some(false)));
    assert!(error.message.contains("limits.provider_answer_bytes"), "{}", error.message);
}

#[tokio::test]
async fn many_unfinished_answers_of_one_principal_leave_space_for_others() {
    let gateway = Gateway::start().await;
    let calls = join_all((0..CALLS).map(|_| gateway.complete("greedy", "stops")));
    let others = async {
        gateway.held("greedy", ALONE * SIZE).await;
        assert!(gateway.complete("modest", "quick").await.unwrap().len() > SIZE);
        gateway.released.send_replace(true);
    };
    let (answers, ()) = tokio::join!(calls, others);
    let (large, refused): (Vec<_>, Vec<_>) = answers.into_iter().partition(Result::is_ok);
    // An answer that is passed on leaves space for the next one.
    assert!((ALONE..CALLS).contains(&large.len()), "{} of {CALLS}", large.len());
    refused.into_iter().filter_map(Result::err).for_each(|error| assert_refused(&error));
    assert_eq!((gateway.budget.used(), gateway.budget.holders()), (0, 0));
    assert!(gateway.complete("greedy", "quick").await.is_ok());
}

#[tokio::test]
async fn the_text_of_a_stream_counts_where_it_is_kept() {
    let gateway = Gateway::start().await;
    let refusal = Notify::new();
    let calls = join_all((0..CALLS).map(async |_| {
        let read = gateway.stream(Api::Responses, "greedy", "stops").await;
        if read.is_err() {
            refusal.notify_one();
        }
        read
    }));
    let others = async {
        tokio::time::timeout(TIMEOUT, refusal.notified()).await.unwrap();
        let read = gateway.stream(Api::Responses, "modest", "quick").await;
        assert!(read.unwrap() > SIZE);
        gateway.released.send_replace(true);
    };
    let (answers, ()) = tokio::join!(calls, others);
    let (large, refused): (Vec<_>, Vec<_>) = answers.into_iter().partition(Result::is_ok);
    assert!((1..CALLS).contains(&large.len()), "{} of {CALLS}", large.len());
    for error in refused.into_iter().filter_map(Result::err) {
        assert!(error.contains("limits.provider_answer_bytes"), "{error}");
    }
    assert_eq!(gateway.budget.used(), 0);
}

#[tokio::test]
async fn a_stream_that_is_passed_on_counts_one_event_at_a_time() {
    let gateway = Gateway::start().await;
    let calls =
        join_all((0..CALLS).map(|_| gateway.stream(Api::ChatCompletions, "greedy", "stops")));
    let release = async {
        // Each of them has an event of 64 KiB in memory at most, and another that is being read.
        gateway.held("greedy", SIZE).await;
        assert!(gateway.budget.used() <= CALLS * SIZE / 4, "{}", gateway.budget.used());
        gateway.released.send_replace(true);
    };
    let (answers, ()) = tokio::join!(calls, release);
    for answer in answers {
        assert!(answer.unwrap() > SIZE);
    }
    assert_eq!(gateway.budget.used(), 0);
}
