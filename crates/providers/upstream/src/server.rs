//! One upstream server: started on first use, monitored, and restarted when it ends.

mod presence;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use sa_core::store::Records;
use sa_core::{
    Attach, Catalog, Directory, Grant, Provider, ProviderId, RawJson, Registration, Scope, clock,
};
use sa_limits::budget::SharedBudget;
use sa_limits::offload;
use sa_protocol::ReconnectBackoff;
use sa_vault::Vault;
use serde::Serialize;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::KIND;
use crate::account::Account;
use crate::child::printable;
use crate::connection::{Connection, SeenChanges};
use crate::connection_pool::{ConnectionPool, NotOpened};
use crate::errors;
use crate::lists::{LeftOut, Lists};
use crate::provider::{Unlisted, Upstream};
use crate::spec::Spec;
use crate::stored_login::StoredLogin;

/// The timeout for a server to become ready. A package runner may have to download it first.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// The timeout for all lists of a server.
const LIST_TIMEOUT: Duration = Duration::from_secs(30);
/// If the server no longer knows a connection that lasted for this long, it is opened again
/// without a backoff.
const MIN_UPTIME: Duration = Duration::from_secs(1);
/// The delay between attempts to connect.
const BACKOFF: ReconnectBackoff = ReconnectBackoff {
    initial_delay: Duration::from_millis(250),
    max_delay: Duration::from_secs(60),
    backoff_factor: 2.0,
    max_attempts: 0,
};
/// How long to collect list changes before the lists are requested again.
const DEBOUNCE: Duration = Duration::from_millis(50);
/// The maximum of this delay, for a server that changes its lists continuously.
const MAX_DEBOUNCE: Duration = Duration::from_secs(5);
/// After this uptime, the failure count of a server starts again.
const STABLE_UPTIME: Duration = Duration::from_secs(30);
/// After this number of consecutive failures, a program is not restarted automatically. A URL is
/// retried without a limit.
const MAX_FAILURES: u32 = 15;

/// The state of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Disabled in the configuration.
    Disabled,
    /// Its lists are cached; the first call starts it.
    Idle,
    Starting,
    Ready,
    /// It ended, or is unreachable; another attempt follows.
    Offline,
    /// It failed too often in succession; `restart` tries again.
    Failed,
    /// It requires a login, and is not contacted before that.
    LoginNeeded,
}

/// The status of a server, for an operator.
#[derive(Debug, Clone)]
pub struct Health {
    pub state: State,
    pub since_ms: i64,
    pub last_error: Option<String>,
    pub tools: usize,
    /// The tools that were omitted.
    pub left_out: Vec<LeftOut>,
    /// The number of automatic restarts since the last manual start.
    pub restarts: u64,
    /// Whether `last_error` is the reason why a ready server ended. It is then kept when the
    /// server is ready again.
    pub(crate) ended: bool,
}

#[derive(Clone)]
pub(crate) enum Phase {
    Waiting,
    Ready(Arc<Connection>),
    /// Offline since this time, regardless of later attempts.
    Offline(Instant),
    /// Not contacted until an operator logs in.
    LoginRequired,
}

pub(crate) struct Server {
    pub(crate) name: Arc<str>,
    pub(crate) spec: Spec,
    directory: Arc<Directory>,
    records: Arc<dyn Records>,
    /// The budget for answers.
    pub(crate) answers: Arc<SharedBudget>,
    pub(crate) connections: ConnectionPool,
    phase: watch::Sender<Phase>,
    lists: RwLock<Arc<Lists>>,
    /// Whether the server has ever listed its tools.
    listed: AtomicBool,
    registration: Mutex<Option<Registration>>,
    health: Mutex<Health>,
    start_requested: Notify,
    restart: Notify,
    stop: CancellationToken,
}

/// The reason why a connection is no longer supervised.
enum End {
    Stopped,
    Restart,
    /// The server is unreachable, or does not know the connection.
    Gone,
    Lost(String),
    /// Every attempt fails until an operator logs in.
    LoginNeeded(String),
}

impl From<NotOpened> for End {
    fn from(failure: NotOpened) -> Self {
        if failure.login_needed { Self::LoginNeeded(failure.why) } else { Self::Lost(failure.why) }
    }
}

impl Server {
    /// Creates a server and starts its supervisor. Offers the cached lists without waiting for
    /// the server.
    pub(crate) async fn start(
        name: &str,
        spec: Spec,
        directory: Arc<Directory>,
        records: Arc<dyn Records>,
        vault: Arc<Vault>,
        answers: Arc<SharedBudget>,
        stop: CancellationToken,
    ) -> Arc<Self> {
        let name: Arc<str> = name.into();
        let mut account = None;
        if spec.takes_login() {
            let stored_login =
                StoredLogin::load(&name, &spec.url, Arc::clone(&records), vault).await;
            account = Some(Account::new(&name, &spec.url, spec.oauth.as_ref(), stored_login));
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
            connections: ConnectionPool::new(Arc::clone(&name), &spec, account),
            name,
            spec,
            directory,
            records,
            answers,
            phase: watch::Sender::new(Phase::Waiting),
            lists: RwLock::default(),
            listed: AtomicBool::new(false),
            registration: Mutex::default(),
            health: Mutex::new(health),
            start_requested: Notify::new(),
            restart: Notify::new(),
            stop,
        });
        if server.spec.enabled {
            let cached = Lists::load_cached(&*server.records, &server.name, &server.spec).await;
            let known = cached.is_some();
            if let Some(lists) = cached {
                server.set_lists(lists);
            }
            // The first call starts a program, to save its memory. A URL is tried at once: that
            // is cheap. Otherwise, an unreachable server would look the same as an untried one.
            let lacks_login = server.account().is_some_and(|account| account.lacks_login());
            let idle = known && !lacks_login && !server.spec.command.is_empty();
            if idle {
                server.set_state(State::Idle, None);
            }
            server.attach();
            tokio::spawn(Arc::clone(&server).supervise(idle));
        } else {
            server.reserve();
        }
        server
    }

    pub(crate) fn health(&self) -> Health {
        let mut health = self.health.lock().clone();
        let lists = self.lists();
        health.tools = lists.tools();
        health.left_out.clone_from(&lists.left_out);
        health
    }

    pub(crate) fn lists(&self) -> Arc<Lists> {
        Arc::clone(&self.lists.read())
    }

    /// Returns whether the server was removed, or the gateway shuts down.
    pub(crate) fn is_over(&self) -> bool {
        self.stop.is_cancelled()
    }

    pub(crate) fn restart(&self) {
        self.restart.notify_one();
    }

    /// Removes the server: stops its processes and frees its names.
    pub(crate) async fn remove(&self) {
        self.stop.cancel();
        if let Some(registration) = self.registration().take() {
            registration.withdraw();
        }
        Lists::forget(&*self.records, &self.name).await;
        if let Some(account) = self.account()
            && let Err(error) = account.forget().await
        {
            warn!(upstream = %self.name, %error, "cannot delete its login from the store");
        }
    }

    /// Returns the account at this server, if it supports a login.
    pub(crate) fn account(&self) -> Option<&Arc<Account>> {
        self.connections.account.as_ref()
    }

    async fn supervise(self: Arc<Self>, idle: bool) {
        if idle {
            tokio::select! {
                () = self.start_requested.notified() => {}
                () = self.restart.notified() => {}
                () = self.stop.cancelled() => return,
            }
        }
        let mut failures = 0_u32;
        loop {
            self.set_state(State::Starting, None);
            let mut uptime = Duration::ZERO;
            let end = match self.open().await {
                Ok((connection, changes)) => {
                    let since = Instant::now();
                    let end = self.monitor(&connection, changes).await;
                    uptime = since.elapsed();
                    end
                }
                Err(end) => end,
            };
            let locked_out = self.account().filter(|account| account.is_locked_out());
            let end = match (end, locked_out) {
                (End::Gone | End::Lost(_), Some(account)) => {
                    End::LoginNeeded(account.login_needed().await)
                }
                (End::Gone, None) if uptime < MIN_UPTIME => {
                    End::Lost(errors::CONNECTION_LOST.into())
                }
                (end, _) => end,
            };
            match end {
                End::Gone => self.go_offline(State::Offline, errors::CONNECTION_LOST),
                End::Stopped => {
                    return self.go_offline(State::Offline, "the gateway is shutting down");
                }
                End::Restart => {
                    failures = 0;
                    self.count_restarts(|_| 0);
                    if self.is_listed() {
                        self.go_offline(State::Offline, "it is being restarted");
                    } else {
                        self.start_over();
                    }
                    continue;
                }
                End::LoginNeeded(why) => {
                    failures = 0;
                    warn!(upstream = %self.name, "{why}");
                    self.require_login(&why);
                    tokio::select! {
                        () = self.restart.notified() => {
                            self.count_restarts(|_| 0);
                            self.start_over();
                            continue;
                        }
                        () = self.stop.cancelled() => return,
                    }
                }
                End::Lost(why) => {
                    failures = if uptime > STABLE_UPTIME { 1 } else { failures + 1 };
                    let gave_up = failures >= MAX_FAILURES && !self.spec.command.is_empty();
                    // A repeated error is logged at the debug level, so that it does not flood
                    // the log.
                    if failures == 1 || gave_up || self.health().last_error.as_deref() != Some(&why)
                    {
                        warn!(upstream = %self.name, failures, gave_up, "{why}");
                    } else {
                        debug!(upstream = %self.name, failures, "{why}");
                    }
                    self.go_offline(if gave_up { State::Failed } else { State::Offline }, &why);
                    self.health.lock().ended = !uptime.is_zero();
                    let wait = async {
                        if gave_up {
                            std::future::pending::<()>().await;
                        } else {
                            tokio::time::sleep(BACKOFF.delay_for_attempt(failures - 1)).await;
                        }
                    };
                    tokio::select! {
                        () = wait => {}
                        () = self.restart.notified() => {
                            failures = 0;
                            self.count_restarts(|_| 0);
                            self.start_over();
                            continue;
                        }
                        () = self.stop.cancelled() => return,
                    }
                }
            }
            self.count_restarts(|before| before + 1);
        }
    }

    /// Updates the number of automatic restarts since the last manual one.
    fn count_restarts(&self, count: impl FnOnce(u64) -> u64) {
        let mut health = self.health.lock();
        health.restarts = count(health.restarts);
    }

    /// Connects and loads the lists. Changes that the server reports meanwhile are handled later.
    async fn open(self: &Arc<Self>) -> Result<(Arc<Connection>, SeenChanges), End> {
        if let Some(account) = self.account() {
            account.try_again();
        }
        let open = async {
            let opened =
                tokio::time::timeout(START_TIMEOUT, self.connections.open(self.lists().era)).await;
            let opened = opened.unwrap_or_else(|_| Err(errors::too_slow(&self.name).into()));
            let connection = Arc::new(opened.map_err(End::from)?);
            // Subscribed before the lists are requested: one of them may change before the last
            // one arrives.
            let changes = SeenChanges::subscribe(&self.connections.changes);
            let lists =
                Lists::load(&connection, &self.spec, LIST_TIMEOUT).await.map_err(|why| {
                    connection.close();
                    End::Lost(why)
                })?;
            Ok::<_, End>((connection, lists, changes))
        };
        let (connection, lists, changes) = tokio::select! {
            opened = open => opened?,
            () = self.restart.notified() => return Err(End::Restart),
            () = self.stop.cancelled() => return Err(End::Stopped),
        };
        if *self.lists() != lists {
            self.report_invisible(&lists);
            lists.save(&*self.records, &self.name).await;
        }
        self.set_lists(lists);
        // The order matters: a call that finds the server waits until it is ready, and by then
        // the new list is published.
        self.phase.send_replace(Phase::Waiting);
        self.attach();
        self.phase.send_replace(Phase::Ready(Arc::clone(&connection)));
        self.set_state(State::Ready, None);
        info!(upstream = %self.name, tools = self.lists().tools(), protocol = %connection.info.protocol_version, "ready");
        Ok((connection, changes))
    }

    /// Follows the server's changes until the connection ends.
    async fn monitor(
        &self,
        connection: &Connection,
        SeenChanges { mut changes, mut seen }: SeenChanges,
    ) -> End {
        let (mut debounce, mut reloaded_at) = (DEBOUNCE, None::<Instant>);
        let end = loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => break End::Stopped,
                () = connection.closed.cancelled() => break End::Lost(connection.stderr_tail().await),
                () = connection.suspect.cancelled() => break End::Gone,
                () = self.restart.notified() => break End::Restart,
                () = self.connections.sweep() => {}
                Ok(()) = changes.changed() => {
                    let again = reloaded_at.is_some_and(|at| at.elapsed() < debounce * 2);
                    debounce = if again { (debounce * 2).min(MAX_DEBOUNCE) } else { DEBOUNCE };
                    let reload = async {
                        tokio::time::sleep(debounce).await;
                        let seen_now = *changes.borrow_and_update();
                        (seen_now, Lists::load(connection, &self.spec, LIST_TIMEOUT).await)
                    };
                    let (seen_now, reloaded) = tokio::select! {
                        reloaded = reload => reloaded,
                        () = self.stop.cancelled() => break End::Stopped,
                    };
                    reloaded_at = Some(Instant::now());
                    match reloaded {
                        Ok(lists) => {
                            let changed = lists != *self.lists();
                            if changed {
                                self.report_invisible(&lists);
                                lists.save(&*self.records, &self.name).await;
                                self.set_lists(lists);
                            } else if seen_now.documents != seen.documents {
                                // A reported change is forwarded even if the lists show no
                                // difference.
                                self.directory.documents_changed(self.id());
                            }
                            if let Some(registration) = &*self.registration() {
                                if changed {
                                    registration.publish(self.catalog());
                                } else if seen_now.tools != seen.tools {
                                    registration.announce();
                                }
                            }
                            seen = seen_now;
                        }
                        Err(why) => warn!(upstream = %self.name, "cannot read its changed lists: {why}"),
                    }
                }
            }
        };
        // A suspect connection may still answer its running requests.
        if !connection.suspect.is_cancelled() {
            connection.close();
        }
        end
    }

    fn report_invisible(&self, lists: &Lists) {
        self.directory.report_invisible(&self.id(), lists.new_invisible(&self.lists()));
    }

    fn set_lists(&self, lists: Lists) {
        let lists = Arc::new(lists);
        let before = std::mem::replace(&mut *self.lists.write(), Arc::clone(&lists));
        for LeftOut { tool, why } in
            lists.left_out.iter().filter(|left| !before.left_out.contains(left))
        {
            warn!(upstream = %self.name, tool, "a tool of the server is ignored: {why}");
        }
        self.listed.store(true, Ordering::Release);
        self.connections.repeat_arguments(lists.wants_headers());
        if !before.same_documents(&lists) {
            self.directory.documents_changed(self.id());
        }
    }

    fn attach(self: &Arc<Self>) {
        let provider: Arc<dyn Provider> = if self.is_listed() {
            Arc::new(Upstream(Arc::clone(self)))
        } else {
            Arc::new(Unlisted(Arc::clone(self)))
        };
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
            // The server was removed meanwhile, and no other code would withdraw this
            // registration.
            Ok(registration) if self.stop.is_cancelled() => registration.withdraw(),
            Ok(registration) => {
                *self.registration() = Some(registration);
                self.notify_documents();
            }
            Err(error) => warn!(upstream = %self.name, %error, "cannot offer its tools"),
        }
    }

    /// Reserves the id of a disabled server.
    fn reserve(&self) {
        match self.directory.reserve(self.id(), Grant::installed(KIND)) {
            Ok(registration) => *self.registration() = Some(registration),
            Err(error) => {
                warn!(upstream = %self.name, %error, "cannot reserve the id of a disabled server");
            }
        }
    }

    fn catalog(&self) -> Catalog {
        if self.is_listed() {
            // This is rare, and the lists may be large.
            return offload::run_if_free(offload::LARGE, || {
                self.lists().catalog(&self.name, &self.spec)
            });
        }
        Catalog { unlisted: true, ..Catalog::default() }
    }

    /// Marks the server as offline. Its tools stay listed.
    fn go_offline(&self, state: State, why: &str) {
        let listed = self.is_listed();
        if listed && let Some(registration) = &*self.registration() {
            registration.set_offline();
        }
        self.notify_documents();
        self.set_state(state, Some(why));
        let changes = self.phase.send_if_modified(|phase| {
            let changes = !matches!(phase, Phase::Offline(_));
            if changes {
                *phase = Phase::Offline(Instant::now());
            }
            changes
        });
        // Wakes the calls that wait for the tool list, so that they fail with the reason.
        // Repeated failures announce nothing.
        if changes
            && !listed
            && let Some(registration) = &*self.registration()
        {
            registration.announce();
        }
        self.connections.clear();
    }

    /// Marks the server as requiring a login. Its tools stay listed, and a call fails at once
    /// with instructions.
    fn require_login(self: &Arc<Self>, why: &str) {
        self.set_state(State::LoginNeeded, Some(why));
        self.phase.send_replace(Phase::LoginRequired);
        self.connections.clear();
        self.attach();
    }

    /// Reports that the server's documents became available or unavailable.
    fn notify_documents(&self) {
        if self.lists().has_documents() {
            self.directory.documents_changed(self.id());
        }
    }

    fn id(&self) -> ProviderId {
        ProviderId::new(KIND, &self.name)
    }

    fn set_state(&self, state: State, error: Option<&str>) {
        let mut health = self.health.lock();
        // All attempts to reconnect count as one offline period.
        let is_disconnected = |state: State| {
            matches!(state, State::Starting | State::Offline | State::Failed | State::LoginNeeded)
        };
        if !(is_disconnected(health.state) && is_disconnected(state)) && health.state != state {
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

    fn registration(&self) -> parking_lot::MutexGuard<'_, Option<Registration>> {
        self.registration.lock()
    }
}
