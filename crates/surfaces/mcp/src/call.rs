//! One call, and the messages between its provider and its client while it runs.

use std::future::pending;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use rmcp::model::{
    CallToolResponse, CallToolResult, ClientCapabilities as McpCapabilities, LoggingLevel,
    LoggingMessageNotificationParam, ProgressNotificationParam, ProgressToken,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use sa_core::call::CallRequest;
use sa_core::principal::View;
use sa_core::router::{Finished, Router};
use sa_core::{
    Backlog, CallError, CallErrorKind, ClientCapabilities, LogLevel, Overrun, Passthrough,
    Question, QuestionMode, RawJson, Schema, Tool, Update, UpdateSink,
};
use sa_http::MCP;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::convert;
use crate::notifications::Listener;
use crate::questions::{self, PendingQuestion};
use crate::shared::Shared;

/// The maximum number of queued reports for a client. Further reports are dropped.
const REPORTS: usize = 64;
/// The maximum number of unanswered questions of one call.
const QUESTIONS: usize = 16;
/// The maximum time for which an outcome waits for earlier reports to be sent.
const FLUSH: Duration = Duration::from_millis(250);

/// A running call. Dropping it means that its caller has disconnected.
pub(crate) struct Running {
    outcome: BoxFuture<'static, Finished>,
    /// `None` if the client wants no reports: most calls end without reports or questions, and then
    /// need no queues.
    reports: Option<Backlog>,
    questions: Option<mpsc::Receiver<PendingQuestion>>,
    sink: Arc<Sink>,
    called: CalledTool,
}

/// The tool of a call, as its caller names and sees it.
struct CalledTool {
    router: Arc<Router>,
    tool: String,
    view: View,
    /// The tool as it was when the call started. Its provider may be offline when the call ends.
    listed: Option<Arc<Tool>>,
}

impl CalledTool {
    fn new(shared: &Shared, request: &CallRequest) -> Self {
        let mut called = Self {
            router: Arc::clone(&shared.router),
            tool: request.tool.clone(),
            view: request.view.clone(),
            listed: None,
        };
        called.listed = called.resolve();
        called
    }

    fn resolve(&self) -> Option<Arc<Tool>> {
        Some(self.router.directory().resolve(&self.tool, &self.view).ok()?.tool)
    }
}

/// The reason why following a call stopped.
pub(crate) enum CallStep {
    Ended(Finished),
    /// The provider asks the client a question first.
    Asks(Vec<PendingQuestion>),
    /// The client no longer wants an answer.
    Cancelled,
}

/// The capabilities and preferences of a client.
pub(crate) struct Client {
    /// Whether it wants progress reports.
    pub(crate) wants_progress: bool,
    /// The minimum level of the tool's log messages that it wants, if any.
    pub(crate) log: Option<LogLevel>,
    pub(crate) question_mode: QuestionMode,
    /// The capabilities that it has declared for answering questions.
    pub(crate) capabilities: Option<McpCapabilities>,
    /// Whether its list of tools is a search, which has no tool's own output schema.
    pub(crate) searches: bool,
}

impl Running {
    /// Starts a call. Reports are collected only if the client wants them, and the client is asked
    /// only questions that it can answer.
    pub(crate) fn start(shared: &Shared, request: CallRequest, client: Client) -> Self {
        let wants_reports = client.wants_progress || client.log.is_some();
        let reports = wants_reports.then(|| Backlog::new(REPORTS, shared.max_outbox_bytes));
        let answers = client.capabilities.as_ref().is_some_and(questions::answers_some);
        let (send_question, questions) = answers.then(|| mpsc::channel(QUESTIONS)).unzip();
        let sink = Sink {
            reports: reports.clone(),
            questions: send_question,
            client,
            refused: OnceLock::new(),
        };
        let sink = Arc::new(sink);
        let called = CalledTool::new(shared, &request);
        let call = shared.router.start(request, Some(Arc::clone(&sink) as Arc<dyn UpdateSink>));
        Self { outcome: Box::pin(call.outcome()), reports, questions, sink, called }
    }

    /// Returns the response to a call that has ended.
    pub(crate) fn answer(
        &self,
        finished: &Finished,
        is_new_era: bool,
    ) -> Result<CallToolResponse, ErrorData> {
        // A question that the client was not asked, because it did not declare the capability.
        let refused = self.sink.refused.get().filter(|_| is_new_era && finished.outcome.is_err());
        if let Some(what) = refused {
            return Err(ErrorData::missing_required_client_capability(
                questions::required_capability(what),
            ));
        }
        match convert::protocol_error(&finished.outcome) {
            Some(error) => Err(error),
            None => Ok(self.result(finished).into()),
        }
    }

    /// The same of a call that did not fail as a request does.
    pub(crate) fn result(&self, finished: &Finished) -> CallToolResult {
        convert::result_of(&finished.outcome, &self.called.tool, || self.listed_output())
    }

    /// What the client may check the result by, because the list of tools has it.
    pub(crate) fn listed_output(&self) -> Option<Schema> {
        if self.sink.client.searches {
            return None;
        }
        // A provider that was offline at the start has returned, and executed the call.
        let tool = self.called.listed.clone().or_else(|| self.called.resolve())?;
        convert::listed_output(&tool).cloned()
    }

    /// Follows the call until it ends, asks a question, or is cancelled.
    pub(crate) async fn next_step(
        &mut self,
        context: &RequestContext<RoleServer>,
        question_mode: QuestionMode,
        listener: &mut Option<Listener>,
    ) -> CallStep {
        let Self { outcome, reports, questions, .. } = self;
        let peer = &context.peer;
        let ended = CancellationToken::new();
        let mut reports =
            pin!(forward(reports.as_ref(), context.meta.get_progress_token(), context, &ended));
        let listening = async {
            if let Some(listener) = listener {
                listener.deliver(peer).await;
            }
        };
        let question = async {
            let mut answers = FuturesUnordered::new();
            loop {
                tokio::select! {
                    question = next(questions) => match question_mode {
                        QuestionMode::Response => return with_queued_questions(question, questions),
                        QuestionMode::Request => answers.push(questions::send(peer, question)),
                    },
                    Some(()) = answers.next() => {}
                }
            }
        };
        // A client that does not read delays its reports, but neither the call's deadline nor a
        // cancel.
        let next_step = tokio::select! {
            finished = outcome => CallStep::Ended(finished),
            question = question => CallStep::Asks(question),
            () = context.ct.cancelled() => return CallStep::Cancelled,
            never = async { (&mut reports).await; pending().await } => never,
            never = async { listening.await; pending().await } => never,
        };
        ended.cancel();
        let _ = tokio::time::timeout(FLUSH, reports).await;
        next_step
    }

    /// Follows the call without a client, until it ends or asks a question.
    pub(crate) async fn next_step_detached(&mut self) -> CallStep {
        tokio::select! {
            finished = &mut self.outcome => CallStep::Ended(finished),
            question = next(&mut self.questions) => CallStep::Asks(with_queued_questions(question, &mut self.questions)),
        }
    }

    /// Moves the call to a task of its own, so that it continues without a client. Dropping the
    /// result still cancels the call.
    pub(crate) fn detach(self) -> Self {
        let task = AbortOnDropHandle::new(tokio::spawn(self.outcome));
        let outcome = async {
            match task.await {
                Ok(finished) => finished,
                Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                // This happens only when the whole program ends.
                Err(_) => pending().await,
            }
        };
        Self { outcome: Box::pin(outcome), ..self }
    }
}

/// Questions that are asked at the same time are sent together.
fn with_queued_questions(
    question: PendingQuestion,
    questions: &mut Option<mpsc::Receiver<PendingQuestion>>,
) -> Vec<PendingQuestion> {
    let mut others = || questions.as_mut()?.try_recv().ok();
    std::iter::once(question).chain(std::iter::from_fn(&mut others)).collect()
}

/// Returns the next item, or waits forever if there can be none.
async fn next<T>(queue: &mut Option<mpsc::Receiver<T>>) -> T {
    let next = match queue {
        Some(queue) => queue.recv().await,
        None => None,
    };
    match next {
        Some(next) => next,
        None => pending().await,
    }
}

/// Sends progress reports and log messages as they arrive. Ends once the call has ended and all
/// queued reports are sent.
async fn forward(
    reports: Option<&Backlog>,
    token: Option<ProgressToken>,
    context: &RequestContext<RoleServer>,
    ended: &CancellationToken,
) {
    loop {
        let update = tokio::select! {
            biased;
            update = async {
                match reports {
                    Some(reports) => reports.next().await,
                    None => pending().await,
                }
            } => Some(update),
            () = ended.cancelled() => None,
        };
        match (update, &token) {
            (Some(Update::Progress { progress, total, message }), Some(token)) => {
                let mut report = ProgressNotificationParam::new(token.clone(), progress);
                (report.total, report.message) = (total, message);
                let _ = context.peer.notify_progress(report).await;
            }
            (Some(Update::Log { level, logger, data }), _) => {
                let data = serde_json::from_str(data.as_str()).unwrap_or_default();
                let mut message = LoggingMessageNotificationParam::new(words(level), data);
                message.logger = logger;
                let _ = context.peer.notify_logging_message(message).await;
            }
            (Some(_), _) => {}
            (None, _) => break,
        }
    }
    ended.cancelled().await;
}

fn words(level: LogLevel) -> LoggingLevel {
    match level {
        LogLevel::Debug => LoggingLevel::Debug,
        LogLevel::Info => LoggingLevel::Info,
        LogLevel::Notice => LoggingLevel::Notice,
        LogLevel::Warning => LoggingLevel::Warning,
        LogLevel::Error => LoggingLevel::Error,
        LogLevel::Critical => LoggingLevel::Critical,
        LogLevel::Alert => LoggingLevel::Alert,
        LogLevel::Emergency => LoggingLevel::Emergency,
    }
}

/// Converts a level into the gateway's type.
pub(crate) fn level(level: LoggingLevel) -> LogLevel {
    LogLevel::ALL.into_iter().find(|known| words(*known) == level).unwrap_or(LogLevel::Info)
}

struct Sink {
    reports: Option<Backlog>,
    questions: Option<mpsc::Sender<PendingQuestion>>,
    client: Client,
    refused: OnceLock<String>,
}

impl UpdateSink for Sink {
    fn send(&self, update: Update) -> Result<(), Overrun> {
        let wanted = match &update {
            Update::Progress { .. } => self.client.wants_progress,
            Update::Log { level, .. } => self.client.log.is_some_and(|least| *level >= least),
            // MCP has no chunks of a result; the whole result is sent at the end.
            Update::Chunk { .. } => false,
        };
        if wanted && let Some(reports) = &self.reports {
            let _ = reports.push(update);
        }
        Ok(())
    }

    fn client_capabilities(&self) -> ClientCapabilities {
        // Only capabilities for questions of a provider are passed on: extensions of the client
        // concern only the gateway.
        let mut answers = McpCapabilities::default();
        if let Some(can) = self.client.capabilities.clone() {
            (answers.sampling, answers.elicitation, answers.roots) =
                (can.sampling, can.elicitation, can.roots);
        }
        let answers = serde_json::to_value(answers).ok();
        let passthrough = answers.map(|answers| Passthrough::new(MCP, RawJson::of(&answers)));
        ClientCapabilities {
            question_mode: Some(self.client.question_mode),
            log: self.client.log,
            passthrough,
        }
    }

    fn ask(&self, question: Question) -> BoxFuture<'static, Result<RawJson, CallError>> {
        let refused = |error: CallError| -> BoxFuture<'static, Result<RawJson, CallError>> {
            Box::pin(std::future::ready(Err(error)))
        };
        let answers = |client: &McpCapabilities| questions::answers(client, &question);
        let Some(questions) = self
            .questions
            .as_ref()
            .filter(|_| self.client.capabilities.as_ref().is_some_and(answers))
        else {
            let _ = self.refused.set(question.kind.clone());
            return refused(CallError::new(
                CallErrorKind::Failed,
                format!("the client that made the call does not support {}", question.kind),
            ));
        };
        let (answer, answered) = oneshot::channel();
        if questions.try_send(PendingQuestion { question, answer }).is_err() {
            return refused(CallError::new(
                CallErrorKind::Overloaded,
                "too many requests of this call are already waiting for the client",
            ));
        }
        Box::pin(async {
            let gone = || {
                Err(CallError::new(
                    CallErrorKind::Failed,
                    "the client that made the call did not answer",
                ))
            };
            answered.await.unwrap_or_else(|_| gone())
        })
    }
}
