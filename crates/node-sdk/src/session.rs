//! A connection after its welcome. One task reads, writes and owns the list of running calls. Tools
//! run on tasks of their own and send their frames to it.
//!
//! The task is a poll function instead of a `select!`: reading and writing must not wait for each
//! other, and many small frames should share one system call. It reads the available frames (up to
//! a batch), lets the tools run, then writes all their answers, and flushes once.

use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use futures_util::{Sink as _, Stream as _};
use sa_protocol::node::{
    BinProbe, BinProbeResult, Incoming, ToolRequest, encode_bin_probe_result, encode_ping,
    encode_pong,
};
use sa_protocol::{ErrorKind, FrameError};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Instant, Interval, MissedTickBehavior};
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::builder::Config;
use crate::call::{self, CallState, Outgoing, Shared};
use crate::connect::{Socket, Welcomed};
use crate::live::Place;
use crate::network::Stream;
use crate::{NodeSdkError, Principal, ToolContext, ToolRegistry, close};

/// The way in which a connection ended.
#[derive(Debug)]
pub(crate) enum End {
    Shutdown,
    Lost { error: NodeSdkError, replaced: bool },
}

/// The batch size: the number of frames that are worth a write, and the number that are read before
/// queued frames are written.
///
/// Larger batches would save system calls. But gateway and node would then wait for each other's
/// batches, when they could work in parallel.
const LOAD: usize = 16;
/// The maximum number of queued calls; further ones are refused.
const MAX_WAITING: usize = 1024;
/// The capacity of the queue of tools' frames; tools wait while it is full.
const OUTGOING: usize = 256;
/// The maximum number of queued answers of the connection itself; it stops reading at this limit.
const MAX_OWN: usize = 1024;

pub(crate) struct Session<'a, S> {
    config: &'a Config,
    registry: &'a ToolRegistry,
    socket: Socket<S>,
    shared: Arc<Shared>,
    outgoing: mpsc::Receiver<Outgoing>,
    /// Answers that need no tool.
    own: VecDeque<Message>,
    running: HashMap<u64, (Arc<CallState>, CancellationToken)>,
    next_call: u64,
    /// The parent of all calls' tokens. It is cancelled when the session ends for any reason.
    calls: CancellationToken,
    _cancel_on_drop: DropGuard,
    heartbeat: Interval,
    last_heard: Instant,
    reads: usize,
    /// The number of frames that were passed to the socket and may still be in its buffer.
    unflushed: usize,
    let_tools_run: bool,
}

enum Event {
    Frame(Option<Result<Message, Error>>),
    Silence,
    Shutdown,
    WriteFailed(Error),
}

impl<'a, S: Stream> Session<'a, S> {
    pub(crate) fn new(
        config: &'a Config,
        registry: &'a ToolRegistry,
        permits: Arc<Semaphore>,
        welcomed: Welcomed<S>,
    ) -> Self {
        let (sender, outgoing) = mpsc::channel(OUTGOING);
        let now = Instant::now();
        let mut heartbeat = tokio::time::interval_at(now + config.heartbeat, config.heartbeat);
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let calls = CancellationToken::new();
        Self {
            config,
            registry,
            socket: welcomed.socket,
            shared: Arc::new(Shared {
                permits,
                outgoing: sender,
                features: welcomed.features,
                limits: welcomed.limits,
                grace: config.cancel_grace,
            }),
            outgoing,
            own: VecDeque::new(),
            running: HashMap::new(),
            next_call: 0,
            _cancel_on_drop: calls.clone().drop_guard(),
            calls,
            heartbeat,
            last_heard: now,
            reads: 0,
            unflushed: 0,
            let_tools_run: true,
        }
    }

    // This is not an `async fn`, because its future would hold the session twice.
    pub(crate) fn run(self, shutdown: &CancellationToken) -> impl Future<Output = End> {
        self.serve(shutdown, Self::take)
    }

    /// Runs like [`run`](Self::run), but echoes every message.
    pub(crate) fn echo(self, shutdown: &CancellationToken) -> impl Future<Output = End> {
        self.serve(shutdown, |session, message| session.own.push_back(message))
    }

    async fn serve(
        mut self,
        shutdown: &CancellationToken,
        on_message: fn(&mut Self, Message),
    ) -> End {
        let mut shutdown = pin!(shutdown.cancelled());
        let error = loop {
            match poll_fn(|cx| self.poll(cx, shutdown.as_mut())).await {
                Event::Frame(Some(Ok(Message::Close(frame)))) => break self.closed(frame).await,
                // The library answers WebSocket pings, but the session must flush the answer.
                Event::Frame(Some(Ok(Message::Ping(_)))) => self.unflushed += 1,
                Event::Frame(Some(Ok(Message::Pong(_)))) => {}
                Event::Frame(Some(Ok(message))) => on_message(&mut self, message),
                Event::Frame(Some(Err(error))) | Event::WriteFailed(error) => {
                    break self.failed(error).await;
                }
                Event::Frame(None) => {
                    break lost("the gateway closed it without a close frame");
                }
                Event::Silence => {
                    break lost("no data was received from the gateway for too long");
                }
                Event::Shutdown => {
                    self.calls.cancel();
                    let reason = "the node is shutting down".into();
                    close::close(
                        &mut self.socket,
                        Some(CloseFrame { code: CloseCode::Normal, reason }),
                    )
                    .await;
                    break End::Shutdown;
                }
            }
        };
        self.calls.cancel();
        error
    }

    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        shutdown: Pin<&mut impl Future<Output = ()>>,
    ) -> Poll<Event> {
        let may_read = self.reads < LOAD && self.own.len() < MAX_OWN;
        if may_read && let Poll::Ready(frame) = Pin::new(&mut self.socket).poll_next(cx) {
            self.reads += 1;
            return Poll::Ready(Event::Frame(frame));
        }
        if std::mem::take(&mut self.reads) > 0 {
            self.last_heard = Instant::now();
        }
        if shutdown.poll(cx).is_ready() {
            return Poll::Ready(Event::Shutdown);
        }
        while self.heartbeat.poll_tick(cx).is_ready() {
            let timeout = (self.config.heartbeat * 3).max(Duration::from_secs(30));
            if self.last_heard.elapsed() > timeout {
                return Poll::Ready(Event::Silence);
            }
            self.ping();
        }
        if let Err(error) = self.write(cx) {
            return Poll::Ready(Event::WriteFailed(error));
        }
        if !may_read && self.own.len() < MAX_OWN {
            // More frames are probably available, but other tasks of this thread come first.
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    /// Writes queued frames until the socket's buffer is full.
    fn write(&mut self, cx: &mut Context<'_>) -> Result<(), Error> {
        let mut socket = Pin::new(&mut self.socket);
        while let Poll::Ready(ready) = socket.as_mut().poll_ready(cx) {
            ready?;
            let message = match self.own.pop_front() {
                Some(message) => message,
                None => match self.outgoing.poll_recv(cx) {
                    Poll::Ready(Some(frame)) => {
                        // Frames that a tool sends after its call has ended are dropped.
                        let known = if frame.last {
                            self.running.remove(&frame.call).is_some()
                        } else {
                            self.running.contains_key(&frame.call)
                        };
                        if !known {
                            continue;
                        }
                        Message::text(frame.text)
                    }
                    // Calls come before events, because callers wait for them.
                    Poll::Ready(None) | Poll::Pending => {
                        match next_event(self.config, &self.shared, cx) {
                            Poll::Ready(frame) => Message::text(frame),
                            Poll::Pending => break,
                        }
                    }
                },
            };
            socket.as_mut().start_send(message)?;
            self.unflushed += 1;
        }
        if self.unflushed == 0 {
            return Ok(());
        }
        if self.unflushed < LOAD
            && !self.running.is_empty()
            && std::mem::take(&mut self.let_tools_run)
        {
            // Calls that arrived together often end together. Letting the tools run costs little; a
            // flush for each frame costs a system call. A full batch is flushed at once, so that
            // the gateway can process it while the rest is produced.
            cx.waker().wake_by_ref();
            return Ok(());
        }
        if let Poll::Ready(flushed) = socket.as_mut().poll_flush(cx) {
            flushed?;
            self.unflushed = 0;
            self.let_tools_run = true;
        }
        Ok(())
    }

    #[expect(clippy::disallowed_methods, reason = "a ping carries the wall clock's time")]
    fn ping(&mut self) {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let mut text = String::new();
        encode_ping(&mut text, i64::try_from(now.as_millis()).unwrap_or(i64::MAX));
        self.own.push_back(Message::text(text));
    }

    /// Handles a frame of the gateway.
    fn take(&mut self, message: Message) {
        let Message::Text(text) = message else {
            return tracing::debug!("ignored a frame that is not text");
        };
        let too_large = text.len() > self.config.max_request_bytes;
        match Incoming::decode(&text) {
            Ok(Incoming::Request(request)) if too_large => {
                let message = format!(
                    "the request has {} bytes, but this node accepts at most {}; send less, or increase max_request_bytes",
                    text.len(),
                    self.config.max_request_bytes
                );
                self.refuse(&request.request_id, ErrorKind::InvalidArgs, &message);
            }
            Ok(Incoming::Request(request)) => self.start(request),
            Ok(Incoming::Cancel(cancel)) => {
                let wanted =
                    |(call, _): &&(Arc<CallState>, _)| call.request_id() == cancel.request_id;
                if let Some((_, token)) = self.running.values().find(wanted) {
                    token.cancel();
                }
            }
            Ok(Incoming::Ping(timestamp)) => {
                let mut pong = String::new();
                encode_pong(&mut pong, timestamp);
                self.own.push_back(Message::text(pong));
            }
            Ok(Incoming::Pong(timestamp)) => tracing::trace!(timestamp, "pong"),
            Ok(Incoming::BinProbe(probe)) => self.probe(probe),
            Ok(Incoming::Unknown(kind)) => {
                tracing::debug!(%kind, "ignored a frame of an unknown type");
            }
            Ok(_) => tracing::debug!("ignored a frame that is not for a node"),
            Err(error) => self.complain(&error),
        }
    }

    /// Ignores an invalid frame, but answers it if it is a request.
    fn complain(&mut self, error: &FrameError) {
        tracing::warn!(%error, "ignored an invalid frame from the gateway");
        if let (Some("tool_request"), Some(id)) = (error.frame_type(), error.id()) {
            self.refuse(id, ErrorKind::InvalidArgs, &error.to_string());
        }
    }

    fn refuse(&mut self, request_id: &str, kind: ErrorKind, message: &str) {
        self.own.push_back(Message::text(call::failure(
            request_id,
            kind,
            message,
            self.shared.limits,
        )));
    }

    fn start(&mut self, request: ToolRequest<'_>) {
        let Some(tool) = self.registry.get(&request.tool) else {
            let message = format!("unknown tool: {}", request.tool);
            return self.refuse(&request.request_id, ErrorKind::NotFound, &message);
        };
        if self.running.len() >= self.config.max_concurrent_tools.saturating_add(MAX_WAITING) {
            let message = format!(
                "this node is busy: {MAX_WAITING} calls are already queued; try again later"
            );
            return self.refuse(&request.request_id, ErrorKind::Failed, &message);
        }
        let number = self.next_call;
        self.next_call += 1;
        let deadline = request
            .deadline_ms
            .and_then(|ms| Instant::now().checked_add(Duration::from_millis(ms)));
        let role = request.principal_role.unwrap_or_default();
        let principal = request.principal_id.map(|id| Principal::new(id, role));
        let (shared, trace) = (Arc::clone(&self.shared), request.traceparent.as_deref());
        let call = CallState::new(shared, number, &request.request_id, trace, deadline)
            .with_principal(principal);
        let call = Arc::new(call);
        let cancel = self.calls.child_token();
        self.running.insert(number, (Arc::clone(&call), cancel.clone()));
        tracing::trace!(tool = &*request.tool, request = &*request.request_id, "call");
        let ctx = ToolContext {
            request_id: request.request_id.into_owned(),
            tool_name: request.tool.into_owned(),
            session_key: request.session_key.map(Into::into),
            cancel,
        };
        let place = Place::take(&ctx.cancel, &call);
        tokio::spawn(call::run(call, place, tool, ctx, request.args.map(str::to_owned)));
    }

    /// Answers which programs this machine has, on a thread that may block on the disk.
    fn probe(&mut self, probe: BinProbe<'_>) {
        let Some(handler) = self.config.bin_probe.clone() else {
            return;
        };
        let (id, bins) = (probe.probe_id.into_owned(), probe.bins);
        let number = self.next_call;
        self.next_call += 1;
        let call = Arc::new(CallState::new(Arc::clone(&self.shared), number, &id, None, None));
        self.running.insert(number, (call, self.calls.child_token()));
        let outgoing = self.shared.outgoing.clone();
        tokio::task::spawn_blocking(move || {
            // A probe that panics counts as not found.
            let has = |bin: &str| catch_unwind(AssertUnwindSafe(|| handler(bin))).unwrap_or(false);
            let bins =
                bins.into_iter().map(|bin| (has(&bin), bin)).map(|(has, bin)| (bin, has)).collect();
            let mut text = String::new();
            encode_bin_probe_result(&mut text, &BinProbeResult { probe_id: id.into(), bins });
            // A closed connection needs no answer.
            let _ = outgoing.blocking_send(Outgoing { call: number, text, last: true });
        });
    }

    async fn closed(&mut self, frame: Option<CloseFrame>) -> End {
        self.calls.cancel();
        close::answer(&mut self.socket).await;
        let (code, reason) = frame
            .map_or((1005, String::new()), |frame| (frame.code.into(), frame.reason.to_string()));
        let error = NodeSdkError::from_close(code, &reason, &self.config.token);
        End::Lost { error, replaced: code == sa_protocol::close::REPLACED }
    }

    async fn failed(&mut self, error: Error) -> End {
        self.calls.cancel();
        close::protest(&mut self.socket, &error).await;
        lost(&self.config.token.redact(&error.to_string()))
    }
}

/// Returns the next event of the node, if the gateway supports events.
fn next_event(config: &Config, shared: &Shared, cx: &Context<'_>) -> Poll<String> {
    match &config.events {
        Some(events) if shared.features.events => events.poll_next(cx),
        _ => Poll::Pending,
    }
}

fn lost(reason: &str) -> End {
    End::Lost { error: NodeSdkError::lost(reason), replaced: false }
}
