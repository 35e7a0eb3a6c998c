//! THE WIRING: stores, router, providers, surfaces, in one readable function.

use std::fs;
use std::io::Write as _;
use std::num::NonZeroU32;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use sa_channels::{ChannelOptions, Channels};
use sa_chat::Chat;
use sa_core::budget::SharedBudget;
use sa_core::directory::OnChange;
use sa_core::store::{Log, Records, StoreError, StoreErrorKind};
use sa_core::{Directory, Journal, Notices, Pattern, Policy, Role, Router, RouterOptions, Trimmer, View, clock};
use sa_mcp::Mcp;
use sa_nodes::{NodeOptions, Nodes};
use sa_plugins::Plugins;
use sa_relay::Sessions;
use sa_socket::Liveness;
use sa_store::Store;
use sa_upstream::Upstreams;
use sa_vault::{Vault, bounded, secret_file};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::VERSION;
use crate::budgets::{Budgets, Sizes};
use crate::call_index;
use crate::config::settings::Settings;
use crate::config::{self, Config, millis};
use crate::definitions::DefinitionStore;
use crate::journal::StoreJournal;
use crate::ledger::StoreLedger;
use crate::metrics::Metrics;
use crate::remembered::NodeStore;
use crate::retention::{self, Rounds, days};
use crate::sign_in::SignInCodes;
use crate::telemetry::Spans;
use crate::tokens::{Identity, NewToken, Refused, Tokens};
use crate::write_probe::WriteProbe;
use crate::{http, memory_limit, secret_files, unfinished};

/// How often old records are deleted, and nodes that left long ago are forgotten.
const HOUSEKEEPING: Duration = Duration::from_secs(60);

/// Changes that come in quick succession are saved together.
const GATHER: Duration = Duration::from_millis(500);
const RETRY: Duration = Duration::from_secs(10);

/// Everything that a running gateway is made of.
pub struct Gateway {
    pub config: Config,
    pub store: Store,
    pub log: Arc<dyn Log>,
    pub tokens: Tokens,
    pub journal: Arc<StoreJournal>,
    /// Deletes old records, while the clock is trusted.
    pub trimmer: Arc<Trimmer>,
    pub(crate) write_probe: WriteProbe,
    pub(crate) definitions: DefinitionStore,
    remembered: NodeStore,
    pub metrics: Arc<Metrics>,
    pub router: Arc<Router>,
    pub notices: Notices,
    pub nodes: Arc<Nodes>,
    pub upstreams: Arc<Upstreams>,
    /// Absent when the configuration has no use for them.
    pub sessions: Option<Arc<Sessions>>,
    pub channels: Arc<Channels>,
    pub plugins: Arc<Plugins>,
    /// What signs people in to the console.
    pub sign_in: SignInCodes,
    pub chat: Arc<Chat>,
    pub mcp: Mcp,
    pub budgets: Budgets,
    /// What the sizes of the budgets are derived from.
    pub memory_limit: u64,
    /// Fires when sockets are to be closed, after running calls have drained.
    pub closing: CancellationToken,
    /// Fires when whoever stops the gateway does not want to wait for running calls any longer.
    pub hurry: CancellationToken,
    pub(crate) ledger: Arc<StoreLedger>,
    housekeeping: CancellationToken,
}

pub async fn assemble(config: Config) -> anyhow::Result<Arc<Gateway>> {
    let settings = &config.settings;
    make_private_dir(&config.data_dir)?;

    // Stores: one file behind two seams.
    let store = Store::open(call_index::store_options(config.store_file()))?;
    let trimmer = retention::open(&store).await?;
    let log: Arc<dyn Log> = Arc::new(store.clone());
    let records: Arc<dyn Records> = Arc::new(store.clone());
    let tokens = Tokens::load(Arc::clone(&records)).await?;
    for trouble in tokens.unreadable() {
        let message = format!("{}: {trouble}", config.store_file().display());
        store.note(&StoreError { kind: StoreErrorKind::Damaged, message });
    }
    ensure_operator(&tokens, &config.operator_token_file()).await?;
    secret_files::mark(&config.data_dir, config.file.as_deref());

    // What is seen of it: metrics, spans, the journal.
    let metrics = Arc::new(Metrics::new());
    let spans = Spans::new(&settings.telemetry)?;
    let journal =
        Arc::new(StoreJournal::new(Arc::clone(&log), Arc::clone(&metrics), spans, settings.journal.payload_bytes));
    let ledger = Arc::new(StoreLedger::new(Arc::clone(&records)));
    // Without room on the disk there is a gateway all the same; the notes wait for the next start.
    if let Err(error) = unfinished::settle(&*records, &*log).await {
        warn!(%error, "calls that the last run did not see the end of are not in the history yet");
    }

    // What bounds the memory that all of it takes.
    let memory_limit = memory_limit::detect();
    let sizes = Sizes::of(settings, memory_limit);
    if sizes.total() as u64 > memory_limit / 2 {
        let (total, half) = (sizes.total(), memory_limit / 2);
        warn!(
            total,
            half, "the byte budgets together are more than half of the memory limit; lower limits.pending_bytes"
        );
    }

    // The core.
    let notices = Notices::new();
    let directory = Directory::new(notices.clone(), millis(settings.nodes.offline_memory_ms));
    let policy = Policy { deny: settings.policy.deny.iter().map(|pattern| Pattern::new(pattern)).collect() };
    let options = RouterOptions {
        max_running: settings.limits.pending_total,
        max_bytes: sizes.arguments,
        default_timeout: millis(settings.limits.default_timeout_ms),
        max_duration: millis(settings.limits.max_call_ms),
        queue_patience: millis(settings.limits.queue_wait_ms),
        reconnect_patience: millis(settings.limits.reconnect_wait_ms),
    };
    let router = Router::new(
        Arc::clone(&directory),
        Arc::clone(&journal) as Arc<dyn Journal>,
        Some(Arc::clone(&ledger) as _),
        policy,
        options,
    );

    let on_change = match settings.trust.on_change {
        config::settings::OnChange::Allow => OnChange::Allow,
        config::settings::OnChange::Hold => OnChange::Hold,
    };
    let definitions = DefinitionStore::load(Arc::clone(&directory), Arc::clone(&records), on_change).await?;

    // Providers.
    let closing = CancellationToken::new();
    let nodes = Nodes::new(
        Arc::clone(&router),
        NodeOptions {
            hello_patience: millis(settings.nodes.hello_timeout_ms),
            liveness: liveness(&config),
            max_pending: settings.limits.pending_per_node,
            max_frame_bytes: settings.limits.max_frame_bytes,
            max_outbox_bytes: settings.limits.max_outbox_bytes,
            outboxes_bytes: sizes.node_requests,
            max_tools: settings.nodes.max_tools,
            hello_bytes: sizes.node_hellos,
            primary: Some(settings.nodes.primary.clone()).filter(|id| !id.is_empty()),
            gateway_version: VERSION,
        },
        closing.clone(),
    );
    let grants = http::valid_grants(&config.node_tokens, &tokens);
    let remembered = NodeStore::load(&nodes, Arc::clone(&directory), Arc::clone(&records), &grants).await?;

    let vault = Arc::new(Vault::new(config.data_dir.join("settings.key"), config.key.as_ref()));
    let upstreams =
        Upstreams::load(directory, Arc::clone(&records), Arc::clone(&vault), &settings.upstream, closing.clone())
            .await?;
    let sessions = crate::sessions::start(&config, &router, &notices, &log, Arc::clone(&records), &trimmer).await?;
    let plugins =
        Plugins::load(Arc::clone(&router), Arc::clone(&records), plugin_options(&config, vault), closing.clone())
            .await?;
    let channels = Channels::open(
        Arc::clone(&log),
        Arc::clone(&records),
        Arc::clone(&router),
        channel_options(&config, &sizes, &trimmer),
        closing.clone(),
    )
    .await?;

    // Surfaces are routes, see `http::routes`; two of them have something of their own behind them.
    let mcp = Mcp::new(
        Arc::clone(&router),
        notices.clone(),
        Arc::new(store.clone()),
        &mcp_options(settings, &sizes, &trimmer),
        closing.clone(),
    );
    let chat = Chat::new(Arc::clone(&router), settings.models.clone()).map_err(anyhow::Error::msg)?;
    let housekeeping = CancellationToken::new();
    let budgets = Budgets::new(&sizes, config.settings.server.max_connections);
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
        upstreams,
        sessions,
        channels,
        plugins,
        sign_in: SignInCodes::default(),
        chat: Arc::new(chat),
        mcp,
        budgets,
        memory_limit,
        closing,
        hurry: CancellationToken::new(),
        ledger,
        housekeeping,
    };
    let gateway = Arc::new(gateway);
    tokio::spawn(keep_house(Arc::clone(&gateway)));
    let (saver, stop) = (Arc::clone(&gateway), gateway.housekeeping.clone());
    tokio::spawn(async move { saver.save_changes(stop).await });
    let (router, payload_bytes) = (Arc::clone(&gateway.router), gateway.config.settings.journal.payload_bytes);
    let notes = Arc::new(gateway.store.clone());
    tokio::spawn(unfinished::keep_notes(router, notes, payload_bytes, gateway.housekeeping.clone()));
    Ok(gateway)
}

impl Gateway {
    /// What a request sees: the channels that its token is for, and a session of theirs if they name one.
    pub(crate) fn view(&self, identity: &Identity, session: Option<&str>) -> View {
        self.in_session(identity.view(), session)
    }

    /// The same with one more channel; `None` when the token may not call there.
    pub(crate) fn view_in(&self, identity: &Identity, session: Option<&str>, channel: Option<&str>) -> Option<View> {
        Some(self.in_session(identity.view_in(channel)?, session))
    }

    fn in_session(&self, mut view: View, session: Option<&str>) -> View {
        if let (Some(sessions), Some(_)) = (&self.sessions, session) {
            view.scopes.extend(sessions.view(Arc::clone(&view.principal), session).scopes);
        }
        view
    }

    /// Every budget, for the status and for metrics.
    pub fn all_budgets(&self) -> Vec<&Arc<SharedBudget>> {
        let Budgets { requests, node_messages, answers, connections } = &self.budgets;
        let mut all = vec![connections.budget(), requests, answers, node_messages];
        all.extend(self.router.budgets());
        all.extend(self.nodes.budgets());
        all.extend(self.sessions.as_ref().map(|sessions| sessions.budget()));
        all.extend(self.channels.budgets());
        all.extend(self.mcp.budgets());
        all.sort_by_key(|budget| budget.limit().name);
        all
    }

    /// Lets running calls end, tells every connection, and puts everything on disk.
    pub async fn shut_down(&self) {
        if let Some(sessions) = &self.sessions {
            sessions.wind_down();
        }
        self.router.drain(millis(self.config.settings.server.drain_ms), self.hurry.cancelled()).await;
        if let Some(sessions) = &self.sessions {
            sessions.shut_down().await;
        }
        self.journal.tell_refusals();
        // While the nodes are still connected, so that after a restart calls wait for them to come back. Nodes that have left
        // are saved as such, so that no call waits for one that was stopped.
        self.router.directory().save_absences();
        self.save_directory().await;
        self.closing.cancel();
        self.upstreams.finish_renewals().await;
        // There may be room by now for what a full disk kept waiting.
        self.ledger.catch_up().await;
        self.housekeeping.cancel();
    }

    /// Saves what the directory remembers whenever that has changed, until `stop`.
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

    /// Saves every change up to now; `false` when that was not possible.
    async fn save_directory(&self) -> bool {
        let (definitions, nodes) = (self.definitions.save().await, self.remembered.save().await);
        for error in [&definitions, &nodes].into_iter().filter_map(|result| result.as_ref().err()) {
            warn!(%error, "cannot save the nodes and the definitions of tools");
        }
        definitions.is_ok() && nodes.is_ok()
    }
}

impl std::fmt::Debug for Gateway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gateway").field("config", &self.config).finish_non_exhaustive()
    }
}

fn channel_options(config: &Config, sizes: &Sizes, trimmer: &Arc<Trimmer>) -> ChannelOptions {
    let channels = &config.settings.channels;
    ChannelOptions {
        liveness: liveness(config),
        max_message_bytes: channels.max_message_bytes,
        max_attachment_bytes: channels.max_attachment_bytes,
        max_queue_bytes: channels.max_queue_bytes,
        max_rate: channels.max_messages_per_second,
        max_channels: channels.max_channels,
        max_stored_bytes: channels.max_stored_bytes,
        max_bytes_per_channel: channels.max_bytes_per_channel,
        max_bytes_per_principal: channels.max_bytes_per_principal,
        pending_bytes: sizes.channel_messages,
        keep_messages: channels.keep_messages,
        keep: days(channels.keep_days),
        trimmer: Arc::clone(trimmer),
        max_pending: config.settings.limits.pending_per_node,
        attachments: config.data_dir.join("attachments"),
    }
}

fn mcp_options(settings: &Settings, sizes: &Sizes, trimmer: &Arc<Trimmer>) -> sa_mcp::Options {
    let mcp = &settings.mcp;
    sa_mcp::Options {
        version: VERSION,
        max_body_bytes: settings.limits.max_body_bytes,
        max_outbox_bytes: settings.limits.max_outbox_bytes,
        session_idle: millis(mcp.session_idle_ms),
        max_sessions: mcp.max_sessions,
        resume: millis(mcp.resume_ms),
        search: mcp.search,
        task_after: millis(mcp.task_after_ms),
        task_result_bytes: sizes.task_results,
        trimmer: Arc::clone(trimmer),
    }
}

fn plugin_options(config: &Config, vault: Arc<Vault>) -> sa_plugins::Options {
    let plugins = &config.settings.plugins;
    sa_plugins::Options {
        allow_inline_manifest: plugins.allow_inline_manifest,
        accept_changes: plugins.accept_changes,
        allow_private: plugins.allow_private.clone(),
        settings_headers: plugins.settings_headers.clone(),
        timeout: millis(plugins.timeout_ms),
        max_response_bytes: plugins.max_response_bytes,
        calls_per_second: NonZeroU32::new(plugins.calls_per_second).unwrap_or(NonZeroU32::MIN),
        max_running: plugins.max_running,
        refresh: millis(plugins.refresh_ms),
        vault,
    }
}

/// When a silent connection is asked, and when it counts as dead.
pub(crate) fn liveness(config: &Config) -> Liveness {
    let nodes = &config.settings.nodes;
    Liveness { ping_every: millis(nodes.ping_interval_ms), dead_after: millis(nodes.dead_after_ms) }
}

fn make_private_dir(dir: &Path) -> anyhow::Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .with_context(|| format!("cannot make the data directory {}", dir.display()))?;
    let mode = fs::metadata(dir)?.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        warn!(dir = %dir.display(), mode = format!("{mode:o}"), "the data directory is open to other users; run: chmod 700");
    }
    Ok(())
}

/// Sees to it that the token in the operator's file is one that works.
async fn ensure_operator(tokens: &Tokens, file: &Path) -> anyhow::Result<()> {
    let operator = || NewToken::new("operator", Role::Operator);
    let written = bounded::text_of_file(file, bounded::TOKEN).map(|text| text.trim().to_owned());
    let first = tokens.is_new();
    let why = match written.as_deref().map(|token| (token, tokens.authenticate(token))) {
        Ok((_, Ok(identity))) if identity.principal.role == Role::Operator => return Ok(()),
        Ok((token, Err(Refused::Unknown))) if first && token.starts_with("sb_") && token.len() >= 43 => {
            // The store is new and the file is not: what scripts have read from it goes on working.
            tokens.adopt(token, operator()).await?;
            info!(file = %file.display(), "the store has no tokens; took the operator's from its file");
            return Ok(());
        }
        Ok((_, Ok(_))) => "it held a token that is no operator's".to_owned(),
        Ok((_, Err(Refused::Missing))) => "it was empty".to_owned(),
        Ok((_, Err(Refused::Unknown))) => {
            // Somebody has changed it, or the disk has. Neither makes a token that opens everything.
            "it held what is no token of this gateway, because it was changed or damaged".to_owned()
        }
        Ok((_, Err(refused))) => format!("in it, {}", refused.message()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => "it was not there".to_owned(),
        Err(error) => format!("it could not be read: {error}"),
    };
    let before = tokens.for_operators();
    let (_, token) = tokens.create(operator()).await?;
    write_private(file, &token).with_context(|| format!("cannot write the operator's token to {}", file.display()))?;
    let file = file.display();
    if first {
        info!(%file, "wrote a new operator token");
    } else if before.is_empty() {
        warn!(%file, why, "wrote a new operator token");
    } else {
        // Whoever wanted to be rid of a token that leaked has only hidden it so far.
        let valid = before.join(", ");
        warn!(
            %file, why, valid,
            "wrote a new operator token; the ones before it are valid still: to end one, run switchboard token revoke ID"
        );
    }
    Ok(())
}

/// Writes a file that only its owner can read, in one step.
pub(crate) fn write_private(path: &Path, text: &str) -> std::io::Result<()> {
    let draft = path.with_extension("new");
    let _ = fs::remove_file(&draft);
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    secret_file::mark(&draft)?;
    fs::rename(&draft, path)
}

async fn keep_house(gateway: Arc<Gateway>) {
    let stop = gateway.housekeeping.clone();
    let mut rounds = Rounds::new();
    let mut confirmed = false;
    for round in 1_u64.. {
        rounds.run(&gateway, confirmed).await;
        confirmed = tokio::select! {
            () = tokio::time::sleep(HOUSEKEEPING) => false,
            () = gateway.trimmer.confirmed() => true,
            () = stop.cancelled() => return,
        };
        gateway.router.directory().sweep();
        http::release_names(gateway.router.directory(), &gateway.tokens);
        gateway.router.directory().save_absences();
        if let Some(sessions) = &gateway.sessions {
            let expired = |token: &crate::tokens::TokenRecord| token.expires_ms.is_some_and(|at| at <= clock::now_ms());
            for token in gateway.tokens.list().into_iter().filter(expired) {
                sessions.end_owned(&token.id, "the caller's token has expired").await;
            }
        }
        if round.is_multiple_of(10) {
            let tokens = gateway.tokens.list();
            let known = |id: &str| tokens.iter().any(|token| token.id == id && token.revoked_ms.is_none());
            gateway.plugins.keep_house(known).await;
        }
        gateway.ledger.catch_up().await;
    }
}
