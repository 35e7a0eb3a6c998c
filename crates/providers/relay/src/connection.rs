//! One agent's connection to its session: newline-delimited JSON-RPC 2.0 with concurrent
//! requests.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;
use sa_core::call::{CallRequest, TraceContext};
use sa_core::{CallError, CallErrorKind, RawJson};
use sa_limits::offload;
use sa_text::json::object;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::io::{AsyncRead, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

use crate::args::{self, EventsQuery};
use crate::byte_counter::{ByteCounter, Charge};
use crate::lines::{Line, Lines};
use crate::rpc::{self, Fault, INVALID_REQUEST, Incoming, METHOD_NOT_FOUND, Request};
use crate::session::{Session, Working};
use crate::sessions::Sessions;

/// The maximum number of running requests of one connection.
pub(crate) const MAX_RUNNING: usize = 64;
/// The maximum number of answers queued for a slow client. Further requests wait for space, and
/// keep their slots.
const QUEUE: usize = 16;
/// The timeout for writing one line to a client.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

struct Connection {
    sessions: Arc<Sessions>,
    session: Arc<Session>,
    answers: mpsc::Sender<Answer>,
    /// The bytes of incomplete lines and running requests.
    incoming: Arc<ByteCounter>,
    /// The bytes of answers that the client has not read yet.
    unread: Arc<ByteCounter>,
    places: Arc<Semaphore>,
    /// The running requests, by the ids of the client. If a client uses an id twice, it can only
    /// cancel the later request.
    running: Mutex<HashMap<String, AbortHandle>>,
    /// Cancelled when the connection has ended, which cancels the running requests.
    over: CancellationToken,
}

/// A line for the client, and its charge until it is written.
struct Answer {
    line: String,
    charge: Charge,
}

pub(crate) async fn serve(sessions: &Arc<Sessions>, session: &Arc<Session>, stream: UnixStream) {
    let (reading, mut writing) = stream.into_split();
    let (answers, mut queue) = mpsc::channel::<Answer>(QUEUE);
    let holder = session.agent_holder();
    let budgets = &sessions.options.budgets;
    let connection = Arc::new(Connection {
        sessions: Arc::clone(sessions),
        session: Arc::clone(session),
        answers,
        incoming: ByteCounter::new(&budgets.requests.share(&holder)),
        unread: ByteCounter::new(&budgets.answers.share(&holder)),
        places: Arc::new(Semaphore::new(MAX_RUNNING)),
        running: Mutex::default(),
        over: CancellationToken::new(),
    });
    let _over = connection.over.clone().drop_guard();
    let _working = Working::new(session);
    session.touch();
    let write = async {
        // Sent before anything else, and again after each change.
        let mut lent = session.lent.subscribe();
        lent.mark_changed();
        loop {
            let next = tokio::select! {
                biased;
                Ok(()) = lent.changed() => Err(Arc::clone(&lent.borrow_and_update())),
                Some(answer) = queue.recv() => Ok(answer),
                () = session.ended.cancelled() => return,
            };
            // All connections share the text of the tools.
            let line = match &next {
                Ok(answer) => &answer.line,
                Err(lent) => &lent.config,
            };
            let written =
                tokio::time::timeout(WRITE_TIMEOUT, writing.write_all(line.as_bytes())).await;
            if !matches!(written, Ok(Ok(()))) {
                return;
            }
        }
    };
    let read = connection.read(reading);
    tokio::select! { () = write => {}, () = read => {} }
}

impl Connection {
    async fn read(self: &Arc<Self>, stream: impl AsyncRead + Unpin) {
        let max = self.sessions.options.max_line_bytes;
        let mut lines = Lines::new(BufReader::new(stream), max, &self.incoming);
        let mut first = true;
        loop {
            let (line, charge) = match lines.next().await {
                Ok(Line::Complete(line, charge)) => (line, charge),
                Ok(Line::TooLong) => {
                    self.sessions.journal().count("relay", "line_too_long");
                    let message = format!("a line can have at most {max} bytes");
                    let line = rpc::failed(None, INVALID_REQUEST, &message, None);
                    self.send(self.sized(None, line)).await;
                    continue;
                }
                Ok(Line::Refused(refused)) => {
                    self.sessions.journal().count("relay", "no_room");
                    self.send(self.sized(None, rpc::refused(None, &refused.into()))).await;
                    continue;
                }
                Ok(Line::End) | Err(_) => return,
            };
            let is_first = std::mem::take(&mut first);
            let incoming = offload::run_queued(line.len(), || rpc::decode(&line, is_first)).await;
            drop(line);
            match incoming {
                Incoming::Nothing => {}
                Incoming::One(Ok(request)) if request.method == "cancel" => self.cancel(&request),
                Incoming::One(Ok(request)) => self.start(request, charge).await,
                Incoming::One(Err(fault)) => self.send(self.fault(&fault)).await,
                Incoming::Batch(items) => self.start_batch(items, charge).await,
            }
        }
    }

    /// Starts a request, which runs concurrently with the others.
    async fn start(self: &Arc<Self>, request: Request, charge: Charge) {
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            let error = CallError::new(
                CallErrorKind::Overloaded,
                format!("the limit of {MAX_RUNNING} running requests is reached"),
            );
            if let Some(id) = &request.id {
                self.send(self.sized(Some(id), rpc::refused(Some(id), &error))).await;
            }
            return;
        };
        let key = request.id.as_ref().map(|id| id.get().to_owned());
        let this = Arc::clone(self);
        let done = key.clone();
        let (go, ready) = tokio::sync::oneshot::channel::<()>();
        let task = tokio::spawn(async move {
            // Waits until the entry below exists, so that the request cannot end before.
            let _ = ready.await;
            let answer = this.answer(request);
            let answer = this.over.run_until_cancelled(answer).await.flatten();
            drop(charge);
            if let Some(key) = done {
                this.forget(&key, tokio::task::id());
            }
            if let Some(answer) = answer {
                this.send(answer).await;
            }
            drop(place);
        });
        if let Some(key) = key {
            self.running().insert(key, task.abort_handle());
        }
        let _ = go.send(());
    }

    async fn start_batch(self: &Arc<Self>, items: Vec<Result<Request, Fault>>, charge: Charge) {
        let Ok(place) = Arc::clone(&self.places)
            .try_acquire_many_owned(items.len().clamp(1, u32::MAX as usize) as u32)
        else {
            let error = CallError::new(
                CallErrorKind::Overloaded,
                format!("at most {MAX_RUNNING} requests can run at once"),
            );
            return self.send(self.sized(None, rpc::refused(None, &error))).await;
        };
        let this = Arc::clone(self);
        tokio::spawn(async move {
            let answers = items.into_iter().map(async |item| match item {
                Ok(request) => this.answer(request).await,
                Err(fault) => Some(this.fault(&fault)),
            });
            let Some(answers) = this.over.run_until_cancelled(join_all(answers)).await else {
                return;
            };
            drop(charge);
            let (mut lines, mut charge) = (Vec::new(), this.unread.empty());
            for answer in answers.into_iter().flatten() {
                lines.push(answer.line);
                charge.merge(answer.charge);
            }
            if !lines.is_empty() {
                this.send(Answer { line: format!("[{}]", lines.join(",")), charge }).await;
            }
            drop(place);
        });
    }

    async fn answer(&self, request: Request) -> Option<Answer> {
        let Request { id, method, params } = request;
        let params =
            params.as_ref().map_or_else(|| Ok(RawJson::empty_object()), |raw| RawJson::part(raw));
        let outcome = match params {
            Ok(params) if params.is_null() => self.run(&method, RawJson::empty_object()).await,
            Ok(params) => self.run(&method, params).await,
            Err(error) => Err(args::invalid(format!("params are invalid: {error}"))),
        };
        let id = id?;
        let line = match outcome {
            Ok(Some(result)) => rpc::result(&id, &result),
            Ok(None) => {
                let method: String = method.chars().take(64).collect();
                let message = format!("unknown method \"{method}\"");
                rpc::failed(Some(&id), METHOD_NOT_FOUND, &message, None)
            }
            Err(error) => rpc::refused(Some(&id), &error),
        };
        Some(self.sized(Some(&id), line))
    }

    /// Runs a method. Returns `None` if there is no such method.
    async fn run(&self, method: &str, params: RawJson) -> Result<Option<RawJson>, CallError> {
        self.session.touch();
        let principal = self.session.view().principal;
        let answer = match method {
            "caller_tool" => return self.caller_tool(params).await.map(Some),
            "session_message" => {
                self.sessions.message(&principal, &params, Some(&self.session)).await?.answer()
            }
            "session_events" => {
                let query: EventsQuery = args::read(&params)?;
                let id = query.session_id.clone().unwrap_or_else(|| self.session.id.to_string());
                self.sessions.read_events(&principal, &id, &query, Some(&self.session)).await?
            }
            "project_list" => {
                let agents = self.sessions.options.agents.keys();
                json!({ "projects": agents.map(|name| json!({ "id": name, "name": name })).collect::<Vec<_>>() })
            }
            _ => return Ok(None),
        };
        Ok(Some(RawJson::of(&answer)))
    }

    async fn caller_tool(&self, params: RawJson) -> Result<RawJson, CallError> {
        let call: CallerTool = args::read(&params)?;
        drop(params);
        if call.timeout_ms == Some(0) || call.idle_timeout_ms == Some(0) {
            return Err(args::invalid("timeout_ms and idle_timeout_ms must be at least 1"));
        }
        let args = call.arguments.as_ref().filter(|raw| raw.get() != "null");
        let args = args.map_or_else(|| Ok(RawJson::empty_object()), |raw| RawJson::part(raw));
        let request = CallRequest {
            tool: self.session.tool(&call.tool)?.to_string(),
            args: args.map_err(|error| args::invalid(format!("arguments are invalid: {error}")))?,
            view: self.session.view(),
            surface: "relay",
            session_key: Some(Arc::clone(&self.session.id)),
            timeout: call.timeout_ms.map(Duration::from_millis),
            idle_timeout: call.idle_timeout_ms.map(Duration::from_millis),
            idempotency_key: None,
            trace: TraceContext::root(),
        };
        drop(call);
        let finished = self.sessions.router.start(request, None).outcome().await;
        finished.outcome.map(|output| output.content)
    }

    fn cancel(&self, request: &Request) {
        #[derive(Deserialize)]
        struct Params<'a> {
            #[serde(borrow)]
            id: &'a RawValue,
        }
        let params =
            request.params.as_ref().and_then(|raw| object::<Params<'_>>(raw.get().as_bytes()).ok());
        let task = params.and_then(|params| self.running().remove(params.id.get()));
        if let Some(task) = task {
            task.abort();
        }
    }

    fn fault(&self, fault: &Fault) -> Answer {
        self.sessions.journal().count("relay", "bad_line");
        let id = fault.id.as_deref();
        self.sized(id, rpc::failed(id, fault.code, &fault.message, None))
    }

    /// Charges an answer. If the budget refuses it, the client receives that error instead.
    fn sized(&self, id: Option<&RawValue>, line: String) -> Answer {
        let mut charge = self.unread.empty();
        match charge.resize(line.len()) {
            Ok(()) => Answer { line, charge },
            Err(refused) => {
                self.sessions.journal().count("relay", "no_room");
                Answer { line: rpc::refused(id, &refused.into()), charge }
            }
        }
    }

    async fn send(&self, mut answer: Answer) {
        answer.line.push('\n');
        // Fails only if the connection has ended.
        let _ = self.answers.send(answer).await;
    }

    /// Removes a finished request from the table, unless a later one has the same id.
    fn forget(&self, key: &str, task: tokio::task::Id) {
        let mut running = self.running();
        if running.get(key).is_some_and(|known| known.id() == task) {
            running.remove(key);
        }
    }

    fn running(&self) -> parking_lot::MutexGuard<'_, HashMap<String, AbortHandle>> {
        self.running.lock()
    }
}

#[derive(Deserialize)]
struct CallerTool {
    #[serde(alias = "name")]
    tool: String,
    #[serde(alias = "args")]
    arguments: Option<Box<RawValue>>,
    timeout_ms: Option<u64>,
    idle_timeout_ms: Option<u64>,
}
