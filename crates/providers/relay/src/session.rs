//! One session: its owner, the tools that its agent may use, and its end.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use sa_core::directory::{Attach, Registration};
use sa_core::link::LinkProvider;
use sa_core::{
    CallError, CallErrorKind, Catalog, Directory, Grant, Principal, ProviderId, RawJson, Role,
    Scope, View, clock,
};
use sa_limits::budget::Holder;
use sa_sandbox::leftovers;
use serde_json::{Value, json};
use tokio::sync::{Mutex as AsyncMutex, mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::CALLER_KIND;
use crate::args::{Lending, ToolSpec};
use crate::events::Events;
use crate::link::{CallerLink, Requests};
use crate::presence::Presence;
use crate::record::{Owner, Record, SessionView};
use crate::turn::Turn;

/// The extension of the directories in which agents work.
pub(crate) const WORK: &str = "work";

/// A session, open until it is ended.
pub struct Session {
    pub(crate) id: Arc<str>,
    pub(crate) owner: Arc<Principal>,
    pub(crate) agent: Option<String>,
    pub(crate) parent: Option<Arc<str>>,
    /// The number of sessions between it and one that a caller has started.
    pub(crate) depth: usize,
    pub(crate) socket: PathBuf,
    pub(crate) events: Arc<Events>,
    pub(crate) requests: Arc<Requests>,
    pub(crate) presence: Arc<Presence>,
    pub(crate) provider: LinkProvider<CallerLink>,
    /// The caller's tools. Every connection of an agent follows the changes.
    pub(crate) lent: watch::Sender<Arc<Lent>>,
    /// The number of connected agents.
    pub(crate) agents: watch::Sender<usize>,
    /// Whether an agent has ever connected.
    was_joined: AtomicBool,
    /// The message queue of the process that was started for it, while that runs.
    pub(crate) process: AsyncMutex<Option<mpsc::Sender<Option<String>>>>,
    /// Cancelled when the session has ended.
    pub(crate) ended: CancellationToken,
    pub(crate) forgeries: AtomicU32,
    pub(crate) turn: Turn,
    registration: Mutex<Option<Registration>>,
    timeout_ms: AtomicU64,
    /// Whether the caller set that limit itself.
    has_own_timeout: AtomicBool,
    touched: Mutex<Instant>,
    created_ms: i64,
    ending: Mutex<Option<(String, i64)>>,
}

/// The caller's name and tools.
#[derive(Debug, Default)]
pub(crate) struct Lent {
    pub(crate) caller_id: String,
    specs: Vec<ToolSpec>,
    /// The caller's name of each tool, and its exposed name.
    pub(crate) names: Vec<(Arc<str>, Arc<str>)>,
    /// The line with the `caller_tools_config` message for agents.
    pub(crate) config: String,
}

pub(crate) struct NewSession {
    pub(crate) id: Arc<str>,
    pub(crate) owner: Arc<Principal>,
    pub(crate) agent: Option<String>,
    pub(crate) parent: Option<Arc<Session>>,
    pub(crate) socket: PathBuf,
    pub(crate) events: Arc<Events>,
    pub(crate) grace: Duration,
    pub(crate) timeout: Duration,
}

impl Session {
    pub(crate) fn new(new: NewSession) -> Arc<Self> {
        let requests = Requests::new();
        let presence = Arc::new(Presence::new(new.grace));
        let link = CallerLink {
            requests: Arc::clone(&requests),
            presence: Arc::clone(&presence),
            events: Arc::clone(&new.events),
        };
        Arc::new(Self {
            id: new.id,
            owner: new.owner,
            agent: new.agent,
            depth: new.parent.as_ref().map_or(0, |parent| parent.depth + 1),
            parent: new.parent.map(|parent| Arc::clone(&parent.id)),
            socket: new.socket,
            events: new.events,
            requests,
            presence,
            provider: LinkProvider::new(link),
            lent: watch::Sender::new(Arc::default()),
            agents: watch::Sender::new(0),
            was_joined: AtomicBool::new(false),
            process: AsyncMutex::new(None),
            ended: CancellationToken::new(),
            forgeries: AtomicU32::new(0),
            turn: Turn::default(),
            registration: Mutex::new(None),
            timeout_ms: AtomicU64::new(new.timeout.as_millis() as u64),
            has_own_timeout: AtomicBool::new(false),
            touched: Mutex::new(Instant::now()),
            created_ms: clock::now_ms(),
            ending: Mutex::new(None),
        })
    }

    pub fn id(&self) -> &Arc<str> {
        &self.id
    }

    pub fn is_owner(&self, principal: &Principal) -> bool {
        self.owner.id == principal.id
    }

    /// Returns the identity and the scope of its agent. The agent acts for the owner, only in
    /// this session. The tool list of the owner's token cannot name the caller's tools, so it
    /// does not limit the agent.
    pub(crate) fn view(&self) -> View {
        let principal = self.owner.unnarrowed(Role::Agent);
        View { principal: Arc::new(principal), scopes: vec![Scope::Session(Arc::clone(&self.id))] }
    }

    /// Returns the budget holder for its agents: the owner's share, without an operator's reserve.
    pub(crate) fn agent_holder(&self) -> Holder {
        Holder::named(Arc::clone(&self.owner.id))
    }

    pub(crate) fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms.load(Ordering::Relaxed))
    }

    /// Returns the exposed name of one of the caller's tools, given that name or the caller's
    /// own.
    pub(crate) fn tool(&self, name: &str) -> Result<Arc<str>, CallError> {
        let lent = self.lent.borrow();
        let exposed = lent.names.iter().find(|(_, exposed)| **exposed == *name);
        let named = exposed.or_else(|| lent.names.iter().find(|(own, _)| **own == *name));
        named.map(|(_, exposed)| Arc::clone(exposed)).ok_or_else(|| {
            let name: String = name.chars().take(128).collect();
            let all: Vec<&str> =
                lent.names.iter().map(|(_, exposed)| &**exposed).take(20).collect();
            let error = CallError::new(
                CallErrorKind::NotFound,
                format!("the caller has no tool \"{name}\""),
            );
            if all.is_empty() {
                error
            } else {
                error.hint(format!("available tools: {}", all.join(", ")))
            }
        })
    }

    /// Replaces the tools that the caller lends. Fields that are absent in the message keep their
    /// values.
    pub(crate) fn lend(
        self: &Arc<Self>,
        directory: &Arc<Directory>,
        lending: Lending,
        places: usize,
    ) {
        if let Some(timeout) = lending.timeout {
            self.timeout_ms.store(timeout.as_millis() as u64, Ordering::Relaxed);
            self.has_own_timeout.store(true, Ordering::Relaxed);
        }
        let before = Arc::clone(&self.lent.borrow());
        if lending.tools.is_none()
            && lending.caller_id.is_none()
            && lending.timeout.is_none()
            && !before.config.is_empty()
        {
            return;
        }
        let known = Some(before.caller_id.clone()).filter(|id| !id.is_empty());
        let caller_id = lending.caller_id.or(known).unwrap_or_else(|| "caller".into());
        let specs = lending.tools.unwrap_or_else(|| before.specs.clone());
        let is_own = self.has_own_timeout.load(Ordering::Relaxed);
        let tools =
            specs.iter().map(|spec| spec.tool(&caller_id, self.timeout(), is_own)).collect();
        let catalog = Catalog { tools, ..Catalog::default() };
        let id = ProviderId::new(CALLER_KIND, &self.id);
        let mut registration = self.registration();
        match &*registration {
            Some(registration) => registration.publish(catalog),
            None if self.ended.is_cancelled() => return,
            None => {
                let attach = Attach {
                    id: id.clone(),
                    scope: Scope::Session(Arc::clone(&self.id)),
                    grant: Grant::token(&format!("session {}", self.id)),
                    provider: Arc::new(Forward(Arc::clone(self))),
                    catalog,
                    max_running: places,
                    about: RawJson::of(
                        &json!({ "caller_id": caller_id, "owner": &*self.owner.name }),
                    ),
                    may_take_over: false,
                };
                // The id is new and unique, so no other provider can have it.
                *registration = directory.attach(attach).ok();
            }
        }
        let listed =
            directory.list(&self.view(), None, usize::MAX, |tool| tool.provider == id).tools;
        let names: Vec<_> = listed
            .iter()
            .map(|tool| (Arc::clone(&tool.tool.name), Arc::clone(&tool.name)))
            .collect();
        let described: Vec<Value> = specs
            .iter()
            .map(|spec| {
                let exposed = names
                    .iter()
                    .find(|(own, _)| **own == *spec.name)
                    .map(|(_, exposed)| &**exposed);
                spec.described(exposed.unwrap_or_default())
            })
            .collect();
        let config = json!({
            "jsonrpc": "2.0",
            "type": "caller_tools_config",
            "params": { "caller_id": caller_id, "session_id": &*self.id, "tools": described },
        });
        self.lent.send_replace(Arc::new(Lent {
            caller_id,
            specs,
            names,
            config: format!("{config}\n"),
        }));
    }

    pub(crate) fn touch(&self) {
        *self.touched.lock() = Instant::now();
    }

    pub(crate) fn idle_for(&self) -> Duration {
        self.touched.lock().elapsed()
    }

    /// Ends the session: its calls fail, its agents are disconnected and its tools removed.
    /// Returns `false` if it had already ended.
    pub(crate) fn end(&self, reason: &str) -> bool {
        {
            let mut ending = self.ending.lock();
            if ending.is_some() {
                return false;
            }
            *ending = Some((reason.to_owned(), clock::now_ms()));
        }
        if let Some(registration) = self.registration().take() {
            registration.withdraw();
        }
        self.turn.close();
        self.provider.close(&format!("the session has ended: {reason}"));
        for (id, _) in self.requests.all() {
            self.requests.take(id);
        }
        self.events.record_event("session_ended", json!({ "reason": reason }));
        self.ended.cancel();
        let _ = std::fs::remove_file(&self.socket);
        true
    }

    /// Returns the working directory of agents without a configured one. It exists as long as the
    /// session, for any number of agents.
    pub(crate) fn own_dir(&self) -> PathBuf {
        self.socket.with_extension(WORK)
    }

    /// Removes the files that its agents have left.
    pub(crate) async fn remove_files(&self) {
        let dir = self.own_dir();
        let _ = tokio::task::spawn_blocking(move || remove_own_dir(&dir)).await;
    }

    /// Returns whether an agent is connected.
    pub(crate) fn is_running(&self) -> bool {
        *self.agents.borrow() > 0
    }

    /// Returns whether nothing works on its messages: no agent is configured for it, and none has
    /// connected yet.
    pub(crate) fn lacks_agent(&self) -> bool {
        self.agent.is_none() && !self.was_joined.load(Ordering::Relaxed)
    }

    pub(crate) fn record(&self) -> Record {
        let space = &self.events.space;
        Record {
            view: self.show(),
            turn: self.turn.state(),
            stream: space.number,
            event_bytes: space.bytes(),
            by_operator: space.owner().is_operator(),
        }
    }

    pub fn show(&self) -> SessionView {
        let ending = self.ending.lock().clone();
        let lent = self.lent.borrow();
        let open = ending.is_none();
        let state = match (&ending, *self.agents.borrow()) {
            (Some(_), _) => "ended",
            (None, 0) => "idle",
            (None, _) => "running",
        };
        SessionView {
            session_id: self.id.to_string(),
            state: state.into(),
            owner: Owner { id: self.owner.id.to_string(), name: self.owner.name.to_string() },
            caller_id: lent.caller_id.clone(),
            caller: open.then(|| self.presence.as_str().into()),
            caller_tools: lent.names.iter().map(|(_, exposed)| exposed.to_string()).collect(),
            agent: self.agent.clone(),
            parent: self.parent.as_ref().map(ToString::to_string),
            socket: open.then(|| self.socket.display().to_string()),
            pending: self.requests.all().len(),
            timeout_ms: self.timeout().as_millis() as u64,
            created_ms: self.created_ms,
            ended_ms: ending.as_ref().map(|(_, at)| *at),
            reason: ending.map(|(reason, _)| reason),
        }
    }

    fn registration(&self) -> MutexGuard<'_, Option<Registration>> {
        self.registration.lock()
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("id", &self.id).finish_non_exhaustive()
    }
}

/// The session as a provider of the directory.
struct Forward(Arc<Session>);

impl sa_core::Provider for Forward {
    fn call(
        &self,
        call: Arc<sa_core::Call>,
        updates: sa_core::Updates,
    ) -> futures_util::future::BoxFuture<'static, sa_core::Outcome> {
        self.0.touch();
        self.0.provider.call(call, updates)
    }

    fn name(&self) -> Option<String> {
        Some(format!("the caller \"{}\"", self.0.lent.borrow().caller_id))
    }
}

/// Counts an agent as connected until it is dropped.
#[derive(Debug)]
pub(crate) struct Working(Arc<Session>);

impl Working {
    pub(crate) fn new(session: &Arc<Session>) -> Self {
        session.was_joined.store(true, Ordering::Relaxed);
        session.agents.send_modify(|agents| *agents += 1);
        Self(Arc::clone(session))
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        self.0.agents.send_modify(|agents| *agents -= 1);
    }
}

/// Removes the working directory of a session's agents.
pub(crate) fn remove_own_dir(dir: &Path) {
    if let Err(error) = leftovers::remove(dir) {
        tracing::warn!(path = %dir.display(), %error, "cannot remove the files of an agent");
    }
}
