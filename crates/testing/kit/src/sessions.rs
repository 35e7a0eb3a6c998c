//! Sessions of callers and their agents, over HTTP.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sa_relay::http::Routes;
use sa_relay::{Budgets, Options, Sessions};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{Agent, Parts, budget};

/// Opens a session for this caller, with the tools `send` (with a schema) and `recall`.
pub async fn session(caller: &Agent) -> Value {
    session_with(caller, json!({})).await
}

/// Opens a session like [`session`], with these members in the request.
pub async fn session_with(caller: &Agent, more: Value) -> Value {
    let mut body = json!({ "message": "work", "context": { "caller_id": "ant", "caller_tools": [
        { "name": "send", "description": "Sends it", "inputSchema": {
            "type": "object", "properties": { "text": { "type": "string" } }, "required": ["text"] } },
        { "name": "recall" },
    ] } });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let reply = caller.post("/v1/sessions", &body).await;
    assert_eq!(reply.status, 201, "{}", reply.text);
    reply.body
}

/// Returns the id of a session.
pub fn id(session: &Value) -> &str {
    session["session_id"].as_str().unwrap()
}

/// Sends an answer to a request, and returns the reply.
pub async fn reply(caller: &Agent, request: &Value, answer: Value) -> Value {
    let mut body = json!({ "request_id": request["request_id"] });
    body.as_object_mut().unwrap().extend(answer.as_object().unwrap().clone());
    let reply = caller
        .post(&format!("/v1/sessions/{}/responses", request["session_id"].as_str().unwrap()), &body)
        .await;
    assert_eq!(reply.status, 202, "{}", reply.text);
    reply.body
}

/// Sends an answer to a request.
pub async fn answer(caller: &Agent, request: &Value, answer: Value) {
    assert_eq!(reply(caller, request, answer).await, json!({ "received": true }));
}

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Section {
    enabled: bool,
    caller_timeout_ms: u64,
    caller_grace_ms: u64,
}

impl Default for Section {
    fn default() -> Self {
        Self { enabled: true, caller_timeout_ms: 60_000, caller_grace_ms: 0 }
    }
}

/// Starts sessions without agents, unless the configuration disables them.
pub(crate) async fn start(parts: &Parts) -> Option<Arc<Sessions>> {
    let section: Section = parts.settings.section("sessions");
    if !section.enabled {
        return None;
    }
    let day = Duration::from_secs(86_400);
    let data_dir = parts.dir.path().to_owned();
    let options = Options {
        socket_dir: sa_relay::socket_dir(&data_dir).unwrap(),
        data_dir,
        hidden: Vec::new(),
        program: std::env::current_exe().unwrap(),
        timeout: Duration::from_millis(section.caller_timeout_ms),
        caller_grace: Duration::from_millis(section.caller_grace_ms),
        idle: day,
        agent_timeout: Duration::from_secs(30),
        max_sessions: 256,
        max_pending: 64,
        max_line_bytes: parts.settings.limits().max_frame_bytes,
        budgets: Budgets {
            connections: budget("server.max_connections"),
            requests: budget("limits.request_bytes"),
            answers: budget("limits.answer_bytes"),
        },
        keep_events: 10_000,
        keep_event_bytes: 16 << 20,
        max_stored_bytes: 4 << 30,
        keep: day,
        trimmer: Arc::clone(&parts.trimmer),
        agents: BTreeMap::new(),
        default_agent: String::new(),
    };
    let store = Arc::new(parts.store.clone());
    let (router, notices) = (Arc::clone(&parts.router), parts.notices.clone());
    let sessions = Sessions::start(router, notices, Arc::clone(&store) as _, store, options);
    Some(sessions.await.unwrap())
}

pub(crate) fn routes(parts: &Parts, sessions: Option<Arc<Sessions>>) -> axum::Router {
    let routes = Routes { http: parts.http(), sessions, closing: parts.closing.clone() };
    sa_relay::http::router().with_state(routes).into()
}
