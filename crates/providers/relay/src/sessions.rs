//! All sessions of a gateway.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use sa_core::store::{Log, Records, StoreError};
use sa_core::{
    AuditEvent, CallError, CallErrorKind, Journal, Notices, Pending, Principal, RawJson, Role,
    Router, Scope, clock,
};
use sa_http::SessionScopes;
use sa_limits::budget::{Limit, Permit, SharedBudget};
use sa_limits::sampler::Sampler;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};
use uuid::Uuid;

use crate::archive::{self, Archive, Space};
use crate::args::{self, invalid};
use crate::events::Events;
use crate::record::{Record, SessionView};
use crate::sandbox::{self, Paths};
use crate::session::{NewSession, Session};
use crate::{AgentCommand, Options, agent, builtin, socket, turn, watch};

/// The maximum nesting depth of sessions that agents start.
const MAX_DEPTH: usize = 4;
const MAX_MESSAGE: usize = 1 << 20;
/// The maximum number of ended sessions that are kept.
const MAX_ENDED: usize = 1_000;
/// The maximum number of warnings of one kind per minute.
const MAX_WARNINGS: u32 = 20;

pub struct Sessions {
    pub(crate) router: Arc<Router>,
    pub(crate) notices: Notices,
    pub(crate) options: Options,
    pub(crate) tasks: TaskTracker,
    pub(crate) archive: Arc<Archive>,
    /// The real paths of the agents with a sandbox.
    paths: BTreeMap<String, Paths>,
    open: Mutex<HashMap<Arc<str>, Open>>,
    budget: Arc<SharedBudget>,
    /// Wakes the task that tracks the presence of callers.
    pub(crate) presence_changed: Arc<Notify>,
    stop: CancellationToken,
    /// Cancelled when long polls must return.
    pub(crate) closing: CancellationToken,
    registration: Mutex<Option<sa_core::Registration>>,
    /// About answers to unknown requests.
    pub(crate) stray_answers: Sampler,
}

/// An open session, and its share of the sessions budget.
pub(crate) struct Open {
    pub(crate) session: Arc<Session>,
    _permit: Permit,
}

/// An accepted message.
pub(crate) struct AcceptedMessage {
    pub(crate) session: Arc<Session>,
    /// The id of its event.
    pub(crate) event: Option<u64>,
    /// How long its sender waits for the agent.
    pub(crate) wait: Duration,
    /// Whether the session is new.
    pub(crate) spawned: bool,
    /// Why no agent works on it, if so.
    hint: Option<String>,
}

impl AcceptedMessage {
    /// Returns the answer to the sender of the message.
    pub(crate) fn answer(&self) -> Value {
        let mut answer = json!(self.session.show());
        answer["spawned"] = json!(self.spawned);
        if let Some(hint) = &self.hint {
            answer["hint"] = json!(hint);
        }
        answer
    }
}

impl SessionScopes for Sessions {
    fn scope(&self, principal: &Principal, session: &str) -> Option<Scope> {
        let session = self.enter(principal, session).ok()?;
        Some(Scope::Session(Arc::clone(&session.id)))
    }
}

impl Sessions {
    /// Loads the stored sessions. Sessions that an earlier gateway process left open are recorded
    /// as ended.
    pub async fn start(
        router: Arc<Router>,
        notices: Notices,
        log: Arc<dyn Log>,
        records: Arc<dyn Records>,
        options: Options,
    ) -> Result<Arc<Self>, StoreError> {
        let budget = SharedBudget::new(Limit {
            name: "sessions",
            what: "open sessions",
            key: "sessions.max_open",
            remedy: "end unused sessions with `session_end`",
            total: options.max_sessions,
        });
        let limits = archive::Limits {
            ended: MAX_ENDED,
            keep: options.keep,
            bytes: options.max_stored_bytes,
        };
        let trimmer = Arc::clone(&options.trimmer);
        let (archive, left_open) = Archive::load(log, records, trimmer, limits).await?;
        let confined = options.agents.iter().filter(|(_, command)| command.sandbox);
        let paths = confined.map(|(name, command)| (name.clone(), Paths::of(command))).collect();
        let sessions = Arc::new(Self {
            router,
            notices,
            options,
            paths,
            tasks: TaskTracker::new(),
            archive,
            open: Mutex::default(),
            budget,
            presence_changed: Arc::new(Notify::new()),
            stop: CancellationToken::new(),
            closing: CancellationToken::new(),
            registration: Mutex::new(None),
            stray_answers: Sampler::new(MAX_WARNINGS),
        });
        for mut record in left_open {
            let view = &mut record.view;
            view.state = "ended".into();
            view.reason = Some("the gateway stopped".into());
            view.ended_ms = Some(clock::now_ms());
            (view.socket, view.caller, view.pending) = (None, None, 0);
            let Ok(events) = sessions.events_of(&view.session_id, &view.owner.id) else { continue };
            let (turn, bytes) = turn::State::left_open(&events).await?;
            record.turn = turn;
            events.space.charge(bytes);
            events.record_event("session_ended", json!({ "reason": record.view.reason }));
            record.event_bytes = events.space.bytes();
            sessions.archive.write(&record).await?;
        }
        let pending: Arc<dyn Pending> = Arc::<Self>::clone(&sessions);
        sessions.notices.remember(Arc::downgrade(&pending));
        let registration = builtin::attach(&sessions);
        *sessions.registration.lock() = registration;
        tokio::spawn(watch::callers(Arc::downgrade(&sessions), sessions.stop.clone()));
        tokio::spawn(watch::delete_expired(Arc::downgrade(&sessions), sessions.stop.clone()));
        Ok(sessions)
    }

    /// Completes all long polls, so that the gateway can shut down without waiting for them.
    pub fn begin_shutdown(&self) {
        self.closing.cancel();
    }

    /// Ends every session, and waits until their agents have exited.
    pub async fn shut_down(&self) {
        for session in self.all() {
            self.end_session(&session, "the gateway stopped").await;
        }
        self.stop.cancel();
        self.tasks.close();
        let _ = tokio::time::timeout(Duration::from_secs(5), self.tasks.wait()).await;
    }

    /// Ends the sessions of a principal that may no longer have any.
    pub async fn end_owned(&self, owner: &str, reason: &str) {
        for session in self.all().into_iter().filter(|session| *session.owner.id == *owner) {
            self.end_session(&session, reason).await;
        }
    }

    /// Returns an open session that a principal may use: its own, or any for an operator.
    pub fn enter(&self, principal: &Principal, id: &str) -> Result<Arc<Session>, CallError> {
        let session = self.open().get(id).map(|open| Arc::clone(&open.session));
        let session = session
            .filter(|session| session.is_owner(principal) || principal.role == Role::Operator);
        session.ok_or_else(|| unknown(id))
    }

    /// Implements `session_message`: starts or continues a session.
    pub(crate) async fn message(
        self: &Arc<Self>,
        principal: &Arc<Principal>,
        json: &RawJson,
        within: Option<&Arc<Session>>,
    ) -> Result<AcceptedMessage, CallError> {
        let mut message: args::NewMessage = args::read(json)?;
        let lending = message.lending()?;
        if message.message.as_ref().is_some_and(|text| text.len() > MAX_MESSAGE) {
            return Err(invalid(format!("a message can have at most {MAX_MESSAGE} bytes")));
        }
        let wait = args::wait(message.wait_ms);
        let places = self.options.max_pending;
        let spawned = message.session_id.as_deref().is_none_or(str::is_empty);
        let session = if let Some(id) = message.session_id.as_deref().filter(|id| !id.is_empty()) {
            self.check_reach(principal, within, id).await?;
            let session = match self.enter(principal, id) {
                Ok(session) => session,
                Err(unknown) => return Err(self.ended_or(principal, id, unknown).await),
            };
            if let Some(agent) =
                message.agent.as_ref().filter(|agent| session.agent.as_ref() != Some(agent))
            {
                return Err(invalid(format!("the session does not use the agent \"{agent}\"")));
            }
            if within.is_some_and(|own| Arc::ptr_eq(own, &session)) {
                // The agent sends a message in its own session.
                session.touch();
                let event = json!({ "message": message.message });
                let event = session.events.write("agent_message", event).await.map_err(stored)?;
                session.turn.answered();
                return Ok(AcceptedMessage {
                    session,
                    event: Some(event),
                    wait: Duration::ZERO,
                    spawned: false,
                    hint: None,
                });
            }
            self.check_confinement(within, session.agent.as_deref())?;
            session.lend(self.router.directory(), lending, places);
            session
        } else {
            let agent = self.choose_agent(message.agent.take(), message.project_id.as_deref())?;
            self.check_confinement(within, agent.as_deref())?;
            let session = self.open_session(principal, agent, within.cloned()).await?;
            session.lend(self.router.directory(), lending, places);
            session.events.record_event("session_started", json!({ "agent": session.agent }));
            if let Err(error) = self.archive.write(&session.record()).await {
                let why = format!("the session cannot be stored: {error}");
                self.end_session(&session, &why).await;
                return Err(CallError::new(CallErrorKind::Failed, why));
            }
            session
        };
        session.touch();
        self.caller_did_something(&session);
        let mut event = None;
        if let Some(text) = message.message {
            match self.deliver(principal, &session, &text).await {
                Ok(written) => event = Some(written),
                Err(error) => {
                    if spawned {
                        self.end_session(&session, &error.message).await;
                    }
                    return Err(error);
                }
            }
        }
        let hint = self.hint_for(&session);
        Ok(AcceptedMessage { session, event, wait, spawned, hint })
    }

    /// Stores a message and sends it to the agent. Returns the id of its event.
    async fn deliver(
        self: &Arc<Self>,
        principal: &Principal,
        session: &Arc<Session>,
        text: &str,
    ) -> Result<u64, CallError> {
        let event = json!({ "message": text, "from": &*principal.name });
        let event = session.events.write("message", event).await.map_err(stored)?;
        let before = session.turn.begin(event);
        if let Err(error) = agent::deliver(self, session, text).await {
            session.turn.take_back(before);
            return Err(error);
        }
        Ok(event)
    }

    fn choose_agent(
        &self,
        agent: Option<String>,
        project: Option<&str>,
    ) -> Result<Option<String>, CallError> {
        let Options { agents, default_agent, .. } = &self.options;
        match agent.or_else(|| project.filter(|name| agents.contains_key(*name)).map(str::to_owned))
        {
            Some(name) if agents.contains_key(&name) => Ok(Some(name)),
            Some(name) => {
                let known = agents.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
                let name: String = name.chars().take(64).collect();
                let error = invalid(format!("unknown agent \"{name}\""));
                let none = "no agent is configured: add one to sessions.agents, or omit the agent and let one connect to the session";
                Err(if known.is_empty() {
                    error.hint(none)
                } else {
                    error.hint(format!("configured agents: {known}"))
                })
            }
            None if !default_agent.is_empty() => Ok(Some(default_agent.clone())),
            None if agents.len() == 1 => Ok(agents.keys().next().cloned()),
            None => Ok(None),
        }
    }

    /// Checks that an agent asks for its own session, or one started from it. Other sessions of
    /// its owner are unknown to it.
    pub(crate) async fn check_reach(
        &self,
        principal: &Principal,
        within: Option<&Arc<Session>>,
        id: &str,
    ) -> Result<(), CallError> {
        let Some(own) = within else { return Ok(()) };
        let mut at = id.to_owned();
        for _ in 0..MAX_DEPTH {
            if *at == *own.id {
                return Ok(());
            }
            let Some(parent) = self.show(principal, &at).await?.parent else { break };
            at = parent;
        }
        Err(unknown(id))
    }

    /// Returns the real paths of a session's agent.
    pub(crate) fn paths_of(&self, session: &Session, command: &AgentCommand) -> Paths {
        let known = session.agent.as_ref().and_then(|name| self.paths.get(name));
        known.cloned().unwrap_or_else(|| Paths::of(command))
    }

    /// Checks that a sandboxed agent uses only agents that are at least as confined. Otherwise it
    /// could leave the sandbox by asking another agent. An agent that connects by itself counts
    /// as one without a sandbox.
    fn check_confinement(
        &self,
        within: Option<&Arc<Session>>,
        target: Option<&str>,
    ) -> Result<(), CallError> {
        let agents = &self.options.agents;
        let Some(own) = within.and_then(|session| session.agent.as_ref()) else { return Ok(()) };
        let Some(command) = agents.get(own).filter(|command| command.sandbox) else {
            return Ok(());
        };
        let refused = |name: String| {
            let rule = format!(
                "an agent in a sandbox can only use agents that are at least as confined; {name}"
            );
            CallError::new(CallErrorKind::NotAllowed, rule)
                .hint("agents with the same sandbox, network, dir and read can use each other; see sessions.agents")
        };
        let Some(name) = target else {
            return Err(refused(format!("no agent was named, and \"{own}\" has a sandbox")));
        };
        let Some(other) = agents.get(name) else { return Ok(()) };
        let paths = |name: &str| self.paths.get(name).cloned().unwrap_or_default();
        sandbox::check_confinement((command, &paths(own)), (other, &paths(name)))
            .map_err(|why| refused(format!("the agent \"{name}\" {why} (asked by \"{own}\")")))
    }

    /// Returns a hint for the sender of a message in a session without an agent, which explains
    /// why nothing happens.
    pub(crate) fn hint_for(&self, session: &Session) -> Option<String> {
        if session.agent.is_some() || *session.agents.borrow() > 0 {
            return None;
        }
        let names: Vec<&str> = self.options.agents.keys().map(String::as_str).collect();
        Some(match &names[..] {
            [] => {
                "no agent is configured: the session waits until one connects to its socket; add [sessions.agents.NAME] \
                to configure one"
                    .to_owned()
            }
            names => format!(
                "no agent was started: sessions.default_agent is not set (agents: {}); start a session with \
                 agent={}, or connect an agent to this session's socket",
                names.join(", "),
                names[0]
            ),
        })
    }

    /// Returns the hint if an agent should have connected by now. Clients of the original protocol
    /// would wait for it until the session ends.
    pub(crate) fn hint_if_slow(&self, session: &Session) -> Option<String> {
        let timeout = self.options.agent_timeout;
        let is_slow = session.turn.working_for().is_some_and(|waiting| waiting >= timeout);
        if is_slow && session.lacks_agent() { self.hint_for(session) } else { None }
    }

    async fn open_session(
        self: &Arc<Self>,
        principal: &Arc<Principal>,
        agent: Option<String>,
        parent: Option<Arc<Session>>,
    ) -> Result<Arc<Session>, CallError> {
        if self.stop.is_cancelled() || self.router.is_draining() {
            return Err(CallError::undelivered("the gateway is shutting down")
                .hint("retry when it is running again"));
        }
        if parent.as_ref().is_some_and(|parent| parent.depth + 1 >= MAX_DEPTH) {
            let error = format!("agents can nest sessions at most {MAX_DEPTH} levels deep");
            return Err(CallError::new(CallErrorKind::NotAllowed, error));
        }
        let id: Arc<str> = format!("ses_{}", Uuid::now_v7().simple()).into();
        let path = self.options.socket_dir.join(format!("{id}.sock"));
        let permit = self.budget.acquire(&principal.holder(), 1)?;
        let space = self.archive.create(&id, &principal.holder()).await.map_err(stored)?;
        let events = Arc::new(self.events(&id, &principal.id, space));
        let session = Session::new(NewSession {
            id: Arc::clone(&id),
            owner: Arc::clone(principal),
            agent,
            parent,
            socket: path,
            events,
            grace: self.options.caller_grace,
            timeout: self.options.timeout,
        });
        self.open().insert(id, Open { session: Arc::clone(&session), _permit: permit });
        if let Err(error) = socket::listen(self, &session) {
            self.open().remove(&session.id);
            self.archive.forget(&session.id);
            let path = session.socket.display();
            return Err(CallError::new(
                CallErrorKind::Failed,
                format!("cannot listen on {path}: {error}"),
            ));
        }
        self.audit("session.started", principal, &session.id, "");
        Ok(session)
    }

    /// Implements `session_end`.
    pub(crate) async fn end(
        &self,
        principal: &Principal,
        id: &str,
    ) -> Result<SessionView, CallError> {
        match self.enter(principal, id) {
            Ok(session) => {
                self.end_session(&session, &format!("ended by {}", principal.name)).await;
                Ok(session.show())
            }
            Err(_) => self.show(principal, id).await,
        }
    }

    pub(crate) async fn end_session(&self, session: &Arc<Session>, reason: &str) {
        if !session.end(reason) {
            return;
        }
        if !session.is_running() {
            session.remove_files().await;
        }
        info!(session = &*session.id, reason, "session ended");
        self.audit("session.ended", &session.owner, &session.id, reason);
        // Written before it is removed from the table, so that it is always visible in one of
        // them.
        self.write(session).await;
        self.open().remove(&session.id);
    }

    /// Stores the state of a session that has ended.
    pub(crate) async fn write(&self, session: &Session) {
        if let Err(error) = self.archive.write(&session.record()).await {
            warn!(session = &*session.id, %error, "cannot record the end of the session");
        }
    }

    /// Returns one session, open or ended.
    pub async fn show(&self, principal: &Principal, id: &str) -> Result<SessionView, CallError> {
        self.find(principal, id).await.map(|record| record.view)
    }

    pub(crate) async fn find(&self, principal: &Principal, id: &str) -> Result<Record, CallError> {
        if let Ok(session) = self.enter(principal, id) {
            return Ok(session.record());
        }
        let record = self.archive.read(id).await.map_err(stored)?;
        record.filter(|record| may_see(principal, &record.view)).ok_or_else(|| unknown(id))
    }

    /// Returns all sessions that a principal may see, newest first.
    pub async fn list(&self, principal: &Principal) -> Result<Vec<SessionView>, CallError> {
        let open = self.all();
        let mut views: Vec<SessionView> = open.iter().map(|session| session.show()).collect();
        let stored = self.archive.list().await.map_err(stored)?.into_iter();
        let stored = stored.map(|record| record.view);
        views.extend(
            stored.filter(|view| !open.iter().any(|session| *session.id == *view.session_id)),
        );
        views.retain(|view| may_see(principal, view));
        views.sort_by(|a, b| b.session_id.cmp(&a.session_id));
        Ok(views)
    }

    /// Returns the budgets of sessions: their number, and the bytes of their stored events.
    pub fn budgets(&self) -> [&Arc<SharedBudget>; 2] {
        [&self.budget, self.archive.budget()]
    }

    /// Returns the number of open sessions, and of those with a connected agent.
    pub fn count(&self) -> (usize, usize) {
        let open = self.all();
        (open.len(), open.iter().filter(|session| session.is_running()).count())
    }

    /// Records that a session's caller is active, because it sent a request.
    pub(crate) fn caller_did_something(&self, session: &Session) {
        session.presence.active();
        self.presence_changed.notify_one();
    }

    /// Checks the presence of callers again.
    pub(crate) fn refresh(&self) {
        self.presence_changed.notify_one();
    }

    /// Returns the error for a message to a session that is not open: that it has ended, or is
    /// unknown.
    async fn ended_or(&self, principal: &Principal, id: &str, unknown: CallError) -> CallError {
        match self.show(principal, id).await {
            Ok(view) => {
                let why = view.reason.unwrap_or_default();
                CallError::new(CallErrorKind::Conflict, format!("the session has ended: {why}"))
                    .hint("start a new one: leave session_id out")
            }
            Err(_) => unknown,
        }
    }

    /// Returns the events of a stored session.
    pub(crate) fn events_of(&self, id: &str, owner: &str) -> Result<Events, CallError> {
        let space = self.archive.space(id).ok_or_else(|| unknown(id))?;
        Ok(self.events(&id.into(), &owner.into(), space))
    }

    fn events(&self, id: &Arc<str>, owner: &Arc<str>, space: Arc<Space>) -> Events {
        Events::new(id, owner, &self.notices, &self.archive, space, &self.options)
    }

    pub(crate) fn audit(
        &self,
        name: &'static str,
        principal: &Principal,
        session: &str,
        detail: &str,
    ) {
        self.router.journal().audit(AuditEvent {
            name,
            actor: format!("{} {}", principal.role, principal.name),
            subject: session.to_owned(),
            detail: detail.to_owned(),
        });
    }

    pub(crate) fn journal(&self) -> &Arc<dyn Journal> {
        self.router.journal()
    }

    pub(crate) fn all(&self) -> Vec<Arc<Session>> {
        self.open().values().map(|open| Arc::clone(&open.session)).collect()
    }

    pub(crate) fn open(&self) -> MutexGuard<'_, HashMap<Arc<str>, Open>> {
        self.open.lock()
    }
}

impl std::fmt::Debug for Sessions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sessions").field("open", &self.open().len()).finish_non_exhaustive()
    }
}

fn may_see(principal: &Principal, view: &SessionView) -> bool {
    principal.role == Role::Operator || *principal.id == *view.owner.id
}

/// Returns the error for an unknown session. Another principal's session gives the same error.
pub(crate) fn unknown(id: &str) -> CallError {
    let id: String = id.chars().take(64).flat_map(char::escape_debug).collect();
    CallError::new(
        CallErrorKind::NotFound,
        format!("no session that this token may use has the id \"{id}\""),
    )
    .hint("list the sessions with `session_list`")
}

pub(crate) fn stored(error: StoreError) -> CallError {
    CallError::new(CallErrorKind::Failed, error.message).retryable(true)
}

#[cfg(test)]
mod tests;
