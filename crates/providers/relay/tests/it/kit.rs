//! Sessions behind a router, with agents that are shell scripts, and an agent's end of a
//! session's socket.
#![allow(dead_code, reason = "each test file uses the part that it needs")]

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sa_core::audit::NoJournal;
use sa_core::call::{CallRequest, TraceContext};
use sa_core::retention::{Reading, TrustedClock};
use sa_core::store::Log;
use sa_core::{
    CallError, Directory, Notices, Policy, Principal, RawJson, Role, Router, RouterOptions, Scope,
    Trimmer, View,
};
use sa_limits::budget::{Limit, SharedBudget};
use sa_relay::{Budgets, Options, Sessions};
use sa_store::{OpenOptions, Store};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;

pub(crate) const SOON: Duration = Duration::from_secs(10);

pub(crate) struct Kit {
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) notices: Notices,
    router: Arc<Router>,
    store: Arc<Store>,
    options: Options,
    dir: Arc<TempDir>,
}

impl Kit {
    /// Starts sessions; `script` is the agent.
    pub(crate) async fn new(script: &str) -> Self {
        Self::with_grace(script, Duration::ZERO).await
    }

    pub(crate) async fn with_grace(script: &str, caller_grace: Duration) -> Self {
        Self::with_log(script, caller_grace, |store| store).await
    }

    /// Starts sessions; `log` wraps the store.
    pub(crate) async fn with_log(
        script: &str,
        caller_grace: Duration,
        log: impl FnOnce(Arc<Store>) -> Arc<dyn Log>,
    ) -> Self {
        Self::with(script, caller_grace, log, |_| {}).await
    }

    /// Starts sessions; `set` changes their options.
    pub(crate) async fn with(
        script: &str,
        caller_grace: Duration,
        log: impl FnOnce(Arc<Store>) -> Arc<dyn Log>,
        set: impl FnOnce(&mut Options),
    ) -> Self {
        sa_process::set_program(supervisor());
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("agent");
        std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
        let store = Store::open(OpenOptions::new(dir.path().join("store.db"))).unwrap();
        let minute = Duration::from_secs(60);
        let mut options = Options {
            socket_dir: dir.path().to_owned(),
            data_dir: dir.path().to_owned(),
            hidden: Vec::new(),
            trimmer: Arc::new(Trimmer::new(TrustedClock::new(None), || Reading {
                wall_ms: 0,
                uptime_ms: 0,
            })),
            program: program.clone(),
            timeout: minute,
            caller_grace,
            idle: minute,
            agent_timeout: minute,
            max_sessions: 16,
            max_pending: 16,
            max_line_bytes: 1 << 20,
            budgets: Budgets {
                connections: budget("connections", 1_000),
                requests: budget("requests", 64 << 20),
                answers: budget("answers", 64 << 20),
            },
            keep_events: 1_000,
            keep_event_bytes: 16 << 20,
            max_stored_bytes: 1 << 30,
            keep: minute,
            agents: serde_json::from_value(json!({ "helper": { "command": [program] } })).unwrap(),
            default_agent: String::new(),
        };
        set(&mut options);
        let store = Arc::new(store);
        Self::start(log(store.clone()), store, options, Arc::new(dir)).await
    }

    /// Starts a gateway with the same store, as after a crash. The sockets stay where they are.
    pub(crate) async fn after_crash(&self) -> Self {
        let (store, dir) = (Arc::clone(&self.store), Arc::clone(&self.dir));
        Self::start(store.clone(), store, self.options.clone(), dir).await
    }

    async fn start(
        log: Arc<dyn Log>,
        store: Arc<Store>,
        options: Options,
        dir: Arc<TempDir>,
    ) -> Self {
        let notices = Notices::new();
        let directory = Directory::new(notices.clone(), Duration::from_secs(60));
        let journal = Arc::new(NoJournal);
        let router =
            Router::new(directory, journal, None, Policy::default(), RouterOptions::default());
        let sessions = Sessions::start(
            Arc::clone(&router),
            notices.clone(),
            log,
            store.clone(),
            options.clone(),
        );
        Self { sessions: sessions.await.unwrap(), notices, router, store, options, dir }
    }

    /// Calls a session tool.
    pub(crate) async fn call(
        &self,
        principal: &Arc<Principal>,
        tool: &str,
        args: Value,
    ) -> Result<Value, CallError> {
        let request = CallRequest {
            tool: tool.to_owned(),
            args: RawJson::of(&args),
            view: View::of(Arc::clone(principal)),
            surface: "test",
            session_key: None,
            timeout: None,
            idle_timeout: None,
            idempotency_key: None,
            trace: TraceContext::root(),
        };
        let finished = self.router.start(request, None).outcome().await;
        finished.outcome.map(|output| output.content.to_value().unwrap())
    }

    /// Calls a tool that a session's caller lends, as a surface does.
    pub(crate) async fn call_within(
        &self,
        principal: &Arc<Principal>,
        session: &str,
        tool: &str,
        timeout: Duration,
    ) -> Result<Value, CallError> {
        let request = CallRequest {
            tool: tool.to_owned(),
            args: RawJson::empty_object(),
            view: View {
                principal: Arc::clone(principal),
                scopes: vec![Scope::Session(session.into())],
            },
            surface: "test",
            session_key: None,
            timeout: Some(timeout),
            idle_timeout: None,
            idempotency_key: None,
            trace: TraceContext::root(),
        };
        let finished = self.router.start(request, None).outcome().await;
        finished.outcome.map(|output| output.content.to_value().unwrap())
    }

    /// The path of a session's socket.
    pub(crate) async fn socket(&self, principal: &Arc<Principal>, session: &str) -> String {
        self.sessions.show(principal, session).await.unwrap().socket.unwrap()
    }

    /// Opens a session with one lent tool, and connects to its socket.
    pub(crate) async fn session(&self, principal: &Arc<Principal>) -> (String, Agent) {
        let tool = json!({ "name": "send", "inputSchema": { "type": "object" } });
        let args = json!({ "context": { "caller_id": "ant", "caller_tools": [tool] } });
        let opened = self.call(principal, "session_message", args).await.unwrap();
        let agent = Agent::connect(opened["socket"].as_str().unwrap()).await;
        (opened["session_id"].as_str().unwrap().to_owned(), agent)
    }
}

/// The variable with the path of the supervisor program, for another user.
pub(crate) const SUPERVISOR: &str = "SA_TEST_SUPERVISOR";

/// Returns the supervisor program.
pub(crate) fn supervisor() -> PathBuf {
    let own = || env!("CARGO_BIN_EXE_sa-relay-supervisor").into();
    std::env::var_os(SUPERVISOR).unwrap_or_else(own).into()
}

pub(crate) fn budget(name: &'static str, total: usize) -> Arc<SharedBudget> {
    SharedBudget::new(Limit { name, what: name, key: "limits.key", remedy: "wait", total })
}

pub(crate) fn principal(id: &str) -> Arc<Principal> {
    Arc::new(Principal::new(id, id, Role::Agent))
}

/// One connection to a session's socket.
pub(crate) struct Agent {
    stream: BufReader<UnixStream>,
    requests: u64,
}

impl Agent {
    pub(crate) async fn connect(path: &str) -> Self {
        Self { stream: BufReader::new(UnixStream::connect(path).await.unwrap()), requests: 0 }
    }

    pub(crate) async fn ask(&mut self, method: &str, params: Value) {
        let request =
            json!({ "jsonrpc": "2.0", "id": self.requests, "method": method, "params": params });
        self.requests += 1;
        self.stream.write_all(format!("{request}\n").as_bytes()).await.unwrap();
    }

    /// Returns the answer to the last request.
    pub(crate) async fn answer(&mut self) -> Value {
        loop {
            let message = self.line().await;
            if message["id"] == self.requests - 1 {
                return message;
            }
        }
    }

    /// Returns the next line that is not about the caller's tools.
    pub(crate) async fn line(&mut self) -> Value {
        loop {
            let mut line = String::new();
            tokio::time::timeout(SOON, self.stream.read_line(&mut line)).await.unwrap().unwrap();
            let message: Value = serde_json::from_str(&line).unwrap();
            if message["type"] != "caller_tools_config" {
                return message;
            }
        }
    }

    pub(crate) async fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    pub(crate) async fn request(&mut self, method: &str, params: Value) -> Value {
        self.ask(method, params).await;
        let answer = self.answer().await;
        assert!(answer["error"].is_null(), "{method}: {answer}");
        answer["result"].clone()
    }
}
