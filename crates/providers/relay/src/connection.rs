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
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

use crate::args::{self, EventsQuery};
use crate::rpc::{self, Fault, INVALID_REQUEST, Incoming, METHOD_NOT_FOUND, Request};
use crate::session::{Session, Working};
use crate::sessions::Sessions;

/// The maximum number of running requests of one connection.
const MAX_RUNNING: usize = 64;
/// The maximum number of answers queued for a slow client. Further requests wait for space, and
/// keep their slots.
const QUEUE: usize = 16;
/// The timeout for writing one line to a client.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

struct Connection {
    sessions: Arc<Sessions>,
    session: Arc<Session>,
    lines: mpsc::Sender<String>,
    places: Arc<Semaphore>,
    /// The running requests, by the ids of the client. If a client uses an id twice, it can only
    /// cancel the later request.
    running: Mutex<HashMap<String, AbortHandle>>,
    /// Cancelled when the connection has ended, which cancels the running requests.
    over: CancellationToken,
}

pub(crate) async fn serve(sessions: &Arc<Sessions>, session: &Arc<Session>, stream: UnixStream) {
    let (reading, mut writing) = stream.into_split();
    let (lines, mut queue) = mpsc::channel::<String>(QUEUE);
    let connection = Arc::new(Connection {
        sessions: Arc::clone(sessions),
        session: Arc::clone(session),
        lines,
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
            let mut line = tokio::select! {
                biased;
                Ok(()) = lent.changed() => lent.borrow_and_update().config.clone(),
                Some(line) = queue.recv() => line,
                () = session.ended.cancelled() => return,
            };
            line.push('\n');
            let written =
                tokio::time::timeout(WRITE_TIMEOUT, writing.write_all(line.as_bytes())).await;
            if !matches!(written, Ok(Ok(()))) {
                return;
            }
        }
    };
    let read = connection.read(BufReader::new(reading));
    tokio::select! { () = write => {}, () = read => {} }
}

impl Connection {
    async fn read(self: &Arc<Self>, mut reader: impl AsyncBufRead + Unpin) {
        let max = self.sessions.options.max_line_bytes;
        let mut first = true;
        loop {
            let line = match next_line(&mut reader, max).await {
                Ok(Line::Whole(line)) => line,
                Ok(Line::TooLong) => {
                    self.sessions.journal().count("relay", "line_too_long");
                    let message = format!("a line can have at most {max} bytes");
                    self.say(failed(None, INVALID_REQUEST, &message, None)).await;
                    continue;
                }
                Ok(Line::End) | Err(_) => return,
            };
            let is_first = std::mem::take(&mut first);
            let incoming = offload::run_queued(line.len(), || rpc::decode(&line, is_first)).await;
            match incoming {
                Incoming::Nothing => {}
                Incoming::One(Ok(request)) if request.method == "cancel" => self.cancel(&request),
                Incoming::One(Ok(request)) => self.start(request).await,
                Incoming::One(Err(fault)) => {
                    let answer = self.fault(fault);
                    self.say(answer).await;
                }
                Incoming::Batch(items) => self.start_batch(items).await,
            }
        }
    }

    /// Starts a request, which runs concurrently with the others.
    async fn start(self: &Arc<Self>, request: Request) {
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            let error = CallError::new(
                CallErrorKind::Overloaded,
                format!("the limit of {MAX_RUNNING} running requests is reached"),
            );
            if let Some(id) = &request.id {
                self.say(refused(Some(id), &error)).await;
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
            if let Some(key) = done {
                this.forget(&key, tokio::task::id());
            }
            if let Some(answer) = answer {
                this.say(answer).await;
            }
            drop(place);
        });
        if let Some(key) = key {
            self.running().insert(key, task.abort_handle());
        }
        let _ = go.send(());
    }

    async fn start_batch(self: &Arc<Self>, items: Vec<Result<Request, Fault>>) {
        let Ok(place) = Arc::clone(&self.places)
            .try_acquire_many_owned(items.len().clamp(1, u32::MAX as usize) as u32)
        else {
            let error = CallError::new(
                CallErrorKind::Overloaded,
                format!("at most {MAX_RUNNING} requests can run at once"),
            );
            return self.say(refused(None, &error)).await;
        };
        let this = Arc::clone(self);
        tokio::spawn(async move {
            let answers = items.into_iter().map(async |item| match item {
                Ok(request) => this.answer(request).await,
                Err(fault) => Some(this.fault(fault)),
            });
            let Some(answers) = this.over.run_until_cancelled(join_all(answers)).await else {
                return;
            };
            let answers: Vec<String> = answers.into_iter().flatten().collect();
            if !answers.is_empty() {
                this.say(format!("[{}]", answers.join(","))).await;
            }
            drop(place);
        });
    }

    async fn answer(&self, request: Request) -> Option<String> {
        let params = request
            .params
            .as_ref()
            .map_or_else(|| Ok(RawJson::empty_object()), |raw| RawJson::part(raw));
        let outcome = match params {
            Ok(params) if params.is_null() => {
                self.run(&request.method, &RawJson::empty_object()).await
            }
            Ok(params) => self.run(&request.method, &params).await,
            Err(error) => Err(args::invalid(format!("params are invalid: {error}"))),
        };
        let id = request.id?;
        Some(match outcome {
            Ok(Some(result)) => format!(
                "{{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":{}}}",
                id.get(),
                one_line(&result)
            ),
            Ok(None) => {
                let method: String = request.method.chars().take(64).collect();
                failed(Some(&id), METHOD_NOT_FOUND, &format!("unknown method \"{method}\""), None)
            }
            Err(error) => refused(Some(&id), &error),
        })
    }

    /// Runs a method. Returns `None` if there is no such method.
    async fn run(&self, method: &str, params: &RawJson) -> Result<Option<RawJson>, CallError> {
        self.session.touch();
        let principal = self.session.view().principal;
        let answer = match method {
            "caller_tool" => return self.caller_tool(params).await.map(Some),
            "session_message" => {
                self.sessions.message(&principal, params, Some(&self.session)).await?.answer()
            }
            "session_events" => {
                let query: EventsQuery = args::read(params)?;
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

    async fn caller_tool(&self, params: &RawJson) -> Result<RawJson, CallError> {
        let call: CallerTool = args::read(params)?;
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

    fn fault(&self, fault: Fault) -> String {
        self.sessions.journal().count("relay", "bad_line");
        failed(fault.id.as_deref(), fault.code, &fault.message, None)
    }

    async fn say(&self, line: String) {
        // Fails only if the connection has ended.
        let _ = self.lines.send(line).await;
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

/// Replaces line breaks with spaces, because a line is a message. Line breaks inside JSON strings
/// are escaped.
fn one_line(json: &RawJson) -> String {
    json.as_str().replace(['\n', '\r'], " ")
}

fn refused(id: Option<&RawValue>, error: &CallError) -> String {
    let code = match error.kind {
        CallErrorKind::Timeout => -32000,
        CallErrorKind::InvalidArgs => -32602,
        CallErrorKind::Offline => -32001,
        CallErrorKind::NotFound => -32002,
        CallErrorKind::NotAllowed => -32003,
        CallErrorKind::Cancelled => -32004,
        CallErrorKind::Overloaded => -32005,
        CallErrorKind::Failed => -32006,
        CallErrorKind::Conflict => -32007,
        CallErrorKind::Store => -32008,
    };
    let data =
        json!({ "kind": error.kind.as_str(), "hint": error.hint, "retryable": error.retryable });
    failed(id, code, &error.message, Some(data))
}

fn failed(id: Option<&RawValue>, code: i32, message: &str, data: Option<Value>) -> String {
    let mut error = json!({ "code": code, "message": message });
    if let Some(data) = data {
        error["data"] = data;
    }
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{},\"error\":{error}}}", id.map_or("null", RawValue::get))
}

#[derive(Debug, PartialEq, Eq)]
enum Line {
    Whole(Vec<u8>),
    TooLong,
    End,
}

/// Reads the next line. A line that is too long is discarded without buffering it.
async fn next_line(reader: &mut (impl AsyncBufRead + Unpin), max: usize) -> std::io::Result<Line> {
    let (mut line, mut too_long) = (Vec::new(), false);
    loop {
        let part = reader.fill_buf().await?;
        if part.is_empty() {
            // An incomplete line at the end of the stream is ignored.
            return Ok(Line::End);
        }
        let end = part.iter().position(|byte| *byte == b'\n');
        let taken = end.map_or(part.len(), |end| end + 1);
        let text = &part[..end.unwrap_or(part.len())];
        too_long |= line.len() + text.len() > max;
        if too_long {
            line = Vec::new();
        } else {
            line.extend_from_slice(text);
        }
        reader.consume(taken);
        if end.is_some() {
            return Ok(if too_long { Line::TooLong } else { Line::Whole(line) });
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    async fn lines(bytes: &[u8], capacity: usize, max: usize) -> Vec<Option<Vec<u8>>> {
        let mut reader = BufReader::with_capacity(capacity, bytes);
        let mut lines = Vec::new();
        loop {
            match next_line(&mut reader, max).await.unwrap() {
                Line::Whole(line) => lines.push(Some(line)),
                Line::TooLong => lines.push(None),
                Line::End => return lines,
            }
        }
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_does_not_spoil_the_next() {
        let seen = lines(b"abcd\nabcde\n\nab\nrest", 3, 4).await;
        let expected = [Some(b"abcd".to_vec()), None, Some(Vec::new()), Some(b"ab".to_vec())];
        assert_eq!(seen, expected);
    }

    proptest! {
        #[test]
        fn lines_are_what_lies_between_breaks(
            parts in proptest::collection::vec("[a-z]{0,20}", 0..10), capacity in 1_usize..40, max in 0_usize..24,
        ) {
            let text = parts.iter().flat_map(|part| [part.as_str(), "\n"]).collect::<String>();
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let seen = runtime.block_on(lines(text.as_bytes(), capacity, max));
            let expected: Vec<_> = parts.iter().map(|part| (part.len() <= max).then(|| part.as_bytes().to_vec())).collect();
            prop_assert_eq!(seen, expected);
        }
    }
}
