//! One connection to a server: it sends requests, and receives responses and the server's own
//! requests.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CancelledNotification, CancelledNotificationParam,
    ClientRequest, ErrorData, GetExtensions as _, InputRequest, InputRequiredResult,
    ProtocolVersion, RequestId, RequestMetaObject, ServerPeerInfo, ServerResult,
};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, Peer, PeerRequestOptions, RoleClient, ServiceError,
    serve_client_with_lifecycle_and_ct,
};
use rmcp::transport::Transport;
use rmcp::transport::auth::AuthError;
use rmcp::transport::streamable_http_client::StreamableHttpError;
use sa_core::{CallError, RawJson};
use sa_http::MCP;
use sa_limits::budget::Refused;
use serde_json::{Map, Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::account::Account;
use crate::child::Process;
use crate::errors;
use crate::handler::Handler;
use crate::subscriptions::Subscriptions;
use crate::table::{Requester, Running, Table, Tapped};

/// The number of input requests that a server may send before it returns a result.
const MAX_ROUNDS: usize = 16;

/// The `_meta` key of a request with the minimum level of the log messages that the client wants.
const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
/// The `_meta` key of a request with the capabilities of the caller.
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// The `_meta` key of an input request with the server's own key for it. Surfaces that name their
/// questions use it.
const NAME: &str = "switchboard/question";

/// How long to wait for a process to exit after it has closed its stdout, before the closed
/// connection is reported without an exit status.
const STDERR_TIMEOUT: Duration = Duration::from_millis(500);

/// Counts the list-changed notifications of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ListChanges {
    /// Each counter grows when the server reports a change of that list.
    pub(crate) tools: u64,
    pub(crate) documents: u64,
}

/// A receiver of list changes, and the counters that were already handled.
pub(crate) struct SeenChanges {
    pub(crate) changes: watch::Receiver<ListChanges>,
    pub(crate) seen: ListChanges,
}

impl SeenChanges {
    pub(crate) fn subscribe(changes: &watch::Sender<ListChanges>) -> Self {
        let mut changes = changes.subscribe();
        let seen = *changes.borrow_and_update();
        Self { changes, seen }
    }
}

pub(crate) struct Connection {
    pub(crate) peer: Peer<RoleClient>,
    pub(crate) info: Arc<ServerPeerInfo>,
    table: Arc<Table>,
    pub(crate) subscriptions: Arc<Subscriptions>,
    /// Cancelled when the server can no longer answer.
    pub(crate) closed: CancellationToken,
    /// Cancelled when a request finds that the connection is unusable: the server is unreachable,
    /// or does not know the session.
    pub(crate) suspect: CancellationToken,
    stop: CancellationToken,
    process: Option<Process>,
    account: Option<Arc<Account>>,
}

/// The handshake that a server is known to support. If it is unknown, the newer one is tried
/// first.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, Default, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Era {
    #[default]
    Unknown,
    Initialize,
    Discover,
}

impl Era {
    fn mode(self) -> ClientLifecycleMode {
        let newest = || vec![ProtocolVersion::V_2026_07_28];
        match self {
            Self::Unknown => ClientLifecycleMode::Auto {
                preferred_versions: newest(),
                legacy_version: Some(ProtocolVersion::LATEST_WITH_INITIALIZE),
            },
            Self::Initialize => ClientLifecycleMode::Initialize,
            Self::Discover => ClientLifecycleMode::Discover { preferred_versions: newest() },
        }
    }
}

impl Connection {
    pub(crate) async fn open(
        transport: impl Transport<RoleClient> + 'static,
        era: Era,
        changes: watch::Sender<ListChanges>,
        suspect: CancellationToken,
    ) -> Result<Self, Box<ClientInitializeError>> {
        let (table, closed, stop) =
            (Arc::new(Table::default()), CancellationToken::new(), CancellationToken::new());
        let tapped = Tapped { inner: transport, table: Arc::clone(&table), closed: closed.clone() };
        let subscriptions = Arc::new(Subscriptions::default());
        let handler = Handler {
            table: Arc::clone(&table),
            subscriptions: Arc::clone(&subscriptions),
            changes: changes.clone(),
        };
        // If this future is dropped during the handshake, the transport is dropped, too.
        let service =
            serve_client_with_lifecycle_and_ct(handler, tapped, era.mode(), stop.clone()).await?;
        let peer = service.peer().clone();
        let info = peer.peer_info().ok_or(ClientInitializeError::Cancelled)?;
        let connection = Self {
            peer,
            info,
            table,
            subscriptions,
            closed,
            suspect,
            stop,
            process: None,
            account: None,
        };
        if connection.era() == Era::Discover {
            let (info, peer) = (Arc::clone(&connection.info), connection.peer.clone());
            let (closed, suspect) = (connection.closed.clone(), connection.suspect.clone());
            tokio::spawn(crate::handler::listen(peer, info, changes, closed, suspect));
        }
        tokio::spawn(async move { service.waiting().await });
        Ok(connection)
    }

    pub(crate) fn era(&self) -> Era {
        if self.info.protocol_version.has_initialize() { Era::Initialize } else { Era::Discover }
    }

    pub(crate) fn running(&self) -> usize {
        self.table.running()
    }

    pub(crate) fn with_process(mut self, process: Process) -> Self {
        self.process = Some(process);
        self
    }

    pub(crate) fn with_account(mut self, account: Arc<Account>) -> Self {
        self.account = Some(account);
        self
    }

    /// Returns the token that closes the connection.
    pub(crate) fn stopper(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Returns the reason why the connection ended, if it is known. A process may exit a moment
    /// after its stdout has closed.
    pub(crate) async fn stderr_tail(&self) -> String {
        let unknown = "the connection ended";
        let Some(process) = &self.process else { return unknown.into() };
        let _ = tokio::time::timeout(STDERR_TIMEOUT, process.ended.cancelled()).await;
        process.stderr_tail().unwrap_or_else(|| unknown.into())
    }

    pub(crate) fn close(&self) {
        self.stop.cancel();
    }

    /// Calls a tool. Runs it as a task if the server requires that.
    pub(crate) async fn call_tool(
        self: &Arc<Self>,
        tool: &str,
        arguments: &RawJson,
        traceparent: &str,
        as_task: bool,
        running: &Arc<Running>,
    ) -> Result<ServerResult, Failure> {
        let mut params = CallToolRequestParams::new(tool.to_owned());
        params.arguments = serde_json::from_str(arguments.as_str()).map_err(|error| {
            Failure::Answered(ErrorData::invalid_params(
                format!("the arguments must be an object: {error}"),
                None,
            ))
        })?;
        let mut meta = RequestMetaObject::new();
        meta.0.insert("traceparent".to_owned(), Value::String(traceparent.to_owned()));
        params.meta = Some(meta);
        if as_task && self.era() == Era::Initialize {
            return self.run_task(&params, running).await;
        }
        self.rounds(running, |answers| {
            let mut params = params.clone();
            if let Some((responses, state)) = answers {
                params.input_responses = Some(responses)
                    .filter(|responses: &Map<_, _>| !responses.is_empty())
                    .map(|map| map.into_iter().collect());
                params.request_state = state;
            }
            Ok(ClientRequest::CallToolRequest(CallToolRequest::new(params)))
        })
        .await
    }

    /// Sends any other request, by its method name.
    pub(crate) async fn request(
        &self,
        method: &str,
        params: &RawJson,
        running: &Arc<Running>,
    ) -> Result<ServerResult, Failure> {
        let params: Value = serde_json::from_str(params.as_str()).unwrap_or_default();
        self.rounds(running, |answers| {
            let mut params = params.clone();
            if let (Some((responses, state)), Some(params)) = (answers, params.as_object_mut()) {
                if !responses.is_empty() {
                    params.insert("inputResponses".into(), Value::Object(responses));
                }
                if let Some(state) = state {
                    params.insert("requestState".into(), Value::String(state));
                }
            }
            let request = json!({ "method": method, "params": params });
            serde_json::from_value(request)
                .map_err(|error| ErrorData::invalid_params(error.to_string(), None))
        })
        .await
    }

    /// Sends a request, and repeats it with answers to the server's input requests, until the
    /// server returns a result.
    async fn rounds(
        &self,
        running: &Arc<Running>,
        make: impl Fn(Option<(Map<String, Value>, Option<String>)>) -> Result<ClientRequest, ErrorData>,
    ) -> Result<ServerResult, Failure> {
        let mut answers = None;
        for round in 0..MAX_ROUNDS {
            let request = make(answers.take()).map_err(Failure::Answered)?;
            let result = self.once(request, running).await.map_err(|failure| match failure {
                // The server has already received the request in an earlier round.
                Failure::Unsent if round > 0 => Failure::Lost,
                failure => failure,
            })?;
            let ServerResult::InputRequiredResult(required) = result else { return Ok(result) };
            if matches!(running.requester, Requester::Nobody | Requester::Gateway) {
                // The caller accepts input requests as a result, and repeats the request with its
                // answers.
                return Ok(ServerResult::InputRequiredResult(required));
            }
            answers = Some(answer(&running.requester, required).await?);
        }
        let message = format!("the server requested input more than {MAX_ROUNDS} times");
        Err(Failure::Answered(ErrorData::internal_error(message, None)))
    }

    pub(crate) async fn once(
        &self,
        mut request: ClientRequest,
        running: &Arc<Running>,
    ) -> Result<ServerResult, Failure> {
        if self.closed.is_cancelled() {
            return Err(Failure::Unsent);
        }
        request.extensions_mut().insert(running.marker());
        let mut options = PeerRequestOptions::no_options();
        options.meta = (self.era() == Era::Discover).then(|| about(&running.requester));
        let sent = self.peer.send_request_with_option(request, options);
        let handle = tokio::select! {
            sent = sent => sent.map_err(|_| Failure::Unsent)?,
            () = self.closed.cancelled() => return Err(Failure::Unsent),
        };
        let mut guard = CancelOnDrop { peer: &self.peer, id: Some(handle.id.clone()) };
        let answer = tokio::select! {
            biased;
            answer = handle.await_response() => answer,
            () = self.closed.cancelled() => Err(ServiceError::TransportClosed),
        };
        guard.id = None;
        let (refused, left) = {
            let mut left = running.side_channel();
            (left.refused.take(), left.answer.take())
        };
        if let Some(refused) = refused {
            return Err(Failure::NoBudget(refused));
        }
        // A large result was stored separately, and the transport delivered an empty one in its
        // stead.
        let answer = answer.map(|answer| left.unwrap_or(answer));
        answer.map_err(|error| match error {
            ServiceError::McpError(error) => Failure::Answered(error),
            ServiceError::TransportSend(error)
                if self.is_locked_out(&*error.error) || is_unsent(&*error.error) =>
            {
                self.suspect.cancel();
                Failure::Unsent
            }
            ServiceError::TransportSend(error) => Failure::Refused(self.refusal(&*error.error)),
            ServiceError::TransportClosed => Failure::Lost,
            other => Failure::Answered(ErrorData::internal_error(other.to_string(), None)),
        })
    }
}

impl Connection {
    /// Returns whether every request fails until an operator logs in, and records that in the
    /// account.
    fn is_locked_out(&self, error: &(dyn std::error::Error + Send + Sync + 'static)) -> bool {
        let account = self.account.as_ref().filter(|_| errors::is_login_wanted(error));
        account.inspect(|account| account.lock_out()).is_some()
    }

    /// Returns why a request was rejected. Missing scopes are recorded, so that the next login
    /// requests them.
    fn refusal(&self, error: &(dyn std::error::Error + Send + Sync + 'static)) -> String {
        let failed = error.downcast_ref::<StreamableHttpError<reqwest::Error>>();
        match (failed, &self.account) {
            (Some(StreamableHttpError::InsufficientScope(scope)), Some(account)) => {
                account.misses(scope.get_required_scope().unwrap_or_default());
                format!(
                    "the login does not have the required permissions; to grant them, run `{}`",
                    account.advice()
                )
            }
            _ => errors::of_request(error),
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Returns whether the server has certainly not processed a request: it was unreachable, did not
/// know the session, or required a token first.
pub(crate) fn is_unsent(error: &(dyn std::error::Error + Send + Sync + 'static)) -> bool {
    let error = error.downcast_ref::<StreamableHttpError<reqwest::Error>>();
    match error {
        Some(StreamableHttpError::Client(error)) => error.is_connect(),
        // The token has expired. Nothing was executed, and the next connection uses a new token.
        Some(StreamableHttpError::AuthRequired(_) | StreamableHttpError::SessionExpired) => true,
        // There was no token to send.
        Some(StreamableHttpError::Auth(AuthError::AuthorizationRequired)) => true,
        _ => false,
    }
}

/// The reason why a request has no result.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The server has certainly not received the request.
    Unsent,
    /// The connection ended after the request was sent, or while it ran.
    Lost,
    /// The transport could not deliver it, for this reason.
    Refused(String),
    /// The server returned an error.
    Answered(ErrorData),
    /// The server has answered, and the budget refuses the answer.
    NoBudget(Refused),
    /// The caller did not answer an input request of the server.
    Unanswered(CallError),
}

/// Returns the metadata that describes the caller to a server of the newer protocol. The server
/// then asks only supported questions, and logs only to clients that want it.
fn about(requester: &Requester) -> RequestMetaObject {
    let mut meta = RequestMetaObject::new();
    let client_capabilities = requester.client_capabilities();
    if let Some(level) = client_capabilities.log {
        meta.0.insert(LOG_LEVEL.to_owned(), Value::String(level.as_str().to_owned()));
    }
    let answers = client_capabilities.passthrough.as_ref().and_then(|data| data.in_format(MCP));
    if let Some(answers) = answers.and_then(|answers| answers.to_value().ok()) {
        meta.0.insert(CAPABILITIES.to_owned(), answers);
    }
    meta
}

/// Sends all input requests of a server to the caller, concurrently.
async fn answer(
    requester: &Requester,
    required: InputRequiredResult,
) -> Result<(Map<String, Value>, Option<String>), Failure> {
    let mut responses = Map::new();
    let requests = required.input_requests.unwrap_or_default();
    if requests.is_empty() {
        // Without input requests, the server only wants the request to be repeated a little
        // later.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let mut pending = Vec::new();
    for (key, request) in requests {
        let what = match &request {
            InputRequest::CreateMessage(_) => "sampling/createMessage",
            InputRequest::Elicitation(_) => "elicitation/create",
            InputRequest::ListRoots(_) => "roots/list",
            _ => {
                return Err(Failure::Answered(ErrorData::internal_error(
                    "the server sent a request of an unknown kind",
                    None,
                )));
            }
        };
        let request = serde_json::to_value(&request).unwrap_or_default();
        let mut params = request.get("params").cloned().unwrap_or_else(|| json!({}));
        params["_meta"][NAME] = json!(key);
        pending.push(async move { (key, requester.ask(what, RawJson::of(&params)).await) });
    }
    for (key, answer) in join_all(pending).await {
        let answer = answer.map_err(Failure::Unanswered)?;
        responses.insert(key, serde_json::from_str(answer.as_str()).unwrap_or_default());
    }
    Ok((responses, required.request_state))
}

/// Sends a cancellation to the server when the request is dropped.
struct CancelOnDrop<'a> {
    peer: &'a Peer<RoleClient>,
    id: Option<RequestId>,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        let (Some(id), Ok(runtime)) = (self.id.take(), tokio::runtime::Handle::try_current())
        else {
            return;
        };
        let peer = self.peer.clone();
        runtime.spawn(async move {
            let params = CancelledNotificationParam::new(
                Some(id),
                Some("the caller no longer waits for the result".into()),
            );
            let _ = peer.send_notification(CancelledNotification::new(params).into()).await;
        });
    }
}
