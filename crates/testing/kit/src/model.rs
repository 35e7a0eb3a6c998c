//! A model server that sends the replies that a test chooses, and checks the requests.

use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use futures_util::{FutureExt as _, StreamExt as _, stream};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::soon;

/// A server on its own port. An unexpected request fails the test when this value is dropped.
#[derive(Debug)]
pub struct ScriptedModel {
    /// `http://127.0.0.1:PORT/v1`
    pub url: String,
    inner: Arc<Inner>,
    hung_up: mpsc::UnboundedReceiver<()>,
    asked: mpsc::UnboundedReceiver<()>,
    task: JoinHandle<()>,
}

type Check = Box<dyn FnOnce(&Value) + Send>;
type Always = Box<dyn Fn(&Value) -> ModelReply + Send + Sync>;

struct Inner {
    turns: Mutex<VecDeque<(Check, ModelReply)>>,
    always: Mutex<Option<Always>>,
    requests: Mutex<Vec<Value>>,
    failures: Mutex<Vec<String>>,
    hung_up: mpsc::UnboundedSender<()>,
    asked: mpsc::UnboundedSender<()>,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inner").finish_non_exhaustive()
    }
}

/// The reply of the server.
#[derive(Debug, Clone)]
pub enum ModelReply {
    /// A message, sent whole or as a stream of small pieces, as the request asks.
    Message { message: Value, finish: String, usage: Value },
    /// These events, and then the end of the stream.
    Events(Vec<String>),
    /// Exactly this response.
    Raw { status: u16, headers: Vec<(&'static str, String)>, body: String },
    /// The beginning of a stream, after which the connection is cut.
    Cut(Vec<String>),
    /// The beginning of a stream, after which nothing more is sent.
    Silence(Vec<String>),
    /// Exactly these bytes as a stream of events, in these pieces.
    Bytes(Vec<Vec<u8>>),
    /// A beginning, and then the same bytes repeated without end.
    Endless { head: Vec<u8>, again: Vec<u8> },
    /// No response at all, not even a head.
    Nothing,
}

impl ModelReply {
    pub fn text(text: &str) -> Self {
        let usage = json!({ "prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15 });
        let message = json!({ "role": "assistant", "content": text });
        Self::Message { message, finish: "stop".into(), usage }
    }

    /// Tool calls, each with id, name and arguments.
    pub fn calls(calls: &[(&str, &str, Value)]) -> Self {
        let calls: Vec<(&str, &str, String)> =
            calls.iter().map(|(id, name, args)| (*id, *name, args.to_string())).collect();
        Self::raw_calls(&calls)
    }

    /// Tool calls with arguments that need not be valid JSON.
    pub fn raw_calls(calls: &[(&str, &str, String)]) -> Self {
        let call = |(id, name, args): &(&str, &str, String)| json!({ "id": id, "type": "function", "function": { "name": name, "arguments": args } });
        let calls: Vec<Value> = calls.iter().map(call).collect();
        let usage = json!({ "prompt_tokens": 20, "completion_tokens": 7, "total_tokens": 27 });
        let message = json!({ "role": "assistant", "content": null, "tool_calls": calls });
        Self::Message { message, finish: "tool_calls".into(), usage }
    }

    /// Adds a text before the tool calls.
    #[must_use]
    pub fn saying(mut self, text: &str) -> Self {
        if let Self::Message { message, .. } = &mut self {
            message["content"] = json!(text);
        }
        self
    }

    pub fn error(status: u16, message: &str) -> Self {
        let body = json!({ "error": { "message": message, "type": "some_error", "code": null, "param": null } });
        Self::Raw {
            status,
            headers: vec![("content-type", "application/json".into())],
            body: body.to_string(),
        }
    }
}

impl ScriptedModel {
    /// The API key that requests must carry.
    pub const KEY: &'static str = "sk-canary-93b1f7c2";

    pub async fn start() -> Self {
        let (say_hung_up, hung_up) = mpsc::unbounded_channel();
        let (say_asked, asked) = mpsc::unbounded_channel();
        let inner = Arc::new(Inner {
            turns: Mutex::default(),
            always: Mutex::default(),
            requests: Mutex::default(),
            failures: Mutex::default(),
            hung_up: say_hung_up,
            asked: say_asked,
        });
        let app = axum::Router::new().fallback(answer).with_state(Arc::clone(&inner));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let task = tokio::spawn(async { axum::serve(listener, app).await.unwrap() });
        Self { url, inner, hung_up, asked, task }
    }

    /// Returns a gateway configuration with this server as its only model, `scripted`.
    pub fn config(&self, more: &str) -> String {
        let (url, key) = (&self.url, Self::KEY);
        format!(
            "[sessions]\nenabled = false\n[models.scripted]\nbase_url = \"{url}\"\napi_key = \"{key}\"\nmodel = \"real-name\"\n{more}\n"
        )
    }

    /// Checks the next request with `check` and answers it with `reply`.
    pub fn then(&self, check: impl FnOnce(&Value) + Send + 'static, reply: ModelReply) -> &Self {
        lock(&self.inner.turns).push_back((Box::new(check), reply));
        self
    }

    /// Answers every request that has no prepared reply.
    pub fn always(&self, reply: impl Fn(&Value) -> ModelReply + Send + Sync + 'static) -> &Self {
        *lock(&self.inner.always) = Some(Box::new(reply));
        self
    }

    /// Returns all requests so far.
    pub fn requests(&self) -> Vec<Value> {
        lock(&self.inner.requests).clone()
    }

    /// Waits until one more request has arrived.
    pub async fn asked(&mut self) {
        soon(self.asked.recv()).await;
    }

    /// Waits until the gateway has closed the connection of a reply that never ends.
    pub async fn hung_up(&mut self) {
        soon(self.hung_up.recv()).await;
    }

    /// Checks that all expected requests were made.
    #[track_caller]
    pub fn finish(self) {
        assert_eq!(
            lock(&self.inner.turns).len(),
            0,
            "the model was asked less often than expected"
        );
    }
}

impl Drop for ScriptedModel {
    fn drop(&mut self) {
        self.task.abort();
        let failures = lock(&self.inner.failures);
        assert!(
            failures.is_empty() || std::thread::panicking(),
            "the model was asked wrongly: {}",
            failures.join("\n")
        );
    }
}

fn lock<T>(mutex: &Mutex<T>) -> parking_lot::MutexGuard<'_, T> {
    mutex.lock()
}

async fn answer(
    State(inner): State<Arc<Inner>>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let request: Value = serde_json::from_slice(&body).unwrap_or_default();
    lock(&inner.requests).push(request.clone());
    let turn = lock(&inner.turns).pop_front();
    let checked = std::panic::catch_unwind(AssertUnwindSafe(|| {
        assert_eq!(uri.path(), "/v1/chat/completions");
        assert_eq!(headers["authorization"], format!("Bearer {}", ScriptedModel::KEY), "the key");
        assert_eq!(headers["content-type"], "application/json");
        check_request(&request);
        match turn {
            Some((check, reply)) => {
                check(&request);
                reply
            }
            None => match &*lock(&inner.always) {
                Some(always) => always(&request),
                None => panic!("nothing more was expected: {request}"),
            },
        }
    }));
    let _ = inner.asked.send(());
    let reply = checked.unwrap_or_else(|panic| {
        let text =
            panic.downcast_ref::<String>().cloned().unwrap_or_else(|| "a check failed".into());
        lock(&inner.failures).push(text.clone());
        ModelReply::error(418, &text)
    });
    respond(reply, request["stream"] == true, &inner).await
}

/// Checks the rules that servers of this kind enforce, including those of the strictest ones.
fn check_request(request: &Value) {
    assert!(request["switchboard"].is_null(), "the gateway's own field");
    assert_eq!(request["model"], "real-name");
    let tools = request["tools"].as_array().cloned().unwrap_or_default();
    let functions: Vec<&Value> = tools
        .iter()
        .filter(|tool| tool["type"] == "function")
        .map(|tool| &tool["function"])
        .collect();
    let mut names: Vec<&str> =
        functions.iter().map(|function| function["name"].as_str().unwrap()).collect();
    for name in &names {
        let plain =
            name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
        assert!(plain && (1..=64).contains(&name.len()), "the name {name}");
    }
    names.sort_unstable();
    assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "a name twice: {names:?}");
    assert!(!request["tools"].is_array() || !tools.is_empty(), "a list without tools");
    // Every call has its result right after it, and every result has a call.
    let mut open: Vec<&str> = Vec::new();
    for message in request["messages"].as_array().expect("messages") {
        let role = message["role"].as_str().expect("a role");
        if role == "tool" {
            let id = message["tool_call_id"].as_str().expect("an id");
            let at = open
                .iter()
                .position(|known| *known == id)
                .unwrap_or_else(|| panic!("a result without its call: {message}"));
            open.remove(at);
            assert!(message["content"].is_string(), "a result is text: {message}");
            continue;
        }
        assert!(open.is_empty(), "calls without results: {open:?} before {message}");
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            assert_eq!(role, "assistant");
            open.push(call["id"].as_str().expect("an id"));
        }
    }
    assert!(open.is_empty(), "calls without results at the end: {open:?}");
}

async fn respond(reply: ModelReply, streamed: bool, inner: &Inner) -> Response {
    let guard = Guard(inner.hung_up.clone());
    match reply {
        ModelReply::Message { message, finish, usage } if streamed => {
            let mut events = pieces(&message, &finish);
            events.push(json!({ "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 7, "model": "real-name", "choices": [], "usage": usage }).to_string());
            events.push("[DONE]".into());
            sse(events, stream::empty().boxed())
        }
        ModelReply::Message { message, finish, usage } => {
            let choice = json!({ "index": 0, "message": message, "finish_reason": finish, "logprobs": null });
            let answer = json!({ "id": "chatcmpl-1", "object": "chat.completion", "created": 7, "model": "real-name",
                "choices": [choice], "usage": usage, "system_fingerprint": "fp_1" });
            ([("content-type", "application/json")], answer.to_string()).into_response()
        }
        ModelReply::Events(events) => sse(events, stream::empty().boxed()),
        ModelReply::Raw { status, headers, body } => {
            let mut response = (StatusCode::from_u16(status).unwrap(), body).into_response();
            for (name, value) in headers {
                response.headers_mut().insert(name, value.parse().unwrap());
            }
            response
        }
        ModelReply::Cut(events) => {
            let cut = async {
                // Yields, so that the earlier bytes are sent before the cut.
                tokio::task::yield_now().await;
                Err(std::io::Error::other("cut"))
            };
            sse(events, cut.into_stream().boxed())
        }
        ModelReply::Silence(events) => {
            let silence = async move {
                let _guard = guard;
                std::future::pending().await
            };
            sse(events, silence.into_stream().boxed())
        }
        ModelReply::Bytes(pieces) => {
            let pieces =
                pieces.into_iter().map(|piece| Ok::<_, std::io::Error>(Bytes::from(piece)));
            event_stream(stream::iter(pieces).boxed())
        }
        ModelReply::Endless { head, again } => {
            let (head, again) = (Bytes::from(head), Bytes::from(again));
            // Yields, so that other tasks can run.
            let next = |(guard, again): (Guard, Bytes)| async move {
                tokio::task::yield_now().await;
                Some((Ok::<_, std::io::Error>(again.clone()), (guard, again)))
            };
            event_stream(
                stream::iter([Ok(head)]).chain(stream::unfold((guard, again), next)).boxed(),
            )
        }
        ModelReply::Nothing => {
            let _guard = guard;
            std::future::pending().await
        }
    }
}

/// Reports when the gateway drops a reply that would never end.
struct Guard(mpsc::UnboundedSender<()>);

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

/// Sends the events in pieces of seven bytes, regardless of event and character boundaries.
fn sse(
    events: Vec<String>,
    rest: futures_util::stream::BoxStream<'static, Result<Bytes, std::io::Error>>,
) -> Response {
    let text = events.iter().fold(String::new(), |text, event| text + "data: " + event + "\n\n");
    let bytes: Vec<Result<Bytes, std::io::Error>> =
        text.as_bytes().chunks(7).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
    event_stream(stream::iter(bytes).chain(rest).boxed())
}

fn event_stream(
    bytes: futures_util::stream::BoxStream<'static, Result<Bytes, std::io::Error>>,
) -> Response {
    ([("content-type", "text/event-stream")], Body::from_stream(bytes)).into_response()
}

/// Cuts a message into small pieces: two characters of every text at a time, including names.
fn pieces(message: &Value, finish: &str) -> Vec<String> {
    let mut events = Vec::new();
    let mut push = |delta: Value, finish: Value| {
        let choice = json!({ "index": 0, "delta": delta, "finish_reason": finish });
        events.push(json!({ "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 7, "model": "real-name", "choices": [choice] }).to_string());
    };
    push(json!({ "role": "assistant", "content": "" }), Value::Null);
    for part in cut(message["content"].as_str().unwrap_or_default()) {
        push(json!({ "content": part }), Value::Null);
    }
    for (index, call) in message["tool_calls"].as_array().into_iter().flatten().enumerate() {
        push(
            json!({ "tool_calls": [{ "index": index, "id": call["id"], "type": "function", "function": { "name": "", "arguments": "" } }] }),
            Value::Null,
        );
        for part in cut(call["function"]["name"].as_str().unwrap()) {
            push(
                json!({ "tool_calls": [{ "index": index, "function": { "name": part } }] }),
                Value::Null,
            );
        }
        for part in cut(call["function"]["arguments"].as_str().unwrap()) {
            push(
                json!({ "tool_calls": [{ "index": index, "function": { "arguments": part } }] }),
                Value::Null,
            );
        }
    }
    push(json!({}), json!(finish));
    events
}

fn cut(text: &str) -> Vec<String> {
    text.chars().collect::<Vec<_>>().chunks(2).map(|part| part.iter().collect()).collect()
}
