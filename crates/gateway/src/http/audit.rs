//! The audit trail, for operators.

use axum::Extension;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::calls::MAX_PAGE;
use super::front::operator_only;
use super::tools::JSON;
use super::{App, Params, Problem};
use crate::journal::AUDIT;
use crate::json::to_json;
use crate::tokens::Identity;

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct AuditQuery {
    /// Where the page begins: a former answer's `next_cursor`.
    cursor: Option<u64>,
    /// Events on a page, 500 at most.
    limit: Option<usize>,
}

#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct AuditList {
    /// Newest first.
    #[schema(value_type = Vec<Object>)]
    events: Vec<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<u64>,
}

/// What happened that an operator may have to answer for, newest first.
#[utoipa::path(get, path = "/v1/audit", tag = "audit", params(AuditQuery),
    responses((status = 200, body = AuditList), (status = 403, body = Problem)))]
pub(crate) async fn list(
    State(app): State<App>,
    Extension(identity): Extension<Identity>,
    Params(query): Params<AuditQuery>,
) -> Result<Response, Problem> {
    operator_only(&identity)?;
    if query.cursor.is_none() {
        app.journal.tell_refusals();
        app.journal.settled(AUDIT).await;
    }
    let limit = query.limit.unwrap_or(50).clamp(1, MAX_PAGE);
    let page = app.log.read_back(AUDIT, query.cursor.unwrap_or(u64::MAX), limit).await?;
    let next_cursor =
        (page.len() == limit).then(|| page.last().map(|entry| entry.seq)).flatten().filter(|seq| *seq > 1);
    let read = |body: &[u8]| RawValue::from_string(String::from_utf8(body.to_vec()).ok()?).ok();
    let events = page.iter().filter_map(|entry| read(&entry.body)).collect();
    Ok(([(header::CONTENT_TYPE, JSON)], to_json(&AuditList { events, next_cursor })).into_response())
}
