//! Rule: invisible characters in the prompts and resources of a server are an audit event, once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Json, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use sa_core::{
    AuditEvent, CallRecord, CallStarted, Directory, Journal, Notices, Policy, Router, RouterOptions,
};
use sa_store::{OpenOptions, Store};
use sa_upstream::{Spec, State as Health, Upstreams};
use sa_vault::Vault;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

const TIMEOUT: Duration = Duration::from_secs(10);

/// The audit events with their details.
#[derive(Default)]
struct Audited(Mutex<Vec<String>>);

impl Journal for Audited {
    fn started(&self, _: &CallStarted) {}
    fn finished(&self, _: CallRecord) {}
    fn backpressure(&self) -> Option<BoxFuture<'_, ()>> {
        None
    }
    fn audit(&self, event: AuditEvent) {
        self.0.lock().push(format!("{} {}: {}", event.name, event.actor, event.detail));
    }
    fn count(&self, _: &'static str, _: &'static str) {}
}

/// Serves a server with one prompt, whose description can be changed.
async fn serve(description: &Arc<Mutex<&'static str>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let app = axum::Router::new().route("/mcp", post(answer)).with_state(Arc::clone(description));
    tokio::spawn(async move { axum::serve(listener, app).await });
    url
}

async fn answer(
    State(description): State<Arc<Mutex<&'static str>>>,
    Json(message): Json<Value>,
) -> Response {
    let Some(id) = message.get("id") else { return StatusCode::ACCEPTED.into_response() };
    let result = match message["method"].as_str().unwrap() {
        "initialize" => json!({
            "protocolVersion": message["params"]["protocolVersion"],
            "capabilities": { "prompts": {} },
            "serverInfo": { "name": "s", "version": "1" },
        }),
        "prompts/list" => {
            json!({ "prompts": [{ "name": "greet", "description": *description.lock() }] })
        }
        method => {
            let error = json!({ "code": -32601, "message": method });
            return Json(json!({ "jsonrpc": "2.0", "id": id, "error": error })).into_response();
        }
    };
    Json(json!({ "jsonrpc": "2.0", "id": id, "result": result })).into_response()
}

#[tokio::test]
async fn a_prompt_with_invisible_characters_is_reported_when_it_is_new() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(OpenOptions::new(dir.path().join("store.db"))).unwrap();
    let description = Arc::new(Mutex::default());
    let url = serve(&description).await;
    // Starts a gateway, and returns its audit events.
    let start = async |text: &'static str| {
        *description.lock() = text;
        let directory = Directory::new(Notices::new(), TIMEOUT);
        let audited = Arc::new(Audited::default());
        let (journal, options) = (Arc::clone(&audited) as _, RouterOptions::default());
        let _router =
            Router::new(Arc::clone(&directory), journal, None, Policy::default(), options);
        let configured =
            BTreeMap::from([("up".to_owned(), Spec { url: url.clone(), ..Spec::default() })]);
        let (vault, closing) =
            (Arc::new(Vault::new(dir.path().join("key"), None)), CancellationToken::new());
        let records = Arc::new(store.clone());
        let loaded = Upstreams::load(
            directory,
            records,
            vault,
            crate::answers::answers(1 << 30),
            &configured,
            closing.clone(),
        );
        let upstreams = loaded.await.unwrap();
        upstreams.reached(TIMEOUT).await;
        assert_eq!(upstreams.list()[0].health.state, Health::Ready, "{:?}", upstreams.list());
        closing.cancel();
        std::mem::take(&mut *audited.0.lock())
    };
    let event = |removed: usize| {
        format!(
            "definition.invisible_text upstream \"up\": {removed} invisible characters in the texts of the prompt \"greet\"; \
             they were removed where calls do not need them"
        )
    };
    assert_eq!(start("Greets.").await, [""; 0]);
    assert_eq!(start("Greets.\u{200b}\u{e0041}").await, [event(2)]);
    assert_eq!(start("Greets.\u{200b}\u{e0041}").await, [""; 0], "it is known");
    assert_eq!(start("Greets.\u{200b}").await, [event(1)]);
}
