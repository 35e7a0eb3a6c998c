//! The state of retention, and an operator's confirmation of the clock.

use axum::extract::State;
use axum::{Extension, Json};
use sa_core::retention::{Cause, ClockProblem};
use sa_core::{AuditEvent, Journal as _, clock};
use serde::Serialize;

use super::App;
use crate::retention;
use sa_http::Identity;
use sa_http::Problem;
use sa_http::operator_only;

#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct RetentionDoc {
    /// The gateway's clock in milliseconds since 1970.
    now_ms: i64,
    /// Why no records are deleted by age; absent if deletion works normally.
    #[serde(skip_serializing_if = "Option::is_none")]
    paused: Option<Paused>,
    /// The retention time of each kind of record, in days.
    keep_days: KeepDays,
    /// The records that were deleted since the gateway started.
    deleted: Vec<Deleted>,
}

#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct KeepDays {
    calls: u64,
    audit_events: u64,
    messages: u64,
}

#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct Deleted {
    /// `call`, `audit_event`, `message`, `session`, `session_event`, `mcp_task` or
    /// `idempotency_key`.
    kind: &'static str,
    /// `age` or `count`.
    reason: &'static str,
    count: u64,
}

/// Deletion by age pauses while the clock is not trusted.
#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct Paused {
    /// `jumped`: the clock was set while the gateway ran. `apart`: at the start, it was not near
    /// the newest record.
    cause: &'static str,
    /// The time that the clock is ahead, in milliseconds; negative if it is behind.
    by_ms: i64,
    /// The pause ends after this many seconds if the clock stays steady, or when the clock is right
    /// again.
    resumes_in_s: i64,
    message: String,
    /// The remedy.
    hint: &'static str,
}

impl From<ClockProblem> for Paused {
    fn from(problem: ClockProblem) -> Self {
        Self {
            cause: match problem.cause {
                Cause::Jumped => "jumped",
                Cause::Gap => "apart",
            },
            by_ms: problem.by_ms,
            resumes_in_s: (problem.trusted_in_ms + 999) / 1_000,
            message: format!("deletion by age is paused: {problem}"),
            hint: "correct the clock; if it is right, run `switchboard retention confirm`",
        }
    }
}

fn describe(app: &App) -> RetentionDoc {
    let settings = &app.config.settings;
    let deleted = app.trimmer.deleted().into_iter();
    RetentionDoc {
        now_ms: clock::now_ms(),
        paused: app.trimmer.clock_problem().map(Paused::from),
        keep_days: KeepDays {
            calls: settings.journal.keep_days,
            audit_events: settings.audit.keep_days,
            messages: settings.message_days(),
        },
        deleted: deleted.map(|((kind, reason), count)| Deleted { kind, reason, count }).collect(),
    }
}

/// Shows the retention times, the deleted records, and whether deletion by age is paused.
#[utoipa::path(get, path = "/v1/retention", tag = "audit",
    responses((status = 200, body = RetentionDoc), (status = 403, body = Problem)))]
pub(crate) async fn show(
    State(app): State<App>,
    Extension(identity): Extension<Identity>,
) -> Result<Json<RetentionDoc>, Problem> {
    operator_only(&identity)?;
    Ok(Json(describe(&app)))
}

/// Confirms that the clock is right, so that deletion by age continues.
#[utoipa::path(post, path = "/v1/retention/confirm", tag = "audit",
    responses((status = 200, body = RetentionDoc), (status = 403, body = Problem),
        (status = 409, body = Problem, description = "Deletion by age is not paused"),
        (status = 503, body = Problem, description = "Confirmed, but not stored yet; a restart loses it")))]
pub(crate) async fn confirm(
    State(app): State<App>,
    Extension(identity): Extension<Identity>,
) -> Result<Json<RetentionDoc>, Problem> {
    operator_only(&identity)?;
    let Some(problem) = app.trimmer.confirm() else {
        let detail =
            "there is nothing to confirm: the clock is trusted, and old records are deleted by age";
        return Err(Problem::new(409, "conflict", detail));
    };
    app.journal.audit(AuditEvent {
        name: "retention.confirmed",
        actor: format!("{} {}", identity.principal.role, identity.principal.name),
        subject: "clock".to_owned(),
        detail: problem.to_string(),
    });
    retention::save(&app.trimmer, &app.store).await?;
    Ok(Json(describe(&app)))
}
