//! The road to a caller: requests for its tools wait in a table until it answers, however it comes to hear of them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sa_core::call::{Call, CallId, CancelReason};
use sa_core::link::Link;
use sa_core::{CallError, CallErrorKind, Notice, NoticeBody, Pending, Principal, RawJson, SessionNews, clock};
use serde_json::json;
use tokio::sync::watch;
use uuid::Uuid;

use crate::events::Events;
use crate::presence::Presence;
use crate::sessions::Sessions;

/// What a caller has been asked and has not answered, in the order of asking.
#[derive(Debug)]
pub(crate) struct Requests {
    open: Mutex<BTreeMap<CallId, Request>>,
    changes: watch::Sender<u64>,
}

/// One of them. Its id is random, unlike that of the call, and tells nothing of the gateway.
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

    /// The call that a request belongs to.
    pub(crate) fn find(&self, request: &str) -> Option<CallId> {
        let request = Uuid::parse_str(request).ok()?;
        self.open().iter().find(|(_, open)| open.id == request).map(|(call, _)| *call)
    }

    /// Takes a request off the table; `None` when it was not there, or not any more.
    pub(crate) fn take(&self, id: CallId) -> Option<Request> {
        let taken = self.open().remove(&id);
        if taken.is_some() {
            self.changed();
        }
        taken
    }

    /// Changes whenever a request comes or goes.
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
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How the gateway asks a session's caller.
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
        let request = Asked {
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
        self.events.notices.send(notice(&self.events, request));
        Ok(())
    }

    fn send_cancel(&self, id: CallId, reason: CancelReason) {
        if let Some(request) = self.requests.take(id) {
            let fields = json!({ "request_id": request.id.to_string(), "reason": reason.as_str() });
            self.events.say("caller_tool_cancelled", fields);
        }
    }
}

/// What is still to be answered is told to whoever begins to listen.
impl Pending for Sessions {
    fn pending(&self, principal: &Principal) -> Vec<Notice> {
        let own = self.all().into_iter().filter(|session| session.is_owner(principal));
        own.flat_map(|session| {
            session.requests.all().into_iter().map(move |(_, request)| notice(&session.events, request.json))
        })
        .collect()
    }
}

fn notice(events: &Events, request: RawJson) -> Notice {
    let session = Arc::clone(&events.session);
    let body = NoticeBody::Session { session, kind: SessionNews::CallerToolRequest, data: request };
    Notice { to: Some(Arc::clone(&events.owner)), body }
}

#[derive(serde::Serialize)]
struct Asked<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    session_id: &'a str,
    request_id: String,
    tool: &'a str,
    arguments: &'a serde_json::value::RawValue,
    /// How long the caller has for it, from `at_ms` on.
    deadline_ms: u64,
    at_ms: i64,
}

/// What a call is told when nobody is there to run it.
pub(crate) fn gone() -> CallError {
    CallError::new(CallErrorKind::Offline, "the caller, whose tool this is, is not connected any more")
        .hint("the caller may come back: GET /v1/sessions/{id}/events, or caller_tool_next")
}
