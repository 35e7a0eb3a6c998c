//! The MCP surface in front of six tools, without a socket.
#![allow(dead_code, reason = "each test file uses the part that it needs")]

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{Request, Response};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use sa_core::audit::NoJournal;
use sa_core::retention::{Reading, TrustedClock};
use sa_core::{
    Attach, Call, CallError, CallErrorKind, Catalog, Directory, Grant, Notices, Outcome, Output,
    Passthrough, Policy, Principal, Provider, ProviderId, RawJson, Registration, Role, Router,
    RouterOptions, Schema, Scope, Tool, Trimmer, Update, Updates,
};
use sa_http::MCP;
use sa_mcp::{Caller, Mcp, Options};
use sa_store::{OpenOptions, Store};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

pub(crate) const NEWER: &str = "2026-07-28";
const MINUTE: Duration = Duration::from_secs(60);

/// `text` returns as many bytes as `bytes` says, `fast_path` too, with an output schema that allows
/// three; `report` reports progress first, `wait` waits for [`Surface::release`] and fails with a
/// protocol error if `fails` says so, and `late` waits, too, with the same output schema.
#[derive(Default)]
struct Tools {
    waits: Notify,
    release: Notify,
    abandoned: Notify,
    traces: Mutex<Vec<String>>,
}

struct ToolsProvider(Arc<Tools>);

impl Provider for ToolsProvider {
    fn call(&self, call: Arc<Call>, updates: Updates) -> BoxFuture<'static, Outcome> {
        let tools = Arc::clone(&self.0);
        Box::pin(async move {
            tools.traces.lock().push(call.trace.traceparent());
            match &*call.tool {
                "report" => {
                    updates.send(Update::Progress { progress: 1.0, total: None, message: None });
                }
                "wait" | "late" => {
                    tools.waits.notify_one();
                    let abandoned = Abandoned(&tools.abandoned);
                    tools.release.notified().await;
                    std::mem::forget(abandoned);
                }
                _ => {}
            }
            if call.args.to_value().unwrap()["fails"] == true {
                let error = RawJson::of(&json!({ "error": { "code": -32002, "message": "gone" } }));
                return Err(CallError::new(CallErrorKind::Failed, "gone")
                    .with_passthrough(Passthrough::new(MCP, error)));
            }
            let bytes = call.args.to_value().unwrap()["bytes"].as_u64().unwrap_or(1);
            Ok(Output::json(RawJson::of(
                &json!({ "text": "x".repeat(usize::try_from(bytes).unwrap()) }),
            )))
        })
    }
}

/// Reports a call that is dropped before it ends.
struct Abandoned<'a>(&'a Notify);

impl Drop for Abandoned<'_> {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

pub(crate) struct Surface {
    mcp: Mcp,
    caller: Caller,
    tools: Arc<Tools>,
    registration: Mutex<Option<Registration>>,
    _dir: TempDir,
}

impl Surface {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Arc::new(Store::open(OpenOptions::new(dir.path().join("store.db"))).unwrap());
        let notices = Notices::new();
        let directory = Directory::new(notices.clone(), MINUTE);
        let tools = Arc::new(Tools::default());
        let output = json!({ "type": "object", "properties": { "text": { "maxLength": 3 } } });
        let checked = ["short", "late"].map(|name| Tool {
            output: Some(Schema::new(RawJson::of(&output))),
            ..Tool::named(name)
        });
        let plain = ["text", "report", "wait", "caller_tool_response"].map(Tool::named);
        let attach = Attach {
            id: ProviderId::new("test", "tools"),
            scope: Scope::Everyone,
            grant: Grant::installed("tools"),
            provider: Arc::new(ToolsProvider(Arc::clone(&tools))),
            catalog: Catalog {
                tools: plain.into_iter().chain(checked).collect(),
                ..Catalog::default()
            },
            max_running: 100,
            about: RawJson::empty_object(),
            may_take_over: false,
        };
        let registration = directory.attach(attach).unwrap();
        let router = Router::new(
            directory,
            Arc::new(NoJournal),
            None,
            Policy::default(),
            RouterOptions::default(),
        );
        let options = Options {
            version: "0",
            max_body_bytes: 1 << 20,
            max_outbox_bytes: 1 << 20,
            session_idle: MINUTE,
            max_sessions: 16,
            resume: MINUTE,
            search: false,
            task_after: MINUTE,
            task_result_bytes: 1 << 20,
            trimmer: Arc::new(Trimmer::new(TrustedClock::new(None), || Reading {
                wall_ms: 0,
                uptime_ms: 0,
            })),
        };
        let closing = CancellationToken::new();
        let mcp = Mcp::new(router, notices, store, &options, closing.clone());
        let caller = Caller::new(Arc::new(Principal::new("t", "t", Role::Agent)), closing);
        Self { mcp, caller, tools, registration: Some(registration).into(), _dir: dir }
    }

    /// Returns the number of sessions.
    pub(crate) fn sessions(&self) -> usize {
        self.mcp.sessions()
    }

    pub(crate) fn release(&self) {
        self.tools.release.notify_one();
    }

    /// Waits until a call waits for [`Self::release`].
    pub(crate) async fn waits(&self) {
        tokio::time::timeout(MINUTE, self.tools.waits.notified()).await.unwrap();
    }

    /// Waits until a call is cancelled that waited for [`Self::release`].
    pub(crate) async fn abandoned(&self) {
        tokio::time::timeout(2 * MINUTE, self.tools.abandoned.notified()).await.unwrap();
    }

    /// Takes the provider offline. Its running calls continue.
    pub(crate) fn disconnect(&self) {
        self.registration.lock().take();
    }

    /// Returns the trace contexts of the calls so far.
    pub(crate) fn traces(&self) -> Vec<String> {
        self.tools.traces.lock().clone()
    }

    pub(crate) async fn send(
        &self,
        method: &str,
        headers: &[(&str, &str)],
        body: &Value,
    ) -> Response<Body> {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.send_text(method, headers, body).await
    }

    pub(crate) async fn send_text(
        &self,
        method: &str,
        headers: &[(&str, &str)],
        body: String,
    ) -> Response<Body> {
        let mut request = Request::builder()
            .method(method)
            .uri("http://gateway/mcp")
            .header("host", "gateway")
            .header("content-type", "application/json");
        // An empty value stands for an absent header.
        for (name, value) in headers.iter().filter(|(_, value)| !value.is_empty()) {
            request = request.header(*name, *value);
        }
        if !headers.iter().any(|(name, _)| *name == "accept") {
            request = request.header("accept", "application/json, text/event-stream");
        }
        self.mcp.handle(self.caller.clone(), request.body(Bytes::from(body)).unwrap()).await
    }

    /// Opens a session of this revision.
    pub(crate) async fn open(&self, revision: &str) -> (String, Response<Body>) {
        self.open_with(revision, &json!({})).await
    }

    /// Opens a session of a client with these capabilities.
    pub(crate) async fn open_with(
        &self,
        revision: &str,
        capabilities: &Value,
    ) -> (String, Response<Body>) {
        let params = json!({ "protocolVersion": revision, "capabilities": capabilities, "clientInfo": { "name": "t", "version": "0" } });
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params });
        let response = self.send("POST", &[], &body).await;
        assert_eq!(response.status(), 200);
        let session = response.headers()["mcp-session-id"].to_str().unwrap().to_owned();
        let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        let accepted = self.send("POST", &[("mcp-session-id", &session)], &initialized).await;
        assert_eq!(accepted.status(), 202);
        (session, response)
    }
}

pub(crate) fn call(tool: &str, args: &Value) -> Value {
    let params = json!({ "name": tool, "arguments": args, "_meta": { "progressToken": 7 } });
    json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params })
}
