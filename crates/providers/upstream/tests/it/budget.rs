//! Rule: large answers take from a budget while they are received and in memory. A principal that
//! requests many is refused some of them, and other principals get theirs.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Json, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use futures_util::future::join_all;
use futures_util::{StreamExt as _, stream};
use sa_core::{CallErrorKind, Outcome, Principal, QuestionMode, RawJson, Role, View};
use sa_limits::budget::{Holder, SharedBudget};
use sa_upstream::Spec;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::answers::answers;
use crate::gateway::{Gateway, TIMEOUT};

/// The size of a large answer.
const SIZE: usize = 1 << 20;
/// The number of large answers that the budget has space for. One principal gets three quarters.
const FITS: usize = 16;
const ALONE: usize = 12;
const CALLS: usize = 20;

/// A server whose answers stop before their end until they are released.
struct Server {
    released: watch::Sender<bool>,
}

impl Server {
    async fn serve(self: &Arc<Self>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let app = axum::Router::new().route("/mcp", post(receive)).with_state(Arc::clone(self));
        tokio::spawn(async move { axum::serve(listener, app).await });
        url
    }

    /// Returns a body that stops before its last quarter.
    fn stopping(&self, text: &str) -> Body {
        let (first, rest) = text.split_at(text.len() / 4 * 3);
        let (first, rest) = (Bytes::copy_from_slice(first.as_bytes()), rest.to_owned());
        let mut released = self.released.subscribe();
        let rest = async move {
            released.wait_for(|released| *released).await.unwrap();
            Ok(Bytes::from(rest))
        };
        Body::from_stream(stream::iter([Ok::<_, Infallible>(first)]).chain(stream::once(rest)))
    }
}

async fn receive(State(server): State<Arc<Server>>, Json(message): Json<Value>) -> Response {
    let text = |text: String| json!({ "content": [{ "type": "text", "text": text }] });
    let result = match message["method"].as_str().unwrap_or_default() {
        _ if message["id"].is_null() => return StatusCode::ACCEPTED.into_response(),
        "initialize" => json!({
            "protocolVersion": "2025-11-25", "serverInfo": { "name": "large", "version": "1" },
            "capabilities": { "tools": {}, "resources": {} },
        }),
        "tools/list" => {
            let tool = |name: &str| json!({ "name": name, "inputSchema": { "type": "object" } });
            let tools = ["quick", "json", "stream", "small"].map(tool);
            json!({ "tools": tools })
        }
        "resources/list" => json!({ "resources": [{ "uri": "note://1", "name": "1" }] }),
        "resources/read" => {
            json!({ "contents": [{ "uri": "note://1", "text": "x".repeat(SIZE) }] })
        }
        "tools/call" if message["params"]["name"] == "small" => text("small".into()),
        "tools/call" => text("x".repeat(SIZE)),
        _ => {
            let error = json!({ "code": -32601, "message": "Method not found" });
            let answer = json!({ "jsonrpc": "2.0", "id": message["id"], "error": error });
            return Json(answer).into_response();
        }
    };
    let answer = json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }).to_string();
    match message["params"]["name"].as_str() {
        Some("json") => {
            let headers = [
                (header::CONTENT_TYPE, "application/json".to_owned()),
                (header::CONTENT_LENGTH, answer.len().to_string()),
            ];
            (headers, server.stopping(&answer)).into_response()
        }
        Some("stream") => {
            let event = format!("event: message\ndata: {answer}\n\n");
            ([(header::CONTENT_TYPE, "text/event-stream")], server.stopping(&event)).into_response()
        }
        _ => ([(header::CONTENT_TYPE, "application/json")], answer).into_response(),
    }
}

async fn start() -> (Arc<Server>, Gateway, Arc<SharedBudget>) {
    let server = Arc::new(Server { released: watch::Sender::new(false) });
    let budget = answers(FITS * SIZE);
    let spec = Spec { url: server.serve().await, ..Spec::default() };
    let gateway = Gateway::with(spec, Arc::clone(&budget)).await;
    (server, gateway, budget)
}

async fn call(gateway: &Gateway, principal: &str, tool: &str) -> Outcome {
    gateway.call_of(principal, tool, QuestionMode::Request, TIMEOUT).await
}

#[track_caller]
fn assert_large(outcome: &Outcome) {
    let output = outcome.as_ref().unwrap();
    assert!(output.content.len() > SIZE, "{}", output.content.len());
}

#[track_caller]
fn assert_refused(outcome: &Outcome) {
    let error = outcome.as_ref().unwrap_err();
    assert_eq!((error.kind, sa_http::status(error)), (CallErrorKind::Overloaded, 503), "{error}");
    assert!(!error.retryable, "it may have had an effect");
    assert!(error.hint.as_ref().unwrap().contains("limits.provider_answer_bytes"), "{error:?}");
}

/// Many unfinished answers of one principal are refused in part, and harm no other principal.
async fn check_unfinished(tool: &str, served: std::ops::RangeInclusive<usize>) {
    let (server, gateway, budget) = start().await;
    let calls = join_all((0..CALLS).map(|_| call(&gateway, "greedy", tool)));
    let others = async {
        // A refused call returns its part. The others wait for the rest of their answers.
        let enough = async {
            while budget.held_by(&Holder::named("greedy")) < 10 * SIZE {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(TIMEOUT, enough).await.unwrap();
        assert_large(&call(&gateway, "modest", "quick").await);
        assert!(budget.used() <= FITS * SIZE);
        server.released.send_replace(true);
    };
    let (outcomes, ()) = tokio::join!(calls, others);
    let (large, refused): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(Result::is_ok);
    assert!(served.contains(&large.len()), "{} were served: {refused:?}", large.len());
    assert_eq!(large.len() + refused.len(), CALLS);
    large.iter().for_each(assert_large);
    refused.iter().for_each(assert_refused);

    // The outcomes hold their parts until they are dropped. Afterwards, the server is still there.
    assert!(budget.used() > 0);
    drop((large, refused));
    assert_eq!((budget.used(), budget.holders()), (0, 0));
    assert_large(&call(&gateway, "greedy", "quick").await);
}

#[tokio::test]
async fn many_unfinished_answers_of_known_length_are_refused_before_they_arrive() {
    check_unfinished("json", ALONE..=ALONE).await;
}

#[tokio::test]
async fn many_unfinished_answers_in_streams_are_refused_as_they_grow() {
    check_unfinished("stream", ALONE / 2..=ALONE).await;
}

#[tokio::test]
async fn a_large_outcome_holds_its_share_and_a_small_one_holds_none() {
    let (_server, gateway, budget) = start().await;
    let mut outcomes = Vec::new();
    for _ in 0..ALONE {
        outcomes.push(call(&gateway, "greedy", "quick").await);
        assert_large(outcomes.last().unwrap());
    }
    assert_eq!(budget.used(), ALONE * SIZE);
    assert_refused(&call(&gateway, "greedy", "quick").await);
    assert!(call(&gateway, "greedy", "small").await.is_ok(), "a small one is free");
    assert_large(&call(&gateway, "modest", "quick").await);
    assert_eq!(budget.used(), ALONE * SIZE);
    outcomes.pop();
    assert_large(&call(&gateway, "greedy", "quick").await);
}

#[tokio::test]
async fn a_document_holds_its_share_of_the_budget() {
    let (_server, gateway, budget) = start().await;
    let principal = Principal::new("p", "p", Role::Agent);
    let view = View::of(Arc::new(principal.clone()));
    let source = gateway.router.directory().documents(&view).remove(0).documents;
    let read = || {
        let params = RawJson::of(&json!({ "uri": "note://1" }));
        source.ask("resources/read", params, &principal, None)
    };
    let mut documents = Vec::new();
    for _ in 0..ALONE {
        documents.push(read().await.unwrap());
    }
    assert_eq!(budget.used(), ALONE * SIZE);
    let error = read().await.unwrap_err();
    assert!(error.message.contains("limits.provider_answer_bytes"), "{error}");
    documents.pop();
    assert!(read().await.unwrap().json.len() > SIZE);
}

/// Lines arrive one after the other, so they count from when they are complete.
#[tokio::test]
async fn an_answer_over_stdio_holds_its_share() {
    const SERVER: &str = r#"
        while read -r line; do
            id=$(printf %s "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
            [ -n "$id" ] || continue
            case $line in
                *'"initialize"'*) answer='"result":{"protocolVersion":"2025-11-25","serverInfo":{"name":"s","version":"1"},"capabilities":{"tools":{}}}' ;;
                *'"tools/list"'*) answer='"result":{"tools":[{"name":"quick","inputSchema":{"type":"object"}}]}' ;;
                *'"tools/call"'*) answer='"result":{"content":[{"type":"text","text":"'$(head -c 1048576 /dev/zero | tr '\0' x)'"}]}' ;;
                *) answer='"error":{"code":-32601,"message":"Method not found"}' ;;
            esac
            printf '{"jsonrpc":"2.0","id":%s,%s}\n' "$id" "$answer"
        done"#;
    let budget = answers(FITS * SIZE);
    let command = ["sh", "-c", SERVER].map(str::to_owned).into();
    let gateway = Gateway::with(Spec { command, ..Spec::default() }, Arc::clone(&budget)).await;
    let mut outcomes = Vec::new();
    for _ in 0..ALONE {
        outcomes.push(call(&gateway, "greedy", "quick").await);
        assert_large(outcomes.last().unwrap());
    }
    assert_refused(&call(&gateway, "greedy", "quick").await);
    assert_large(&call(&gateway, "modest", "quick").await);
    drop(outcomes);
    assert_eq!(budget.used(), 0);
}
