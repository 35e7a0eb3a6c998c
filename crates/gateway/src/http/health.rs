//! Whether it runs, whether it can work, and its numbers.

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use sa_core::store::StoreErrorKind;
use sa_core::{Role, clock};
use sa_store::Unusable;
use serde::{Deserialize, Serialize};

use super::front::operator_only;
use super::{App, Params, Problem};
use crate::journal::CALLS;
use crate::recent::{self, Point};
use crate::tokens::Identity;

#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct Health {
    status: &'static str,
}

/// The process runs.
#[utoipa::path(get, path = "/healthz", tag = "health", responses((status = 200, body = Health)))]
pub(crate) async fn healthz() -> Json<Health> {
    Json(Health { status: "ok" })
}

/// The gateway can take calls: it is not shutting down, and its store can be read and written. A small write checks that,
/// at most once per second; other requests get the last result.
#[utoipa::path(get, path = "/readyz", tag = "health", responses((status = 200, body = Health), (status = 503, body = Problem)))]
pub(crate) async fn readyz(State(app): State<App>) -> Result<Json<Health>, Problem> {
    if app.router.is_draining() {
        let problem = Problem::new(503, "offline", "the gateway is shutting down");
        return Err(problem.retryable().hint("ask again once it is back"));
    }
    if let Some(unwritten) = Unwritten::of(&app).await {
        return Err(Problem::new(503, "store", unwritten.message).retryable().hint(unwritten.hint));
    }
    app.log.bounds(CALLS).await?;
    Ok(Json(Health { status: "ready" }))
}

/// Less than this is no room: the store writes some pages at a time.
const NO_ROOM: u64 = 1 << 20;

/// Why records cannot be written to the disk at the moment. Those that wait are tried again by the store, so that all is well
/// once the disk takes them.
#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct Unwritten {
    /// How many records wait.
    records: u64,
    /// How many, and why they wait.
    message: String,
    /// What to do about it.
    hint: &'static str,
}

impl Unwritten {
    /// Nothing when all is well.
    pub(crate) async fn of(app: &App) -> Option<Self> {
        let (records, dir) = (app.store.stats().retained, &app.config.data_dir);
        let store = app.store.unusable().map(|why| match why {
            Unusable::Ended => (
                "the store has broken down, and takes no records any more".to_owned(),
                "restart the gateway; its log says what happened",
            ),
            Unusable::Gone => (
                format!(
                    "a file of the store in {} was deleted or replaced: records are lost when the gateway ends",
                    dir.display()
                ),
                "stop the gateway, put the data directory back from a backup, and start it again",
            ),
        });
        if let Some((message, hint)) = store {
            return Some(Self { records, message, hint });
        }
        let failed = app.write_probe.check().await.err();
        // A small write may still fit into blocks that the store has, where a larger one would not.
        let full = failed.as_ref().is_some_and(|error| error.kind == StoreErrorKind::Full) || is_full(dir);
        if records == 0 && failed.is_none() && !full {
            return None;
        }
        let (why, hint) = match failed {
            _ if full => ("its disk is full".to_owned(), "free some room; what waits is then written by itself"),
            Some(error) => (error.message, "see the gateway's log; what waits is tried again by itself"),
            None => ("the disk refuses them".to_owned(), "see the gateway's log; what waits is tried again by itself"),
        };
        let what = if records == 0 { "nothing can".to_owned() } else { format!("{records} records cannot") };
        let message = format!("{what} be written to the data directory: {why}");
        Some(Self { records, message, hint })
    }
}

/// Whether the disk has no room for this process. File systems that do not say how large they are have room.
fn is_full(dir: &std::path::Path) -> bool {
    rustix::fs::statvfs(dir).is_ok_and(|space| {
        let free = if rustix::process::geteuid().is_root() { space.f_bfree } else { space.f_bavail };
        space.f_blocks > 0 && free * space.f_frsize < NO_ROOM
    })
}

#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct Stats {
    /// The gateway's clock, in milliseconds since 1970.
    now_ms: i64,
    /// How many seconds back it looks.
    window_s: i64,
    running_calls: usize,
    /// How many seconds each of the steps has.
    step_s: i64,
    /// Steps in which calls ended, oldest first; those without any are left out.
    steps: Vec<Point>,
    /// All of them together.
    all: Point,
}

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct StatsQuery {
    /// Seconds in a step, 60 at most; 1 when absent.
    step: Option<i64>,
}

/// The calls of the last five minutes, step by step.
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

/// Numbers in the Prometheus text format, for operators and tokens with the role `monitor`.
#[utoipa::path(get, path = "/metrics", tag = "health", responses((status = 200, body = String, content_type = "application/openmetrics-text"), (status = 403, body = Problem)))]
pub(crate) async fn metrics(
    State(app): State<App>,
    Extension(identity): Extension<Identity>,
) -> Result<Response, Problem> {
    if identity.principal.role != Role::Monitor {
        operator_only(&identity)?;
    }
    let nodes = app.router.directory().online(sa_nodes::KIND);
    app.metrics.set_budgets(app.all_budgets());
    app.metrics.retention(&app.trimmer);
    let text = app.metrics.render(app.router.running_count(), nodes, app.store.stats().lost);
    Ok(([(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text).into_response())
}
