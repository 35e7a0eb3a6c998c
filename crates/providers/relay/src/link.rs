//! The link to a caller: requests for its tools wait in a table until the caller answers, on any
//! connection.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use sa_core::call::{Call, CallId, CancelReason};
use sa_core::link::Link;
use sa_core::{
    CallError, CallErrorKind, Notice, NoticeBody, Pending, Principal, RawJson, SessionNoticeKind,
    clock,
};
use serde_json::json;
use tokio::sync::watch;
use uuid::Uuid;

use crate::events::Events;
use crate::presence::Presence;
use crate::sessions::Sessions;

/// The open requests to a caller, in the order in which they were sent.
#[derive(Debug)]
pub(crate) struct Requests {
    open: Mutex<BTreeMap<CallId, Request>>,
    changes: watch::Sender<u64>,
}

/// One open request. Its id is random, unlike the call's, so that it reveals nothing about the
/// gateway.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) id: Uuid,
    pub(crate) json: RawJson,
}

impl Requests {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { open: Mutex::default(), changes: watch::Sender::new(0) })
    }

    pub(crate) fn all(&self) -> Vec<(CallId, Request)> {
        self.open().iter().map(|(id, request)| (*id, request.clone())).collect()
    }

    /// Returns the call that a request belongs to.
    pub(crate) fn find(&self, request: &str) -> Option<CallId> {
        let request = Uuid::parse_str(request).ok()?;
        self.open().iter().find(|(_, open)| open.id == request).map(|(call, _)| *call)
    }

    /// Removes a request from the table. Returns `None` if it is not in the table.
    pub(crate) fn take(&self, id: CallId) -> Option<Request> {
        let taken = self.open().remove(&id);
        if taken.is_some() {
            self.changed();
        }
        taken
    }

    /// Returns a receiver that changes whenever a request is added or removed.
    pub(crate) fn follow(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn put(&self, id: CallId, request: Request) {
        self.open().insert(id, request);
        self.changed();
    }

    fn changed(&self) {
        self.changes.send_modify(|revision| *revision += 1);
    }

    fn open(&self) -> MutexGuard<'_, BTreeMap<CallId, Request>> {
        self.open.lock()
    }
}

/// The link through which the gateway calls a caller's tools.
#[derive(Debug)]
pub(crate) struct CallerLink {
    pub(crate) requests: Arc<Requests>,
    pub(crate) presence: Arc<Presence>,
    pub(crate) events: Arc<Events>,
}

impl Link for CallerLink {
    fn send_request(&self, call: &Call) -> Result<(), CallError> {
        if self.presence.is_gone() {
            return Err(gone());
        }
        let args: &serde_json::value::RawValue = serde_json::from_str(call.args.as_str())
            .map_err(|error| CallError::new(CallErrorKind::InvalidArgs, error.to_string()))?;
        let id = Uuid::new_v4();
        let request = ToolRequest {
            kind: "caller_tool_request",
            session_id: &self.events.session,
            request_id: id.to_string(),
            tool: &call.tool,
            arguments: args,
            deadline_ms: call.time_left().as_millis() as u64,
            at_ms: clock::now_ms(),
        };
        let request = RawJson::from_checked(&serde_json::to_string(&request).unwrap_or_default());
        self.requests.put(call.id, Request { id, json: request.clone() });
        self.events.keep(&request);
        self.events.trim_soon();
        self.events.notices.send(notice(&self.events, request));
        Ok(())
    }

    fn send_cancel(&self, id: CallId, reason: CancelReason) {
        if let Some(request) = self.requests.take(id) {
            let fields = json!({ "request_id": request.id.to_string(), "reason": reason.as_str() });
            self.events.record_event("caller_tool_cancelled", fields);
        }
    }
}

/// Sends the open requests to a client that begins to listen.
impl Pending for Sessions {
    fn pending(&self, principal: &Principal) -> Vec<Notice> {
        let own = self.all().into_iter().filter(|session| session.is_owner(principal));
        own.flat_map(|session| {
            session
                .requests
                .all()
                .into_iter()
                .map(move |(_, request)| notice(&session.events, request.json))
        })
        .collect()
    }
}

fn notice(events: &Events, request: RawJson) -> Notice {
    let session = Arc::clone(&events.session);
    let body =
        NoticeBody::Session { session, kind: SessionNoticeKind::CallerToolRequest, data: request };
    Notice { to: Some(Arc::clone(&events.owner)), body }
}

#[derive(serde::Serialize)]
struct ToolRequest<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    session_id: &'a str,
    request_id: String,
    tool: &'a str,
    arguments: &'a serde_json::value::RawValue,
    /// The time left for the answer, counted from `at_ms`.
    deadline_ms: u64,
    at_ms: i64,
}

/// Returns the error of a call to a disconnected caller.
pub(crate) fn gone() -> CallError {
    CallError::new(CallErrorKind::Offline, "the caller that offers this tool is disconnected")
        .hint("the caller can reconnect with `GET /v1/sessions/{id}/events` or caller_tool_next")
}
