//! Shared test support: a gateway without sockets, a journal that records everything, and
//! connections with the test as the other end.
#![allow(
    clippy::unnecessary_wraps,
    dead_code,
    unreachable_pub,
    reason = "each test file uses the part that it needs"
)]

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use proptest::test_runner::{Config, FileFailurePersistence};
use sa_core::directory::{Attach, Directory, Registration};
use sa_core::link::{Link, LinkProvider};
use sa_core::*;
use tokio::task::JoinHandle;

/// All reports of the router.
#[derive(Default)]
pub struct Log {
    pub started: Mutex<Vec<CallId>>,
    pub finished: Mutex<Vec<CallRecord>>,
    pub counted: Mutex<Vec<(&'static str, &'static str)>>,
    pub audited: Mutex<Vec<AuditEvent>>,
    /// New calls wait while this is set.
    pub behind: AtomicBool,
}

impl Journal for Log {
    fn started(&self, call: &CallStarted) {
        self.started.lock().push(call.id);
    }

    fn finished(&self, record: CallRecord) {
        self.finished.lock().push(record);
    }

    fn backpressure(&self) -> Option<BoxFuture<'_, ()>> {
        self.behind
            .load(Ordering::Relaxed)
            .then(|| Box::pin(std::future::pending()) as BoxFuture<'_, ()>)
    }

    fn audit(&self, event: AuditEvent) {
        self.audited.lock().push(event);
    }

    fn count(&self, what: &'static str, why: &'static str) {
        self.counted.lock().push((what, why));
    }
}

impl Log {
    pub fn records_of(&self, id: CallId) -> Vec<CallRecord> {
        self.finished.lock().iter().filter(|record| record.id == id).cloned().collect()
    }

    /// Asserts that every started call has ended once, and that no other call has ended.
    #[track_caller]
    pub fn assert_balanced(&self) {
        let mut started = self.started.lock().clone();
        let mut finished: Vec<_> = self.finished.lock().iter().map(|record| record.id).collect();
        started.sort_unstable();
        finished.sort_unstable();
        assert_eq!(started, finished);
    }
}

/// A connection with the test as its other end.
#[derive(Default)]
pub struct Wire {
    pub requests: Mutex<Vec<CallId>>,
    pub tools: Mutex<Vec<String>>,
    pub cancels: Mutex<Vec<(CallId, CancelReason)>>,
    /// If set, requests can no longer be queued and return an error.
    pub broken: AtomicBool,
}

impl Link for Wire {
    fn send_request(&self, call: &Call) -> Result<(), CallError> {
        if self.broken.load(Ordering::Relaxed) {
            return Err(CallError::undelivered("the wire is broken"));
        }
        self.requests.lock().push(call.id);
        self.tools.lock().push(call.tool.to_string());
        Ok(())
    }

    fn send_cancel(&self, id: CallId, reason: CancelReason) {
        self.cancels.lock().push((id, reason));
    }
}

pub type Connection = Arc<LinkProvider<Wire>>;

pub fn connection() -> Connection {
    Arc::new(LinkProvider::new(Wire::default()))
}

pub fn requests(connection: &Connection) -> Vec<CallId> {
    connection.link().requests.lock().clone()
}

pub fn cancels(connection: &Connection) -> Vec<(CallId, CancelReason)> {
    connection.link().cancels.lock().clone()
}

/// Answers every call with a closure.
struct Answers<F>(F);

impl<F: Fn(Arc<Call>, Updates) -> BoxFuture<'static, Outcome> + Send + Sync + 'static> Provider
    for Answers<F>
{
    fn call(&self, call: Arc<Call>, updates: Updates) -> BoxFuture<'static, Outcome> {
        (self.0)(call, updates)
    }
}

pub fn answering<F>(answer: F) -> Arc<dyn Provider>
where
    F: Fn(Arc<Call>, Updates) -> BoxFuture<'static, Outcome> + Send + Sync + 'static,
{
    Arc::new(Answers(answer))
}

pub struct Gateway {
    pub directory: Arc<Directory>,
    pub log: Arc<Log>,
    pub router: Arc<Router>,
}

pub const MEMORY: Duration = Duration::from_secs(600);

pub fn directory() -> Arc<Directory> {
    Directory::new(Notices::new(), MEMORY)
}

pub fn gateway(options: RouterOptions) -> Gateway {
    gateway_with(options, None)
}

pub fn gateway_with(
    options: RouterOptions,
    ledger: Option<Arc<dyn idempotency::Ledger>>,
) -> Gateway {
    gateway_under(Policy::default(), options, ledger)
}

pub fn gateway_under(
    policy: Policy,
    options: RouterOptions,
    ledger: Option<Arc<dyn idempotency::Ledger>>,
) -> Gateway {
    let (directory, log) = (directory(), Arc::new(Log::default()));
    let journal = Arc::clone(&log) as Arc<dyn Journal>;
    let router = Router::new(Arc::clone(&directory), journal, ledger, policy, options);
    Gateway { directory, log, router }
}

impl Gateway {
    /// Attaches a node named `n` with the open prefix `t`, as most tests need it.
    pub fn connect(&self) -> (Connection, Registration) {
        self.connect_with(50)
    }

    pub fn connect_with(&self, max_running: usize) -> (Connection, Registration) {
        let connection = connection();
        let provider = Arc::clone(&connection) as Arc<dyn Provider>;
        let attach = Attach { max_running, ..attach("n", "g", prefixes(&["t"]), provider) };
        (connection, self.directory.attach(attach).unwrap())
    }

    /// Does the same with a closure instead of a connection.
    pub fn provide<F>(&self, answer: F) -> Registration
    where
        F: Fn(Arc<Call>, Updates) -> BoxFuture<'static, Outcome> + Send + Sync + 'static,
    {
        self.directory.attach(attach("n", "g", prefixes(&["t"]), answering(answer))).unwrap()
    }

    pub fn start(&self, request: CallRequest) -> (CallId, JoinHandle<Finished>) {
        let running = self.router.start(request, None);
        (running.id(), tokio::spawn(running.outcome()))
    }

    /// Asserts that no state of any call is left, and that each is recorded once.
    #[track_caller]
    pub fn assert_clean(&self) {
        assert_eq!(self.router.running_count(), 0);
        for member in self.directory.members("node") {
            assert_eq!(member.running, 0, "places of {}", member.id);
        }
        self.log.assert_balanced();
    }
}

/// Returns the grant of a token; an empty string stands for no token.
pub fn grant_of(grant: &str) -> Grant {
    if grant.is_empty() { Grant::none() } else { Grant::token(grant) }
}

pub fn attach(id: &str, grant: &str, catalog: Catalog, provider: Arc<dyn Provider>) -> Attach {
    Attach {
        id: ProviderId::new("node", id),
        scope: Scope::Everyone,
        grant: grant_of(grant),
        provider,
        catalog,
        max_running: 50,
        about: RawJson::empty_object(),
        may_take_over: false,
    }
}

pub fn prefixes(prefixes: &[&str]) -> Catalog {
    Catalog { prefixes: prefixes.iter().map(ToString::to_string).collect(), ..Catalog::default() }
}

pub fn tools(names: &[&str]) -> Catalog {
    Catalog { tools: names.iter().map(|name| Tool::named(name)).collect(), ..Catalog::default() }
}

pub fn principal() -> Arc<Principal> {
    Arc::new(Principal::new("p1", "test", Role::Agent))
}

pub fn view() -> View {
    View::of(principal())
}

pub fn request(tool: &str) -> CallRequest {
    CallRequest {
        tool: tool.to_owned(),
        args: RawJson::empty_object(),
        view: view(),
        surface: "test",
        session_key: None,
        timeout: None,
        idle_timeout: None,
        idempotency_key: None,
        trace: TraceContext::root(),
    }
}

pub fn ok(text: &str) -> Outcome {
    Ok(Output::json(RawJson::parse(text).unwrap()))
}

pub fn progress() -> Update {
    Update::Progress { progress: 1.0, total: None, message: None }
}

/// Runs all tasks until all of them wait.
pub async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

#[track_caller]
pub fn assert_error(finished: &Finished, kind: CallErrorKind, words: &str) -> CallError {
    let error = finished.outcome.clone().expect_err("an error");
    assert_eq!(error.kind, kind, "{}", error.message);
    assert!(error.message.contains(words), "{}", error.message);
    error
}

/// Runs a test in which time only advances when all tasks are idle.
pub fn simulate<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap()
        .block_on(test)
}

/// Failed seeds are stored beside the test, and tried first from then on. `PROPTEST_CASES` changes
/// the number of cases.
pub fn cases(cases: u32) -> Config {
    let cases =
        std::env::var("PROPTEST_CASES").ok().and_then(|more| more.parse().ok()).unwrap_or(cases);
    let persistence = FileFailurePersistence::WithSource("regressions");
    Config {
        cases,
        failure_persistence: Some(Box::new(persistence)),
        max_shrink_iters: 5_000,
        ..Config::default()
    }
}
