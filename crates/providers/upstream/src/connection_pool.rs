//! The connection pool of a server.
//!
//! If callers are isolated, each token has its own connection, so that no caller sees another
//! one's session. Idle connections are closed after a timeout, and their number is limited.
//!
//! A server that supports both eras of the protocol may support a feature in only one of them. In
//! the older era it can ask questions while a call runs. In the newer one it returns a question
//! as the result. A caller that supports only one of these ways therefore gets a connection of
//! that era, if the server has both.
//! the server has both.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use reqwest::header::{HeaderName, HeaderValue};
use rmcp::service::ClientInitializeError;
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::auth::{AuthorizationManager, ClientCredentialsConfig};
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use sa_core::{CallError, CallErrorKind, QuestionMode};
use sa_lines::{Lines, MAX_MESSAGE};
use secrecy::ExposeSecret as _;
use tokio::sync::{OnceCell, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::account::{Account, NoToken};
use crate::authorised::Authorised;
use crate::authority::Authority;
use crate::child::Child;
use crate::connection::{Connection, Era, ListChanges, is_unsent};
use crate::errors;
use crate::session_check::SessionCheck;
use crate::spec::{OAuth, Spec, resolve};

/// The maximum number of callers with their own connection: to a URL, and to a program, which
/// means a process each.
const MAX_CONNECTIONS: usize = 256;
const MAX_PROCESSES: usize = 16;
/// How long an unused connection is kept in the pool.
const IDLE: Duration = Duration::from_secs(300);
const SWEEP: Duration = Duration::from_secs(30);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The reason why a connection was not opened.
pub(crate) struct NotOpened {
    pub(crate) why: String,
    /// Whether the server responded at all.
    had_contact: bool,
    /// Whether every attempt fails until an operator logs in.
    pub(crate) login_needed: bool,
}

/// The reason why a caller gets no connection.
pub(crate) enum NoConnection {
    /// The maximum number of connections is in use.
    Full(usize),
    /// The server is unreachable, for this reason.
    Lost(String),
}

impl NoConnection {
    pub(crate) fn into_error(self, server: &str) -> CallError {
        match self {
            Self::Full(max_bytes) => {
                let message = format!("all {max_bytes} connections to \"{server}\" are in use");
                CallError::new(CallErrorKind::Overloaded, message)
                    .hint("try again when fewer callers use it")
            }
            Self::Lost(why) => CallError::undelivered(format!("the upstream \"{server}\": {why}")),
        }
    }
}

impl From<String> for NotOpened {
    fn from(why: String) -> Self {
        Self { why, had_contact: false, login_needed: false }
    }
}

impl From<NoToken> for NotOpened {
    fn from(none: NoToken) -> Self {
        let login_needed = matches!(none, NoToken::LoginNeeded(_));
        let (NoToken::LoginNeeded(why) | NoToken::Failed(why)) = none;
        Self { why, had_contact: false, login_needed }
    }
}

pub(crate) struct ConnectionPool {
    name: Arc<str>,
    spec: Spec,
    http: reqwest::Client,
    /// The account at a server that supports a login.
    pub(crate) account: Option<Arc<Account>>,
    taken: Mutex<HashMap<(Arc<str>, Era), PooledConnection>>,
    /// Whether each connection must request the list of tools; see
    /// [`Lists::wants_headers`](crate::lists::Lists).
    repeats_arguments: AtomicBool,
    /// Whether the server rejected the older era. A server of the newer era does not report its
    /// other versions.
    knows_new_only: AtomicBool,
    /// The list changes that any connection receives.
    pub(crate) changes: watch::Sender<ListChanges>,
}

#[derive(Clone)]
struct PooledConnection {
    connection: Arc<OnceCell<Arc<Connection>>>,
    used: Instant,
}

impl PooledConnection {
    fn is_idle(&self) -> bool {
        self.connection.get().is_none_or(|connection| {
            connection.running() == 0 && connection.subscriptions.is_empty()
        })
    }

    fn is_closed(&self) -> bool {
        let closed = |connection: &Arc<Connection>| {
            connection.closed.is_cancelled() || connection.suspect.is_cancelled()
        };
        self.connection.get().is_some_and(closed)
    }
}

impl ConnectionPool {
    pub(crate) fn new(name: Arc<str>, spec: &Spec, account: Option<Arc<Account>>) -> Self {
        let http = reqwest::Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            // A redirect would send the custom headers to any host that the server names.
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .unwrap_or_default();
        Self {
            name,
            spec: spec.clone(),
            http,
            account,
            taken: Mutex::default(),
            repeats_arguments: AtomicBool::new(false),
            knows_new_only: AtomicBool::new(false),
            changes: watch::Sender::default(),
        }
    }

    pub(crate) fn repeat_arguments(&self, wanted: bool) {
        self.repeats_arguments.store(wanted, Ordering::Release);
    }

    /// Opens a connection. If one handshake fails, the other one is tried. A server may reject an
    /// unknown handshake with an arbitrary error, or even exit.
    pub(crate) async fn open(&self, era: Era) -> Result<Connection, NotOpened> {
        let other = if era == Era::Initialize { Era::Unknown } else { Era::Initialize };
        match self.open_in(era).await {
            Err(first) if first.had_contact && !first.login_needed => self.open_in(other).await,
            opened => opened,
        }
    }

    /// Returns the server's description for error messages.
    fn label(&self) -> String {
        format!("the upstream \"{}\"", self.name)
    }

    async fn open_in(&self, era: Era) -> Result<Connection, NotOpened> {
        if self.spec.url.is_empty() {
            self.open_process(era).await
        } else {
            self.open_url(era).await
        }
    }

    async fn open_process(&self, era: Era) -> Result<Connection, NotOpened> {
        let Child { stdout, stdin, process } = Child::spawn(&self.name, &self.spec).await?;
        let transport = Lines::of_server(self.label(), stdout, stdin);
        let opened = tokio::select! {
            opened = Connection::open(transport, era, self.changes.clone(), CancellationToken::new()) => {
                opened.map_err(|error| errors::of_handshake(&error, "the program"))
            }
            () = process.ended.cancelled() => Err(String::new()),
        };
        let connection = match opened {
            Ok(connection) => connection.with_process(process.clone()),
            Err(why) => {
                // The last lines of stderr explain more than the closed connection.
                process.stop();
                let _ =
                    tokio::time::timeout(Duration::from_secs(1), process.ended.cancelled()).await;
                let why = process.stderr_tail().unwrap_or(why);
                return Err(NotOpened { why, had_contact: true, login_needed: false });
            }
        };
        let (closed, stop) = (connection.closed.clone(), connection.stopper());
        tokio::spawn(async move {
            tokio::select! {
                () = process.ended.cancelled() => stop.cancel(),
                () = closed.cancelled() => process.stop(),
            }
        });
        Ok(connection)
    }

    async fn open_url(&self, era: Era) -> Result<Connection, NotOpened> {
        let mut config = StreamableHttpClientTransportConfig::with_uri(self.spec.url.as_str())
            .max_concurrent_requests(self.spec.max_running.saturating_add(8))
            .max_sse_event_size(MAX_MESSAGE);
        if !self.spec.bearer.is_empty() {
            let token = resolve(&self.spec.bearer).map_err(|error| format!("bearer: {error}"))?;
            config = config.auth_header(token.expose_secret());
        }
        for (name, value) in &self.spec.headers {
            let wrong = |error: String| format!("headers.{name}: {error}");
            let value = resolve(value).map_err(wrong)?;
            let mut header = HeaderValue::from_str(value.expose_secret())
                .map_err(|error| wrong(error.to_string()))?;
            header.set_sensitive(true);
            let name = HeaderName::try_from(name).map_err(|error| wrong(error.to_string()))?;
            config.custom_headers.insert(name, header);
        }
        // An expired session is replaced with a new connection, which subscribes to all watched
        // documents again.
        config.reinit_on_expired_session = false;
        let (changes, suspect) = (self.changes.clone(), CancellationToken::new());
        let http = SessionCheck::new(self.http.clone(), self.label().into(), suspect.clone());
        let authorised = match (&self.account, &self.spec.oauth) {
            (Some(account), _) => account.client(http.clone()).await?,
            (None, Some(oauth)) => {
                Some(Authorised::new(http.clone(), self.authorise(oauth).await?))
            }
            (None, None) => None,
        };
        let opened = if let Some(client) = authorised {
            Connection::open(
                StreamableHttpClientTransport::with_client(client, config),
                era,
                changes,
                suspect,
            )
            .await
        } else {
            Connection::open(
                StreamableHttpClientTransport::with_client(http, config),
                era,
                changes,
                suspect,
            )
            .await
        };
        match (opened, &self.account) {
            (Ok(connection), Some(account)) => Ok(connection.with_account(Arc::clone(account))),
            (Ok(connection), None) => Ok(connection),
            (Err(error), Some(account)) if errors::wants_login(&error) => {
                account.lock_out();
                Err(NoToken::LoginNeeded(account.login_needed().await).into())
            }
            (Err(error), _) => Err(NotOpened {
                had_contact: !matches!(&*error, ClientInitializeError::TransportError { error, .. } if is_unsent(&*error.error)),
                why: errors::of_handshake(&error, &errors::place(&self.spec.url)),
                login_needed: false,
            }),
        }
    }

    /// Requests a token from the server's authorization server, with the client credentials.
    async fn authorise(&self, oauth: &OAuth) -> Result<AuthorizationManager, String> {
        let secret = resolve(&oauth.client_secret)
            .map_err(|error| format!("oauth.client_secret: {error}"))?;
        let config = ClientCredentialsConfig::ClientSecret {
            client_id: oauth.client_id.clone(),
            client_secret: secret.expose_secret().to_owned(),
            scopes: oauth.scopes.clone(),
            resource: Some(self.spec.url.clone()),
        };
        let granted = async {
            let mut manager = Authority::of(&self.spec.url, &oauth.issuer).await?.manager;
            manager.validate_client_credentials_metadata(&config)?;
            manager.configure_client_credentials(&config)?;
            manager.exchange_client_credentials(&config).await?;
            Ok(manager)
        };
        let advice = "check oauth.client_id, client_secret and scopes";
        granted.await.map_err(|error| format!("{}; {advice}", errors::of_authority(&error)))
    }

    /// Returns the connection of this caller, or the main connection if it is shared.
    pub(crate) async fn of(
        &self,
        caller: &str,
        main: &Arc<Connection>,
        question_mode: Option<QuestionMode>,
    ) -> Result<Arc<Connection>, NoConnection> {
        if question_mode == Some(QuestionMode::Request)
            && main.era() == Era::Discover
            && !self.knows_new_only.load(Ordering::Acquire)
            && (self.spec.isolates() || self.spec.command.is_empty())
        {
            let caller = if self.spec.isolates() { caller } else { "" };
            let pooled = self.pooled(caller, Era::Initialize)?;
            let open = || async { self.open_in(Era::Initialize).await.map(Arc::new) };
            match pooled.connection.get_or_try_init(open).await {
                Ok(connection) => return Ok(Arc::clone(connection)),
                // The server has responded in the newer era, so it does not support the older
                // one.
                Err(NotOpened { had_contact: true, .. }) => {
                    self.knows_new_only.store(true, Ordering::Release);
                }
                Err(NotOpened { why, .. }) => return Err(NoConnection::Lost(why)),
            }
        }
        if !self.spec.isolates() {
            return Ok(Arc::clone(main));
        }
        let pooled = self.pooled(caller, main.era())?;
        let open = || async {
            let connection = self.open(main.era()).await?;
            if self.repeats_arguments.load(Ordering::Acquire) {
                crate::lists::tools(&connection).await?;
            }
            Ok(Arc::new(connection))
        };
        pooled
            .connection
            .get_or_try_init(open)
            .await
            .cloned()
            .map_err(|failure: NotOpened| NoConnection::Lost(failure.why))
    }

    fn pooled(&self, caller: &str, era: Era) -> Result<PooledConnection, NoConnection> {
        let caller: (Arc<str>, Era) = (caller.into(), era);
        let mut taken = self.taken.lock();
        if let Some(pooled) = taken.get_mut(&caller)
            && !pooled.is_closed()
        {
            pooled.used = Instant::now();
            return Ok(pooled.clone());
        }
        taken.remove(&caller);
        let max_bytes = if self.spec.url.is_empty() { MAX_PROCESSES } else { MAX_CONNECTIONS };
        if taken.len() >= max_bytes {
            let idle = taken
                .iter()
                .filter(|(_, pooled)| pooled.is_idle())
                .min_by_key(|(_, pooled)| pooled.used);
            let idle = idle.map(|(caller, _)| caller.clone());
            let idle = idle.ok_or(NoConnection::Full(max_bytes))?;
            taken.remove(&idle);
        }
        let pooled = PooledConnection { connection: Arc::default(), used: Instant::now() };
        taken.insert(caller, pooled.clone());
        Ok(pooled)
    }

    /// Waits for the sweep interval, then removes closed connections and those beyond the idle
    /// timeout.
    pub(crate) async fn sweep(&self) {
        tokio::time::sleep(SWEEP).await;
        let mut taken = self.taken.lock();
        taken.retain(|_, pooled| {
            !(pooled.is_closed() || pooled.is_idle() && pooled.used.elapsed() > IDLE)
        });
    }

    pub(crate) fn clear(&self) {
        // The next server process may support both eras.
        self.knows_new_only.store(false, Ordering::Release);
        self.taken.lock().clear();
    }
}
