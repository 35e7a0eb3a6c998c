//! What the gateway is doing, in one short answer for operators.

use std::sync::OnceLock;
use std::time::Instant;

use axum::extract::{Query, State};
use axum::{Extension, Json};
use sa_core::ProviderId;
use sa_core::budget::{Limit, SharedBudget};
use sa_core::directory::Renamed;
use sa_core::store::Log as _;
use serde::{Deserialize, Serialize};

use super::front::operator_only;
use super::health::Unwritten;
use super::retention::Paused;
use super::{App, Problem};
use crate::journal::CALLS;
use crate::tokens::Identity;

static STARTED: OnceLock<Instant> = OnceLock::new();

/// Notes when the gateway became ready, for its uptime.
pub(crate) fn mark_started() {
    STARTED.get_or_init(Instant::now);
}

#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct Status {
    version: &'static str,
    uptime_s: u64,
    listen: String,
    data_dir: String,
    /// What a command about this gateway begins with, typed on the same machine: `switchboard`, and `--data-dir` where that
    /// is not the usual one.
    command: String,
    /// The configuration file that it has read, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    config_file: Option<String>,
    nodes_online: usize,
    nodes_known: usize,
    upstream: UpstreamStatus,
    /// Absent where sessions are turned off.
    #[serde(skip_serializing_if = "Option::is_none")]
    sessions: Option<SessionStatus>,
    /// Those that the list of tools has for the same token, whoever offers them.
    tools: usize,
    running_calls: usize,
    /// What the gateway has of everything that is bounded, and how much of it is in use.
    budgets: Vec<BudgetDoc>,
    /// The memory that the gateway may use, in bytes: the limit of its control group, else what the machine has. Half of it, at
    /// most 2 GiB, is what the byte budgets have together by default.
    memory_limit_bytes: u64,
    /// Whether it shuts down: it takes no new calls, and ends once those that run have ended.
    shutting_down: bool,
    recorded_calls: u64,
    /// Records that could not be written; 0 when all is well.
    lost_records: u64,
    /// Records that wait for the disk to take them, and why; absent when all is well.
    #[serde(skip_serializing_if = "Option::is_none")]
    unwritten: Option<Unwritten>,
    /// Why nothing is deleted by age; absent when all is well.
    #[serde(skip_serializing_if = "Option::is_none")]
    retention_paused: Option<Paused>,
    /// The last time that the store's file could not be read or written as it should be; absent when all is well.
    #[serde(skip_serializing_if = "Option::is_none")]
    store_trouble: Option<StoreTrouble>,
    /// The tools that are listed with a suffix, because another tool holds the plain name; if the request asks for them.
    #[serde(skip_serializing_if = "Option::is_none")]
    renamed: Option<Vec<LongerName>>,
}

/// What many principals share.
#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct BudgetDoc {
    name: &'static str,
    /// What is counted, such as `open sessions`.
    what: &'static str,
    used: usize,
    total: usize,
    /// The configuration key of the total.
    key: &'static str,
}

impl BudgetDoc {
    fn of(budget: &SharedBudget) -> Self {
        let Limit { name, what, key, total, .. } = *budget.limit();
        Self { name, what, used: budget.used(), total, key }
    }
}

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct StatusQuery {
    /// Include the tools that are listed with a suffix.
    #[serde(default)]
    renamed: bool,
}

#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct LongerName {
    provider: OwnedProviderDoc,
    /// The name with a suffix.
    name: String,
    /// The plain name.
    wanted: String,
    /// The provider that holds the plain name.
    held_by: OwnedProviderDoc,
    /// Whether that provider is offline.
    holder_away: bool,
}

#[derive(Serialize, utoipa::ToSchema)]
#[schema(as = ProviderDoc)]
pub(crate) struct OwnedProviderDoc {
    kind: &'static str,
    id: String,
}

impl From<ProviderId> for OwnedProviderDoc {
    fn from(provider: ProviderId) -> Self {
        Self { kind: provider.kind, id: provider.id.to_string() }
    }
}

impl From<(ProviderId, Renamed)> for LongerName {
    fn from((provider, renamed): (ProviderId, Renamed)) -> Self {
        let Renamed { name, wanted, held_by, holder_away } = renamed;
        let (name, wanted) = (name.to_string(), wanted.to_string());
        Self { provider: provider.into(), name, wanted, held_by: held_by.into(), holder_away }
    }
}

#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct StoreTrouble {
    /// In milliseconds since 1970.
    at_ms: i64,
    /// What happened, to which file, and what to do.
    message: String,
}

/// How the upstream MCP servers are.
#[derive(Debug, Default, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub(crate) struct UpstreamStatus {
    /// Ready, or known and started by the first call.
    up: usize,
    starting: usize,
    /// Turned off by whoever wrote the configuration.
    disabled: usize,
    /// Those that do not answer, by name.
    down: Vec<DownUpstream>,
}

#[derive(Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub(crate) struct DownUpstream {
    name: String,
    /// `offline`, `failed` or `login_needed`.
    #[schema(value_type = String)]
    state: sa_upstream::State,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

impl UpstreamStatus {
    fn of(servers: impl IntoIterator<Item = sa_upstream::View>) -> Self {
        use sa_upstream::State as S;
        let mut status = Self::default();
        for sa_upstream::View { name, health, .. } in servers {
            match health.state {
                S::Ready | S::Idle => status.up += 1,
                S::Starting => status.starting += 1,
                S::Disabled => status.disabled += 1,
                state @ (S::Offline | S::Failed | S::LoginNeeded) => {
                    status.down.push(DownUpstream { name, state, why: health.last_error });
                }
            }
        }
        status
    }
}

/// The sessions that have not ended.
#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct SessionStatus {
    open: usize,
    /// Those of them in which an agent works.
    running: usize,
}

/// What the gateway is doing, for operators.
#[utoipa::path(get, path = "/v1/status", tag = "health", params(StatusQuery), responses((status = 200, body = Status), (status = 403, body = Problem)))]
pub(crate) async fn status(
    State(app): State<App>,
    Extension(identity): Extension<Identity>,
    Extension(ends): Extension<crate::serve::Ends>,
    query: Result<Query<StatusQuery>, axum::extract::rejection::QueryRejection>,
) -> Result<Json<Status>, Problem> {
    operator_only(&identity)?;
    let Query(query) = query.map_err(|error| Problem::bad_request(error.body_text()))?;
    let directory = app.router.directory();
    let nodes = directory.members(sa_nodes::KIND);
    let renamed = query.renamed.then(|| directory.renamed().into_iter().map(LongerName::from).collect());
    let sessions = app.sessions.as_ref().map(|sessions| {
        let (open, running) = sessions.count();
        SessionStatus { open, running }
    });
    Ok(Json(Status {
        version: crate::VERSION,
        uptime_s: STARTED.get().map_or(0, |started| started.elapsed().as_secs()),
        listen: format!("{}://{}", if ends.tls { "https" } else { "http" }, ends.local),
        data_dir: app.config.data_dir.display().to_string(),
        command: format!("switchboard{}", app.config.options()),
        config_file: app.config.file.as_ref().map(|file| file.display().to_string()),
        nodes_online: nodes.iter().filter(|node| node.gone_for.is_none()).count(),
        nodes_known: nodes.len(),
        upstream: UpstreamStatus::of(app.upstreams.list()),
        sessions,
        tools: directory.list(&identity.view(), None, usize::MAX, |_| true).tools.len(),
        running_calls: app.router.running_count(),
        budgets: app.all_budgets().into_iter().map(|budget| BudgetDoc::of(budget)).collect(),
        memory_limit_bytes: app.memory_limit,
        shutting_down: app.router.is_draining(),
        recorded_calls: app.store.bounds(CALLS).await?.last,
        lost_records: app.store.stats().lost,
        unwritten: Unwritten::of(&app).await,
        retention_paused: app.trimmer.doubt().map(Paused::from),
        store_trouble: app.store.trouble().map(|sa_store::Trouble { at_ms, message }| StoreTrouble { at_ms, message }),
        renamed,
    }))
}
