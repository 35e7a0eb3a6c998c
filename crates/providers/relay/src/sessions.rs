//! All sessions of a gateway.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use sa_core::budget::{Holder, Limit, Permit, SharedBudget};
use sa_core::store::{Expect, Log, Records, StoreError};
use sa_core::{
    AuditEvent, CallError, CallErrorKind, Journal, Notices, Pending, Principal, RawJson, Role, Router, Scope, View,
    clock,
};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};
use uuid::Uuid;

use crate::args::{self, invalid};
use crate::events::Events;
use crate::record::{BUCKET, SessionView};
use crate::session::{NewSession, Session};
use crate::{Options, agent, builtin, sandbox, socket, watch};

/// Sessions that agents may start one from within another.
const MAX_DEPTH: usize = 4;
const MAX_MESSAGE: usize = 1 << 20;

pub struct Sessions {
    pub(crate) router: Arc<Router>,
    pub(crate) notices: Notices,
    pub(crate) options: Options,
    pub(crate) tasks: TaskTracker,
    log: Arc<dyn Log>,
    pub(crate) records: Arc<dyn Records>,
    open: Mutex<HashMap<Arc<str>, Open>>,
    budget: Arc<SharedBudget>,
    /// Wakes whoever watches over the callers.
    pub(crate) poke: Arc<Notify>,
    stop: CancellationToken,
    /// Fires when questions are not to stay open any longer.
    pub(crate) closing: CancellationToken,
    registration: Mutex<Option<sa_core::Registration>>,
}

/// An open session, and what it takes from the budget of sessions.
pub(crate) struct Open {
    pub(crate) session: Arc<Session>,
    _permit: Permit,
}

/// A message that was taken.
pub(crate) struct Heard {
    pub(crate) session: Arc<Session>,
    /// The event that it is.
    pub(crate) event: Option<u64>,
    /// How long its sender wants to wait.
    pub(crate) wait: Duration,
    /// Whether the session is new.
    pub(crate) spawned: bool,
}

impl Heard {
    /// The answer to the sender of the message.
    pub(crate) fn answer(&self) -> Value {
        let mut answer = json!(self.session.show());
        answer["spawned"] = json!(self.spawned);
        answer
    }
}

impl Sessions {
    /// Takes up the sessions of a gateway. Those that a former one left open have ended with it.
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
            remedy: "end sessions that are not needed, with session_end",
            total: options.max_sessions,
        });
        let sessions = Arc::new(Self {
            router,
            notices,
            options,
            tasks: TaskTracker::new(),
            log,
            records,
            open: Mutex::default(),
            budget,
            poke: Arc::new(Notify::new()),
            stop: CancellationToken::new(),
            closing: CancellationToken::new(),
            registration: Mutex::new(None),
        });
        for (_, record) in sessions.records.list(BUCKET).await? {
            if let Ok(mut view) = serde_json::from_slice::<SessionView>(&record.value)
                && view.ended_ms.is_none()
            {
                view.state = "ended".into();
                view.reason = Some("the gateway stopped".into());
                view.ended_ms = Some(clock::now_ms());
                (view.socket, view.caller, view.pending) = (None, None, 0);
                sessions
                    .events_of(&view.session_id, &view.owner.id)
                    .say("session_ended", json!({ "reason": view.reason }));
                sessions.write(&view).await?;
            }
        }
        let pending: Arc<dyn Pending> = Arc::<Self>::clone(&sessions);
        sessions.notices.remember(Arc::downgrade(&pending));
        let registration = builtin::attach(&sessions);
        *sessions.registration.lock().unwrap_or_else(PoisonError::into_inner) = registration;
        tokio::spawn(watch::callers(Arc::downgrade(&sessions), sessions.stop.clone()));
        tokio::spawn(watch::keep_house(Arc::downgrade(&sessions), sessions.stop.clone()));
        Ok(sessions)
    }

    /// Answers all questions that wait for something to happen, so that a gateway that stops need not wait for them.
    pub fn wind_down(&self) {
        self.closing.cancel();
    }

    /// Ends every session, and waits for their agents to be gone.
    pub async fn shut_down(&self) {
        for session in self.all() {
            self.end_session(&session, "the gateway stopped").await;
        }
        self.stop.cancel();
        self.tasks.close();
        let _ = tokio::time::timeout(Duration::from_secs(5), self.tasks.wait()).await;
    }

    /// Ends the sessions of somebody who may have none any more.
    pub async fn end_owned(&self, owner: &str, reason: &str) {
        for session in self.all().into_iter().filter(|session| *session.owner.id == *owner) {
            self.end_session(&session, reason).await;
        }
    }

    /// What a principal sees who names a session: the session's tools as well, if it is one that they may enter.
    pub fn view(&self, principal: Arc<Principal>, session: Option<&str>) -> View {
        let session = session.and_then(|id| self.enter(&principal, id).ok());
        let scopes = session.map(|session| Scope::Session(Arc::clone(&session.id)));
        View { principal, scopes: scopes.into_iter().collect() }
    }

    /// An open session that a principal may use: its own, or any for an operator.
    pub fn enter(&self, principal: &Principal, id: &str) -> Result<Arc<Session>, CallError> {
        let session = self.open().get(id).map(|open| Arc::clone(&open.session));
        let session = session.filter(|session| session.is_owner(principal) || principal.role == Role::Operator);
        session.ok_or_else(|| unknown(id))
    }

    /// `session_message`: starts a session, or goes on with one.
    pub(crate) async fn message(
        self: &Arc<Self>,
        principal: &Arc<Principal>,
        json: &RawJson,
        within: Option<&Arc<Session>>,
    ) -> Result<Heard, CallError> {
        let mut message: args::NewMessage = args::read(json)?;
        let lending = message.lending()?;
        if message.message.as_ref().is_some_and(|text| text.len() > MAX_MESSAGE) {
            return Err(invalid(format!("a message has at most {MAX_MESSAGE} bytes")));
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
            if let Some(agent) = message.agent.as_ref().filter(|agent| session.agent.as_ref() != Some(agent)) {
                return Err(invalid(format!("the session's agent is another one than \"{agent}\"")));
            }
            if within.is_some_and(|own| Arc::ptr_eq(own, &session)) {
                // The agent says something in its own session.
                session.touch();
                let event = json!({ "message": message.message });
                let event = session.events.write("agent_message", event).await.map_err(stored)?;
                session.turn.end(session.turn.message(), true);
                return Ok(Heard { session, event: Some(event), wait: Duration::ZERO, spawned: false });
            }
            self.check_confinement(within, session.agent.as_deref())?;
            session.lend(self.router.directory(), lending, places);
            session
        } else {
            let agent = self.choose_agent(message.agent.take(), message.project_id.as_deref())?;
            self.check_confinement(within, agent.as_deref())?;
            let session = self.open_session(principal, agent, within.cloned())?;
            session.lend(self.router.directory(), lending, places);
            session.events.say("session_started", json!({ "agent": session.agent }));
            if let Err(error) = self.write(&session.show()).await {
                let why = format!("the session cannot be written down: {error}");
                self.end_session(&session, &why).await;
                return Err(CallError::new(CallErrorKind::Failed, why));
            }
            session
        };
        session.touch();
        self.caller_did_something(&session);
        let mut written = None;
        if let Some(text) = message.message {
            let event = json!({ "message": text, "from": &*principal.name });
            let event = session.events.write("message", event).await.map_err(stored)?;
            let before = session.turn.begin(event);
            written = Some(event);
            if let Err(error) = agent::deliver(self, &session, &text).await {
                session.turn.take_back(before);
                if message.session_id.is_none() {
                    self.end_session(&session, &error.message).await;
                }
                return Err(error);
            }
        }
        Ok(Heard { session, event: written, wait, spawned })
    }

    fn choose_agent(&self, agent: Option<String>, project: Option<&str>) -> Result<Option<String>, CallError> {
        let Options { agents, default_agent, .. } = &self.options;
        match agent.or_else(|| project.filter(|name| agents.contains_key(*name)).map(str::to_owned)) {
            Some(name) if agents.contains_key(&name) => Ok(Some(name)),
            Some(name) => {
                let known = agents.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
                let name: String = name.chars().take(64).collect();
                let error = invalid(format!("there is no agent \"{name}\""));
                let none = "none is configured: see sessions.agents, or leave it out for an agent that comes by itself";
                Err(if known.is_empty() { error.hint(none) } else { error.hint(format!("there are: {known}")) })
            }
            None if !default_agent.is_empty() => Ok(Some(default_agent.clone())),
            None if agents.len() == 1 => Ok(agents.keys().next().cloned()),
            None => Ok(None),
        }
    }

    /// An agent reaches its own session and those that were started from it. Its owner's other sessions are unknown to it.
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

    /// An agent in a sandbox may give work only to agents that are at least as confined. Otherwise it would leave the
    /// sandbox by asking another agent. An agent that comes by itself counts as one without a sandbox.
    fn check_confinement(&self, within: Option<&Arc<Session>>, target: Option<&str>) -> Result<(), CallError> {
        let agents = &self.options.agents;
        let Some(own) = within.and_then(|session| session.agent.as_ref()) else { return Ok(()) };
        let Some(command) = agents.get(own).filter(|command| command.sandbox) else { return Ok(()) };
        let refused = |what: String| {
            let rule = format!("an agent in a sandbox may only use agents that are at least as confined; {what}");
            CallError::new(CallErrorKind::NotAllowed, rule)
                .hint("agents with the same sandbox, network, dir and read can use each other, see sessions.agents")
        };
        let Some(name) = target else {
            return Err(refused(format!("no agent was named, and \"{own}\" has a sandbox")));
        };
        let Some(other) = agents.get(name) else { return Ok(()) };
        sandbox::check_confinement(command, other)
            .map_err(|why| refused(format!("the agent \"{name}\" {why} (asked by \"{own}\")")))
    }

    /// Why nothing happens in a session to which no agent belongs, for whoever has just sent a message there.
    pub(crate) fn hint_for(&self, session: &Session) -> Option<String> {
        if session.agent.is_some() || *session.agents.borrow() > 0 {
            return None;
        }
        let names: Vec<&str> = self.options.agents.keys().map(String::as_str).collect();
        Some(match &names[..] {
            [] => {
                "no agent is configured: the session waits for one that connects to its socket; [sessions.agents.NAME] \
                configures one"
                    .to_owned()
            }
            names => format!(
                "no agent was started: there are {}, and none of them is sessions.default_agent; start a session with \
                 agent={}, or let one connect to this session's socket",
                names.join(", "),
                names[0]
            ),
        })
    }

    fn open_session(
        self: &Arc<Self>,
        principal: &Arc<Principal>,
        agent: Option<String>,
        parent: Option<Arc<Session>>,
    ) -> Result<Arc<Session>, CallError> {
        if self.stop.is_cancelled() || self.router.is_draining() {
            return Err(CallError::undelivered("the gateway is shutting down").hint("retry once it is back"));
        }
        if parent.as_ref().is_some_and(|parent| parent.depth + 1 >= MAX_DEPTH) {
            let error = format!("agents may start sessions from within each other {MAX_DEPTH} deep");
            return Err(CallError::new(CallErrorKind::NotAllowed, error));
        }
        let id: Arc<str> = format!("ses_{}", Uuid::now_v7().simple()).into();
        let path = self.options.socket_dir.join(format!("{id}.sock"));
        let events = Arc::new(self.events_of(&id, &principal.id));
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
        let permit = self.budget.acquire(&Holder::of(principal), 1)?;
        self.open().insert(id, Open { session: Arc::clone(&session), _permit: permit });
        if let Err(error) = socket::listen(self, &session) {
            self.open().remove(&session.id);
            let path = session.socket.display();
            return Err(CallError::new(CallErrorKind::Failed, format!("cannot listen on {path}: {error}")));
        }
        self.audit("session.started", principal, &session.id, "");
        Ok(session)
    }

    /// `session_end`.
    pub(crate) async fn end(&self, principal: &Principal, id: &str) -> Result<SessionView, CallError> {
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
            session.clear_away().await;
        }
        info!(session = &*session.id, reason, "session ended");
        self.audit("session.ended", &session.owner, &session.id, reason);
        // Written before it leaves the table, so that it is to be seen in one or the other.
        if let Err(error) = self.write(&session.show()).await {
            warn!(session = &*session.id, %error, "cannot write down that the session has ended");
        }
        self.open().remove(&session.id);
    }

    /// One session, open or ended.
    pub async fn show(&self, principal: &Principal, id: &str) -> Result<SessionView, CallError> {
        if let Ok(session) = self.enter(principal, id) {
            return Ok(session.show());
        }
        let record = self.records.get(BUCKET, id).await.map_err(stored)?;
        let view = record.and_then(|record| serde_json::from_slice::<SessionView>(&record.value).ok());
        view.filter(|view| may_see(principal, view)).ok_or_else(|| unknown(id))
    }

    /// All sessions that a principal may see, the newest first.
    pub async fn list(&self, principal: &Principal) -> Result<Vec<SessionView>, CallError> {
        let open = self.all();
        let mut views: Vec<SessionView> = open.iter().map(|session| session.show()).collect();
        for (id, record) in self.records.list(BUCKET).await.map_err(stored)? {
            if !open.iter().any(|session| *session.id == *id)
                && let Ok(view) = serde_json::from_slice(&record.value)
            {
                views.push(view);
            }
        }
        views.retain(|view| may_see(principal, view));
        views.sort_by(|a, b| b.session_id.cmp(&a.session_id));
        Ok(views)
    }

    /// What bounds the number of open sessions.
    pub fn budget(&self) -> &Arc<SharedBudget> {
        &self.budget
    }

    /// How many sessions are open, and in how many of them an agent works.
    pub fn count(&self) -> (usize, usize) {
        let open = self.all();
        (open.len(), open.iter().filter(|session| session.is_running()).count())
    }

    /// Somebody who answers or asks is not gone.
    pub(crate) fn caller_did_something(&self, session: &Session) {
        session.presence.active();
        self.poke.notify_one();
    }

    /// Looks at the callers again.
    pub(crate) fn look_again(&self) {
        self.poke.notify_one();
    }

    /// Says of a session that cannot be gone on with whether it has ended.
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

    pub(crate) fn events_of(&self, id: &str, owner: &str) -> Events {
        Events::new(&id.into(), &owner.into(), &self.notices, &self.log)
    }

    async fn write(&self, view: &SessionView) -> Result<(), StoreError> {
        let json = serde_json::to_vec(view).unwrap_or_default();
        self.records.put(BUCKET, &view.session_id, Bytes::from(json), Expect::Anything).await.map(drop)
    }

    pub(crate) fn audit(&self, what: &'static str, who: &Principal, session: &str, detail: &str) {
        self.router.journal().audit(AuditEvent {
            what,
            who: format!("{} {}", who.role, who.name),
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
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
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

/// Somebody else's session is no different from none.
pub(crate) fn unknown(id: &str) -> CallError {
    let id: String = id.chars().take(64).flat_map(char::escape_debug).collect();
    CallError::new(CallErrorKind::NotFound, format!("there is no session \"{id}\" that this token may use"))
        .hint("session_list has those that there are")
}

pub(crate) fn stored(error: StoreError) -> CallError {
    CallError::new(CallErrorKind::Failed, error.message).retryable(true)
}

#[cfg(test)]
mod tests;
