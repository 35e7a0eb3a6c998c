//! An upstream server as a provider of the core.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use rmcp::model::{ErrorCode, ServerResult};
use sa_core::{
    Call, CallError, DocumentAnswer, DocumentError, Documents, Listing, Outcome, Principal,
    Provider, QuestionMode, RawJson, UpdateSink, Updates, Watch,
};
use sa_http::MCP;
use sa_limits::offload;
use sa_limits::received::Received;

use crate::connection::Failure;
use crate::connection_pool::NoConnection;
use crate::lists::server_name;
use crate::outcome;
use crate::server::Server;
use crate::subscriptions::watch_document;
use crate::table::{Requester, Running};

/// The timeout for a document, if the server's specification sets no timeout for calls.
const TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Clone)]
pub(crate) struct Upstream(pub(crate) Arc<Server>);

impl Provider for Upstream {
    fn call(&self, call: Arc<Call>, updates: Updates) -> BoxFuture<'static, Outcome> {
        let server = Arc::clone(&self.0);
        Box::pin(async move {
            if !server.is_ready() {
                // The server lists its tools when it starts. The caller used an older list, so
                // the call is checked again.
                let lists = server.lists();
                server.connection().await?;
                if !Arc::ptr_eq(&lists, &server.lists()) {
                    return Err(CallError::undelivered(format!(
                        "\"{}\" has just started",
                        server.name
                    )));
                }
            }
            let tool = server_name(&server.name, &call.tool);
            let as_task = server.lists().requires_task(tool);
            let request = Request::Tool {
                tool,
                args: &call.args,
                traceparent: call.trace.traceparent(),
                as_task,
            };
            let running = Running::new(
                Requester::Call(updates),
                server.answers.share(&call.principal.holder()),
            );
            let answer = run(&server, &call.principal.id, request, &running).await?;
            let bytes = answer.as_ref().map_or(0, outcome::weight);
            let received = running.counted(bytes).map_err(CallError::answer_refused)?;
            let outcome =
                offload::run_queued(bytes, || outcome::of_call(&server.name, answer)).await;
            sa_core::outcome::holding(outcome, received)
        })
    }

    fn documents(&self) -> Option<Arc<dyn Documents>> {
        self.0.lists().has_documents().then(|| Arc::new(self.clone()) as Arc<dyn Documents>)
    }
}

impl Documents for Upstream {
    fn format(&self) -> &'static str {
        MCP
    }

    fn list(&self, listing: Listing) -> BoxFuture<'static, Vec<RawJson>> {
        let lists = self.0.lists();
        Box::pin(async move {
            offload::run_queued(lists.weight(listing), || lists.documents(listing)).await
        })
    }

    fn ask(
        &self,
        method: &'static str,
        params: RawJson,
        requester: &Principal,
        sink: Option<Arc<dyn UpdateSink>>,
    ) -> BoxFuture<'static, Result<DocumentAnswer, DocumentError>> {
        let (server, caller) = (Arc::clone(&self.0), Arc::clone(&requester.id));
        let answers = server.answers.share(&requester.holder());
        Box::pin(async move {
            let requester = sink.map_or(Requester::Nobody, Requester::Reader);
            let ask = || async {
                let running = Running::new(requester.clone(), answers.clone());
                let request = Request::Other { method, params: &params };
                let answer = run(&server, &caller, request, &running).await;
                let mut answer = answer.unwrap_or_else(|error| Err(Failure::Unanswered(error)));
                let bytes = answer.as_ref().map_or(0, outcome::weight);
                let mut received = running.counted(bytes).unwrap_or_else(|refused| {
                    answer = Err(Failure::NoBudget(refused));
                    Received::uncounted()
                });
                let json = || outcome::of_document(&server.name, answer);
                let json = offload::run_queued(bytes, json).await?;
                received.shrink(json.len());
                Ok::<_, DocumentError>(DocumentAnswer { json, held: received.into_held() })
            };
            let answer = async {
                match ask().await {
                    Err(error) if error.undelivered && server.reconnects_soon().await => {
                        ask().await
                    }
                    answer => answer,
                }
            };
            with_timeout(&server, method, answer).await
        })
    }

    fn watch(
        &self,
        uri: &str,
        requester: &str,
        question_mode: QuestionMode,
    ) -> BoxFuture<'static, Result<Watch, DocumentError>> {
        let (server, caller, uri) = (Arc::clone(&self.0), requester.to_owned(), uri.to_owned());
        Box::pin(async move {
            let watched = async {
                watch_document(Arc::clone(&server), caller, uri, question_mode).await.map_err(
                    |failure| {
                        outcome::document_error(
                            &server.name,
                            failure.unwrap_or_else(Failure::Unanswered),
                        )
                    },
                )
            };
            with_timeout(&server, "resources/subscribe", watched).await
        })
    }
}

/// A server that has not listed its tools yet: no tool is known, so none can be called.
pub(crate) struct Unlisted(pub(crate) Arc<Server>);

impl Provider for Unlisted {
    fn call(&self, _call: Arc<Call>, _updates: Updates) -> BoxFuture<'static, Outcome> {
        Box::pin(std::future::ready(Err(self.0.unlisted())))
    }
}

/// Applies the timeout that a call of the same server has.
async fn with_timeout<T>(
    server: &Server,
    method: &str,
    answer: impl Future<Output = Result<T, DocumentError>>,
) -> Result<T, DocumentError> {
    let limit = server.spec.timeout().unwrap_or(TIMEOUT);
    tokio::time::timeout(limit, answer).await.unwrap_or_else(|_| {
        Err(DocumentError {
            code: ErrorCode::INTERNAL_ERROR.0,
            message: format!(
                "\"{}\" did not answer {method} within {} ms",
                server.name,
                limit.as_millis()
            ),
            data: None,
            undelivered: false,
        })
    })
}

enum Request<'a> {
    Tool { tool: &'a str, args: &'a RawJson, traceparent: String, as_task: bool },
    Other { method: &'a str, params: &'a RawJson },
}

/// Runs a request on the caller's connection. If the connection fails before the request was
/// sent, it is replaced once. If that fails, too, the server counts as unreachable, and the
/// request is reported as undelivered.
async fn run(
    server: &Server,
    caller: &str,
    request: Request<'_>,
    running: &Arc<Running>,
) -> Result<Result<ServerResult, Failure>, CallError> {
    let main = server.connection().await?;
    for _ in 0..2 {
        let connection = match server
            .connections
            .of(caller, &main, running.requester.client_capabilities().question_mode)
            .await
        {
            Ok(connection) => connection,
            Err(none) => {
                if matches!(none, NoConnection::Lost(_)) {
                    main.suspect.cancel();
                }
                return Err(none.into_error(&server.name));
            }
        };
        let answer = match &request {
            Request::Tool { tool, args, traceparent, as_task } => {
                connection.call_tool(tool, args, traceparent, *as_task, running).await
            }
            Request::Other { method, params } => connection.request(method, params, running).await,
        };
        match answer {
            Err(Failure::Unsent) => connection.suspect.cancel(),
            answer => return Ok(answer),
        }
        if Arc::ptr_eq(&connection, &main) {
            break;
        }
    }
    main.suspect.cancel();
    Ok(Err(Failure::Unsent))
}
