//! The gateway's status in one short response for operators.

use std::sync::OnceLock;
use std::time::Instant;

use axum::extract::{Query, State};
use axum::{Extension, Json};
use sa_core::ProviderId;
use sa_core::directory::Renamed;
use sa_core::store::Log as _;
use sa_limits::budget::{Limit, SharedBudget};
use serde::{Deserialize, Serialize};

use super::App;
use super::health::Unwritten;
use super::retention::Paused;
use crate::assemble::ProviderStatus;
use sa_http::Identity;
use sa_http::Problem;
use sa_http::history::CALLS;
use sa_http::operator_only;

static STARTED: OnceLock<Instant> = OnceLock::new();

/// Records when the gateway became ready, for its uptime.
pub fn mark_started() {
    STARTED.get_or_init(Instant::now);
}

#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct Status {
    version: &'static str,
    uptime_s: u64,
    listen: String,
    data_dir: String,
    /// The start of a command for this gateway on the same machine: `switchboard`, with
    /// `--data-dir` if that is not the default.
    command: String,
    /// The configuration file, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    config_file: Option<String>,
    #[serde(flatten)]
    providers: ProviderStatus,
    /// The number of tools in the list for the same token, from all providers.
    tools: usize,
    running_calls: usize,
    /// The limit and the current use of each budget.
    budgets: Vec<BudgetDoc>,
    /// The memory limit of the gateway in bytes: the limit of its control group, or else the memory
    /// of the machine. By default the byte budgets together take half of it, at most 2 GiB.
    memory_limit_bytes: u64,
    /// Whether the gateway is shutting down. It accepts no new calls, and ends after the running
    /// calls.
    shutting_down: bool,
    recorded_calls: u64,
    /// The number of lost records; 0 if all is well.
    lost_records: u64,
    /// The records that wait for the disk, and the reason; absent if all is well.
    #[serde(skip_serializing_if = "Option::is_none")]
    unwritten: Option<Unwritten>,
    /// Why no records are deleted by age; absent if all is well.
    #[serde(skip_serializing_if = "Option::is_none")]
    retention_paused: Option<Paused>,
    /// The last problem with reading or writing the store's file; absent if all is well.
    #[serde(skip_serializing_if = "Option::is_none")]
    store_trouble: Option<StoreProblem>,
    /// The tools that are listed with a suffix, because another tool holds the plain name. Only
    /// present if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    renamed: Option<Vec<LongerName>>,
}

/// A budget that principals share.
#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct BudgetDoc {
    name: &'static str,
    /// The unit that is counted, such as `open sessions`.
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
pub(crate) struct StoreProblem {
    /// In milliseconds since 1970.
    at_ms: i64,
    /// The problem, the file, and the remedy.
    message: String,
}

/// Shows the status of the gateway, for operators.
#[utoipa::path(get, path = "/v1/status", tag = "health", params(StatusQuery), responses((status = 200, body = Status), (status = 403, body = Problem)))]
pub(crate) async fn status(
    State(app): State<App>,
    Extension(identity): Extension<Identity>,
    Extension(ends): Extension<sa_http::Ends>,
    query: Result<Query<StatusQuery>, axum::extract::rejection::QueryRejection>,
) -> Result<Json<Status>, Problem> {
    operator_only(&identity)?;
    let Query(query) = query.map_err(|error| Problem::bad_request(error.body_text()))?;
    let directory = app.router.directory();
    let renamed =
        query.renamed.then(|| directory.renamed().into_iter().map(LongerName::from).collect());
    Ok(Json(Status {
        version: crate::VERSION,
        uptime_s: STARTED.get().map_or(0, |started| started.elapsed().as_secs()),
        listen: format!("{}://{}", if ends.tls { "https" } else { "http" }, ends.local),
        data_dir: app.config.data_dir.display().to_string(),
        command: format!("switchboard{}", app.config.options()),
        config_file: app.config.file.as_ref().map(|file| file.display().to_string()),
        providers: app.provider_status(),
        tools: directory.list(&identity.view(), None, usize::MAX, |_| true).tools.len(),
        running_calls: app.router.running_count(),
        budgets: app.all_budgets().into_iter().map(|budget| BudgetDoc::of(budget)).collect(),
        memory_limit_bytes: app.memory_limit,
        shutting_down: app.router.is_draining(),
        recorded_calls: app.store.bounds(CALLS).await?.last,
        lost_records: app.store.stats().lost,
        unwritten: Unwritten::of(&app).await,
        retention_paused: app.trimmer.clock_problem().map(Paused::from),
        store_trouble: app
            .store
            .file_problem()
            .map(|sa_store::FileProblem { at_ms, message }| StoreProblem { at_ms, message }),
        renamed,
    }))
}
