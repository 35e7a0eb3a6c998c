//! The socket for many concurrent calls of one agent.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Extension;
use axum::extract::{Request, State};
use axum::response::Response;
use parking_lot::Mutex;
use sa_core::call::{CallId, CallRequest, CancelReason, TraceContext};
use sa_core::{
    CallError, CallErrorKind, Finished, NoticeBody, Overrun, RawJson, Update, UpdateSink,
};
use sa_http::{Identity, Problem, WireBlock, wire_attachments};
use sa_protocol::calls::{self, AgentFrame};
use sa_protocol::{PROTOCOL_VERSION, close};
use sa_socket::{Close, Next, NoUpgrade, Outbox, SocketLimits, Upgrade, WebSocket};
use sa_text::excerpt_of_ends;
use sa_text::json::to_json;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;

use super::Routes;
use super::call::{MAX_KEY, check_times, check_words};
use super::news::{Lists, describe};

/// Opens a WebSocket for many concurrent calls.
///
/// The protocol documentation describes the messages.
#[utoipa::path(get, path = "/v1/calls/ws", tag = "calls", responses((status = 101, description = "Switching to WebSocket"), (status = 426, body = Problem, description = "The request does not ask for a WebSocket")))]
pub(crate) async fn upgrade(
    State(routes): State<Routes>,
    Extension(identity): Extension<Identity>,
    upgrade: Result<Upgrade, NoUpgrade>,
    _request: Request,
) -> Result<Response, Problem> {
    let upgrade = upgrade?;
    let max_message_bytes = routes.options.max_frame_bytes;
    let budget = Some(routes.http.requests.share(&identity.principal.holder()));
    let limits = SocketLimits { max_message_bytes, cuts: false, budget };
    Ok(upgrade.serve(limits, move |socket| serve(routes, identity, socket)))
}

struct Session {
    routes: Routes,
    identity: Identity,
    outbox: Outbox,
    /// The running calls by the agent's ids.
    running: Mutex<HashMap<Box<str>, CallId>>,
    /// Set when the agent has subscribed to notices.
    listening: OnceLock<()>,
    /// Cancelled when the socket has ended.
    over: CancellationToken,
}

async fn serve(routes: Routes, identity: Identity, socket: Box<WebSocket>) {
    let overrun = Close::new(close::TOO_SLOW, "the agent reads its messages too slowly");
    let crowded_out = "the gateway's budget for unread responses is used up; try again later";
    let crowded_out = Close::new(close::TRY_AGAIN_LATER, crowded_out);
    let share = routes.options.answers.share(&identity.principal.holder());
    let outbox = Outbox::within(&share, Some(crowded_out), routes.http.max_outbox_bytes, overrun);
    let mut ready = String::new();
    let version = routes.options.version.into();
    calls::encode_ready(
        &mut ready,
        &calls::Ready { gateway_version: version, protocol_version: PROTOCOL_VERSION },
    );
    let _ = outbox.send(ready);
    let (running, over) = (Mutex::default(), CancellationToken::new());
    let session = Arc::new(Session {
        routes,
        identity,
        outbox: outbox.clone(),
        running,
        listening: OnceLock::new(),
        over,
    });
    let _over = session.over.clone().drop_guard();
    let Routes { http, options, closing, .. } = &session.routes;
    let watch = std::pin::pin!(async {
        tokio::select! {
            () = closing.cancelled() => outbox.close(Close::new(close::GOING_AWAY, "the gateway is shutting down")),
            () = session.identity.over() => {
                http.router.cancel_all(CancelReason::Revoked, |call| call.principal.id == session.identity.principal.id);
                outbox.close(Close::new(close::UNAUTHORIZED, "the token is no longer valid"));
            }
        }
        std::future::pending::<()>().await;
    });
    let serve = sa_socket::serve(socket, &outbox, options.liveness, |text| session.on_frame(text));
    let serve = std::pin::pin!(serve);
    tokio::select! {
        ended = serve => {
            if let Some(fault) = ended.fault() {
                http.journal.count("calls_ws", fault);
            }
        }
        () = watch => {}
    }
}

impl Session {
    fn on_frame(self: &Arc<Self>, text: &str) -> Next {
        // Frames after a close are not processed, because the token may be the reason for the
        // close.
        if self.outbox.is_closed() {
            return ControlFlow::Continue(());
        }
        match AgentFrame::decode(text) {
            Ok(AgentFrame::Call(call)) => self.start(call),
            Ok(AgentFrame::Cancel(id)) => {
                let running = self.running().get(&*id).copied();
                if let Some(id) = running {
                    self.routes.http.router.cancel(id, CancelReason::Requested, |_| true);
                }
            }
            Ok(AgentFrame::Listen) => self.listen(),
            Ok(AgentFrame::Ping(timestamp)) => {
                let mut pong = String::new();
                calls::encode_pong(&mut pong, timestamp);
                let _ = self.outbox.send(pong);
            }
            Ok(AgentFrame::Unknown { kind, id: Some(id) }) => {
                self.routes.http.journal.count("calls_ws", "bad_frame");
                let failure = CallError::new(
                    CallErrorKind::InvalidArgs,
                    excerpt_of_ends(format!("unknown frame type \"{kind}\"")),
                );
                let failure = failure.hint("an agent can send call, cancel, listen, ping and pong");
                self.fail(Some(&*id).filter(|id| id.len() <= MAX_KEY), None, &failure);
            }
            Ok(_) => {}
            Err(error) => {
                self.routes.http.journal.count("calls_ws", "bad_frame");
                let failure = CallError::new(
                    CallErrorKind::InvalidArgs,
                    excerpt_of_ends(format!("the frame cannot be read: {error}")),
                );
                self.fail(error.id().filter(|id| id.len() <= MAX_KEY), None, &failure);
            }
        }
        ControlFlow::Continue(())
    }

    fn start(self: &Arc<Self>, call: calls::Call<'_>) {
        let args = call.args.map_or_else(|| Ok(RawJson::empty_object()), RawJson::well_formed);
        let args = args.map_err(|error| format!("args cannot be read: {error}"));
        let words =
            check_words(&call.tool, call.session_key.as_deref(), call.idempotency_key.as_deref());
        let times = check_times(call.timeout_ms, call.idle_timeout_ms);
        if call.id.len() > MAX_KEY {
            // An id of this length is not sent back.
            let mistake = format!("id must have at most {MAX_KEY} bytes");
            return self.refuse(None, &CallError::new(CallErrorKind::InvalidArgs, mistake));
        }
        let args = match words.and(times).and(args) {
            Ok(args) => args,
            Err(mistake) => {
                return self
                    .refuse(Some(&call.id), &CallError::new(CallErrorKind::InvalidArgs, mistake));
            }
        };
        let id: Arc<str> = call.id.as_ref().into();
        let request = CallRequest {
            tool: call.tool.into_owned(),
            args,
            view: self.routes.http.view(&self.identity, call.session_key.as_deref()),
            surface: "calls_ws",
            session_key: call.session_key.map(|key| key.as_ref().into()),
            timeout: call.timeout_ms.map(Duration::from_millis),
            idle_timeout: call.idle_timeout_ms.map(Duration::from_millis),
            idempotency_key: call.idempotency_key.map(|key| key.as_ref().into()),
            trace: TraceContext::continue_from(call.traceparent.as_deref()),
        };
        let keyed = request.idempotency_key.is_some();
        let mut calls = self.running();
        if calls.contains_key(&*id) {
            let error = CallError::new(
                CallErrorKind::Conflict,
                format!("a call with the id \"{id}\" is still running"),
            )
            .hint("use a new id for each call");
            drop(calls);
            return self.refuse(Some(&id), &error);
        }
        let sink = Sink { outbox: self.outbox.clone(), id: Arc::clone(&id) };
        let running = self.routes.http.router.start(request, Some(Arc::new(sink)));
        // The lock is held until the call is in the table. A call that ends at once is then removed
        // after it was inserted.
        calls.insert(Box::from(&*id), running.id());
        let session = Arc::clone(self);
        tokio::spawn(async move {
            // A call without a client before it has begun is not started. A call with an
            // idempotency key must start, because from its first poll on it runs without a client.
            if session.over.is_cancelled() && !keyed {
                return;
            }
            let finished = tokio::select! {
                biased;
                finished = running.outcome() => finished,
                // No client waits for the answer. The router decides whether the call continues.
                () = session.over.cancelled() => return,
            };
            session.running().remove(&*id);
            finished.render(|finished| session.finish(&id, finished)).await;
        });
    }

    /// Sends notices to the agent, first those that are pending. Further requests have no effect.
    fn listen(self: &Arc<Self>) {
        if self.listening.set(()).is_err() {
            return;
        }
        let (session, mut notices) = (Arc::clone(self), self.routes.notices.subscribe());
        let lists = Lists::new(&self.routes.http, &self.identity);
        let attending = self.routes.notices.add_reader(&self.identity.principal.id);
        tokio::spawn(async move {
            let _attending = attending;
            for notice in session.routes.notices.pending(&session.identity.principal) {
                session.notify(&notice.body);
            }
            loop {
                let notice = tokio::select! {
                    notice = notices.recv() => notice,
                    () = session.over.cancelled() => return,
                };
                match notice {
                    Ok(notice)
                        if lists.has_news(&session.routes.http, &session.identity, &notice) =>
                    {
                        session.notify(&notice.body);
                    }
                    Ok(_) => {}
                    // The missed notices may include requests, so all pending ones are sent again.
                    Err(RecvError::Lagged(_)) => {
                        for notice in session.routes.notices.pending(&session.identity.principal) {
                            session.notify(&notice.body);
                        }
                    }
                    Err(RecvError::Closed) => return,
                }
            }
        });
    }

    fn notify(&self, notice: &NoticeBody) {
        let (event, data) = describe(notice);
        let mut frame = String::new();
        calls::encode_notice(&mut frame, &calls::Notice { event: event.into(), data: &data });
        let _ = self.outbox.send(frame);
    }

    /// Reports that a call cannot be made. It is not counted with the other calls.
    fn refuse(&self, id: Option<&str>, error: &CallError) {
        self.routes.http.journal.count("calls_ws", "bad_call");
        self.fail(id, None, error);
    }

    fn finish(&self, id: &str, finished: &Finished) {
        let call_id = finished.id.to_string();
        let output = match &finished.outcome {
            Ok(output) => output,
            Err(error) => return self.fail(Some(id), Some(&call_id), error),
        };
        let blocks = (!output.blocks.is_empty())
            .then(|| to_json(&output.blocks.iter().map(WireBlock::from).collect::<Vec<_>>()));
        let mut frame = String::new();
        calls::encode_done(
            &mut frame,
            &calls::Done {
                id: id.into(),
                call_id: call_id.into(),
                result: output.content.as_str(),
                blocks: blocks.as_deref(),
                attachments: wire_attachments(&output.attachments),
                duration_ms: finished.duration.as_millis() as u64,
            },
        );
        let _ = self.outbox.send(frame);
    }

    fn fail(&self, id: Option<&str>, call_id: Option<&str>, error: &CallError) {
        let mut frame = String::new();
        calls::encode_error(
            &mut frame,
            &calls::CallError {
                id: id.map(Cow::Borrowed),
                call_id: call_id.map(Cow::Borrowed),
                kind: error.kind.as_str().into(),
                message: error.message.as_str().into(),
                hint: error.hint.as_deref().map(Cow::Borrowed),
                retryable: error.retryable,
            },
        );
        let _ = self.outbox.send(frame);
    }

    fn running(&self) -> parking_lot::MutexGuard<'_, HashMap<Box<str>, CallId>> {
        self.running.lock()
    }
}

/// Writes the updates of a call to the agent's socket.
struct Sink {
    outbox: Outbox,
    id: Arc<str>,
}

impl UpdateSink for Sink {
    fn send(&self, update: Update) -> Result<(), Overrun> {
        let mut frame = String::new();
        let id = Cow::Borrowed(&*self.id);
        match &update {
            Update::Progress { progress, total, message } => calls::encode_progress(
                &mut frame,
                &calls::Progress {
                    id,
                    progress: *progress,
                    total: *total,
                    message: message.as_deref().map(Cow::Borrowed),
                },
            ),
            Update::Chunk { content, attachments } => calls::encode_chunk(
                &mut frame,
                &calls::Chunk {
                    id,
                    content: content.as_str(),
                    attachments: wire_attachments(attachments),
                },
            ),
            Update::Log { level, logger, data } => calls::encode_log(
                &mut frame,
                &calls::Log {
                    id,
                    level: level.as_str().into(),
                    logger: logger.as_deref().map(Cow::Borrowed),
                    data: data.as_str(),
                },
            ),
        }
        self.outbox.send(frame).map_err(|_| Overrun)
    }
}
