//! An MCP server of both eras over Streamable HTTP, written from the specification without an
//! SDK.
//!
//! Up to 2025-11-25, a client begins with `initialize`, and the server sends a question as its
//! own request on the stream of the call. From 2026-07-28 on there is no handshake: each request
//! names its revision. The server returns the question as the result of the call, which the
//! client then repeats with the answer.
//!
//! Like some public servers, it echoes the revision of an `initialize` request without checking
//! it.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::extract::{Json, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use futures_util::{StreamExt as _, stream};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

pub(crate) const OLDER: &str = "2025-11-25";
pub(crate) const NEWER: &str = "2026-07-28";

#[derive(Default)]
pub(crate) struct DualEra {
    /// The only revision that it returns to `initialize`, instead of the requested one.
    insists_on: Option<&'static str>,
    /// The revisions that `initialize` requested.
    pub(crate) requested: Mutex<Vec<String>>,
    questions: AtomicU64,
    answers: Mutex<HashMap<u64, oneshot::Sender<Value>>>,
}

impl DualEra {
    pub(crate) fn insisting_on(revision: &'static str) -> Self {
        Self { insists_on: Some(revision), ..Self::default() }
    }

    /// Serves on a free port until the runtime ends, and returns the URL.
    pub(crate) async fn serve(self: &Arc<Self>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let app = axum::Router::new().route("/mcp", post(receive)).with_state(Arc::clone(self));
        tokio::spawn(async move { axum::serve(listener, app).await });
        url
    }

    fn initialize(&self, params: &Value) -> Value {
        let requested = params["protocolVersion"].as_str().unwrap();
        self.requested.lock().push(requested.to_owned());
        json!({
            "protocolVersion": self.insists_on.unwrap_or(requested),
            "capabilities": { "tools": {} },
            "serverInfo": { "name": "dual-era", "version": "1" },
        })
    }

    /// Handles a client's answer to a question.
    fn answered(&self, message: &Value) {
        let question = message["id"].as_u64().and_then(|id| self.answers.lock().remove(&id));
        let _ = question.map(|question| question.send(message["result"].clone()));
    }

    /// Sends a question on the stream of a call, and the result once the client has answered.
    fn ask_meanwhile(&self, id: Value, mut question: Value) -> Response {
        let (number, (answer, answered)) =
            (self.questions.fetch_add(1, Ordering::Relaxed), oneshot::channel());
        self.answers.lock().insert(number, answer);
        question["jsonrpc"] = json!("2.0");
        question["id"] = json!(number);
        let ask = stream::iter([event(&question)]);
        let result = async move { event(&response(&id, text(&answered.await.unwrap()))) };
        Sse::new(ask.chain(stream::once(result)).map(Ok::<_, Infallible>)).into_response()
    }
}

fn event(message: &Value) -> Event {
    Event::default().event("message").data(message.to_string())
}

fn response(id: &Value, result: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "result": result })
}

fn error(id: &Value, code: i64, message: &str) -> Response {
    Json(json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } }))
        .into_response()
}

fn text(answer: &Value) -> Value {
    json!({ "resultType": "complete", "content": [{ "type": "text", "text": answer.to_string() }] })
}

fn tools() -> Value {
    let tool = |name: &str| json!({ "name": name, "description": "Asks.", "inputSchema": { "type": "object" } });
    let names = ["elicit", "sample", "elicit_by_result"];
    json!({ "resultType": "complete", "ttlMs": 0, "cacheScope": "private", "tools": names.map(tool) })
}

fn elicitation() -> Value {
    json!({ "method": "elicitation/create", "params": { "mode": "form", "message": "Your name?",
        "requestedSchema": { "type": "object", "properties": { "name": { "type": "string" } } } } })
}

fn sampling() -> Value {
    json!({ "method": "sampling/createMessage", "params": { "maxTokens": 10,
        "messages": [{ "role": "user", "content": { "type": "text", "text": "Hello" } }] } })
}

async fn receive(
    State(server): State<Arc<DualEra>>,
    headers: HeaderMap,
    Json(message): Json<Value>,
) -> Response {
    let (id, params) = (&message["id"], &message["params"]);
    let Some(method) = message["method"].as_str() else {
        server.answered(&message);
        return StatusCode::ACCEPTED.into_response();
    };
    if id.is_null() {
        return StatusCode::ACCEPTED.into_response();
    }
    let newer = headers.get("mcp-protocol-version").is_some_and(|revision| revision == NEWER);
    let result = match (method, params["name"].as_str(), newer) {
        ("initialize", ..) => {
            let result = response(id, server.initialize(params));
            return ([("mcp-session-id", "the-only-session")], Json(result)).into_response();
        }
        ("server/discover", _, true) => json!({
            "resultType": "complete", "supportedVersions": [OLDER, NEWER], "capabilities": { "tools": {} },
            "ttlMs": 0, "cacheScope": "private",
        }),
        ("tools/list", ..) => tools(),
        ("tools/call", Some("elicit"), false) => {
            return server.ask_meanwhile(id.clone(), elicitation());
        }
        ("tools/call", Some("sample"), false) => {
            return server.ask_meanwhile(id.clone(), sampling());
        }
        ("tools/call", Some("elicit_by_result"), true) => {
            match params["inputResponses"].get("name") {
                Some(answer) => text(answer),
                None => {
                    json!({ "resultType": "input_required", "inputRequests": { "name": elicitation() } })
                }
            }
        }
        ("tools/call", ..) => {
            return error(id, -32603, "the tool cannot ask its question in this era");
        }
        _ => return error(id, -32601, "the method is unknown in this era"),
    };
    Json(response(id, result)).into_response()
}
