//! The audit log, for operators.

use axum::Extension;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use sa_core::store::{Entry, Log, StoreError};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::App;
use crate::journal::AUDIT;
use sa_http::Identity;
use sa_http::JSON;
use sa_http::history::{MAX_PAGE, settled};
use sa_http::operator_only;
use sa_http::{Params, Problem};
use sa_text::json::to_json;

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct AuditQuery {
    /// The position of the page: the `next_cursor` of an earlier response.
    cursor: Option<u64>,
    /// The number of events per page, 500 at most.
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

/// Lists the audit events, newest first.
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
        settled(&*app.log, AUDIT).await;
    }
    let limit = query.limit.unwrap_or(50).clamp(1, MAX_PAGE);
    let (page, next_cursor) = page(&*app.log, query.cursor, limit).await?;
    let read = |body: &[u8]| RawValue::from_string(String::from_utf8(body.to_vec()).ok()?).ok();
    let events = page.iter().filter_map(|entry| read(&entry.body)).collect();
    Ok(([(header::CONTENT_TYPE, JSON)], to_json(&AuditList { events, next_cursor }))
        .into_response())
}

/// Returns a page of events, newest first, and the cursor of the next page if there is one.
async fn page(
    log: &dyn Log,
    cursor: Option<u64>,
    limit: usize,
) -> Result<(Vec<Entry>, Option<u64>), StoreError> {
    // The additional entry tells whether a next page exists. Retention may have deleted the rest.
    let mut page = log.read_back(AUDIT, cursor.unwrap_or(u64::MAX), limit + 1).await?;
    let is_last = page.len() <= limit;
    page.truncate(limit);
    let next = page.last().filter(|_| !is_last).map(|entry| entry.seq);
    Ok((page, next))
}

#[cfg(test)]
mod tests {
    use sa_core::store::Retention;
    use sa_store::{OpenOptions, Store};

    use super::*;

    #[tokio::test]
    async fn the_last_page_has_no_cursor_after_retention_deleted_older_events() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(OpenOptions::new(dir.path().join("store.db"))).unwrap();
        for event in 0..10 {
            store.record(AUDIT, None, format!("{{\"event\":{event}}}").as_bytes());
        }
        store.trim(AUDIT, Retention { entries: Some(4), ..Retention::default() }).await.unwrap();
        let (first, next) = page(&store, None, 2).await.unwrap();
        let (second, last) = page(&store, next, 2).await.unwrap();
        let seqs: Vec<_> = first.iter().chain(&second).map(|entry| entry.seq).collect();
        assert_eq!((seqs, last), (vec![10, 9, 8, 7], None));
        assert!(next.is_some());
    }
}
