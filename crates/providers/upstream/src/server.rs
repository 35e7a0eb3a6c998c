//! One upstream server: started when it is wanted, watched, started again when it ends.

mod presence;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use sa_core::store::Records;
use sa_core::{Attach, Catalog, Directory, Grant, Provider, ProviderId, RawJson, Registration, Scope, aside, clock};
use sa_vault::Vault;
use serde::Serialize;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::KIND;
use crate::account::Account;
use crate::backoff::wait;
use crate::child::printable;
use crate::connection::{Connection, Heard};
use crate::keep::Keep;
use crate::lists::{LeftOut, Lists};
use crate::provider::{Unlisted, Upstream};
use crate::seats::{NotOpened, Seats};
use crate::spec::Spec;
use crate::trouble;

/// How long a server may take to be ready. A package runner may have to fetch it first.
const START_PATIENCE: Duration = Duration::from_secs(60);
/// How long it may take to list what it has.
const LIST_PATIENCE: Duration = Duration::from_secs(30);
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
    /// It wants somebody to log in, and is left alone until then.
    LoginNeeded,
}

/// What an operator is told of a server.
#[derive(Debug, Clone)]
pub struct Health {
    pub state: State,
    pub since_ms: i64,
    pub last_error: Option<String>,
    pub tools: usize,
    /// Those of its tools that cannot be taken.
    pub left_out: Vec<LeftOut>,
    /// How often it was started again by itself, since it was last started by hand.
    pub restarts: u64,
    /// The error is how it ended by itself after it had been ready, which is worth knowing when it is ready again.
    pub(crate) ended: bool,
}

#[derive(Clone)]
pub(crate) enum Phase {
    Waiting,
    Ready(Arc<Connection>),
    /// Since then, however often it was tried again.
    Away(Instant),
    /// Until somebody logs in.
    Locked,
}

pub(crate) struct Server {
    pub(crate) name: Arc<str>,
    pub(crate) spec: Spec,
    directory: Arc<Directory>,
    records: Arc<dyn Records>,
    pub(crate) seats: Seats,
    phase: watch::Sender<Phase>,
    lists: RwLock<Arc<Lists>>,
    /// Whether it has ever said what it has.
    listed: AtomicBool,
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
    /// Nothing helps until somebody logs in.
    LoginNeeded(String),
}

impl From<NotOpened> for End {
    fn from(failure: NotOpened) -> Self {
        if failure.login_needed { Self::LoginNeeded(failure.why) } else { Self::Lost(failure.why) }
    }
}

impl Server {
    /// Takes a server in. It is not waited for: what is known of it from before is offered at once.
    pub(crate) async fn start(
        name: &str,
        spec: Spec,
        directory: Arc<Directory>,
        records: Arc<dyn Records>,
        vault: Arc<Vault>,
        stop: CancellationToken,
    ) -> Arc<Self> {
        let name: Arc<str> = name.into();
        let mut account = None;
        if spec.takes_login() {
            let keep = Keep::load(&name, &spec.url, Arc::clone(&records), vault).await;
            account = Some(Account::new(&name, &spec.url, spec.oauth.as_ref(), keep));
        }
        let state = if spec.enabled { State::Starting } else { State::Disabled };
        let health = Health {
            state,
            since_ms: clock::now_ms(),
            last_error: None,
            tools: 0,
            left_out: Vec::new(),
            restarts: 0,
            ended: false,
        };
        let server = Arc::new(Self {
            seats: Seats::new(Arc::clone(&name), &spec, account),
            name,
            spec,
            directory,
            records,
            phase: watch::Sender::new(Phase::Waiting),
            lists: RwLock::default(),
            listed: AtomicBool::new(false),
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
            }
            // A program is started by the first call, to save its memory. A server with an address is tried at once: that
            // costs little, and nobody could tell one that is gone from one that was not tried.
            let lacks_login = server.account().is_some_and(|account| account.lacks_login());
            let idle = known && !lacks_login && !server.spec.command.is_empty();
            if idle {
                server.enter(State::Idle, None);
            }
            server.attach();
            tokio::spawn(Arc::clone(&server).supervise(idle));
        } else {
            server.reserve();
        }
        server
    }

    pub(crate) fn health(&self) -> Health {
        let mut health = self.health.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let lists = self.lists();
        health.tools = lists.tools();
        health.left_out.clone_from(&lists.left_out);
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
        if let Some(account) = self.account()
            && let Err(error) = account.forget().await
        {
            warn!(upstream = %self.name, %error, "its login cannot be deleted from the store");
        }
    }

    /// What the gateway is at this server, if somebody can log in to it.
    pub(crate) fn account(&self) -> Option<&Arc<Account>> {
        self.seats.account.as_ref()
    }

    async fn supervise(self: Arc<Self>, idle: bool) {
        if idle {
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
            let locked_out = self.account().filter(|account| account.is_locked_out());
            let end = match (end, locked_out) {
                (End::Gone | End::Lost(_), Some(account)) => End::LoginNeeded(account.login_needed().await),
                (End::Gone, None) if up < LASTING => End::Lost(trouble::GONE.into()),
                (end, _) => end,
            };
            match end {
                End::Gone => self.leave(State::Offline, trouble::GONE),
                End::Stopped => return self.leave(State::Offline, "the gateway stops"),
                End::Restart => {
                    failures = 0;
                    self.count_restarts(|_| 0);
                    if self.is_listed() {
                        self.leave(State::Offline, "it is being restarted");
                    } else {
                        self.begin_again();
                    }
                    continue;
                }
                End::LoginNeeded(why) => {
                    failures = 0;
                    warn!(upstream = %self.name, "{why}");
                    self.lock_up(&why);
                    tokio::select! {
                        () = self.restart.notified() => {
                            self.count_restarts(|_| 0);
                            self.begin_again();
                            continue;
                        }
                        () = self.stop.cancelled() => return,
                    }
                }
                End::Lost(why) => {
                    failures = if up > STEADY { 1 } else { failures + 1 };
                    let given_up = failures >= MAX_FAILURES && !self.spec.command.is_empty();
                    // The same again is no news, and would push everything else out of sight.
                    if failures == 1 || given_up || self.health().last_error.as_deref() != Some(&why) {
                        warn!(upstream = %self.name, failures, given_up, "{why}");
                    } else {
                        debug!(upstream = %self.name, failures, "{why}");
                    }
                    self.leave(if given_up { State::Failed } else { State::Offline }, &why);
                    self.health.lock().unwrap_or_else(PoisonError::into_inner).ended = !up.is_zero();
                    let wait = async {
                        if given_up { std::future::pending().await } else { tokio::time::sleep(wait(failures)).await }
                    };
                    tokio::select! {
                        () = wait => {}
                        () = self.restart.notified() => {
                            failures = 0;
                            self.count_restarts(|_| 0);
                            self.begin_again();
                            continue;
                        }
                        () = self.stop.cancelled() => return,
                    }
                }
            }
            self.count_restarts(|before| before + 1);
        }
    }

    /// Those that nobody asked for, since somebody last did.
    fn count_restarts(&self, count: impl FnOnce(u64) -> u64) {
        let mut health = self.health.lock().unwrap_or_else(PoisonError::into_inner);
        health.restarts = count(health.restarts);
    }

    /// Connects and learns what there is. What the server says meanwhile of changes is still to be heard.
    async fn open(self: &Arc<Self>) -> Result<(Arc<Connection>, Heard), End> {
        if let Some(account) = self.account() {
            account.try_again();
        }
        let open = async {
            let opened = tokio::time::timeout(START_PATIENCE, self.seats.open(self.lists().era)).await;
            let opened = opened.unwrap_or_else(|_| Err(trouble::too_slow(&self.name).into()));
            let connection = Arc::new(opened.map_err(End::from)?);
            // Before anything is asked for: a list may have changed by the time that the last of them is here.
            let news = Heard::from_now_on(&self.seats.news);
            let lists = Lists::load(&connection, &self.spec, LIST_PATIENCE).await.map_err(|why| {
                connection.close();
                End::Lost(why)
            })?;
            Ok::<_, End>((connection, lists, news))
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
        // In this order: a call that finds the server waits until it is ready, and by then its new list counts.
        self.phase.send_replace(Phase::Waiting);
        self.attach();
        self.phase.send_replace(Phase::Ready(Arc::clone(&connection)));
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
                                self.directory.documents_changed(self.id());
                            }
                            if (changed || said.tools != heard.tools)
                                && let Some(registration) = &*self.registration()
                            {
                                registration.publish(self.catalog());
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
        for LeftOut { tool, why } in lists.left_out.iter().filter(|left| !before.left_out.contains(left)) {
            warn!(upstream = %self.name, tool, "a tool of the server is left out: {why}");
        }
        self.listed.store(true, Ordering::Release);
        self.seats.repeat_arguments(lists.wants_headers());
        if !before.same_documents(&lists) {
            self.directory.documents_changed(self.id());
        }
    }

    fn attach(self: &Arc<Self>) {
        let provider: Arc<dyn Provider> =
            if self.is_listed() { Arc::new(Upstream(Arc::clone(self))) } else { Arc::new(Unlisted(Arc::clone(self))) };
        let attached = self.directory.attach(Attach {
            id: self.id(),
            scope: Scope::Everyone,
            grant: Grant::installed(KIND),
            provider,
            catalog: self.catalog(),
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

    /// A disabled server keeps its id.
    fn reserve(&self) {
        match self.directory.reserve(self.id(), Grant::installed(KIND)) {
            Ok(registration) => *self.registration() = Some(registration),
            Err(error) => warn!(upstream = %self.name, %error, "cannot reserve the id of a disabled server"),
        }
    }

    fn catalog(&self) -> Catalog {
        if self.is_listed() {
            // It is made rarely, and may be long.
            return aside::if_free(aside::LARGE, || self.lists().catalog(&self.name, &self.spec));
        }
        Catalog { unlisted: true, ..Catalog::default() }
    }

    /// The server is gone. Its tools stay listed, marked as offline.
    fn leave(&self, state: State, why: &str) {
        let listed = self.is_listed();
        if listed && let Some(registration) = &*self.registration() {
            registration.away();
        }
        self.tell_of_documents();
        self.enter(state, Some(why));
        let news = self.phase.send_if_modified(|phase| {
            let news = !matches!(phase, Phase::Away(_));
            if news {
                *phase = Phase::Away(Instant::now());
            }
            news
        });
        // Calls that wait for it to list its tools are woken, and told. One that is tried again and again is no news.
        if news
            && !listed
            && let Some(registration) = &*self.registration()
        {
            registration.publish(self.catalog());
        }
        self.seats.clear();
    }

    /// Nobody is logged in. Its tools stay listed, and whoever calls one is told at once what to do.
    fn lock_up(self: &Arc<Self>, why: &str) {
        self.enter(State::LoginNeeded, Some(why));
        self.phase.send_replace(Phase::Locked);
        self.seats.clear();
        self.attach();
    }

    /// The server has come or gone, and its documents with it.
    fn tell_of_documents(&self) {
        if self.lists().has_documents() {
            self.directory.documents_changed(self.id());
        }
    }

    fn id(&self) -> ProviderId {
        ProviderId::new(KIND, &self.name)
    }

    fn enter(&self, state: State, error: Option<&str>) {
        let mut health = self.health.lock().unwrap_or_else(PoisonError::into_inner);
        // One that is away is tried again and again, and all that while it is away.
        let is_away =
            |state: State| matches!(state, State::Starting | State::Offline | State::Failed | State::LoginNeeded);
        if !(is_away(health.state) && is_away(state)) && health.state != state {
            health.since_ms = clock::now_ms();
        }
        health.state = state;
        if let Some(error) = error {
            health.last_error = Some(printable(error));
            health.ended = false;
        }
        if state == State::Ready && !health.ended {
            health.last_error = None;
        }
    }

    fn registration(&self) -> std::sync::MutexGuard<'_, Option<Registration>> {
        self.registration.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
