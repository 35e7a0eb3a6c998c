//! The requests of callers about a session, and their answers.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sa_core::call::CallId;
use sa_core::{CallError, CallErrorKind, Outcome, Principal, RawJson, ReaderGuard, Update};
use sa_text::excerpt;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::warn;

use crate::args::{self, EventsQuery};
use crate::events::{Event, Events, Page};
use crate::link::Request;
use crate::session::Session;
use crate::sessions::{Sessions, stored, unknown};
use crate::turn::{self, Progress};

/// The maximum number of forged answers that are logged individually, per session. All of them
/// are counted.
const MAX_FORGERIES: u32 = 20;
/// The default number of events on one page.
const PAGE: usize = 100;
const MAX_PAGE: usize = 1_000;
/// How long readers wait for the last events of an ended session.
const LAST_EVENTS_TIMEOUT: Duration = Duration::from_secs(5);

impl Sessions {
    /// Implements `session_events`: returns the events after `since`, and waits for the next one
    /// if there is none. `within` is the session of the asking agent.
    pub(crate) async fn read_events(
        &self,
        principal: &Principal,
        id: &str,
        query: &EventsQuery,
        within: Option<&Arc<Session>>,
    ) -> Result<Value, CallError> {
        self.check_reach(principal, within, id).await?;
        let mut record = self.find(principal, id).await?;
        let events = self.events_of(id, &record.view.owner.id)?;
        let open = self.enter(principal, id).ok();
        // An agent that reads its own session does not show that its caller is connected.
        let by_caller = within.is_none_or(|own| *own.id != *id);
        if let Some(session) =
            open.as_ref().filter(|session| by_caller && session.is_owner(principal))
        {
            self.caller_did_something(session);
        }
        let limit = query.limit.unwrap_or(PAGE).clamp(1, MAX_PAGE);
        let since = query.since();
        let over = Instant::now() + args::wait(query.wait_ms);
        let mut follow = events.follow();
        let page = loop {
            follow.borrow_and_update();
            let ended = open.as_ref().is_none_or(|session| session.ended.is_cancelled());
            let page = events.after(since, limit).await.map_err(stored)?;
            if !page.events.is_empty() || ended {
                break page;
            }
            tokio::select! {
                changed = follow.changed() => if changed.is_err() { break page },
                () = self.closing.cancelled() => break page,
                () = tokio::time::sleep_until(over) => break page,
            }
        };
        let mut hint = None;
        if let Some(session) = &open {
            record = session.record();
            hint = self.hint_if_slow(session);
        }
        let mut progress = if hint.is_some() { Progress::Failed } else { record.turn.progress() };
        let next = page.events.last().map_or(since, |event| event.id);
        let found = page.events.iter();
        let mut found: Vec<Value> =
            found.filter_map(|event| serde_json::from_str(&event.json).ok()).collect();
        if query.is_original() {
            found = found.into_iter().flat_map(as_original).collect();
            // Such a client reads no more events after the agent is done.
            if page.more {
                progress = Progress::Working;
            }
            let text = match hint {
                None if progress.is_over() => record.turn.answer(&events).await?,
                hint => hint.filter(|_| progress.is_over()),
            };
            if let Some(text) = text {
                found.push(turn::assistant(json!({ "session_id": id, "index": next }), &text));
            }
        }
        Ok(json!({
            "session_id": id, "state": record.view.state, "events": found, "next": next,
            "status": progress.as_str(), "completed": progress == Progress::Completed,
            "failed": progress == Progress::Failed, "last_index": next,
        }))
    }

    /// Implements `caller_tool_next`: returns the open requests except the known ones, and waits
    /// for one if there is none.
    pub(crate) async fn next(
        &self,
        principal: &Principal,
        next: &args::Next,
    ) -> Result<Value, CallError> {
        let session = self.enter(principal, &next.session_id)?;
        if !session.is_owner(principal) {
            return Err(unknown(&next.session_id));
        }
        session.touch();
        let reader_guard = self.notices.add_reader(&session.id);
        let mut follow = session.requests.follow();
        let over = Instant::now() + args::wait(next.wait_ms);
        let (open, new) = loop {
            follow.borrow_and_update();
            let open = session.requests.all();
            let known = |request: &Request| {
                next.known.iter().flatten().any(|known| *known == request.id.to_string())
            };
            let new = open.iter().map(|(_, request)| request).filter(|request| !known(request));
            let new: Vec<RawJson> = new.map(|request| request.json.clone()).collect();
            if !new.is_empty() || session.ended.is_cancelled() {
                break (open, new);
            }
            tokio::select! {
                _ = follow.changed() => {}
                () = session.ended.cancelled() => {}
                () = self.closing.cancelled() => break (open, new),
                () = tokio::time::sleep_until(over) => break (open, new),
            }
        };
        if open.is_empty() {
            // The caller listened until now, though the presence watcher may not have seen it.
            session.presence.update(true, Instant::now());
            self.request_ended(&session, Some(reader_guard));
        } else {
            drop(reader_guard);
            session.presence.started_work();
            // It may listen on another connection as well.
            self.refresh();
        }
        let requests: Vec<Value> =
            new.iter().filter_map(|request| serde_json::from_str(request.as_str()).ok()).collect();
        Ok(
            json!({ "session_id": &*session.id, "state": session.show().state, "requests": requests }),
        )
    }

    /// Implements `caller_tool_response`: the owner's first answer counts, if it is in time. The
    /// owner learns if it did not count. Other principals receive the same answer whether the
    /// session exists or not.
    pub(crate) async fn respond(&self, principal: &Principal, response: &args::Response) -> Value {
        let session = self.open().get(&*response.session_id).map(|open| Arc::clone(&open.session));
        let is_owner = if let Some(session) = &session {
            session.is_owner(principal)
        } else {
            let ended = self.show(principal, &response.session_id).await;
            ended.is_ok_and(|view| *view.owner.id == *principal.id)
        };
        let request: String =
            response.request_id.chars().take(64).flat_map(char::escape_debug).collect();
        let counted = match &session {
            Some(session) if is_owner => self.take_answer(session, response),
            Some(session) => {
                self.journal().count("session", "forged_reply");
                if session.forgeries.fetch_add(1, Ordering::Relaxed) < MAX_FORGERIES {
                    warn!(
                        session = &*session.id,
                        by = &*principal.name,
                        "another principal answered for a session's caller"
                    );
                    self.audit("reply.forged", principal, &session.id, &request);
                }
                return json!({ "received": true });
            }
            None => false,
        };
        if counted {
            return json!({ "received": true });
        }
        self.journal().count("session", "stray_reply");
        if let Some(suppressed) = self.stray_answers.next(Instant::now()) {
            let session = excerpt(64, &response.session_id).escape_debug().to_string();
            warn!(
                session,
                request,
                by = &*principal.name,
                suppressed,
                "ignored an answer to an unknown request_id"
            );
        }
        if is_owner {
            json!({ "received": true, "counted": false })
        } else {
            json!({ "received": true })
        }
    }

    /// Gives a caller whose request has ended time for its next one, unless it listens on a
    /// stream. `reader_guard` is the presence that the request itself has given.
    pub(crate) fn request_ended(&self, session: &Session, reader_guard: Option<ReaderGuard>) {
        // Granted before the request stops to count, so that the caller is never absent.
        session.presence.polled_again();
        drop(reader_guard);
        if self.is_attended(session) {
            session.presence.here();
        }
    }

    /// Applies an answer of the owner. Returns whether it counts.
    fn take_answer(&self, session: &Session, response: &args::Response) -> bool {
        session.touch();
        self.caller_did_something(session);
        let counted = session.requests.find(&response.request_id).is_some_and(|id| {
            match parse_response(response) {
                CallerResponse::Update(update) => session.provider.update(id, update),
                // Removed from the table first: of two concurrent answers, only one succeeds.
                CallerResponse::Answer(outcome) => {
                    session.requests.take(id).is_some() && session.provider.complete(id, outcome)
                }
            }
        });
        if session.requests.all().is_empty() {
            session.presence.done();
            self.refresh();
        }
        counted
    }

    /// Streams the events of a session: after this event, or from now on. The caller's open
    /// requests come first. A session that has ended has only past events. While the stream is
    /// read, its owner counts as listening, unless it `only_watches`.
    pub async fn follow(
        &self,
        principal: &Principal,
        id: &str,
        after: Option<u64>,
        only_watches: bool,
    ) -> Result<Following, CallError> {
        let view = self.show(principal, id).await?;
        let events = self.events_of(id, &view.owner.id)?;
        let session = self.enter(principal, id).ok();
        let listens =
            session.as_ref().filter(|session| session.is_owner(principal) && !only_watches);
        let reader_guard = listens.map(|session| self.notices.add_reader(&session.id));
        // Subscribed before the head is read, so that later events are noticed.
        let follow = events.follow();
        let at = match after {
            Some(id) => id,
            None if session.is_some() => events.head().await.map_err(stored)?,
            None => 0,
        };
        let requests = session.as_ref().map(|session| session.requests.follow());
        let delivered = Vec::new();
        Ok(Following {
            events,
            follow,
            at,
            over: false,
            poll_deadline: None,
            delivered,
            requests,
            session,
            reader_guard,
        })
    }
}

/// Adds what clients of the original protocol expect: an index, and after each message of the
/// agent the same message in their form.
fn as_original(mut event: Value) -> Vec<Value> {
    event["index"] = event["id"].clone();
    let text = event["message"].as_str().filter(|_| event["type"] == "agent_message");
    let message = text.map(|text| turn::assistant(event.clone(), text));
    std::iter::once(event).chain(message).collect()
}

/// A stream of a session's news.
#[derive(Debug)]
pub struct Following {
    events: Events,
    follow: watch::Receiver<u64>,
    at: u64,
    /// The reader has received `session_ended`.
    over: bool,
    /// When to stop waiting for the last events of an ended session.
    poll_deadline: Option<Instant>,
    /// The requests that were already sent.
    delivered: Vec<CallId>,
    requests: Option<watch::Receiver<u64>>,
    session: Option<Arc<Session>>,
    reader_guard: Option<ReaderGuard>,
}

/// An item of the stream.
#[derive(Debug)]
pub enum SessionItem {
    Event(Event),
    /// A `caller_tool_request` that waits for its answer.
    Request(RawJson),
}

impl Following {
    /// Returns the next items, at least one; `None` after `session_ended`.
    pub async fn next(&mut self) -> Result<Option<Vec<SessionItem>>, CallError> {
        while !self.over {
            let ended = self.session.as_ref().is_none_or(|session| session.ended.is_cancelled());
            self.follow.borrow_and_update();
            let mut items = self.requests();
            let Page { events, last, more } =
                self.events.after(self.at, MAX_PAGE).await.map_err(stored)?;
            self.at = last;
            self.over = events.iter().any(|event| event.kind == "session_ended");
            // Requests are sent only from the table of open requests. So they are neither missed
            // nor sent again after their answer.
            let visible = events.into_iter().filter(|event| event.kind != "caller_tool_request");
            items.extend(visible.map(SessionItem::Event));
            if !items.is_empty() {
                return Ok(Some(items));
            }
            if more {
                continue;
            }
            let Some(requests) = &mut self.requests else { break };
            let Some(session) = &self.session else { break };
            if !ended {
                tokio::select! {
                    changed = self.follow.changed() => if changed.is_err() { break },
                    _ = requests.changed() => {}
                    () = session.ended.cancelled() => {}
                }
                continue;
            }
            // The last events of an ended session may still be in the write queue. The timeout
            // handles a disk that cannot be written, and a reader that starts after the last
            // event.
            let poll_deadline =
                *self.poll_deadline.get_or_insert_with(|| Instant::now() + LAST_EVENTS_TIMEOUT);
            match tokio::time::timeout_at(poll_deadline, self.follow.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => break,
            }
        }
        Ok(None)
    }

    /// Ends the stream, and returns the presence that it has given.
    pub(crate) fn into_reader_guard(self) -> Option<ReaderGuard> {
        self.reader_guard
    }

    /// Returns a part of the events that are available now, and whether more follow.
    pub(crate) async fn rest(&mut self) -> Result<(Vec<SessionItem>, bool), CallError> {
        let Page { events, last, more } =
            self.events.after(self.at, MAX_PAGE).await.map_err(stored)?;
        self.at = last;
        let visible = events.into_iter().filter(|event| event.kind != "caller_tool_request");
        Ok((visible.map(SessionItem::Event).collect(), more))
    }

    fn requests(&mut self) -> Vec<SessionItem> {
        let Some(session) = &self.session else { return Vec::new() };
        if let Some(requests) = &mut self.requests {
            requests.borrow_and_update();
        }
        let open = session.requests.all();
        self.delivered.retain(|id| open.iter().any(|(open, _)| open == id));
        let new: Vec<_> = open.into_iter().filter(|(id, _)| !self.delivered.contains(id)).collect();
        self.delivered.extend(new.iter().map(|(id, _)| *id));
        new.into_iter().map(|(_, request)| SessionItem::Request(request.json)).collect()
    }
}

enum CallerResponse {
    Update(Update),
    Answer(Outcome),
}

fn parse_response(response: &args::Response) -> CallerResponse {
    // Both were checked when the call's arguments were parsed.
    let json = |raw: &serde_json::value::RawValue| RawJson::from_checked(raw.get());
    if let Some(error) = response.error.as_ref().filter(|error| !error.is_null()) {
        let message = error
            .as_str()
            .or_else(|| error["message"].as_str())
            .map_or_else(|| error.to_string(), str::to_owned);
        let kind =
            error["kind"].as_str().and_then(CallErrorKind::parse).unwrap_or(CallErrorKind::Failed);
        return CallerResponse::Answer(Err(CallError::new(kind, message)));
    }
    if let Some(content) = response.chunk.as_deref().map(json) {
        return CallerResponse::Update(Update::Chunk { content, attachments: Vec::new() });
    }
    if let Some(progress) = response.progress {
        let (total, message) = (response.total, response.message.clone());
        return CallerResponse::Update(Update::Progress { progress, total, message });
    }
    let content = response.result.as_deref().map_or_else(RawJson::null, json);
    CallerResponse::Answer(Ok(sa_http::blocks::output(content, Vec::new())))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    proptest! {
        /// An error stays an error in each accepted form, and an invalid answer is never treated
        /// as a success.
        #[test]
        fn any_response_of_a_caller_is_an_answer_or_an_update(text in sa_hostile::nearly(json!({
            "session_id": "s", "request_id": "r", "result": { "content": [] }, "error": { "message": "e", "kind": "timeout" },
            "progress": 0.5, "total": 1, "message": "m", "chunk": [1],
        }))) {
            let Some(response) = RawJson::parse(&text).ok().and_then(|json| args::Response::read(&json).ok()) else { return Ok(()) };
            let failed = response.error.as_ref().is_some_and(|error| !error.is_null());
            match parse_response(&response) {
                CallerResponse::Answer(Err(_)) => prop_assert!(failed),
                CallerResponse::Answer(Ok(output)) => prop_assert!(!failed && output.content.as_str() == response.result.as_ref().map_or("null", |raw| raw.get())),
                CallerResponse::Update(Update::Chunk { content, .. }) => prop_assert_eq!(Some(content.as_str()), response.chunk.as_ref().map(|raw| raw.get())),
                CallerResponse::Update(_) => prop_assert!(response.progress.is_some()),
            }
        }
    }
}
