//! Rule: a change of the tools that a server reports is forwarded, even if its list shows no
//! difference.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Json, State};
use axum::http::StatusCode;
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use futures_util::stream;
use sa_core::{Directory, NoticeBody, Notices};
use sa_store::{OpenOptions, Store};
use sa_upstream::{Spec, State as Health, Upstreams};
use sa_vault::Vault;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

const TIMEOUT: Duration = Duration::from_secs(10);

/// Serves a server with one tool, which reports a change of its tools when it is notified.
async fn serve(change: &Arc<Notify>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let routes = post(answer).get(report);
    let app = axum::Router::new().route("/mcp", routes).with_state(Arc::clone(change));
    tokio::spawn(async move { axum::serve(listener, app).await });
    url
}

async fn answer(Json(message): Json<Value>) -> Response {
    let Some(id) = message.get("id") else { return StatusCode::ACCEPTED.into_response() };
    let result = match message["method"].as_str().unwrap() {
        "initialize" => json!({
            "protocolVersion": message["params"]["protocolVersion"],
            "capabilities": { "tools": { "listChanged": true } },
            "serverInfo": { "name": "s", "version": "1" },
        }),
        "tools/list" => {
            json!({ "tools": [{ "name": "greet", "inputSchema": { "type": "object" } }] })
        }
        method => {
            let error = json!({ "code": -32601, "message": method });
            return Json(json!({ "jsonrpc": "2.0", "id": id, "error": error })).into_response();
        }
    };
    let result = Json(json!({ "jsonrpc": "2.0", "id": id, "result": result }));
    ([("mcp-session-id", "s")], result).into_response()
}

async fn report(State(change): State<Arc<Notify>>) -> Response {
    let changed = json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" });
    let events = stream::unfold(change, move |change| {
        let event = Event::default().event("message").data(changed.to_string());
        async move {
            change.notified().await;
            Some((Ok::<_, Infallible>(event), change))
        }
    });
    Sse::new(events).into_response()
}

#[tokio::test]
async fn a_reported_change_without_a_difference_is_forwarded() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(OpenOptions::new(dir.path().join("store.db"))).unwrap();
    let change = Arc::new(Notify::new());
    let url = serve(&change).await;
    let notices = Notices::new();
    let directory = Directory::new(notices.clone(), TIMEOUT);
    let configured = BTreeMap::from([("up".to_owned(), Spec { url, ..Spec::default() })]);
    let (vault, closing) =
        (Arc::new(Vault::new(dir.path().join("key"), None)), CancellationToken::new());
    let loaded = Upstreams::load(
        directory,
        Arc::new(store),
        vault,
        crate::answers::answers(1 << 30),
        &configured,
        closing.clone(),
    );
    let upstreams = loaded.await.unwrap();
    upstreams.reached(TIMEOUT).await;
    assert_eq!(upstreams.list()[0].health.state, Health::Ready, "{:?}", upstreams.list());
    let mut receiver = notices.subscribe();
    for _ in 0..2 {
        change.notify_one();
        let notice = tokio::time::timeout(TIMEOUT, receiver.recv()).await.unwrap().unwrap();
        assert!(matches!(notice.body, NoticeBody::ToolsChanged { .. }), "{notice:?}");
    }
    closing.cancel();
}
