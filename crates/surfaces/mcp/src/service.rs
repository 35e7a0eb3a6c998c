//! The service behind `/mcp`: assigns each request to one of the two eras, and checks the access to
//! sessions.

use std::borrow::Cow;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use sa_core::store::Records;
use sa_core::{Notices, Principal, Router, Trimmer};
use sa_limits::budget::SharedBudget;
use sa_limits::offload::{Offloaded, Weight};
use sa_text::json::object;
use serde::Deserialize;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::body;
use crate::caller::Caller;
use crate::fast_path::PlainCall;
use crate::handler::McpHandler;
use crate::json_answer::JsonAnswer;
use crate::notifications;
use crate::sessions::{Limits, Sessions};
use crate::shared::Shared;
use crate::tool_response;
use crate::unreadable::UnreadableBody;

/// The time that answers have to be sent when the gateway closes. All calls have ended by then, and
/// endless streams end themselves.
const LAST_ANSWERS: Duration = Duration::from_secs(2);

/// The maximum size of a request that opens a session. The client's information and capabilities
/// stay in memory with the session, and take up to 30 times their size there.
const MAX_INITIALIZE: usize = 16 << 10;

/// The interval at which old tasks are deleted. It is long because the sweep reads all of them.
const TASKS_SWEEP: Duration = Duration::from_secs(600);

#[derive(Debug, Clone)]
pub struct Options {
    pub version: &'static str,
    pub max_body_bytes: usize,
    /// The maximum size of queued reports for one client, in bytes.
    pub max_outbox_bytes: usize,
    /// The idle timeout of a session.
    pub session_idle: Duration,
    pub max_sessions: usize,
    /// The time that a client has to resume a call after its stream broke.
    pub resume: Duration,
    /// Whether lists contain a search instead of the tools by default.
    pub search: bool,
    /// The time after which a call becomes a task, if its client supports tasks.
    pub task_after: Duration,
    /// The budget for stored results of tasks, in bytes.
    pub task_result_bytes: usize,
    /// Deletes old tasks.
    pub trimmer: Arc<Trimmer>,
}

tokio::task_local! {
    /// The principal of the request that is being served. rmcp creates a handler for it without
    /// access to the request.
    static PRINCIPAL: Arc<Principal>;
}

/// The MCP surface. Host, Origin and token have been checked before a request arrives here.
pub struct Mcp {
    stateless: StreamableHttpService<McpHandler, NeverSessionManager>,
    with_sessions: StreamableHttpService<McpHandler, Sessions>,
    sessions: Arc<Sessions>,
    shared: Arc<Shared>,
    /// Ends the responses that still wait for an answer when the gateway closes.
    over: CancellationToken,
}

impl Mcp {
    pub fn new(
        router: Arc<Router>,
        notices: Notices,
        records: Arc<dyn Records>,
        options: &Options,
        closing: CancellationToken,
    ) -> Self {
        let limits = Limits {
            idle: options.session_idle,
            max: options.max_sessions,
            resume: options.resume,
        };
        let sessions =
            Arc::new(Sessions::new(limits, Arc::clone(&router), notices.clone(), closing.clone()));
        let shared = Arc::new(Shared::new(router, notices, records, options, closing.clone()));
        let over = delayed(closing.clone());
        let config = StreamableHttpServerConfig::default()
            .with_json_response(true)
            // Sessions send this hint themselves, to the clients that support it.
            .with_sse_retry(None)
            .with_max_request_body_bytes(options.max_body_bytes)
            .with_cancellation_token(over.clone())
            .disable_allowed_hosts()
            .disable_allowed_origins();
        let make = {
            let shared = Arc::clone(&shared);
            move || Ok(McpHandler::new(Arc::clone(&shared), PRINCIPAL.try_with(Arc::clone).ok()))
        };
        let alone = config.clone().with_legacy_session_mode(false);
        let stateless = StreamableHttpService::new(
            make.clone(),
            Arc::new(NeverSessionManager::default()),
            alone,
        );
        let with_sessions = StreamableHttpService::new(make, Arc::clone(&sessions), config);
        tokio::spawn(notifications::distribute(Arc::clone(&shared), Arc::clone(&sessions)));
        tokio::spawn(sweep_expired(Arc::clone(&sessions), Arc::clone(&shared), closing));
        Self { stateless, with_sessions, sessions, shared, over }
    }

    pub async fn handle(&self, caller: Caller, mut request: Request<Bytes>) -> Response<Body> {
        accept_both(request.headers_mut());
        if let Some(call) = PlainCall::of(&request, &caller, &self.shared) {
            return call.answer(&self.shared).await;
        }
        let body = body::Body(request.body().clone());
        request.extensions_mut().insert(body);
        // The handler adds the expected size of the answer here. rmcp then serialises a large
        // answer without blocking other tasks.
        let weight = Weight::default();
        request.extensions_mut().insert(weight.clone());
        let json_answer = JsonAnswer::default();
        request.extensions_mut().insert(json_answer.clone());
        let principal = Arc::clone(&caller.principal);
        let tool_response = tool_response::call(&request, &caller);
        request.extensions_mut().insert(caller);
        let request_of_session = match self.session_of(&request) {
            Ok(found) => found,
            Err((status, message)) => return plain(status, message),
        };
        if let Some(call) = tool_response {
            self.shared.router.start(call, None).outcome().await;
            return plain(StatusCode::ACCEPTED, String::new());
        }
        let body = UnreadableBody::of(&request);
        let request = request.map(Full::new);
        if !request_of_session {
            let response = Offloaded::once(
                weight.clone(),
                PRINCIPAL.scope(principal, self.stateless.handle(request)),
            )
            .await;
            return body
                .explain(response.status())
                .await
                .unwrap_or_else(|| written(response, weight));
        }
        let closes_session = request.method() == Method::DELETE;
        let handled = async {
            let response = PRINCIPAL.scope(principal, self.with_sessions.handle(request)).await;
            let answer = json_answer.response(response.headers(), weight.clone(), &self.over);
            (response, answer)
        };
        let (mut response, answer) = Offloaded::once(weight.clone(), handled).await;
        if let Some(answer) = answer {
            return answer;
        }
        if let Some(explained) = body.explain(response.status()).await {
            return explained;
        }
        // The session has ended by now, and some clients treat "accepted" as an error.
        if closes_session && response.status() == StatusCode::ACCEPTED {
            *response.status_mut() = StatusCode::NO_CONTENT;
        }
        written(response, weight)
    }

    /// Returns the budgets of sessions and of task results.
    pub fn budgets(&self) -> [&Arc<SharedBudget>; 2] {
        [self.sessions.budget(), self.shared.tasks.budget()]
    }

    /// Returns the number of sessions.
    pub fn sessions(&self) -> usize {
        self.sessions.count()
    }

    /// Returns whether the request belongs to a session, or opens one.
    fn session_of(&self, request: &Request<Bytes>) -> Result<bool, (StatusCode, String)> {
        let is_new_era = request
            .headers()
            .get("mcp-protocol-version")
            .is_some_and(|version| version >= "2026-07-28");
        let named = request.headers().get("mcp-session-id");
        let opens = request.method() == Method::POST && opens_session(request.body());
        if opens && request.body().len() > MAX_INITIALIZE {
            let message = format!(
                "the initialize request has {} bytes, and at most {MAX_INITIALIZE} are allowed; send shorter client \
                 information and capabilities",
                request.body().len()
            );
            return Err((StatusCode::PAYLOAD_TOO_LARGE, message));
        }
        if opens && named.is_none() {
            let caller = request.extensions().get::<Caller>();
            let room = self.sessions.make_capacity(caller.map(|caller| &*caller.principal));
            return room
                .map(|()| true)
                .map_err(|error| (StatusCode::TOO_MANY_REQUESTS, error.to_string()));
        }
        // rmcp assigns a handshake to the session that it names, whatever version its headers have.
        let Some(id) = named.filter(|_| opens || !is_new_era) else {
            // Only sessions support opening a stream and closing.
            return Ok(request.method() != Method::POST);
        };
        let owned = id.to_str().ok().zip(request.extensions().get::<Caller>());
        if owned.is_some_and(|(id, caller)| self.sessions.belongs_to(id, &caller.principal)) {
            return Ok(true);
        }
        // The same error is used for a missing session and for that of another principal.
        Err((StatusCode::NOT_FOUND, "Not Found: Session not found".into()))
    }
}

impl std::fmt::Debug for Mcp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mcp").field("sessions", &self.sessions()).finish_non_exhaustive()
    }
}

/// Converts the body of an answer.
fn written(response: Response<BoxBody<Bytes, Infallible>>, weight: Weight) -> Response<Body> {
    let is_stream = response
        .headers()
        .get(header::CONTENT_TYPE)
        .is_some_and(|kind| kind == "text/event-stream");
    response.map(|body| {
        if is_stream { body::offloaded(body.into_data_stream(), weight) } else { Body::new(body) }
    })
}

/// Sets the `Accept` header of a client that accepts both possible media types, because rmcp looks
/// for their names. Without the header, a client accepts anything.
fn accept_both(headers: &mut HeaderMap) {
    let ranges = || {
        let values = headers.get_all(header::ACCEPT).iter();
        let ranges = values.flat_map(|value| value.to_str().unwrap_or("invalid").split(','));
        ranges.map(|range| range.split(';').next().unwrap_or_default().trim())
    };
    let accepts = |group: &str, name: &str| {
        let accepted = ["*/*", group, name];
        ranges().any(|range| accepted.iter().any(|name| range.eq_ignore_ascii_case(name)))
    };
    let both =
        || accepts("application/*", "application/json") && accepts("text/*", "text/event-stream");
    if ranges().all(str::is_empty) || both() {
        headers.insert(
            header::ACCEPT,
            HeaderValue::from_static("application/json, text/event-stream"),
        );
    }
}

pub(crate) fn opens_session(body: &Bytes) -> bool {
    #[derive(Deserialize)]
    struct Head<'a> {
        #[serde(borrow)]
        method: Option<Cow<'a, str>>,
    }
    object::<Head<'_>>(body).is_ok_and(|head| head.method.as_deref() == Some("initialize"))
}

fn plain(status: StatusCode, message: String) -> Response<Body> {
    let mut response = Response::new(Body::from(message));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// Returns the token that stops rmcp. It fires with a delay, because rmcp sends no answers after
/// it, not even finished ones.
fn delayed(closing: CancellationToken) -> CancellationToken {
    let over = CancellationToken::new();
    let fired = over.clone();
    tokio::spawn(async move {
        closing.cancelled().await;
        tokio::time::sleep(LAST_ANSWERS).await;
        fired.cancel();
    });
    over
}

async fn sweep_expired(sessions: Arc<Sessions>, shared: Arc<Shared>, closing: CancellationToken) {
    let every =
        sessions.idle().div_f32(4.0).clamp(Duration::from_millis(50), Duration::from_secs(30));
    let mut tasks_swept: Option<Instant> = None;
    loop {
        if tasks_swept.is_none_or(|at| at.elapsed() >= TASKS_SWEEP) {
            tasks_swept = Some(Instant::now());
            if let Err(error) = shared.tasks.sweep().await {
                tracing::warn!(%error, "cannot delete old MCP tasks");
            }
        }
        tokio::select! {
            () = tokio::time::sleep(every) => {}
            () = closing.cancelled() => return,
        }
        sessions.sweep();
        shared.suspended.sweep();
    }
}
