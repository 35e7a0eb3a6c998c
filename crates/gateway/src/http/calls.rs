//! Calls that run and calls that ran.

use std::num::NonZeroUsize;

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use sa_core::call::{CallId, CancelReason};
use sa_core::router::LiveCall;
use sa_core::store::{Entry, Label, Log, Search, StoreError};
use sa_core::{CallErrorKind, Principal, Role};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::tools::JSON;
use super::{App, Params, Problem, Segment};
use crate::call_index::{self, CallSummary};
use crate::journal::{CALLS, running};
use crate::json::to_json;
use crate::tokens::Identity;

const PAGE: usize = 50;
pub(crate) const MAX_PAGE: usize = 500;
/// Running calls of a list that come with their arguments.
const WITH_ARGS: usize = 200;

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct CallsQuery {
    /// `running`, `ended` or both when absent.
    state: Option<String>,
    /// Only calls whose id begins with this.
    id: Option<String>,
    /// Only calls of this tool, by whichever of its names it was called.
    tool: Option<String>,
    /// Only ended calls with this outcome: `ok` or a kind of error.
    outcome: Option<String>,
    /// Where the page begins: a former answer's `next_cursor`.
    cursor: Option<u64>,
    /// Running calls on a page, and ended ones, each; 500 at most.
    limit: Option<usize>,
    /// The name in lists of the tool that `tool` names.
    #[serde(skip)]
    #[param(ignore)]
    exposed: Option<String>,
}

impl CallsQuery {
    /// Whether it asks for the call with this id.
    fn is_for(&self, id: &str) -> bool {
        self.id.as_deref().is_none_or(|begin| id.get(..begin.len()).is_some_and(|own| own.eq_ignore_ascii_case(begin)))
    }

    /// Whether it asks for calls of the tool that was called by this name, and has that one in lists.
    fn is_of(&self, called: &str, listed: Option<&str>) -> bool {
        let Some(tool) = self.tool.as_deref() else { return true };
        let wanted = [Some(tool), self.exposed.as_deref()];
        wanted.into_iter().flatten().any(|wanted| wanted == called || Some(wanted) == listed)
    }
}

#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct CallList {
    /// Running calls first, the one that began last before the others; then ended ones, the one that ended last before the
    /// others. `at_ms` is when a call began, and `duration_us` how long it took; it is absent where nobody knows, because the
    /// gateway was killed meanwhile.
    #[schema(value_type = Vec<Object>)]
    calls: Vec<Box<RawValue>>,
    /// Absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<u64>,
    /// How many more calls run that began before those on the page; absent where all of them are on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<usize>)]
    more_running: Option<NonZeroUsize>,
}

/// The history of calls: all of them for an operator, the token's own for anybody else.
#[utoipa::path(get, path = "/v1/calls", tag = "calls", params(CallsQuery),
    responses((status = 200, body = CallList), (status = 401, body = Problem)))]
pub(crate) async fn list(
    State(app): State<App>,
    Extension(identity): Extension<Identity>,
    Params(mut query): Params<CallsQuery>,
) -> Result<Response, Problem> {
    if let Some(outcome) = &query.outcome {
        let kinds = CallErrorKind::ALL.map(CallErrorKind::as_str);
        if outcome != "ok" && !kinds.contains(&outcome.as_str()) {
            let message = format!("outcome is ok, {}, and not \"{outcome}\"", kinds.join(", "));
            return Err(Problem::bad_request(message));
        }
    }
    if let Some(id) = query.id.as_deref().filter(|id| id.len() > CallId::LEN || !id.bytes().all(is_id_byte)) {
        return Err(Problem::bad_request(format!("no call id begins with \"{}\"", excerpt(id))));
    }
    if let Some(tool) = &query.tool {
        // Whoever asks by another name than the list's means the same tool.
        let route = app.router.resolve(tool, &identity.view());
        query.exposed = route.ok().and_then(|route| route.exposed).map(|exposed| exposed.to_string());
    }
    let limit = query.limit.unwrap_or(PAGE).clamp(1, MAX_PAGE);
    let who = &*identity.principal;
    let (running, ended) = match query.state.as_deref() {
        None => (query.outcome.is_none(), true),
        Some("running") => (true, false),
        Some("ended") => (false, true),
        Some(other) => return Err(Problem::bad_request(format!("state is \"running\" or \"ended\", not \"{other}\""))),
    };
    let (mut calls, mut more_running) = (Vec::new(), None);
    if ended && query.cursor.is_none() {
        // Who has had an answer a moment ago finds its call: it runs no longer, and may still be on its way to the history.
        app.journal.settled(CALLS).await;
    }
    if running && query.cursor.is_none() {
        let live = app.router.running().into_iter().rev();
        let mut wanted = live.filter(|call| {
            may_see(who, &call.principal.id)
                && query.is_of(&call.tool, call.exposed())
                && (query.id.is_none() || query.is_for(&call.id.to_string()))
        });
        let payload = app.config.settings.journal.payload_bytes;
        // There may be very many at once. What the older ones were given is told by asking for each.
        let payload = |at: usize| if at < WITH_ARGS { payload } else { 0 };
        calls.extend(wanted.by_ref().take(limit).enumerate().map(|(at, call)| running_json(&call, payload(at))));
        more_running = NonZeroUsize::new(wanted.count());
    }
    let mut next_cursor = None;
    if ended {
        let (page, next) = ended_page(&*app.log, who, &query, limit).await?;
        calls.extend(page);
        next_cursor = next;
    }
    Ok(([(header::CONTENT_TYPE, JSON)], to_json(&CallList { calls, next_cursor, more_running })).into_response())
}

/// Ended calls that a query asks for, newest first, and where the next page begins. Filters use the index of labels.
async fn ended_page(
    log: &dyn Log,
    who: &Principal,
    query: &CallsQuery,
    limit: usize,
) -> Result<(Vec<Box<RawValue>>, Option<u64>), StoreError> {
    let mut before = query.cursor.unwrap_or(u64::MAX);
    let mut calls = Vec::new();
    let Some(search) = search(who, query) else {
        // One more than asked for tells whether there is a next page.
        let mut page = log.read_back(CALLS, before, limit + 1).await?;
        let more = page.len() > limit;
        page.truncate(limit);
        calls.extend(page.iter().filter_map(|entry| matching(entry, who, query)));
        return Ok((calls, page.last().map(|entry| entry.seq).filter(|_| more)));
    };
    loop {
        let wanted = limit - calls.len();
        let found = log.search(CALLS, search.clone(), before, wanted).await?;
        // Labels may be equal by chance.
        calls.extend(found.entries.iter().filter_map(|entry| matching(entry, who, query)));
        match found.next {
            Some(next) if calls.len() < limit && found.entries.len() == wanted => before = next,
            next => return Ok((calls, next)),
        }
    }
}

/// What to search the history for. `None` when the query asks for everything.
fn search(who: &Principal, query: &CallsQuery) -> Option<Search> {
    let tools = [query.tool.as_deref(), query.exposed.as_deref()].into_iter().flatten().map(call_index::tool);
    let principal = (who.role != Role::Operator).then(|| call_index::principal(&who.id));
    let outcome = query.outcome.as_deref().map(call_index::outcome);
    let all_of = [tools.collect(), Vec::from_iter(principal), Vec::from_iter(outcome)];
    let all_of: Vec<Vec<Label>> = all_of.into_iter().filter(|any_of: &Vec<Label>| !any_of.is_empty()).collect();
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

/// One call, running or ended.
#[utoipa::path(get, path = "/v1/calls/{id}", tag = "calls", params(("id" = String, Path, description = "The call's id")),
    responses((status = 200, body = Object), (status = 404, body = Problem)))]
pub(crate) async fn show(
    State(app): State<App>,
    Extension(identity): Extension<Identity>,
    Segment(id): Segment,
) -> Result<Response, Problem> {
    let call_id = parse_id(&id)?;
    let who = &*identity.principal;
    let json = match app.router.running().into_iter().find(|call| call.id == call_id) {
        Some(call) => {
            may_see(who, &call.principal.id).then(|| running_json(&call, app.config.settings.journal.payload_bytes))
        }
        None => find_ended(&app, call_id).await?.and_then(|entry| {
            let text = std::str::from_utf8(&entry.body).ok()?;
            let call: CallSummary<'_> = serde_json::from_str(text).ok()?;
            may_see(who, &call.principal.id).then(|| ended_json(text)).flatten()
        }),
    };
    let json = json.ok_or_else(|| unknown(&id))?;
    Ok(([(header::CONTENT_TYPE, JSON)], json.get().to_owned()).into_response())
}

/// A call in the history. One that has just ended may still be on its way there.
async fn find_ended(app: &App, id: CallId) -> Result<Option<Entry>, Problem> {
    let id = id.to_string();
    if let Some(found) = app.log.find(CALLS, &id).await? {
        return Ok(Some(found));
    }
    app.journal.settled(CALLS).await;
    Ok(app.log.find(CALLS, &id).await?)
}

#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct Cancelled {
    call_id: String,
    /// `false` when it was ending already.
    cancelled: bool,
}

/// Cancels a running call.
#[utoipa::path(delete, path = "/v1/calls/{id}", tag = "calls", params(("id" = String, Path, description = "The call's id")),
    responses((status = 200, body = Cancelled), (status = 404, body = Problem),
        (status = 409, body = Problem, description = "It has ended")))]
pub(crate) async fn cancel(
    State(app): State<App>,
    Extension(identity): Extension<Identity>,
    Segment(id): Segment,
) -> Result<Json<Cancelled>, Problem> {
    let call_id = parse_id(&id)?;
    let mut seen = false;
    let cancelled = app.router.cancel(call_id, CancelReason::Requested, |call| {
        seen = may_see(&identity.principal, &call.principal.id);
        seen
    });
    match cancelled {
        Some(cancelled) if seen => Ok(Json(Cancelled { call_id: id, cancelled })),
        // Somebody else's call is no different from none.
        Some(_) => Err(unknown(&id)),
        None => Err(ended_before(&app, &identity.principal, call_id).await?.unwrap_or_else(|| unknown(&id))),
    }
}

/// What to say to somebody who wants to cancel a call of theirs that has ended.
async fn ended_before(app: &App, who: &Principal, id: CallId) -> Result<Option<Problem>, Problem> {
    let Some(entry) = find_ended(app, id).await? else { return Ok(None) };
    let call: Option<CallSummary<'_>> = serde_json::from_slice(&entry.body).ok();
    let call = call.filter(|call| may_see(who, &call.principal.id));
    Ok(call.map(|call| {
        let detail = format!("the call {id} has ended already: {}", call.outcome());
        Problem::new(409, "conflict", detail).hint("GET /v1/calls/{id} shows what became of it")
    }))
}

fn may_see(who: &Principal, owner: &str) -> bool {
    who.role == Role::Operator || *who.id == *owner
}

fn parse_id(id: &str) -> Result<CallId, Problem> {
    id.parse().map_err(|_| {
        Problem::bad_request(format!("\"{}\" is not a call id", excerpt(id))).hint("GET /v1/calls lists them")
    })
}

fn is_id_byte(byte: u8) -> bool {
    byte.is_ascii_hexdigit() || byte == b'-'
}

/// As much of a text as shows what it is.
fn excerpt(text: &str) -> String {
    crate::redact::printable(&text.chars().take(2 * CallId::LEN).collect::<String>()).into_owned()
}

fn unknown(id: &str) -> Problem {
    Problem::new(404, "not_found", format!("there is no call {id} that this token may see"))
}

fn running_json(call: &LiveCall, payload_bytes: usize) -> Box<RawValue> {
    let so_far = call.started.elapsed().as_micros() as u64;
    let json = running(call, payload_bytes).plain("duration_us", so_far).text("state", "running").end();
    RawValue::from_string(json).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

/// A stored call, with its state spliced in front: the store keeps only ended ones, so it does not say so.
fn ended_json(text: &str) -> Option<Box<RawValue>> {
    let rest = text.strip_prefix('{')?;
    RawValue::from_string(format!("{{\"state\":\"ended\",{rest}")).ok()
}

#[cfg(test)]
mod tests;
