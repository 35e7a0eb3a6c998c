//! Lends functions to an agent that works for the caller in a session.
//!
//! ```no_run
//! use sa_caller::Caller;
//! use serde_json::json;
//!
//! # async fn example() -> Result<(), sa_caller::Error> {
//! let schema = json!({ "type": "object", "properties": { "text": { "type": "string" } }, "required": ["text"] });
//! let session = Caller::new("http://127.0.0.1:3210", "sb_…", "ant")
//!     .tool("send", "Sends a message", schema, |args| async move {
//!         println!("{}", args["text"]);
//!         Ok(json!({ "sent": true }))
//!     })
//!     .start("Tell me when you are done")
//!     .await?;
//! session.ended().await?;
//! # Ok(())
//! # }
//! ```
//!
//! Tools run concurrently. Each request runs once, even if the connection is lost and
//! re-established meanwhile. When the agent stops waiting for a request, the request and the tool's
//! future are dropped.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use reqwest::{Client, Method, RequestBuilder, StatusCode};
use sa_sse::{Broken, Events, TooLong};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinHandle};

/// The delay between attempts to reconnect, and the maximum number of attempts.
const RECONNECT_EVERY: Duration = Duration::from_millis(200);
const RECONNECTS: u32 = 50;
/// The maximum number of attempts to deliver an answer.
const ANSWER_ATTEMPTS: u32 = 5;
/// The maximum size of an event in bytes. The arguments of a tool are the largest part of any
/// event.
const MAX_EVENT: usize = 64 << 20;

type Function = Arc<dyn Fn(Value) -> BoxFuture<'static, Result<Value, String>> + Send + Sync>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The gateway rejected the request and gave a reason.
    #[error("{detail}")]
    Refused { status: u16, kind: String, detail: String },
    #[error("cannot reach the gateway: {0}")]
    Unreachable(#[from] reqwest::Error),
    #[error("the event stream of the session was lost, and the gateway could not be reached again")]
    Lost,
    /// Reconnecting would not help, because the same event would arrive again.
    #[error("the event stream of the session is invalid: {0}")]
    TooLong(#[from] TooLong),
}

/// A caller with its tools, before it has a session.
pub struct Caller {
    http: Http,
    name: String,
    agent: Option<String>,
    timeout: Option<Duration>,
    specs: Vec<Value>,
    functions: HashMap<String, Function>,
}

impl Caller {
    /// Creates a caller. The names of its tools begin with `caller_id`.
    pub fn new(gateway: &str, token: &str, caller_id: &str) -> Self {
        let http = Http {
            client: Client::new(),
            base: gateway.trim_end_matches('/').into(),
            token: token.into(),
        };
        let (specs, functions) = (Vec::new(), HashMap::new());
        Self { http, name: caller_id.into(), agent: None, timeout: None, specs, functions }
    }

    /// Selects the configured agent of the session; the gateway's default agent otherwise.
    #[must_use]
    pub fn agent(mut self, name: &str) -> Self {
        self.agent = Some(name.into());
        self
    }

    /// Sets the time limit of a tool.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Adds a tool. `schema` is the JSON Schema of its arguments; the gateway checks them before
    /// the function runs.
    #[must_use]
    pub fn tool<F, R>(mut self, name: &str, description: &str, schema: Value, function: F) -> Self
    where
        F: Fn(Value) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Value, String>> + Send + 'static,
    {
        self.specs.push(json!({ "name": name, "description": description, "inputSchema": schema }));
        self.functions.insert(name.into(), Arc::new(move |args| Box::pin(function(args))));
        self
    }

    /// Starts a session with its first message, and answers tool requests until it ends.
    pub async fn start(self, message: &str) -> Result<Session, Error> {
        let mut body = json!({
            "message": message,
            "context": { "caller_id": self.name, "caller_tools": self.specs },
        });
        if let Some(agent) = &self.agent {
            body["agent"] = json!(agent);
        }
        if let Some(timeout) = self.timeout {
            body["timeout_ms"] = json!(timeout.as_millis() as u64);
        }
        let answer =
            self.http.send(self.http.request(Method::POST, "/v1/sessions").json(&body)).await?;
        let id = answer["session_id"].as_str().unwrap_or_default().to_owned();
        let (say, events) = mpsc::unbounded_channel();
        let lending = Lending {
            http: self.http.clone(),
            path: format!("/v1/sessions/{id}"),
            functions: self.functions,
            running: Arc::default(),
        };
        let serving = tokio::spawn(async move { lending.serve(say).await });
        Ok(Session { id, about: answer, http: self.http, events, serving })
    }
}

impl std::fmt::Debug for Caller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Caller").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A session. Dropping it leaves the session open and its tool requests unanswered;
/// [`Session::end`] ends it.
#[derive(Debug)]
pub struct Session {
    pub id: String,
    /// The gateway's description of the session at its start, including its socket.
    pub about: Value,
    http: Http,
    events: mpsc::UnboundedReceiver<Value>,
    serving: JoinHandle<Result<(), Error>>,
}

impl Session {
    /// Sends another message to the agent.
    pub async fn message(&self, text: &str) -> Result<(), Error> {
        let body = json!({ "session_id": self.id, "message": text });
        self.http.send(self.http.request(Method::POST, "/v1/sessions").json(&body)).await.map(drop)
    }

    /// Returns the next event of the session, or `None` after its end.
    pub async fn next_event(&mut self) -> Option<Value> {
        self.events.recv().await
    }

    /// Waits for the session's end.
    pub async fn ended(mut self) -> Result<(), Error> {
        (&mut self.serving).await.unwrap_or(Err(Error::Lost))
    }

    /// Ends the session.
    pub async fn end(self) -> Result<(), Error> {
        self.http
            .send(self.http.request(Method::DELETE, &format!("/v1/sessions/{}", self.id)))
            .await
            .map(drop)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Receives the agent's requests and runs the tools.
struct Lending {
    http: Http,
    path: String,
    functions: HashMap<String, Function>,
    running: Arc<Mutex<HashMap<String, AbortHandle>>>,
}

impl Lending {
    async fn serve(self, say: mpsc::UnboundedSender<Value>) -> Result<(), Error> {
        let _end_tools = EndTools(Arc::clone(&self.running));
        let mut last: Arc<str> = "0".into();
        let mut failures = 0;
        loop {
            let request = self
                .http
                .request(Method::GET, &format!("{}/events", self.path))
                .header("last-event-id", &*last);
            match self.http.open(request).await {
                Ok(response) => {
                    failures = 0;
                    let mut events = Events::new(response, MAX_EVENT);
                    loop {
                        let event = match events.next().await {
                            Ok(Some(event)) => event,
                            // The stream is opened again, however it ended.
                            Ok(None) | Err(Broken::Cut(_)) => break,
                            Err(Broken::TooLong(too_long)) => return Err(too_long.into()),
                        };
                        if let Some(id) = event.id {
                            last = id;
                        }
                        let Ok(event) = serde_json::from_str::<Value>(&event.data) else {
                            continue;
                        };
                        let ended = event["type"] == "session_ended";
                        self.take(&event);
                        let _ = say.send(event);
                        if ended {
                            return Ok(());
                        }
                    }
                }
                Err(refused @ Error::Refused { .. }) => return Err(refused),
                Err(_) => failures += 1,
            }
            if failures > RECONNECTS {
                return Err(Error::Lost);
            }
            tokio::time::sleep(RECONNECT_EVERY).await;
        }
    }

    fn take(&self, event: &Value) {
        let Some(id) = event["request_id"].as_str() else { return };
        match event["type"].as_str() {
            Some("caller_tool_request") => self.run(id, event),
            Some("caller_tool_cancelled") => {
                if let Some(task) = self.running().remove(id) {
                    task.abort();
                }
            }
            _ => {}
        }
    }

    fn run(&self, id: &str, event: &Value) {
        let mut running = self.running();
        // After a lost connection the gateway sends the open requests again.
        if running.contains_key(id) {
            return;
        }
        let name = event["tool"].as_str().unwrap_or_default();
        let work = self.functions.get(name).map(|function| function(event["arguments"].clone()));
        let missing = format!("this caller has no function \"{name}\"");
        let (http, path, id) =
            (self.http.clone(), format!("{}/responses", self.path), id.to_owned());
        let (table, key) = (Arc::clone(&self.running), id.clone());
        let task = tokio::spawn(async move {
            let outcome = match work {
                // The function runs in its own task, so that a panic becomes an error instead of a
                // missing answer.
                Some(work) => match EndWithMe(tokio::spawn(work)).wait().await {
                    Ok(outcome) => outcome,
                    Err(_) => Err("the function panicked".into()),
                },
                None => Err(missing),
            };
            let mut body = json!({ "request_id": id });
            match outcome {
                Ok(result) => body["result"] = result,
                Err(error) => body["error"] = error.into(),
            }
            for _ in 0..ANSWER_ATTEMPTS {
                match http.send(http.request(Method::POST, &path).json(&body)).await {
                    Err(Error::Unreachable(_)) => tokio::time::sleep(RECONNECT_EVERY).await,
                    _ => break,
                }
            }
            table.lock().remove(&key);
        });
        running.insert(
            event["request_id"].as_str().unwrap_or_default().to_owned(),
            task.abort_handle(),
        );
    }

    fn running(&self) -> parking_lot::MutexGuard<'_, HashMap<String, AbortHandle>> {
        self.running.lock()
    }
}

/// Aborts the running tools when the session is no longer served.
struct EndTools(Arc<Mutex<HashMap<String, AbortHandle>>>);

impl Drop for EndTools {
    fn drop(&mut self) {
        for (_, task) in self.0.lock().drain() {
            task.abort();
        }
    }
}

struct EndWithMe<T>(JoinHandle<T>);

impl<T> EndWithMe<T> {
    async fn wait(mut self) -> Result<T, tokio::task::JoinError> {
        (&mut self.0).await
    }
}

impl<T> Drop for EndWithMe<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[derive(Clone)]
struct Http {
    client: Client,
    base: Arc<str>,
    token: Arc<str>,
}

impl std::fmt::Debug for Http {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Http").field("base", &self.base).finish_non_exhaustive()
    }
}

impl Http {
    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("{}{path}", self.base)).bearer_auth(&self.token)
    }

    async fn open(&self, request: RequestBuilder) -> Result<reqwest::Response, Error> {
        let response = request.send().await?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status: StatusCode = response.status();
        let problem: Value = response.json().await.unwrap_or_default();
        let text = |key: &str| problem[key].as_str().unwrap_or_default().to_owned();
        Err(Error::Refused { status: status.as_u16(), kind: text("kind"), detail: text("detail") })
    }

    async fn send(&self, request: RequestBuilder) -> Result<Value, Error> {
        Ok(self.open(request).await?.json().await?)
    }
}
