//! Sessions of the revisions before 2026-07-28, on rmcp's own session workers.
//!
//! A session belongs to the principal that opened it, and to nobody else it exists at all. It ends when its client says
//! so, when it has been idle for long, when its token is revoked, or when there are too many: then one goes that is idle,
//! of whoever has the most of them. A session with an open stream or a running request is not idle.
//!
//! A client that loses the stream of a call may come back for it, as the protocol has it, and the call goes on meanwhile.
//! If nobody comes back for a while the call is cancelled: its caller is gone.

mod watched;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use futures_util::{Stream, StreamExt as _, stream};
use rmcp::model::{
    ClientJsonRpcMessage, ErrorData, GetExtensions as _, ProtocolVersion, RequestId, ServerJsonRpcMessage, ServerResult,
};
use rmcp::transport::WorkerTransport;
use rmcp::transport::streamable_http_server::session::local::{
    EventIdParseError, LocalSessionHandle, LocalSessionWorker, SessionConfig, SessionError, create_local_session,
};
use rmcp::transport::streamable_http_server::session::{ServerSseMessage, SessionId, SessionManager};
use sa_core::budget::{Holder, Limit, Permit, Refused, SharedBudget};
use sa_core::shown::Shown;
use sa_core::{Notice, NoticeBody, Notices, Principal, Router};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::caller::Caller;
use crate::news::Outbox;
use crate::sessions::watched::{Watched, is_answer};
use crate::sole::SoleAnswer;

/// After how long a client is asked to open its broken stream again.
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
    /// How long a session may be idle.
    pub(crate) idle: Duration,
    pub(crate) most: usize,
    /// How long a client has to come back for a call whose stream broke.
    pub(crate) resume: Duration,
}

/// One client's session.
#[derive(Debug)]
pub(crate) struct Session {
    handle: LocalSessionHandle,
    owner: OnceLock<Arc<Principal>>,
    /// The revision that was negotiated.
    revision: OnceLock<ProtocolVersion>,
    /// What it takes from the budget of sessions, until it ends.
    permit: Mutex<Permit>,
    /// The list of tools of the view in which the owner opened the session.
    shown: OnceLock<Shown>,
    pub(crate) outbox: Outbox,
    /// Fires when the session is over; its streams end then.
    pub(crate) ended: CancellationToken,
    used: Mutex<Instant>,
    /// How many streams are open.
    open: AtomicUsize,
    /// The requests that have no answer yet. Two of one name could not be told apart, and one would never be answered.
    running: Mutex<HashSet<RequestId>>,
    /// The requests whose streams broke, by rmcp's number of the stream.
    broken: Mutex<HashMap<u64, RequestId>>,
    resume: Duration,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Trouble {
    #[error("there is no such session")]
    NotFound,
    #[error("{}; {}", .0.message, .0.hint)]
    Full(Refused),
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error(transparent)]
    EventId(#[from] EventIdParseError),
}

impl Sessions {
    pub(crate) fn new(limits: Limits, router: Arc<Router>, notices: Notices, closing: CancellationToken) -> Self {
        let budget = SharedBudget::new(Limit {
            name: "mcp_sessions",
            what: "sessions of MCP clients",
            key: "mcp.max_sessions",
            remedy: "end sessions that are not needed",
            total: limits.most,
        });
        Self { table: Mutex::default(), router, notices, limits, budget, closing }
    }

    /// What bounds the number of sessions.
    pub(crate) fn budget(&self) -> &Arc<SharedBudget> {
        &self.budget
    }

    /// A stream on which notices come: its owner is there, and is told what waits. No answer comes on it that would have to
    /// be waited for when the gateway closes.
    fn listen(&self, session: &Session, mut stream: Watched) -> Watched {
        let (ended, closing) = (session.ended.clone(), self.closing.clone());
        stream.over = Box::pin(async move {
            tokio::select! {
                () = ended.cancelled() => {}
                () = closing.cancelled() => {}
            }
        });
        stream.attending = session.owner.get().map(|owner| self.notices.attend(&owner.id));
        session.remind(&self.notices);
        stream
    }

    /// Whether this principal may use this session.
    pub(crate) fn belongs_to(&self, id: &str, principal: &Principal) -> bool {
        self.get(id).is_some_and(|session| session.owner.get().is_some_and(|owner| owner.id == principal.id))
    }

    /// Whether a principal may have one more, if need be after the one that is least needed has gone. The session itself takes
    /// the permit, see [`Session::bind`].
    pub(crate) fn make_room(&self, newcomer: Option<&Principal>) -> Result<(), Trouble> {
        let holder = newcomer.map_or_else(Holder::anonymous, Holder::of);
        let Err(refused) = self.budget.acquire(&holder, 1) else { return Ok(()) };
        let mut table = self.table();
        let id = least_needed(&table, newcomer).ok_or(Trouble::Full(refused))?;
        let session = table.remove(&id);
        drop(table);
        if let Some(session) = session {
            session.end();
        }
        self.budget.acquire(&holder, 1).map(drop).map_err(Trouble::Full)
    }

    /// Ends those that have been idle for too long.
    pub(crate) fn sweep(&self) {
        let ended: Vec<_> = self
            .table()
            .extract_if(|_, session| session.idle_for().is_some_and(|idle| idle >= self.limits.idle))
            .map(|(_, session)| session)
            .collect();
        for session in ended {
            session.end();
        }
    }

    /// Passes a notice on to the sessions that it concerns.
    pub(crate) fn tell(&self, notice: &Arc<Notice>) {
        let addressed: Vec<_> = {
            let table = self.table();
            let all = table.iter().filter(|(_, session)| session.is_addressed(notice));
            all.map(|(id, session)| (id.clone(), Arc::clone(session))).collect()
        };
        // Outside of the lock: this may be a look at the whole list of tools.
        for (id, session) in addressed.into_iter().filter(|(_, session)| session.is_shown(notice, &self.router)) {
            // Its client keeps a stream open and does not read it.
            if session.outbox.put(notice).is_err() {
                tracing::warn!(session = %id, "an MCP session was ended: its client does not read its stream");
                self.remove(&id);
            }
        }
    }

    /// Reminds everybody of what waits for them.
    pub(crate) fn tell_pending(&self, notices: &Notices) {
        let all: Vec<_> = self.table().values().cloned().collect();
        for session in all {
            session.remind(notices);
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

    fn session(&self, id: &str) -> Result<Arc<Session>, Trouble> {
        let session = self.get(id).ok_or(Trouble::NotFound)?;
        session.touch();
        Ok(session)
    }

    fn table(&self) -> std::sync::MutexGuard<'_, HashMap<SessionId, Arc<Session>>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The session that has been idle for longest, of those of the principal that has the most idle ones, counting the one
/// that is about to come: nobody can push another one's sessions out by opening many.
fn least_needed(table: &HashMap<SessionId, Arc<Session>>, newcomer: Option<&Principal>) -> Option<SessionId> {
    let mut idle: HashMap<Option<&Arc<str>>, (usize, Duration, &SessionId)> = HashMap::new();
    for (id, session) in table {
        let Some(idle_for) = session.idle_for() else { continue };
        let owner = session.owner.get().map(|owner| &owner.id);
        let about_to_come = usize::from(owner.is_some() && owner == newcomer.map(|newcomer| &newcomer.id));
        let (count, longest, which) = idle.entry(owner).or_insert((about_to_come, idle_for, id));
        *count += 1;
        if idle_for > *longest {
            (*longest, *which) = (idle_for, id);
        }
    }
    idle.into_values().max_by_key(|(count, longest, _)| (*count, *longest)).map(|(_, _, id)| id.clone())
}

impl Session {
    fn is_addressed(&self, notice: &Notice) -> bool {
        let Some(to) = &notice.to else { return true };
        self.owner.get().is_some_and(|owner| owner.id == *to)
    }

    /// Whether the client can see what has changed.
    fn is_shown(&self, notice: &Notice, router: &Router) -> bool {
        match (&notice.body, self.shown.get()) {
            (NoticeBody::Session { .. }, _) => true,
            (NoticeBody::ToolsChanged { scope, .. }, Some(shown)) => shown.changed(router, scope.as_ref()),
            (NoticeBody::DocumentsChanged { provider }, Some(shown)) => shown.documents_changed(provider.as_ref()),
            (_, None) => false,
        }
    }

    fn touch(&self) {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// `None` while it is in use.
    fn idle_for(&self) -> Option<Duration> {
        let unused = self.open.load(Ordering::Acquire) == 0;
        unused.then(|| self.used.lock().unwrap_or_else(PoisonError::into_inner).elapsed())
    }

    fn end(self: &Arc<Self>) {
        // The streams first: a worker that waits for one that nobody reads would not hear of the end.
        self.ended.cancel();
        let _ = self.permit().resize(0);
        let session = Arc::clone(self);
        tokio::spawn(async move { session.handle.close().await.ok() });
    }

    /// Ends it when its token is revoked.
    fn bind(self: &Arc<Self>, caller: &Caller, router: &Router) {
        let _ = self.owner.set(Arc::clone(&caller.principal));
        // It was asked for before; if another one was faster since then, this one counts for nobody.
        let _ = self.permit().transfer(&Holder::of(&caller.principal));
        let _ = self.shown.set(Shown::new(router, caller.view()));
        let (session, revoked) = (Arc::clone(self), caller.revoked.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = revoked.cancelled() => session.end(),
                () = session.ended.cancelled() => {}
            }
        });
    }

    /// Tells the client what waits for it. One that does not keep up is told when it opens its stream anew.
    fn remind(&self, notices: &Notices) {
        let Some(owner) = self.owner.get() else { return };
        for notice in notices.pending(owner) {
            if self.outbox.put(&Arc::new(notice)).is_err() {
                return;
            }
        }
    }

    /// Whether the client knows events without data. They give it an id to resume a stream from. Clients of older revisions
    /// take them for broken messages.
    fn takes_empty_events(&self) -> bool {
        self.revision.get().is_some_and(|revision| *revision >= ProtocolVersion::V_2025_11_25)
    }

    fn permit(&self) -> std::sync::MutexGuard<'_, Permit> {
        self.permit.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn broken(&self) -> std::sync::MutexGuard<'_, HashMap<u64, RequestId>> {
        self.broken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn running(&self) -> std::sync::MutexGuard<'_, HashSet<RequestId>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes a request on, and returns the stream of what comes back.
    async fn begin(self: &Arc<Self>, message: ClientJsonRpcMessage) -> Result<Watched, Trouble> {
        let request = match &message {
            ClientJsonRpcMessage::Request(request) => Some(request.id.clone()),
            _ => None,
        };
        if let Some(id) = request.as_ref().filter(|id| self.running().contains(id)) {
            return Ok(self.refuse(id.clone()));
        }
        let receiver = self.handle.establish_request_wise_channel().await?;
        // Taken back by the stream, which is there before anything else is waited for.
        if let Some(id) = request.as_ref().filter(|id| !self.running().insert(RequestId::clone(id))) {
            return Ok(self.refuse(id.clone()));
        }
        let stream = self.watch(receiver.inner, receiver.http_request_id.zip(request));
        self.handle.push_message(message, receiver.http_request_id).await?;
        Ok(stream)
    }

    /// The answer to a request whose id another one has that still runs.
    fn refuse(self: &Arc<Self>, id: RequestId) -> Watched {
        let (sender, receiver) = mpsc::channel(1);
        let why = format!("a request with the id {id} is running already; each needs one of its own");
        let answer = ServerJsonRpcMessage::error(ErrorData::invalid_request(why, None), Some(id));
        let _ = sender.try_send(ServerSseMessage::from_message(answer));
        self.watch(receiver, None)
    }

    fn watch(self: &Arc<Self>, inner: mpsc::Receiver<ServerSseMessage>, request: Option<(u64, RequestId)>) -> Watched {
        self.open.fetch_add(1, Ordering::AcqRel);
        let over = Box::pin(self.ended.clone().cancelled_owned());
        Watched { inner, over, session: Arc::clone(self), request, attending: None }
    }
}

impl SessionManager for Sessions {
    type Error = Trouble;
    type Transport = WorkerTransport<LocalSessionWorker>;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport), Trouble> {
        let id: SessionId = Uuid::new_v4().to_string().into();
        let mut config = SessionConfig::default();
        // We keep the time: rmcp would also end a session whose client listens and has nothing to say.
        config.keep_alive = None;
        let (handle, worker) = create_local_session(id.clone(), config);
        let session = Session {
            handle,
            owner: OnceLock::new(),
            revision: OnceLock::new(),
            // Its principal is known in a moment, and was let in already.
            permit: Mutex::new(self.budget.charge(&Holder::anonymous(), 1)),
            shown: OnceLock::new(),
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
    ) -> Result<ServerJsonRpcMessage, Trouble> {
        let session = self.session(id)?;
        let mut sole = None;
        if let ClientJsonRpcMessage::Request(request) = &mut message {
            let extensions = request.request.extensions_mut();
            sole = SoleAnswer::find(extensions).cloned();
            if let Some(caller) = Caller::find(extensions).cloned() {
                session.bind(&caller, &self.router);
            }
            extensions.insert(Arc::clone(&session));
        }
        let answer = session.handle.initialize(message).await?;
        if let ServerJsonRpcMessage::Response(response) = &answer
            && let ServerResult::InitializeResult(result) = &response.result
        {
            let _ = session.revision.set(result.protocol_version.clone());
        }
        if let Some(sole) = sole {
            sole.set(Arc::new(answer.clone()));
        }
        Ok(answer)
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, Trouble> {
        Ok(self.session(id).is_ok_and(|session| !session.ended.is_cancelled()))
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), Trouble> {
        self.remove(id);
        Ok(())
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Trouble> {
        let session = self.session(id)?;
        let sole = match &message {
            ClientJsonRpcMessage::Request(request) => SoleAnswer::find(request.request.extensions()).cloned(),
            _ => None,
        };
        let mut stream = session.begin(message).await?;
        let first = stream.first().await;
        if let Some(sole) = sole
            && let Some(answer) = first.last().and_then(|event| event.message.clone()).filter(|last| is_answer(last))
        {
            sole.set(answer);
        }
        Ok(stream::iter(first).chain(stream))
    }

    async fn accept_message(&self, id: &SessionId, message: ClientJsonRpcMessage) -> Result<(), Trouble> {
        Ok(self.session(id)?.handle.push_message(message, None).await?)
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Trouble> {
        let session = self.session(id)?;
        let receiver = session.handle.establish_common_channel().await?;
        let first = session.takes_empty_events().then(|| ServerSseMessage::priming("0", RETRY));
        Ok(stream::iter(first).chain(self.listen(&session, session.watch(receiver.inner, None))))
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Trouble> {
        let session = self.session(id)?;
        let receiver = session.handle.resume(last_event_id.parse()?).await?;
        let request = receiver.http_request_id.and_then(|stream| Some((stream, session.broken().remove(&stream)?)));
        let stream = session.watch(receiver.inner, request);
        Ok(if receiver.http_request_id.is_none() { self.listen(&session, stream) } else { stream })
    }
}
