//! Running and ended calls.

use std::num::NonZeroUsize;
use std::sync::Arc;

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use sa_core::call::{CallId, CancelReason};
use sa_core::router::LiveCall;
use sa_core::store::{Entry, Label, Log, Search, StoreError};
use sa_core::{CallErrorKind, Principal, Role};
use sa_http::call_json::running;
use sa_http::history::{self, CALLS, CallSummary, MAX_PAGE, settled};
use sa_http::{Http, Identity, JSON, Params, Problem, Segment};
use sa_text::json::to_json;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::Routes;

const PAGE: usize = 50;
/// The number of running calls in a list that include their arguments.
const WITH_ARGS: usize = 200;

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct CallsQuery {
    /// `running` or `ended`; both if absent.
    state: Option<String>,
    /// Only calls with an id that begins with this text.
    id: Option<String>,
    /// Only calls of this tool, by any of its names.
    tool: Option<String>,
    /// Only ended calls with this outcome: `ok` or an error kind.
    outcome: Option<String>,
    /// The position of the page: the `next_cursor` of an earlier response.
    cursor: Option<u64>,
    /// The number of running calls per page, and of ended calls; 500 at most for each.
    limit: Option<usize>,
    /// The listed name of the tool that `tool` names.
    #[serde(skip)]
    #[param(ignore)]
    exposed: Option<String>,
}

impl CallsQuery {
    /// Whether the query matches a call with this id.
    fn is_for(&self, id: &str) -> bool {
        self.id.as_deref().is_none_or(|begin| {
            id.get(..begin.len()).is_some_and(|own| own.eq_ignore_ascii_case(begin))
        })
    }

    /// Whether the query matches a call by the name that was called and the tool's listed name.
    fn is_of(&self, called: &str, listed: Option<&str>) -> bool {
        let Some(tool) = self.tool.as_deref() else { return true };
        let wanted = [Some(tool), self.exposed.as_deref()];
        wanted.into_iter().flatten().any(|wanted| wanted == called || Some(wanted) == listed)
    }
}

#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct CallList {
    /// Running calls first, then ended calls, each with the newest first.
    ///
    /// `at_ms` is the start of a call and `duration_us` its duration. The duration is absent if the
    /// gateway was killed during the call.
    #[schema(value_type = Vec<Object>)]
    calls: Vec<Box<RawValue>>,
    /// Absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<u64>,
    /// The number of older running calls that are not on the page. Absent if all are on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<usize>)]
    more_running: Option<NonZeroUsize>,
}

/// Lists calls: all for an operator, otherwise the calls of the token.
#[utoipa::path(get, path = "/v1/calls", tag = "calls", params(CallsQuery),
    responses((status = 200, body = CallList), (status = 401, body = Problem)))]
pub(crate) async fn list(
    State(Routes { http, log, options, .. }): State<Routes>,
    Extension(identity): Extension<Identity>,
    Params(mut query): Params<CallsQuery>,
) -> Result<Response, Problem> {
    if let Some(outcome) = &query.outcome {
        let kinds = CallErrorKind::ALL.map(CallErrorKind::as_str);
        if outcome != "ok" && !kinds.contains(&outcome.as_str()) {
            let message = format!("outcome is \"{outcome}\", but must be ok, {}", kinds.join(", "));
            return Err(Problem::bad_request(message));
        }
    }
    if let Some(id) =
        query.id.as_deref().filter(|id| id.len() > CallId::LEN || !id.bytes().all(is_id_byte))
    {
        return Err(Problem::bad_request(format!("no call id begins with \"{}\"", excerpt(id))));
    }
    if let Some(tool) = &query.tool {
        // The tool may be named by another name than the listed one.
        let route = http.router.resolve(tool, &identity.view());
        query.exposed =
            route.ok().and_then(|route| route.exposed).map(|exposed| exposed.to_string());
    }
    let limit = query.limit.unwrap_or(PAGE).clamp(1, MAX_PAGE);
    let who = &*identity.principal;
    let (running, ended) = match query.state.as_deref() {
        None => (query.outcome.is_none(), true),
        Some("running") => (true, false),
        Some("ended") => (false, true),
        Some(other) => {
            return Err(Problem::bad_request(format!(
                "state must be \"running\" or \"ended\", not \"{other}\""
            )));
        }
    };
    let (mut calls, mut more_running) = (Vec::new(), None);
    if ended && query.cursor.is_none() {
        // A client that has just received an answer must find its call here. The call no longer
        // runs, and its record may still be queued.
        settled(&*log, CALLS).await;
    }
    if running && query.cursor.is_none() {
        let live = http.router.running().into_iter().rev();
        let mut wanted = live.filter(|call| {
            may_see(who, &call.principal.id)
                && query.is_of(&call.tool, call.exposed())
                && (query.id.is_none() || query.is_for(&call.id.to_string()))
        });
        let payload = options.payload_bytes;
        // There may be many running calls. The arguments of the older ones are only returned for a
        // single call.
        let payload = |at: usize| if at < WITH_ARGS { payload } else { 0 };
        calls.extend(
            wanted
                .by_ref()
                .take(limit)
                .enumerate()
                .map(|(at, call)| running_json(&call, payload(at))),
        );
        more_running = NonZeroUsize::new(wanted.count());
    }
    let mut next_cursor = None;
    if ended {
        let (page, next) = ended_page(&*log, who, &query, limit).await?;
        calls.extend(page);
        next_cursor = next;
    }
    Ok(([(header::CONTENT_TYPE, JSON)], to_json(&CallList { calls, next_cursor, more_running }))
        .into_response())
}

/// Returns a page of matching ended calls, newest first, and the position of the next page.
///
/// Filters use the label index.
async fn ended_page(
    log: &dyn Log,
    who: &Principal,
    query: &CallsQuery,
    limit: usize,
) -> Result<(Vec<Box<RawValue>>, Option<u64>), StoreError> {
    let mut before = query.cursor.unwrap_or(u64::MAX);
    let mut calls = Vec::new();
    let Some(search) = search(who, query) else {
        // One extra entry shows whether there is a next page.
        let mut page = log.read_back(CALLS, before, limit + 1).await?;
        let more = page.len() > limit;
        page.truncate(limit);
        calls.extend(page.iter().filter_map(|entry| matching(entry, who, query)));
        return Ok((calls, page.last().map(|entry| entry.seq).filter(|_| more)));
    };
    loop {
        let wanted = limit - calls.len();
        let found = log.search(CALLS, search.clone(), before, wanted).await?;
        // Different values may share a label by chance.
        calls.extend(found.entries.iter().filter_map(|entry| matching(entry, who, query)));
        match found.next {
            Some(next) if calls.len() < limit && found.entries.len() == wanted => before = next,
            next => return Ok((calls, next)),
        }
    }
}

/// Returns the search for the history, or `None` if the query has no filter.
fn search(who: &Principal, query: &CallsQuery) -> Option<Search> {
    let tools =
        [query.tool.as_deref(), query.exposed.as_deref()].into_iter().flatten().map(history::tool);
    let principal = (who.role != Role::Operator).then(|| history::principal(&who.id));
    let outcome = query.outcome.as_deref().map(history::outcome);
    let all_of = [tools.collect(), Vec::from_iter(principal), Vec::from_iter(outcome)];
    let all_of: Vec<Vec<Label>> =
        all_of.into_iter().filter(|any_of: &Vec<Label>| !any_of.is_empty()).collect();
    let uuid_prefix = query.id.clone().filter(|id| !id.is_empty());
    (!all_of.is_empty() || uuid_prefix.is_some()).then_some(Search { all_of, uuid_prefix })
}

fn matching(entry: &Entry, who: &Principal, query: &CallsQuery) -> Option<Box<RawValue>> {
    let text = std::str::from_utf8(&entry.body).ok()?;
    let call: CallSummary<'_> = serde_json::from_str(text).ok()?;
    let outcome = call.outcome();
    let wanted = query.is_for(&call.id)
        && may_see(who, &call.principal.id)
        && query.is_of(&call.tool, call.exposed.as_deref())
        && query.outcome.as_deref().is_none_or(|wanted| wanted == outcome);
    wanted.then(|| ended_json(text)).flatten()
}

/// Shows one call, running or ended.
#[utoipa::path(get, path = "/v1/calls/{id}", tag = "calls", params(("id" = String, Path, description = "The call's id")),
    responses((status = 200, body = Object), (status = 404, body = Problem)))]
pub(crate) async fn show(
    State(Routes { http, log, options, .. }): State<Routes>,
    Extension(identity): Extension<Identity>,
    Segment(id): Segment,
) -> Result<Response, Problem> {
    let call_id = parse_id(&id)?;
    let who = &*identity.principal;
    let json = match http.router.running().into_iter().find(|call| call.id == call_id) {
        Some(call) => {
            may_see(who, &call.principal.id).then(|| running_json(&call, options.payload_bytes))
        }
        None => find_ended(&*log, call_id).await?.and_then(|entry| {
            let text = std::str::from_utf8(&entry.body).ok()?;
            let call: CallSummary<'_> = serde_json::from_str(text).ok()?;
            may_see(who, &call.principal.id).then(|| ended_json(text)).flatten()
        }),
    };
    let json = json.ok_or_else(|| unknown(&id))?;
    Ok(([(header::CONTENT_TYPE, JSON)], json.get().to_owned()).into_response())
}

/// Finds an ended call. The record of a recent call may still be queued.
async fn find_ended(log: &dyn Log, id: CallId) -> Result<Option<Entry>, Problem> {
    let id = id.to_string();
    if let Some(found) = log.find(CALLS, &id).await? {
        return Ok(Some(found));
    }
    settled(log, CALLS).await;
    Ok(log.find(CALLS, &id).await?)
}

#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct Cancelled {
    call_id: String,
    /// `false` if the call was already ending.
    cancelled: bool,
}

/// Cancels a running call.
#[utoipa::path(delete, path = "/v1/calls/{id}", tag = "calls", params(("id" = String, Path, description = "The call's id")),
    responses((status = 200, body = Cancelled), (status = 404, body = Problem),
        (status = 409, body = Problem, description = "The call has already ended")))]
pub(crate) async fn cancel(
    State(http): State<Http>,
    State(log): State<Arc<dyn Log>>,
    Extension(identity): Extension<Identity>,
    Segment(id): Segment,
) -> Result<Json<Cancelled>, Problem> {
    let call_id = parse_id(&id)?;
    let mut seen = false;
    let cancelled = http.router.cancel(call_id, CancelReason::Requested, |call| {
        seen = may_see(&identity.principal, &call.principal.id);
        seen
    });
    match cancelled {
        Some(cancelled) if seen => Ok(Json(Cancelled { call_id: id, cancelled })),
        // A call of another token is reported like an unknown one.
        Some(_) => Err(unknown(&id)),
        None => Err(ended_before(&*log, &identity.principal, call_id)
            .await?
            .unwrap_or_else(|| unknown(&id))),
    }
}

/// Returns the error for cancelling a call that has already ended, if the caller may see it.
async fn ended_before(
    log: &dyn Log,
    who: &Principal,
    id: CallId,
) -> Result<Option<Problem>, Problem> {
    let Some(entry) = find_ended(log, id).await? else { return Ok(None) };
    let call: Option<CallSummary<'_>> = serde_json::from_slice(&entry.body).ok();
    let call = call.filter(|call| may_see(who, &call.principal.id));
    Ok(call.map(|call| {
        let detail = format!("the call {id} has already ended: {}", call.outcome());
        Problem::new(409, "conflict", detail).hint("`GET /v1/calls/{id}` shows its outcome")
    }))
}

fn may_see(who: &Principal, owner: &str) -> bool {
    who.role == Role::Operator || *who.id == *owner
}

fn parse_id(id: &str) -> Result<CallId, Problem> {
    id.parse().map_err(|_| {
        Problem::bad_request(format!("\"{}\" is not a call id", excerpt(id)))
            .hint("`GET /v1/calls` lists them")
    })
}

fn is_id_byte(byte: u8) -> bool {
    byte.is_ascii_hexdigit() || byte == b'-'
}

/// Shortens an id to the length that is needed to identify it.
fn excerpt(text: &str) -> String {
    sa_text::printable(&sa_text::excerpt(2 * CallId::LEN, text)).into_owned()
}

fn unknown(id: &str) -> Problem {
    Problem::new(404, "not_found", format!("there is no call {id} that this token may see"))
}

fn running_json(call: &LiveCall, payload_bytes: usize) -> Box<RawValue> {
    let so_far = call.started.elapsed().as_micros() as u64;
    let json =
        running(call, payload_bytes).plain("duration_us", so_far).text("state", "running").end();
    RawValue::from_string(json).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

/// Returns a stored call with its state inserted at the front. The store only has ended calls, so
/// their records have no state.
fn ended_json(text: &str) -> Option<Box<RawValue>> {
    let rest = text.strip_prefix('{')?;
    RawValue::from_string(format!("{{\"state\":\"ended\",{rest}")).ok()
}

#[cfg(test)]
mod tests;
