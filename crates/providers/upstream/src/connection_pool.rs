//! How connections to one server are made, and who shares which.
//!
//! Where callers are isolated, each token has a connection of its own, so that what one of them says in a session is
//! nothing that another one sees. The connections are kept for as long as they are used, and bounded in number.
//!
//! A server that knows both eras of the protocol may do in one what it cannot do in the other: only in the older one can it
//! ask while a call runs, and only in the newer one answer with a question. A caller that can be asked in one way only is
//! therefore given a connection of that era, where the server has both.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use reqwest::header::{HeaderName, HeaderValue};
use rmcp::service::ClientInitializeError;
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::auth::{AuthorizationManager, ClientCredentialsConfig};
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use sa_core::{Asking, CallError, CallErrorKind};
use sa_lines::{Lines, MAX_MESSAGE};
use secrecy::ExposeSecret as _;
use tokio::sync::{OnceCell, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::account::{Account, NoToken};
use crate::authorised::Authorised;
use crate::authority::Authority;
use crate::child::Child;
use crate::connection::{Connection, Era, News, is_unsent};
use crate::observed::Observed;
use crate::spec::{OAuth, Spec, resolve};
use crate::trouble;

/// How many callers may have a connection of their own: to a URL, and to a program, which is a process each.
const MAX_CONNECTIONS: usize = 256;
const MAX_PROCESSES: usize = 16;
/// How long a connection is kept after its last use.
const IDLE: Duration = Duration::from_secs(300);
const SWEEP: Duration = Duration::from_secs(30);
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);

/// Why there is no connection.
pub(crate) struct NotOpened {
    pub(crate) why: String,
    /// There was somebody to speak to.
    spoke: bool,
    /// Nothing helps until somebody logs in.
    pub(crate) login_needed: bool,
}

/// Why a caller has no connection.
pub(crate) enum NoSeat {
    /// As many as there may be are in use.
    Full(usize),
    /// There is nobody to be connected to, for this reason.
    Lost(String),
}

impl NoSeat {
    pub(crate) fn into_error(self, server: &str) -> CallError {
        match self {
            Self::Full(most) => {
                let message = format!("all {most} connections that \"{server}\" may have are in use");
                CallError::new(CallErrorKind::Overloaded, message).hint("try again when fewer callers use it")
            }
            Self::Lost(why) => CallError::undelivered(format!("the upstream \"{server}\": {why}")),
        }
    }
}

impl From<String> for NotOpened {
    fn from(why: String) -> Self {
        Self { why, spoke: false, login_needed: false }
    }
}

impl From<NoToken> for NotOpened {
    fn from(none: NoToken) -> Self {
        let login_needed = matches!(none, NoToken::LoginNeeded(_));
        let (NoToken::LoginNeeded(why) | NoToken::Trouble(why)) = none;
        Self { why, spoke: false, login_needed }
    }
}

pub(crate) struct Seats {
    name: Arc<str>,
    spec: Spec,
    http: reqwest::Client,
    /// What the gateway is at a server that somebody can log in to.
    pub(crate) account: Option<Arc<Account>>,
    taken: Mutex<HashMap<(Arc<str>, Era), Seat>>,
    /// Whether each connection has to see the list of tools; see [`Lists::wants_headers`](crate::lists::Lists).
    repeats_arguments: AtomicBool,
    /// The server refused the older era, of which its newer one does not tell.
    knows_new_only: AtomicBool,
    /// What any of the connections hears.
    pub(crate) news: watch::Sender<News>,
}

#[derive(Clone)]
struct Seat {
    connection: Arc<OnceCell<Arc<Connection>>>,
    used: Instant,
}

impl Seat {
    fn is_idle(&self) -> bool {
        self.connection.get().is_none_or(|connection| connection.running() == 0 && connection.watched.is_empty())
    }

    fn is_closed(&self) -> bool {
        let closed =
            |connection: &Arc<Connection>| connection.closed.is_cancelled() || connection.suspect.is_cancelled();
        self.connection.get().is_some_and(closed)
    }
}

impl Seats {
    pub(crate) fn new(name: Arc<str>, spec: &Spec, account: Option<Arc<Account>>) -> Self {
        let http = reqwest::Client::builder()
            .connect_timeout(CONNECT_PATIENCE)
            // A redirect would carry our headers to whoever the server names.
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
            news: watch::Sender::default(),
        }
    }

    pub(crate) fn repeat_arguments(&self, wanted: bool) {
        self.repeats_arguments.store(wanted, Ordering::Release);
    }

    /// A new connection. Where one handshake fails, the other is tried: a server may refuse the one it does not know in
    /// ways that look like any other failure, down to ending itself.
    pub(crate) async fn open(&self, era: Era) -> Result<Connection, NotOpened> {
        let other = if era == Era::Initialize { Era::Unknown } else { Era::Initialize };
        match self.open_in(era).await {
            Err(first) if first.spoke && !first.login_needed => self.open_in(other).await,
            opened => opened,
        }
    }

    /// The server in the words of an error.
    fn who(&self) -> String {
        format!("the upstream \"{}\"", self.name)
    }

    async fn open_in(&self, era: Era) -> Result<Connection, NotOpened> {
        if self.spec.url.is_empty() { self.open_process(era).await } else { self.open_url(era).await }
    }

    async fn open_process(&self, era: Era) -> Result<Connection, NotOpened> {
        let Child { stdout, stdin, process } = Child::spawn(&self.name, &self.spec)?;
        let transport = Lines::of_server(self.who(), stdout, stdin);
        let opened = tokio::select! {
            opened = Connection::open(transport, era, self.news.clone(), CancellationToken::new()) => {
                opened.map_err(|error| trouble::of_handshake(&error, "the program"))
            }
            () = process.ended.cancelled() => Err(String::new()),
        };
        let connection = match opened {
            Ok(connection) => connection.with_process(process.clone()),
            Err(why) => {
                // What it said on its way out says more than that it is gone.
                process.stop();
                let _ = tokio::time::timeout(Duration::from_secs(1), process.ended.cancelled()).await;
                let why = process.last_words().unwrap_or(why);
                return Err(NotOpened { why, spoke: true, login_needed: false });
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
            let mut header = HeaderValue::from_str(value.expose_secret()).map_err(|error| wrong(error.to_string()))?;
            header.set_sensitive(true);
            let name = HeaderName::try_from(name).map_err(|error| wrong(error.to_string()))?;
            config.custom_headers.insert(name, header);
        }
        // A session that the server has forgotten is renewed with a new connection, which asks again for all that is watched.
        config.reinit_on_expired_session = false;
        let (news, suspect) = (self.news.clone(), CancellationToken::new());
        let http = Observed::new(self.http.clone(), self.who().into(), suspect.clone());
        let authorised = match (&self.account, &self.spec.oauth) {
            (Some(account), _) => account.client(http.clone()).await?,
            (None, Some(oauth)) => Some(Authorised::new(http.clone(), self.authorise(oauth).await?)),
            (None, None) => None,
        };
        let opened = if let Some(client) = authorised {
            Connection::open(StreamableHttpClientTransport::with_client(client, config), era, news, suspect).await
        } else {
            Connection::open(StreamableHttpClientTransport::with_client(http, config), era, news, suspect).await
        };
        match (opened, &self.account) {
            (Ok(connection), Some(account)) => Ok(connection.with_account(Arc::clone(account))),
            (Ok(connection), None) => Ok(connection),
            (Err(error), Some(account)) if trouble::wants_login(&error) => {
                account.lock_out();
                Err(NoToken::LoginNeeded(account.login_needed().await).into())
            }
            (Err(error), _) => Err(NotOpened {
                spoke: !matches!(&*error, ClientInitializeError::TransportError { error, .. } if is_unsent(&*error.error)),
                why: trouble::of_handshake(&error, &trouble::place(&self.spec.url)),
                login_needed: false,
            }),
        }
    }

    /// Gets a token from whoever the server says grants them.
    async fn authorise(&self, oauth: &OAuth) -> Result<AuthorizationManager, String> {
        let secret = resolve(&oauth.client_secret).map_err(|error| format!("oauth.client_secret: {error}"))?;
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
        granted.await.map_err(|error| format!("{}; {advice}", trouble::of_authority(&error)))
    }

    /// The connection of this caller; the server's own, where all share it.
    pub(crate) async fn of(
        &self,
        caller: &str,
        main: &Arc<Connection>,
        asking: Option<Asking>,
    ) -> Result<Arc<Connection>, NoSeat> {
        if asking == Some(Asking::Meanwhile)
            && main.era() == Era::Discover
            && !self.knows_new_only.load(Ordering::Acquire)
            && (self.spec.isolates() || self.spec.command.is_empty())
        {
            let caller = if self.spec.isolates() { caller } else { "" };
            let seat = self.seat(caller, Era::Initialize)?;
            let open = || async { self.open_in(Era::Initialize).await.map(Arc::new) };
            match seat.connection.get_or_try_init(open).await {
                Ok(connection) => return Ok(Arc::clone(connection)),
                // It has answered in the newer era, so it is this one that it does not know.
                Err(NotOpened { spoke: true, .. }) => self.knows_new_only.store(true, Ordering::Release),
                Err(NotOpened { why, .. }) => return Err(NoSeat::Lost(why)),
            }
        }
        if !self.spec.isolates() {
            return Ok(Arc::clone(main));
        }
        let seat = self.seat(caller, main.era())?;
        let open = || async {
            let connection = self.open(main.era()).await?;
            if self.repeats_arguments.load(Ordering::Acquire) {
                crate::lists::tools(&connection).await?;
            }
            Ok(Arc::new(connection))
        };
        seat.connection.get_or_try_init(open).await.cloned().map_err(|failure: NotOpened| NoSeat::Lost(failure.why))
    }

    fn seat(&self, caller: &str, era: Era) -> Result<Seat, NoSeat> {
        let caller: (Arc<str>, Era) = (caller.into(), era);
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(seat) = taken.get_mut(&caller)
            && !seat.is_closed()
        {
            seat.used = Instant::now();
            return Ok(seat.clone());
        }
        taken.remove(&caller);
        let most = if self.spec.url.is_empty() { MAX_PROCESSES } else { MAX_CONNECTIONS };
        if taken.len() >= most {
            let idle = taken.iter().filter(|(_, seat)| seat.is_idle()).min_by_key(|(_, seat)| seat.used);
            let idle = idle.map(|(caller, _)| caller.clone());
            let idle = idle.ok_or(NoSeat::Full(most))?;
            taken.remove(&idle);
        }
        let seat = Seat { connection: Arc::default(), used: Instant::now() };
        taken.insert(caller, seat.clone());
        Ok(seat)
    }

    /// Resolves now and then, having let go of what nobody uses.
    pub(crate) async fn sweep(&self) {
        tokio::time::sleep(SWEEP).await;
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.retain(|_, seat| !(seat.is_closed() || seat.is_idle() && seat.used.elapsed() > IDLE));
    }

    pub(crate) fn clear(&self) {
        // The next one to answer may know more.
        self.knows_new_only.store(false, Ordering::Release);
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}
