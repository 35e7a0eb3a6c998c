//! Rule: a tool that its server runs only as a task is called like any other tool.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::extract::{Json, State};
use axum::http::StatusCode;
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use futures_util::{StreamExt as _, stream};
use parking_lot::Mutex;
use sa_core::QuestionMode;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{Notify, oneshot};

use crate::gateway::{Gateway, TIMEOUT};

/// An MCP server of 2025-11-25, written from the specification without an SDK. Like the official
/// TypeScript SDK, it returns an error result for a call without a task.
#[derive(Default)]
struct TaskServer {
    answer: Mutex<Option<oneshot::Sender<Value>>>,
    /// Notified when the tool `hang` or `late` was called.
    called: Notify,
    /// Lets the task of the tool `late` start.
    starts: Notify,
    cancelled: Notify,
    withdrawn: AtomicBool,
}

async fn serve(server: &Arc<TaskServer>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let app = axum::Router::new().route("/mcp", post(receive)).with_state(Arc::clone(server));
    tokio::spawn(async move { axum::serve(listener, app).await });
    url
}

fn text(text: &str) -> Value {
    json!({ "content": [{ "type": "text", "text": text }], "_meta": { "io.modelcontextprotocol/related-task": { "taskId": "t" } } })
}

fn event(message: &Value) -> Event {
    Event::default().event("message").data(message.to_string())
}

async fn receive(State(server): State<Arc<TaskServer>>, Json(message): Json<Value>) -> Response {
    let (id, params) = (message["id"].clone(), &message["params"]);
    let Some(method) = message["method"].as_str() else {
        let answer = server.answer.lock().take();
        let _ = answer.unwrap().send(message["result"].clone());
        return StatusCode::ACCEPTED.into_response();
    };
    let respond =
        |result: &Value| Json(json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }));
    let result = match (method, params["name"].as_str().or(params["taskId"].as_str())) {
        ("initialize", _) => json!({
            "protocolVersion": "2025-11-25", "serverInfo": { "name": "tasks", "version": "1" },
            "capabilities": { "tools": {}, "tasks": { "cancel": {}, "requests": { "tools": { "call": {} } } } },
        }),
        ("tools/list", _) => {
            let tool = |name: &str| json!({ "name": name, "inputSchema": { "type": "object" }, "execution": { "taskSupport": "required" } });
            let tools = ["work", "ask", "hang", "late"].map(tool);
            json!({ "tools": tools })
        }
        ("tools/call", _) if params["task"].is_null() => {
            json!({ "content": [{ "type": "text", "text": "requires task augmentation" }], "isError": true })
        }
        ("tools/call", Some(name)) => {
            assert!(params["_meta"]["traceparent"].is_string(), "{message}");
            server.called.notify_one();
            if name == "late" {
                server.starts.notified().await;
            }
            let at = "2025-11-25T10:00:00Z";
            let task = json!({ "taskId": name, "status": "working", "createdAt": at, "lastUpdatedAt": at, "ttl": 60_000 });
            json!({ "task": task, "_meta": { "io.modelcontextprotocol/model-immediate-response": "soon" } })
        }
        ("tasks/result", Some("work")) => text("done"),
        ("tasks/result", Some("ask")) => {
            let (answer, answered) = oneshot::channel();
            *server.answer.lock() = Some(answer);
            let question = json!({ "jsonrpc": "2.0", "id": 0, "method": "elicitation/create", "params": { "mode": "form",
                "message": "Your name?", "requestedSchema": { "type": "object", "properties": { "name": { "type": "string" } } } } });
            let result = async move {
                let result = text(answered.await.unwrap()["content"]["name"].as_str().unwrap());
                event(&json!({ "jsonrpc": "2.0", "id": id, "result": result }))
            };
            let events = stream::iter([event(&question)]).chain(stream::once(result));
            return Sse::new(events.map(Ok::<_, Infallible>)).into_response();
        }
        ("tasks/result", _) => std::future::pending().await,
        ("tasks/cancel", Some(id @ ("hang" | "late"))) => {
            server.cancelled.notify_one();
            json!({ "taskId": id, "status": "cancelled" })
        }
        ("notifications/cancelled", _) => {
            server.withdrawn.store(true, Ordering::Release);
            return StatusCode::ACCEPTED.into_response();
        }
        _ if id.is_null() => return StatusCode::ACCEPTED.into_response(),
        _ => {
            let error = json!({ "code": -32601, "message": "Method not found" });
            return Json(json!({ "jsonrpc": "2.0", "id": id, "error": error })).into_response();
        }
    };
    respond(&result).into_response()
}

#[tokio::test]
async fn a_tool_that_requires_a_task_runs_as_one() {
    let server = Arc::new(TaskServer::default());
    let gateway = Gateway::before(serve(&server).await).await;
    for (tool, expected) in [("work", "done"), ("ask", "Ada")] {
        let content = gateway
            .call(tool, QuestionMode::Request, TIMEOUT)
            .await
            .unwrap()
            .content
            .to_value()
            .unwrap();
        assert_eq!(content["content"][0]["text"], expected, "{tool}: {content}");
    }
}

/// Calls a tool, and drops the call as soon as the server has received it.
async fn call_and_leave(gateway: &Gateway, tool: &str, server: &TaskServer) {
    tokio::select! {
        outcome = gateway.call(tool, QuestionMode::Request, TIMEOUT) => panic!("{outcome:?}"),
        () = server.called.notified() => {}
    }
}

#[tokio::test]
async fn a_disconnect_cancels_the_task() {
    let server = Arc::new(TaskServer::default());
    let gateway = Gateway::before(serve(&server).await).await;
    call_and_leave(&gateway, "hang", &server).await;
    tokio::time::timeout(TIMEOUT, server.cancelled.notified()).await.unwrap();
}

/// The protocol forbids to cancel the request that starts a task.
#[tokio::test]
async fn a_task_that_starts_after_a_disconnect_is_cancelled() {
    let server = Arc::new(TaskServer::default());
    let gateway = Gateway::before(serve(&server).await).await;
    call_and_leave(&gateway, "late", &server).await;
    server.starts.notify_one();
    tokio::time::timeout(TIMEOUT, server.cancelled.notified()).await.unwrap();
    assert!(!server.withdrawn.load(Ordering::Acquire));
}
