//! Liveness, readiness and metrics.

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use sa_core::store::StoreErrorKind;
use sa_core::{Role, clock};
use sa_store::Unusable;
use serde::{Deserialize, Serialize};
use tracing::error;

use super::App;
use crate::recent::{self, Point};
use sa_http::Identity;
use sa_http::history::CALLS;
use sa_http::operator_only;
use sa_http::{Params, Problem};

#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct Health {
    status: &'static str,
}

/// Reports that the process runs.
#[utoipa::path(get, path = "/healthz", tag = "health", responses((status = 200, body = Health)))]
pub(crate) async fn healthz() -> Json<Health> {
    Json(Health { status: "ok" })
}

/// Reports whether the gateway can process calls.
///
/// It must not be shutting down, and its store must be readable and writable. A small write checks
/// the store, at most once per second. Other requests get the last result.
#[utoipa::path(get, path = "/readyz", tag = "health", responses((status = 200, body = Health), (status = 503, body = Problem)))]
pub(crate) async fn readyz(State(app): State<App>) -> Result<Json<Health>, Problem> {
    if app.router.is_draining() {
        let problem = Problem::new(503, "offline", "the gateway is shutting down");
        return Err(problem.retryable().hint("retry when it is running again"));
    }
    // The answer is for everyone, so it contains no paths and no errors of the store.
    if let Some(unwritten) = Unwritten::of(&app).await {
        let Unwritten { summary, hint, .. } = unwritten;
        return Err(Problem::new(503, "store", summary).retryable().hint(hint));
    }
    if let Err(error) = app.log.bounds(CALLS).await {
        error!(%error, "the gateway is not ready: the store cannot be read");
        let problem = Problem::new(503, "store", "the store cannot be read");
        return Err(problem.retryable().hint("see the gateway's log"));
    }
    Ok(Json(Health { status: "ready" }))
}

/// With less free space than this in bytes, the disk counts as full. The store writes several pages
/// at a time.
const NO_ROOM: u64 = 1 << 20;

/// Why records cannot be written to the disk. The store retries the waiting records, so they are
/// written when the disk works again.
#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct Unwritten {
    /// The number of waiting records.
    records: u64,
    /// The number of waiting records, and the reason.
    message: String,
    /// The same without paths and errors of the store.
    #[serde(skip)]
    summary: String,
    /// The remedy.
    hint: &'static str,
}

impl Unwritten {
    /// Returns `None` if records can be written.
    pub(crate) async fn of(app: &App) -> Option<Self> {
        let (records, dir) = (app.store.stats().retained, &app.config.data_dir);
        if let Some(why) = app.store.unusable() {
            let (summary, path, hint) = match why {
                Unusable::Ended => (
                    "the store has failed and no longer accepts records",
                    String::new(),
                    "restart the gateway; its log shows the cause",
                ),
                Unusable::Gone => (
                    "a file of the store was deleted or replaced: records are lost when the gateway stops",
                    format!(" (data directory: {})", dir.display()),
                    "stop the gateway, restore the data directory from a backup, then start the gateway again",
                ),
            };
            let message = format!("{summary}{path}");
            return Some(Self { records, message, summary: summary.to_owned(), hint });
        }
        let failed = app.write_probe.check().await.err();
        // A small write may fit into blocks that the store already has, while a larger one would
        // fail.
        let full =
            failed.as_ref().is_some_and(|error| error.kind == StoreErrorKind::Full) || is_full(dir);
        if records == 0 && failed.is_none() && !full {
            return None;
        }
        let (why, hint) = if full {
            (
                "the disk is full",
                "free some disk space; the waiting records are then written automatically",
            )
        } else {
            (
                "writing to the disk fails",
                "see the gateway's log; the waiting records are retried automatically",
            )
        };
        let what = if records == 0 {
            "nothing can".to_owned()
        } else {
            format!("{records} records cannot")
        };
        let explain = |why: &str| format!("{what} be written to the data directory: {why}");
        let error = failed.filter(|_| !full).map(|error| error.message);
        let message = explain(error.as_deref().unwrap_or(why));
        Some(Self { records, message, summary: explain(why), hint })
    }
}

/// Whether the disk has no space for this process. A file system that reports no size counts as not
/// full.
fn is_full(dir: &std::path::Path) -> bool {
    rustix::fs::statvfs(dir).is_ok_and(|space| {
        let free =
            if rustix::process::geteuid().is_root() { space.f_bfree } else { space.f_bavail };
        space.f_blocks > 0 && free * space.f_frsize < NO_ROOM
    })
}

#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct Stats {
    /// The gateway's clock in milliseconds since 1970.
    now_ms: i64,
    /// The length of the statistics window in seconds.
    window_s: i64,
    running_calls: usize,
    /// The length of a step in seconds.
    step_s: i64,
    /// The steps in which calls ended, oldest first. Empty steps are left out.
    steps: Vec<Point>,
    /// The sum of all steps.
    all: Point,
}

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct StatsQuery {
    /// The length of a step in seconds, 60 at most; 1 by default.
    step: Option<i64>,
}

/// Returns statistics of the calls in the last five minutes, in steps.
#[utoipa::path(get, path = "/v1/stats", tag = "health", params(StatsQuery), responses((status = 200, body = Stats), (status = 403, body = Problem)))]
pub(crate) async fn stats(
    State(app): State<App>,
    Extension(identity): Extension<Identity>,
    Params(query): Params<StatsQuery>,
) -> Result<Json<Stats>, Problem> {
    operator_only(&identity)?;
    let (now_ms, step_s) = (clock::now_ms(), query.step.unwrap_or(1).clamp(1, 60));
    let (steps, all) = app.journal.recent().points(now_ms, step_s);
    let running_calls = app.router.running_count();
    Ok(Json(Stats { now_ms, window_s: recent::SECONDS, running_calls, step_s, steps, all }))
}

/// Returns the metrics in the Prometheus text format, for operators and tokens with the role
/// `monitor`.
#[utoipa::path(get, path = "/metrics", tag = "health", responses((status = 200, body = String, content_type = "application/openmetrics-text"), (status = 403, body = Problem)))]
pub(crate) async fn metrics(
    State(app): State<App>,
    Extension(identity): Extension<Identity>,
) -> Result<Response, Problem> {
    if identity.principal.role != Role::Monitor {
        operator_only(&identity)?;
    }
    let nodes = app.nodes_online();
    app.metrics.set_budgets(app.all_budgets());
    app.metrics.retention(&app.trimmer);
    let text = app.metrics.render(app.router.running_count(), nodes, app.store.stats().lost);
    Ok((
        [(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")],
        text,
    )
        .into_response())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::path::Path;

    use super::*;

    #[test]
    fn a_disk_with_less_than_a_mebibyte_is_full() {
        sa_test_needs::run_on_small_disk("4m", "http::health::tests::on_a_small_disk");
    }

    #[test]
    #[ignore = "runs on the small disk that the other test makes"]
    fn on_a_small_disk() {
        let Some(dir) = sa_test_needs::small_disk() else { return };
        assert!(!is_full(&dir));
        let mut ballast = std::fs::File::create(dir.join("ballast")).unwrap();
        let written = (0..).take_while(|_| !is_full(&dir) && ballast.write_all(&[1; 4096]).is_ok());
        let written = written.count();
        assert!((600..=769).contains(&written), "{written} pages of 1,024");
        ballast.write_all(&[1; 4096]).expect("the rest is for the store");
        ballast.set_len(0).unwrap();
        assert!(!is_full(&dir));
    }

    #[test]
    fn a_file_system_without_a_size_is_not_full() {
        for dir in ["/proc", "/there/is/no/such/directory"] {
            assert!(!is_full(Path::new(dir)), "{dir}");
        }
    }
}
