//! One upstream server: started when it is wanted, watched, started again when it ends.

use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use sa_core::store::Records;
use sa_core::{Attach, CallError, Directory, GrantId, ProviderId, RawJson, Registration, Scope, clock};
use serde::Serialize;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::KIND;
use crate::backoff::wait;
use crate::child::printable;
use crate::connection::{Connection, Heard};
use crate::lists::Lists;
use crate::provider::Upstream;
use crate::seats::Seats;
use crate::spec::Spec;
use crate::trouble;

/// How long a server may take to be ready. A package runner may have to fetch it first.
const START_PATIENCE: Duration = Duration::from_secs(60);
/// How long it may take to list what it has.
const LIST_PATIENCE: Duration = Duration::from_secs(30);
/// How long after it went away a reader still waits for it.
const ABSENCE: Duration = Duration::from_secs(5);
/// A connection that lasted for this long is made again without a wait, when the server does not know it any more.
const LASTING: Duration = Duration::from_secs(1);
/// Changes that come together are looked at together.
const SETTLE: Duration = Duration::from_millis(50);
/// The same for one that does not stop changing them: longer and longer, up to this.
const RESTLESS: Duration = Duration::from_secs(5);
/// A server that has been up for this long starts with a clean slate when it ends.
const STEADY: Duration = Duration::from_secs(30);
/// A program that failed so often in a row is not started again until somebody says so. A URL is tried for ever.
const MAX_FAILURES: u32 = 15;

/// How a server is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Switched off in the configuration.
    Disabled,
    /// What it offers is known; it is started by the first call.
    Idle,
    Starting,
    Ready,
    /// It ended, or cannot be reached; another attempt follows.
    Offline,
    /// It failed too often in a row; `restart` tries again.
    Failed,
}

/// What an operator is told of a server.
#[derive(Debug, Clone)]
pub struct Health {
    pub state: State,
    pub since_ms: i64,
    pub last_error: Option<String>,
    pub tools: usize,
    pub restarts: u64,
}

#[derive(Clone)]
pub(crate) enum Phase {
    Waiting,
    Ready(Arc<Connection>),
    /// Since then, however often it was tried again.
    Away(Instant),
}

pub(crate) struct Server {
    pub(crate) name: Arc<str>,
    pub(crate) spec: Spec,
    directory: Arc<Directory>,
    records: Arc<dyn Records>,
    pub(crate) seats: Seats,
    phase: watch::Sender<Phase>,
    lists: RwLock<Arc<Lists>>,
    registration: Mutex<Option<Registration>>,
    health: Mutex<Health>,
    wanted: Notify,
    restart: Notify,
    stop: CancellationToken,
}

/// Why a connection is not attended any more.
enum End {
    Stopped,
    Restart,
    /// The server is gone, or has forgotten the connection.
    Gone,
    Lost(String),
}

impl Server {
    /// Takes a server in. It is not waited for: what is known of it from before is offered at once.
    pub(crate) async fn start(
        name: &str,
        spec: Spec,
        directory: Arc<Directory>,
        records: Arc<dyn Records>,
        stop: CancellationToken,
    ) -> Arc<Self> {
        let name: Arc<str> = name.into();
        let state = if spec.enabled { State::Starting } else { State::Disabled };
        let health = Health { state, since_ms: clock::now_ms(), last_error: None, tools: 0, restarts: 0 };
        let server = Arc::new(Self {
            seats: Seats::new(Arc::clone(&name), &spec),
            name,
            spec,
            directory,
            records,
            phase: watch::Sender::new(Phase::Waiting),
            lists: RwLock::default(),
            registration: Mutex::default(),
            health: Mutex::new(health),
            wanted: Notify::new(),
            restart: Notify::new(),
            stop,
        });
        if server.spec.enabled {
            let kept = Lists::kept(&*server.records, &server.name, &server.spec).await;
            let known = kept.is_some();
            if let Some(lists) = kept {
                server.take(lists);
                server.attach();
                server.enter(State::Idle, None);
            }
            tokio::spawn(Arc::clone(&server).supervise(known));
        }
        server
    }

    pub(crate) fn health(&self) -> Health {
        let mut health = self.health.lock().unwrap_or_else(PoisonError::into_inner).clone();
        health.tools = self.lists().tools();
        health
    }

    pub(crate) fn lists(&self) -> Arc<Lists> {
        Arc::clone(&self.lists.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether it was removed, or the gateway stops.
    pub(crate) fn is_over(&self) -> bool {
        self.stop.is_cancelled()
    }

    pub(crate) fn restart(&self) {
        self.restart.notify_one();
    }

    /// Ends it for good: its processes stop and its names are free.
    pub(crate) async fn remove(&self) {
        self.stop.cancel();
        if let Some(registration) = self.registration().take() {
            registration.withdraw();
        }
        Lists::forget(&*self.records, &self.name).await;
    }

    /// The server's own connection, once it is ready. Starts it when it is idle.
    pub(crate) async fn connection(&self) -> Result<Arc<Connection>, CallError> {
        self.wanted.notify_one();
        let mut phase = self.phase.subscribe();
        loop {
            match &*phase.borrow_and_update() {
                Phase::Ready(connection) => return Ok(Arc::clone(connection)),
                Phase::Away(since) => return Err(self.absence(*since)),
                Phase::Waiting => {}
            }
            if phase.changed().await.is_err() {
                return Err(self.absence(Instant::now()));
            }
        }
    }

    /// Resolves when it is not known to be away, or over for good.
    pub(crate) async fn back(&self) {
        let mut phase = self.phase.subscribe();
        tokio::select! {
            _ = phase.wait_for(|phase| !matches!(phase, Phase::Away(_))) => {}
            () = self.stop.cancelled() => {}
        }
    }

    /// Whether one that has only just gone is back after a moment: most absences are restarts.
    pub(crate) async fn is_back_soon(&self) -> bool {
        let mut phase = self.phase.subscribe();
        let left = match &*phase.borrow() {
            Phase::Away(since) => ABSENCE.saturating_sub(since.elapsed()),
            Phase::Waiting | Phase::Ready(_) => ABSENCE,
        };
        let usable = |phase: &Phase| matches!(phase, Phase::Ready(connection) if !connection.suspect.is_cancelled());
        tokio::time::timeout(left, phase.wait_for(usable)).await.is_ok_and(|found| found.is_ok())
    }

    fn absence(&self, since: Instant) -> CallError {
        let why = self.health.lock().unwrap_or_else(PoisonError::into_inner).last_error.clone();
        let why = why.map(|why| format!(": {why}")).unwrap_or_default();
        let seconds = since.elapsed().as_secs();
        CallError::undelivered(format!("the upstream \"{}\" went away {seconds} s ago{why}", self.name))
    }

    async fn supervise(self: Arc<Self>, known: bool) {
        if known {
            tokio::select! {
                () = self.wanted.notified() => {}
                () = self.restart.notified() => {}
                () = self.stop.cancelled() => return,
            }
        }
        let mut failures = 0_u32;
        loop {
            self.enter(State::Starting, None);
            let mut up = Duration::ZERO;
            let end = match self.open().await {
                Ok((connection, news)) => {
                    let since = Instant::now();
                    let end = self.attend(&connection, news).await;
                    up = since.elapsed();
                    end
                }
                Err(end) => end,
            };
            let end = if matches!(end, End::Gone) && up < LASTING { End::Lost(trouble::GONE.into()) } else { end };
            match end {
                End::Gone => self.leave(State::Offline, trouble::GONE),
                End::Stopped => return self.leave(State::Offline, "the gateway stops"),
                End::Restart => {
                    failures = 0;
                    self.leave(State::Offline, "it is being restarted");
                    continue;
                }
                End::Lost(why) => {
                    failures = if up > STEADY { 1 } else { failures + 1 };
                    let given_up = failures >= MAX_FAILURES && !self.spec.command.is_empty();
                    warn!(upstream = %self.name, failures, given_up, "{why}");
                    self.leave(if given_up { State::Failed } else { State::Offline }, &why);
                    let wait = async {
                        if given_up { std::future::pending().await } else { tokio::time::sleep(wait(failures)).await }
                    };
                    tokio::select! {
                        () = wait => {}
                        () = self.restart.notified() => failures = 0,
                        () = self.stop.cancelled() => return,
                    }
                }
            }
            self.health.lock().unwrap_or_else(PoisonError::into_inner).restarts += 1;
        }
    }

    /// Connects and learns what there is. What the server says meanwhile of changes is still to be heard.
    async fn open(self: &Arc<Self>) -> Result<(Arc<Connection>, Heard), End> {
        let open = async {
            let opened = tokio::time::timeout(START_PATIENCE, self.seats.open(self.lists().era)).await;
            let opened = opened.unwrap_or_else(|_| Err(trouble::TOO_SLOW.into()));
            let connection = Arc::new(opened.map_err(End::Lost)?);
            // Before anything is asked for: a list may have changed by the time that the last of them is here.
            let news = Heard::from_now_on(&self.seats.news);
            let lists = Lists::load(&connection, &self.spec, LIST_PATIENCE).await.map_err(|why| {
                connection.close();
                End::Lost(why)
            })?;
            Ok((connection, lists, news))
        };
        let (connection, lists, news) = tokio::select! {
            opened = open => opened?,
            () = self.restart.notified() => return Err(End::Restart),
            () = self.stop.cancelled() => return Err(End::Stopped),
        };
        if *self.lists() != lists {
            lists.keep(&*self.records, &self.name).await;
        }
        self.take(lists);
        // In this order: a call that finds the server must find it ready.
        self.phase.send_replace(Phase::Ready(Arc::clone(&connection)));
        self.attach();
        self.enter(State::Ready, None);
        info!(upstream = %self.name, tools = self.lists().tools(), protocol = %connection.info.protocol_version, "ready");
        Ok((connection, news))
    }

    /// Follows the server's changes until there is nothing to follow any more.
    async fn attend(&self, connection: &Connection, Heard { mut news, mut heard }: Heard) -> End {
        let (mut settle, mut learnt_at) = (SETTLE, None::<Instant>);
        let end = loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => break End::Stopped,
                () = connection.closed.cancelled() => break End::Lost(connection.last_words().await),
                () = connection.suspect.cancelled() => break End::Gone,
                () = self.restart.notified() => break End::Restart,
                () = self.seats.sweep() => {}
                Ok(()) = news.changed() => {
                    let again = learnt_at.is_some_and(|at| at.elapsed() < settle * 2);
                    settle = if again { (settle * 2).min(RESTLESS) } else { SETTLE };
                    let learn = async {
                        tokio::time::sleep(settle).await;
                        let said = *news.borrow_and_update();
                        (said, Lists::load(connection, &self.spec, LIST_PATIENCE).await)
                    };
                    let (said, learnt) = tokio::select! {
                        learnt = learn => learnt,
                        () = self.stop.cancelled() => break End::Stopped,
                    };
                    learnt_at = Some(Instant::now());
                    match learnt {
                        Ok(lists) => {
                            let changed = lists != *self.lists();
                            if changed {
                                lists.keep(&*self.records, &self.name).await;
                                self.take(lists);
                            } else if said.documents != heard.documents {
                                // A server's word is passed on, whatever it has changed that a list does not show.
                                self.directory.documents_changed();
                            }
                            if (changed || said.tools != heard.tools)
                                && let Some(registration) = &*self.registration()
                            {
                                registration.publish(self.lists().catalog(&self.name, &self.spec));
                            }
                            heard = said;
                        }
                        Err(why) => warn!(upstream = %self.name, "its changed lists cannot be had: {why}"),
                    }
                }
            }
        };
        // One that is only suspected to be gone may still answer what it was asked.
        if !connection.suspect.is_cancelled() {
            connection.close();
        }
        end
    }

    fn take(&self, lists: Lists) {
        let lists = Arc::new(lists);
        let before =
            std::mem::replace(&mut *self.lists.write().unwrap_or_else(PoisonError::into_inner), Arc::clone(&lists));
        self.seats.repeat_arguments(lists.wants_headers());
        if !before.same_documents(&lists) {
            self.directory.documents_changed();
        }
    }

    fn attach(self: &Arc<Self>) {
        let attached = self.directory.attach(Attach {
            id: ProviderId::new(KIND, &self.name),
            scope: Scope::Everyone,
            grant: GrantId(KIND.into()),
            provider: Arc::new(Upstream(Arc::clone(self))),
            catalog: self.lists().catalog(&self.name, &self.spec),
            max_running: self.spec.max_running,
            about: RawJson::empty_object(),
            may_take_over: true,
        });
        match attached {
            // After it was removed, nobody is left to take this back.
            Ok(registration) if self.stop.is_cancelled() => registration.withdraw(),
            Ok(registration) => {
                *self.registration() = Some(registration);
                self.tell_of_documents();
            }
            Err(error) => warn!(upstream = %self.name, %error, "cannot offer its tools"),
        }
    }

    /// The server is gone. Its tools stay listed, marked as offline.
    fn leave(&self, state: State, why: &str) {
        if let Some(registration) = &*self.registration() {
            registration.away();
        }
        self.tell_of_documents();
        self.enter(state, Some(why));
        self.phase.send_modify(|phase| {
            if !matches!(phase, Phase::Away(_)) {
                *phase = Phase::Away(Instant::now());
            }
        });
        self.seats.clear();
    }

    /// The server has come or gone, and its documents with it.
    fn tell_of_documents(&self) {
        if self.lists().has_documents() {
            self.directory.documents_changed();
        }
    }

    fn enter(&self, state: State, error: Option<&str>) {
        let mut health = self.health.lock().unwrap_or_else(PoisonError::into_inner);
        // One that is away is tried again and again, and all that while it is away.
        let is_away = |state: State| matches!(state, State::Starting | State::Offline | State::Failed);
        if !(is_away(health.state) && is_away(state)) && health.state != state {
            health.since_ms = clock::now_ms();
        }
        health.state = state;
        if let Some(error) = error {
            health.last_error = Some(printable(error));
        }
    }

    fn registration(&self) -> std::sync::MutexGuard<'_, Option<Registration>> {
        self.registration.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
