//! Assembles the gateway: stores, router, providers and surfaces.

mod providers;
pub(crate) mod routes;

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use sa_channels::Channels;
use sa_chat::Chat;
use sa_core::directory::OnChange;
use sa_core::store::{Log, Records, StoreError, StoreErrorKind};
use sa_core::{Directory, Journal, Notices, Pattern, Policy, Router, RouterOptions, Trimmer};
use sa_http::{Authenticate, Http, SessionScopes, Shared, StoredTokens};
use sa_mcp::Mcp;
use sa_mcp::http::Endpoint;
use sa_nodes::{Access, NodeStore, Nodes};
use sa_plugins::Plugins;
use sa_relay::Sessions;
use sa_settings::{days, millis};
use sa_socket::Liveness;
use sa_store::Store;
use sa_upstream::Upstreams;
use sa_vault::{Vault, secret_file};
use tokio_util::sync::CancellationToken;
use tracing::warn;

pub(crate) use self::providers::{ProviderStatus, check_node_id};
use crate::VERSION;
use crate::budgets::{self, Budgets};
use crate::config::Config;
use crate::config::settings as own;
use crate::definitions::DefinitionStore;
use crate::journal::{StoreJournal, store_options};
use crate::ledger::StoreLedger;
use crate::metrics::Metrics;
use crate::retention::{self, Rounds};
use crate::sign_in::SignInCodes;
use crate::telemetry::Spans;
use crate::tokens::Tokens;
use crate::write_probe::WriteProbe;
use crate::{memory_limit, operator_token, secret_files, unfinished};

/// The interval for deleting old records and forgetting nodes that left long ago.
const HOUSEKEEPING: Duration = Duration::from_secs(60);

/// The delay before saving changes, so that several changes are saved together.
const GATHER: Duration = Duration::from_millis(500);
const RETRY: Duration = Duration::from_secs(10);

crate::config::sections! {
    server: own::Server,
    data: own::Data,
    limits: sa_settings::Limits,
    nodes: sa_nodes::Settings,
    channels: sa_channels::Settings,
    skills: sa_nodes::SkillSettings,
    mcp: sa_mcp::Settings,
    upstream: sa_upstream::Settings,
    models: sa_chat::Settings,
    sessions: sa_relay::Settings,
    plugins: sa_plugins::Settings,
    journal: own::Journal,
    audit: own::Audit,
    policy: own::Policy,
    trust: own::Trust,
    log: own::Log,
    telemetry: own::Telemetry,
}

/// All parts of a running gateway.
pub struct Gateway {
    pub config: Config,
    pub store: Store,
    pub log: Arc<dyn Log>,
    pub tokens: Arc<Tokens>,
    pub journal: Arc<StoreJournal>,
    /// Deletes old records while the clock is trusted.
    pub trimmer: Arc<Trimmer>,
    pub(crate) write_probe: WriteProbe,
    pub(crate) definitions: DefinitionStore,
    remembered: NodeStore,
    pub metrics: Arc<Metrics>,
    pub router: Arc<Router>,
    pub notices: Notices,
    pub nodes: Arc<Nodes>,
    pub node_access: Arc<Access>,
    pub upstreams: Arc<Upstreams>,
    /// `None` if sessions are not configured.
    pub sessions: Option<Arc<Sessions>>,
    pub channels: Arc<Channels>,
    pub plugins: Arc<Plugins>,
    /// The one-time sign-in codes of the console.
    pub sign_in: SignInCodes,
    pub chat: Arc<Chat>,
    pub mcp: Arc<Endpoint>,
    pub budgets: Budgets,
    /// What the handlers of all crates share.
    pub http: Http,
    /// The memory limit from which the budget sizes are derived.
    pub memory_limit: u64,
    /// Cancelled to close all sockets, after running calls have drained.
    pub closing: CancellationToken,
    /// Cancelled when the operator does not want to wait for running calls any longer.
    pub stop_now: CancellationToken,
    pub(crate) ledger: Arc<StoreLedger>,
    housekeeping: CancellationToken,
}

pub async fn assemble(config: Config) -> anyhow::Result<Arc<Gateway>> {
    let store = store_options(config.store_file());
    assemble_on(config, store).await
}

/// Does the same with other options of the store. Tests use a disk that fails on demand.
#[doc(hidden)]
pub async fn assemble_on(
    mut config: Config,
    store: sa_store::OpenOptions,
) -> anyhow::Result<Arc<Gateway>> {
    let memory_limit = memory_limit::detect();
    let total = budgets::assign(&mut config.settings, memory_limit);
    let settings = &config.settings;
    make_private_dir(&config.data_dir)?;

    // Stores: one file that provides both the log and the records.
    let store = Store::open(store)?;
    let trimmer = retention::open(&store).await?;
    let log: Arc<dyn Log> = Arc::new(store.clone());
    let records: Arc<dyn Records> = Arc::new(store.clone());
    let clock = Arc::clone(&trimmer);
    let tokens = Arc::new(Tokens::load(Arc::clone(&records), move || clock.now_ms()).await?);
    for trouble in tokens.unreadable() {
        let message = format!("{}: {trouble}", config.store_file().display());
        store.note(&StoreError { kind: StoreErrorKind::Damaged, message });
    }
    operator_token::ensure(&tokens, &config.operator_token_file()).await?;
    secret_files::mark(&config);

    // Observability: metrics, spans, the journal.
    let metrics = Arc::new(Metrics::new());
    let spans = Spans::new(&settings.telemetry)?;
    let journal = Arc::new(StoreJournal::new(
        Arc::clone(&log),
        Arc::clone(&metrics),
        spans,
        settings.journal.payload_bytes,
    ));
    // A full disk must not prevent the start. The notes are written at the next start.
    if let Err(error) = unfinished::settle(&*records, &*log).await {
        warn!(%error, "calls that were running when the last process ended are not in the history yet");
    }

    // Memory budgets.
    if total > memory_limit / 2 {
        let half = memory_limit / 2;
        warn!(
            total,
            half,
            "the byte budgets add up to more than half of the memory limit; lower limits.pending_bytes"
        );
    }
    let budgets = Budgets::new(&settings.limits, settings.server.max_connections);
    let ledger =
        Arc::new(StoreLedger::new(Arc::clone(&records), settings.limits.idempotency_bytes));
    ledger.load().await?;

    // The core.
    let notices = Notices::new();
    let directory = Directory::new(notices.clone(), millis(settings.nodes.offline_memory_ms));
    let policy =
        Policy { deny: settings.policy.deny.iter().map(|pattern| Pattern::new(pattern)).collect() };
    let options = RouterOptions {
        max_running: settings.limits.pending_total,
        max_bytes: settings.limits.argument_bytes,
        default_timeout: millis(settings.limits.default_timeout_ms),
        max_duration: millis(settings.limits.max_call_ms),
        queue_timeout: millis(settings.limits.queue_wait_ms),
        reconnect_timeout: millis(settings.limits.reconnect_wait_ms),
    };
    let router = Router::new(
        Arc::clone(&directory),
        Arc::clone(&journal) as Arc<dyn Journal>,
        Some(Arc::clone(&ledger) as _),
        policy,
        options,
    );

    let on_change = match settings.trust.on_change {
        own::OnChange::Allow => OnChange::Allow,
        own::OnChange::Hold => OnChange::Hold,
    };
    let definitions =
        DefinitionStore::load(Arc::clone(&directory), Arc::clone(&records), on_change).await?;

    // Providers.
    let closing = CancellationToken::new();
    let nodes = Nodes::new(
        Arc::clone(&router),
        settings.nodes.options(&settings.limits, VERSION),
        closing.clone(),
    );
    let stored_tokens = Arc::clone(&tokens) as Arc<dyn StoredTokens>;
    let node_access = Arc::new(Access::new(settings.nodes.tokens.clone(), stored_tokens));
    let remembered = NodeStore::load(
        &nodes,
        Arc::clone(&directory),
        Arc::clone(&records),
        Arc::clone(&trimmer),
        &node_access,
    )
    .await?;

    let vault = Arc::new(Vault::new(config.data_dir.join("settings.key"), config.key.as_ref()));
    let upstreams = Upstreams::load(
        directory,
        Arc::clone(&records),
        Arc::clone(&vault),
        Arc::clone(&budgets.provider_answers),
        &settings.upstream.0,
        closing.clone(),
    )
    .await?;
    let sessions = if settings.sessions.enabled {
        let shared = sa_relay::Shared {
            limits: &settings.limits,
            data_dir: &config.data_dir,
            secret_files: config.secret_files(),
            budgets: sa_relay::Budgets {
                connections: Arc::clone(budgets.connections.budget()),
                requests: Arc::clone(&budgets.requests),
                answers: Arc::clone(&budgets.answers),
            },
            keep: days(settings.journal.keep_days),
            trimmer: &trimmer,
        };
        let options = settings.sessions.options(shared).await.map_err(anyhow::Error::msg)?;
        let (router, notices, log) = (Arc::clone(&router), notices.clone(), Arc::clone(&log));
        Some(Sessions::start(router, notices, log, Arc::clone(&records), options).await?)
    } else {
        None
    };
    let plugins = Plugins::load(
        Arc::clone(&router),
        Arc::clone(&records),
        settings.plugins.options(vault, Arc::clone(&budgets.provider_answers)),
        closing.clone(),
    )
    .await?;
    let channels = Channels::open(
        Arc::clone(&log),
        Arc::clone(&records),
        Arc::clone(&router),
        settings.channels.options(&settings.limits, liveness(&config), &config.data_dir, &trimmer),
        closing.clone(),
    )
    .await?;

    // Surfaces are routes, see `http::routes`. Two of them have their own state.
    let mcp = Mcp::new(
        Arc::clone(&router),
        notices.clone(),
        Arc::new(store.clone()),
        &settings.mcp.options(&settings.limits, VERSION, &trimmer),
        closing.clone(),
    );
    let (models, answers) = (settings.models.0.clone(), Arc::clone(&budgets.provider_answers));
    let chat = Chat::new(Arc::clone(&router), models, answers).map_err(anyhow::Error::msg)?;
    let http = Http::new(Shared {
        router: Arc::clone(&router),
        journal: Arc::clone(&journal) as Arc<dyn Journal>,
        auth: Arc::clone(&tokens) as Arc<dyn Authenticate>,
        sessions: sessions.clone().map(|sessions| sessions as Arc<dyn SessionScopes>),
        requests: Arc::clone(&budgets.requests),
        max_body_bytes: settings.limits.max_body_bytes,
        max_outbox_bytes: settings.limits.max_outbox_bytes,
    });
    let endpoint = Endpoint { http: http.clone(), mcp, channels: Arc::clone(&channels) as _ };
    let housekeeping = CancellationToken::new();
    let gateway = Gateway {
        config,
        store,
        log,
        tokens,
        journal,
        trimmer,
        write_probe: WriteProbe::new(records),
        definitions,
        remembered,
        metrics,
        router,
        notices,
        nodes,
        node_access,
        upstreams,
        sessions,
        channels,
        plugins,
        sign_in: SignInCodes::default(),
        chat: Arc::new(chat),
        mcp: Arc::new(endpoint),
        budgets,
        http,
        memory_limit,
        closing,
        stop_now: CancellationToken::new(),
        ledger,
        housekeeping,
    };
    let gateway = Arc::new(gateway);
    tokio::spawn(keep_house(Arc::clone(&gateway)));
    let (saver, stop) = (Arc::clone(&gateway), gateway.housekeeping.clone());
    tokio::spawn(async move { saver.save_changes(stop).await });
    let (router, payload_bytes) =
        (Arc::clone(&gateway.router), gateway.config.settings.journal.payload_bytes);
    let notes = Arc::new(gateway.store.clone());
    tokio::spawn(unfinished::keep_notes(
        router,
        notes,
        payload_bytes,
        gateway.housekeeping.clone(),
    ));
    Ok(gateway)
}

impl Gateway {
    /// Drains running calls, closes all connections, and saves all state.
    pub async fn shut_down(&self) {
        if let Some(sessions) = &self.sessions {
            sessions.begin_shutdown();
        }
        self.router
            .drain(millis(self.config.settings.server.drain_ms), self.stop_now.cancelled())
            .await;
        if let Some(sessions) = &self.sessions {
            sessions.shut_down().await;
        }
        self.journal.tell_refusals();
        // Saved while the nodes are still connected, so that calls wait for them to reconnect after
        // a restart. Nodes that disconnected before are saved as absent, so that no call waits for
        // them.
        self.router.directory().save_absences();
        self.save_directory().await;
        self.closing.cancel();
        self.upstreams.finish_renewals().await;
        // A disk that was full may have space again.
        self.ledger.catch_up().await;
        self.housekeeping.cancel();
    }

    /// Saves the state of the directory after each change, until `stop`.
    async fn save_changes(&self, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = self.router.directory().unsaved() => {}
                () = stop.cancelled() => return,
            }
            tokio::time::sleep(GATHER).await;
            while !self.save_directory().await {
                if tokio::time::timeout(RETRY, stop.cancelled()).await.is_ok() {
                    return;
                }
            }
        }
    }

    /// Saves all changes so far. Returns `false` on error.
    async fn save_directory(&self) -> bool {
        let (definitions, nodes) = (self.definitions.save().await, self.remembered.save().await);
        for error in [&definitions, &nodes].into_iter().filter_map(|result| result.as_ref().err()) {
            warn!(%error, "cannot save the nodes and the tool definitions");
        }
        definitions.is_ok() && nodes.is_ok()
    }
}

impl std::fmt::Debug for Gateway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gateway").field("config", &self.config).finish_non_exhaustive()
    }
}

/// Returns the ping interval of a silent connection, and the time after which it counts as dead.
pub(crate) fn liveness(config: &Config) -> Liveness {
    config.settings.nodes.liveness()
}

fn make_private_dir(dir: &Path) -> anyhow::Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .with_context(|| format!("cannot create the data directory {}", dir.display()))?;
    let mode = fs::metadata(dir)?.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        warn!(
            dir = %dir.display(),
            mode = format!("{mode:o}"),
            "other users can access the data directory; run `chmod 700 {}`",
            dir.display()
        );
    }
    Ok(())
}

/// Atomically writes a file that only its owner can read.
pub fn write_private(path: &Path, text: &str) -> std::io::Result<()> {
    let draft = path.with_extension("new");
    let _ = fs::remove_file(&draft);
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    secret_file::mark_created(&file, &draft)?;
    fs::rename(&draft, path)
}

async fn keep_house(gateway: Arc<Gateway>) {
    let stop = gateway.housekeeping.clone();
    let mut rounds = Rounds::new();
    let mut confirmed = false;
    let mut marking = secret_files::Detached::default();
    for round in 1_u64.. {
        rounds.run(&gateway, confirmed).await;
        confirmed = tokio::select! {
            () = tokio::time::sleep(HOUSEKEEPING) => false,
            () = gateway.trimmer.confirmed() => true,
            () = stop.cancelled() => return,
        };
        gateway.router.directory().sweep();
        gateway.node_access.release_names(gateway.router.directory());
        gateway.router.directory().save_absences();
        gateway.end_expired().await;
        if round.is_multiple_of(10) {
            let config = gateway.config.clone();
            marking.start(move || secret_files::mark_again(&config));
            let tokens = gateway.tokens.list();
            let known =
                |id: &str| tokens.iter().any(|token| token.id == id && token.revoked_ms.is_none());
            gateway.plugins.keep_house(known).await;
        }
        gateway.ledger.catch_up().await;
    }
}

#[cfg(test)]
mod tests;
