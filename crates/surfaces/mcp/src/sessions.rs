//! Sessions of the revisions before 2026-07-28, on rmcp's own session workers.
//!
//! A session belongs to the principal that opened it, and is invisible to all others. It ends when
//! its client closes it, when it exceeds the idle timeout, when its token is revoked, or when there
//! are too many sessions. In that case an idle session of the principal with the most idle sessions
//! ends. A session with an open stream or a running request is not idle.
//!
//! A client that loses the stream of a call may resume it, as the protocol specifies, and the call
//! continues meanwhile. If the client does not return in time, the call is cancelled.

mod session_stream;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::{Stream, StreamExt as _, stream};
use parking_lot::Mutex;
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, ErrorData, GetExtensions as _, GetMeta as _,
    JsonRpcRequest, ProtocolVersion, RequestId, ServerJsonRpcMessage, ServerResult,
};
use rmcp::transport::WorkerTransport;
use rmcp::transport::streamable_http_server::session::local::{
    EventIdParseError, LocalSessionHandle, LocalSessionWorker, SessionConfig, SessionError,
    create_local_session,
};
use rmcp::transport::streamable_http_server::session::{
    ServerSseMessage, SessionId, SessionManager,
};
use sa_core::visible_tools::VisibleTools;
use sa_core::{Notice, NoticeBody, Notices, Principal, Router};
use sa_limits::budget::{Holder, Limit, Permit, Refused, SharedBudget};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::caller::Caller;
use crate::json_answer::{JsonAnswer, is_answer};
use crate::notifications::Outbox;
use crate::questions;
use crate::sessions::session_stream::SessionStream;

/// The delay after which a client should reopen its broken stream.
const RETRY: Duration = Duration::from_secs(3);

#[derive(Debug)]
pub(crate) struct Sessions {
    table: Mutex<HashMap<SessionId, Arc<Session>>>,
    router: Arc<Router>,
    notices: Notices,
    limits: Limits,
    budget: Arc<SharedBudget>,
    closing: CancellationToken,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// The idle timeout of a session.
    pub(crate) idle: Duration,
    pub(crate) max: usize,
    /// The time that a client has to resume a call after its stream broke.
    pub(crate) resume: Duration,
}

/// One client's session.
#[derive(Debug)]
pub(crate) struct Session {
    handle: LocalSessionHandle,
    owner: OnceLock<Arc<Principal>>,
    /// The negotiated revision.
    revision: OnceLock<ProtocolVersion>,
    /// Whether the client can answer questions, which are sent on the stream of the call.
    answers_questions: OnceLock<bool>,
    /// Its share of the budget of sessions, until it ends.
    permit: Mutex<Permit>,
    /// The list of tools in the view in which the owner opened the session.
    visible_tools: OnceLock<VisibleTools>,
    pub(crate) outbox: Outbox,
    /// Fires when the session has ended; its streams then end.
    pub(crate) ended: CancellationToken,
    used: Mutex<Instant>,
    /// The number of open streams.
    open: AtomicUsize,
    /// The unanswered requests. Two requests with the same id could not be distinguished, and one
    /// would never be answered.
    running: Mutex<HashSet<RequestId>>,
    /// The requests with broken streams, by rmcp's number of the stream.
    broken: Mutex<HashMap<u64, RequestId>>,
    resume: Duration,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum SessionsError {
    #[error("the session does not exist")]
    NotFound,
    #[error("{}; {}", .0.message, .0.hint)]
    Full(Refused),
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error(transparent)]
    EventId(#[from] EventIdParseError),
}

impl Sessions {
    pub(crate) fn new(
        limits: Limits,
        router: Arc<Router>,
        notices: Notices,
        closing: CancellationToken,
    ) -> Self {
        let budget = SharedBudget::new(Limit {
            name: "mcp_sessions",
            what: "sessions of MCP clients",
            key: "mcp.max_sessions",
            remedy: "end unused sessions",
            total: limits.max,
        });
        Self { table: Mutex::default(), router, notices, limits, budget, closing }
    }

    /// Returns the budget of sessions.
    pub(crate) fn budget(&self) -> &Arc<SharedBudget> {
        &self.budget
    }

    /// Opens a stream for notices: its owner counts as present and receives queued notices. It
    /// carries no answers that would delay the closing of the gateway.
    fn listen(&self, session: &Session, mut stream: SessionStream) -> SessionStream {
        let (ended, closing) = (session.ended.clone(), self.closing.clone());
        stream.over = Box::pin(async move {
            tokio::select! {
                () = ended.cancelled() => {}
                () = closing.cancelled() => {}
            }
        });
        stream.reader_guard = session.owner.get().map(|owner| self.notices.add_reader(&owner.id));
        session.queue_pending(&self.notices);
        stream
    }

    /// Returns whether this principal may use this session.
    pub(crate) fn belongs_to(&self, id: &str, principal: &Principal) -> bool {
        self.get(id).is_some_and(|session| {
            session.owner.get().is_some_and(|owner| owner.id == principal.id)
        })
    }

    /// Makes sure that a principal may open one more session, by ending the least needed one if
    /// necessary. The session itself takes the permit, see [`Session::bind`].
    pub(crate) fn make_capacity(&self, opener: Option<&Principal>) -> Result<(), SessionsError> {
        let holder = opener.map_or_else(Holder::anonymous, Principal::holder);
        let Err(refused) = self.budget.acquire(&holder, 1) else { return Ok(()) };
        let mut table = self.table();
        let id = to_evict_first(&table, opener).ok_or(SessionsError::Full(refused))?;
        let session = table.remove(&id);
        drop(table);
        if let Some(session) = session {
            session.end();
        }
        self.budget.acquire(&holder, 1).map(drop).map_err(SessionsError::Full)
    }

    /// Ends the sessions that exceed the idle timeout.
    pub(crate) fn sweep(&self) {
        let ended: Vec<_> = self
            .table()
            .extract_if(|_, session| {
                session.idle_for().is_some_and(|idle| idle >= self.limits.idle)
            })
            .map(|(_, session)| session)
            .collect();
        for session in ended {
            session.end();
        }
    }

    /// Forwards a notice to the sessions that it concerns.
    pub(crate) fn notify(&self, notice: &Arc<Notice>) {
        let addressed: Vec<_> = {
            let table = self.table();
            let all = table.iter().filter(|(_, session)| session.is_addressed(notice));
            all.map(|(id, session)| (id.clone(), Arc::clone(session))).collect()
        };
        // The check runs without the lock, because it may read the whole list of tools.
        for (id, session) in
            addressed.into_iter().filter(|(_, session)| session.is_visible(notice, &self.router))
        {
            // The client keeps a stream open and does not read it.
            if session.outbox.put(notice).is_err() {
                tracing::warn!(session = %id, "an MCP session was ended: its client does not read its stream");
                self.remove(&id);
            }
        }
    }

    /// Queues pending notices again for every session.
    pub(crate) fn notify_pending(&self, notices: &Notices) {
        let all: Vec<_> = self.table().values().cloned().collect();
        for session in all {
            session.queue_pending(notices);
        }
    }

    pub(crate) fn idle(&self) -> Duration {
        self.limits.idle
    }

    pub(crate) fn count(&self) -> usize {
        self.table().len()
    }

    fn remove(&self, id: &str) {
        let session = self.table().remove(id);
        if let Some(session) = session {
            session.end();
        }
    }

    fn get(&self, id: &str) -> Option<Arc<Session>> {
        self.table().get(id).cloned()
    }

    fn session(&self, id: &str) -> Result<Arc<Session>, SessionsError> {
        let session = self.get(id).ok_or(SessionsError::NotFound)?;
        session.touch();
        Ok(session)
    }

    fn table(&self) -> parking_lot::MutexGuard<'_, HashMap<SessionId, Arc<Session>>> {
        self.table.lock()
    }
}

/// Returns the session that has been idle for longest, of the principal that has the most idle
/// ones, including the session about to open. So no client can end another's sessions by opening
/// many.
fn to_evict_first(
    table: &HashMap<SessionId, Arc<Session>>,
    opener: Option<&Principal>,
) -> Option<SessionId> {
    let mut idle: HashMap<Option<&Arc<str>>, (usize, Duration, &SessionId)> = HashMap::new();
    for (id, session) in table {
        let Some(idle_for) = session.idle_for() else { continue };
        let owner = session.owner.get().map(|owner| &owner.id);
        let opening = usize::from(owner.is_some() && owner == opener.map(|opener| &opener.id));
        let (count, longest, which) = idle.entry(owner).or_insert((opening, idle_for, id));
        *count += 1;
        if idle_for > *longest {
            (*longest, *which) = (idle_for, id);
        }
    }
    idle.into_values()
        .max_by_key(|(count, longest, _)| (*count, *longest))
        .map(|(_, _, id)| id.clone())
}

impl Session {
    fn is_addressed(&self, notice: &Notice) -> bool {
        let Some(to) = &notice.to else { return true };
        self.owner.get().is_some_and(|owner| owner.id == *to)
    }

    /// Returns whether the client can see the change.
    fn is_visible(&self, notice: &Notice, router: &Router) -> bool {
        match (&notice.body, self.visible_tools.get()) {
            (NoticeBody::Session { .. }, _) => true,
            (NoticeBody::ToolsChanged { scope, .. }, Some(visible_tools)) => {
                visible_tools.changed(router, scope.as_ref())
            }
            (NoticeBody::DocumentsChanged { provider }, Some(visible_tools)) => {
                visible_tools.documents_changed(provider.as_ref())
            }
            (_, None) => false,
        }
    }

    fn touch(&self) {
        *self.used.lock() = Instant::now();
    }

    /// Returns the idle time, or `None` while the session is in use.
    fn idle_for(&self) -> Option<Duration> {
        let unused = self.open.load(Ordering::Acquire) == 0;
        unused.then(|| self.used.lock().elapsed())
    }

    fn end(self: &Arc<Self>) {
        // The streams end first: a worker that waits for an unread stream would not handle the end.
        self.ended.cancel();
        let _ = self.permit().resize(0);
        let session = Arc::clone(self);
        tokio::spawn(async move { session.handle.close().await.ok() });
    }

    /// Binds the session to its caller, and ends it when the caller's token is revoked.
    fn bind(self: &Arc<Self>, caller: &Caller, router: &Router) {
        let _ = self.owner.set(Arc::clone(&caller.principal));
        // The permit was checked before. If another session was faster since then, this one is not
        // counted.
        let _ = self.permit().transfer(&caller.principal.holder());
        let _ = self.visible_tools.set(VisibleTools::new(router, caller.view()));
        let (session, revoked) = (Arc::clone(self), caller.revoked.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = revoked.cancelled() => session.end(),
                () = session.ended.cancelled() => {}
            }
        });
    }

    /// Queues pending notices for the client. If the queue is full, the client receives them when
    /// it opens its stream again.
    fn queue_pending(&self, notices: &Notices) {
        let Some(owner) = self.owner.get() else { return };
        for notice in notices.pending(owner) {
            if self.outbox.put(&Arc::new(notice)).is_err() {
                return;
            }
        }
    }

    /// Returns whether the client supports events without data. Such events carry an id from which
    /// a stream can be resumed. Clients of older revisions treat them as broken messages.
    fn supports_empty_events(&self) -> bool {
        self.revision.get().is_some_and(|revision| *revision >= ProtocolVersion::V_2025_11_25)
    }

    /// Returns whether only its answer can be sent on the stream of a request. Log messages have
    /// the stream of the session.
    fn streams_only_the_answer(&self, request: &JsonRpcRequest<ClientRequest>) -> bool {
        let wants_progress = request.request.get_meta().get_progress_token().is_some();
        !wants_progress && self.answers_questions.get() == Some(&false)
    }

    fn permit(&self) -> parking_lot::MutexGuard<'_, Permit> {
        self.permit.lock()
    }

    fn broken(&self) -> parking_lot::MutexGuard<'_, HashMap<u64, RequestId>> {
        self.broken.lock()
    }

    fn running(&self) -> parking_lot::MutexGuard<'_, HashSet<RequestId>> {
        self.running.lock()
    }

    /// Forwards a request, and returns the stream of its responses.
    async fn begin(
        self: &Arc<Self>,
        message: ClientJsonRpcMessage,
    ) -> Result<SessionStream, SessionsError> {
        let request = match &message {
            ClientJsonRpcMessage::Request(request) => Some(request.id.clone()),
            _ => None,
        };
        if let Some(id) = request.as_ref().filter(|id| self.running().contains(id)) {
            return Ok(self.refuse(id.clone()));
        }
        let receiver = self.handle.establish_request_wise_channel().await?;
        // The stream removes the id. It is created before the next await point.
        if let Some(id) = request.as_ref().filter(|id| !self.running().insert(RequestId::clone(id)))
        {
            return Ok(self.refuse(id.clone()));
        }
        let stream = self.watch(receiver.inner, receiver.http_request_id.zip(request));
        self.handle.push_message(message, receiver.http_request_id).await?;
        Ok(stream)
    }

    /// Returns the answer to a request that reuses the id of a running one.
    fn refuse(self: &Arc<Self>, id: RequestId) -> SessionStream {
        let (sender, receiver) = mpsc::channel(1);
        let why = format!(
            "a request with the id {id} is already running; use a different id for each request"
        );
        let answer = ServerJsonRpcMessage::error(ErrorData::invalid_request(why, None), Some(id));
        let _ = sender.try_send(ServerSseMessage::from_message(answer));
        self.watch(receiver, None)
    }

    fn watch(
        self: &Arc<Self>,
        inner: mpsc::Receiver<ServerSseMessage>,
        request: Option<(u64, RequestId)>,
    ) -> SessionStream {
        self.open.fetch_add(1, Ordering::AcqRel);
        let over = Box::pin(self.ended.clone().cancelled_owned());
        SessionStream { inner, over, session: Arc::clone(self), request, reader_guard: None }
    }
}

impl SessionManager for Sessions {
    type Error = SessionsError;
    type Transport = WorkerTransport<LocalSessionWorker>;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport), SessionsError> {
        let id: SessionId = Uuid::new_v4().to_string().into();
        let mut config = SessionConfig::default();
        // The surface enforces the idle timeout: rmcp would also end a session with a client that
        // only listens.
        config.keep_alive = None;
        let (handle, worker) = create_local_session(id.clone(), config);
        let session = Session {
            handle,
            owner: OnceLock::new(),
            revision: OnceLock::new(),
            answers_questions: OnceLock::new(),
            // The principal is set a moment later, and its permit was already checked.
            permit: Mutex::new(self.budget.charge(&Holder::anonymous(), 1)),
            visible_tools: OnceLock::new(),
            outbox: Outbox::default(),
            ended: CancellationToken::new(),
            used: Mutex::new(Instant::now()),
            open: AtomicUsize::new(0),
            running: Mutex::default(),
            broken: Mutex::default(),
            resume: self.limits.resume,
        };
        self.table().insert(id.clone(), Arc::new(session));
        Ok((id, WorkerTransport::spawn(worker)))
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        mut message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, SessionsError> {
        let session = self.session(id)?;
        let mut json_answer = None;
        if let ClientJsonRpcMessage::Request(request) = &mut message {
            let extensions = request.request.extensions_mut();
            json_answer = JsonAnswer::find(extensions).cloned();
            if let Some(caller) = Caller::find(extensions).cloned() {
                session.bind(&caller, &self.router);
            }
            extensions.insert(Arc::clone(&session));
            if let ClientRequest::InitializeRequest(opening) = &request.request {
                let answers = questions::answers_some(&opening.params.capabilities);
                let _ = session.answers_questions.set(answers);
            }
        }
        let answer = session.handle.initialize(message).await?;
        if let ServerJsonRpcMessage::Response(response) = &answer
            && let ServerResult::InitializeResult(result) = &response.result
        {
            let _ = session.revision.set(result.protocol_version.clone());
        }
        if let Some(json_answer) = json_answer {
            json_answer.set(Arc::new(answer.clone()));
        }
        Ok(answer)
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, SessionsError> {
        Ok(self.session(id).is_ok_and(|session| !session.ended.is_cancelled()))
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), SessionsError> {
        self.remove(id);
        Ok(())
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionsError> {
        let session = self.session(id)?;
        let (json_answer, only_answer) = match &message {
            ClientJsonRpcMessage::Request(request) => (
                JsonAnswer::find(request.request.extensions()).cloned(),
                session.streams_only_the_answer(request),
            ),
            _ => (None, false),
        };
        let mut stream = session.begin(message).await?;
        let mut first = stream.first().await;
        let mut rest = None;
        match (
            json_answer,
            first.last().and_then(|event| event.message.clone()),
            stream.request_id(),
        ) {
            (Some(json_answer), None, Some(id)) if only_answer => {
                first.clear();
                json_answer.set_later(id, stream.boxed());
            }
            (Some(json_answer), Some(answer), _) if is_answer(&answer) => json_answer.set(answer),
            _ => rest = Some(stream),
        }
        Ok(stream::iter(first).chain(stream::iter(rest).flatten()))
    }

    async fn accept_message(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<(), SessionsError> {
        Ok(self.session(id)?.handle.push_message(message, None).await?)
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionsError> {
        let session = self.session(id)?;
        let receiver = session.handle.establish_common_channel().await?;
        let first = session.supports_empty_events().then(|| ServerSseMessage::priming("0", RETRY));
        Ok(stream::iter(first).chain(self.listen(&session, session.watch(receiver.inner, None))))
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionsError> {
        let session = self.session(id)?;
        let receiver = session.handle.resume(last_event_id.parse()?).await?;
        let request = receiver
            .http_request_id
            .and_then(|stream| Some((stream, session.broken().remove(&stream)?)));
        let stream = session.watch(receiver.inner, request);
        Ok(if receiver.http_request_id.is_none() { self.listen(&session, stream) } else { stream })
    }
}
