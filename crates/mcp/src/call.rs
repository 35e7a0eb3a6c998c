//! One call, and what passes between its provider and its client while it runs.

use std::future::pending;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use rmcp::RoleServer;
use rmcp::model::{ClientCapabilities, ProgressNotificationParam, ProgressToken};
use rmcp::service::RequestContext;
use sa_core::call::CallRequest;
use sa_core::router::Finished;
use sa_core::{CallError, CallErrorKind, Overrun, Question, RawJson, Router, Update, UpdateSink};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::news::Listener;
use crate::questions::{self, Asked};

/// Progress reports that may wait for a client. Those beyond are left out: only the latest matters.
const REPORTS: usize = 64;
/// Questions of one call that may wait for an answer.
const QUESTIONS: usize = 16;
/// How long an outcome waits for the reports before it to be sent.
const FLUSH: Duration = Duration::from_millis(250);

/// A call under way. Dropping it means that its caller is gone.
pub(crate) struct Running {
    outcome: BoxFuture<'static, Finished>,
    reports: mpsc::Receiver<Report>,
    questions: mpsc::Receiver<Asked>,
    refused: Arc<OnceLock<String>>,
}

/// Until when a call was followed.
pub(crate) enum Turn {
    Ended(Finished),
    /// The provider wants to know something first.
    Asks(Vec<Asked>),
    /// The client wants no answer any more.
    Cancelled,
}

/// How the provider's questions reach the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asking {
    /// As requests of their own, while the call goes on.
    Meanwhile,
    /// As the answer to the request, which the client then repeats with what was asked for.
    Instead,
}

impl Running {
    /// Starts a call. Reports are gathered only for those who want them, and a client is asked only what it said that it
    /// can answer.
    pub(crate) fn start(
        router: &Arc<Router>,
        request: CallRequest,
        wants_reports: bool,
        client: Option<ClientCapabilities>,
    ) -> Self {
        let (send_report, reports) = mpsc::channel(if wants_reports { REPORTS } else { 1 });
        let (send_question, questions) = mpsc::channel(QUESTIONS);
        let refused = Arc::new(OnceLock::new());
        let sink = {
            let reports = wants_reports.then_some(send_report);
            Arc::new(Sink { reports, questions: send_question, client, refused: Arc::clone(&refused) })
                as Arc<dyn UpdateSink>
        };
        Self { outcome: Box::pin(router.start(request, Some(sink)).outcome()), reports, questions, refused }
    }

    /// What the client was not asked, because it did not say that it can answer it.
    pub(crate) fn refused(&self) -> Option<String> {
        self.refused.get().cloned()
    }

    /// Follows the call until it ends, asks, or is cancelled.
    pub(crate) async fn turn(
        &mut self,
        context: &RequestContext<RoleServer>,
        asking: Asking,
        listener: &mut Option<Listener>,
    ) -> Turn {
        let Self { outcome, reports, questions, .. } = self;
        let peer = &context.peer;
        let ended = CancellationToken::new();
        let mut reports = pin!(forward(reports, context.meta.get_progress_token(), context, &ended));
        let listening = async {
            if let Some(listener) = listener {
                listener.deliver(peer).await;
            }
        };
        let asked = async {
            let mut answers = FuturesUnordered::new();
            loop {
                tokio::select! {
                    asked = next(questions) => match asking {
                        Asking::Instead => {
                            let more = std::iter::from_fn(|| questions.try_recv().ok());
                            return std::iter::once(asked).chain(more).collect();
                        }
                        Asking::Meanwhile => answers.push(questions::put(peer, asked)),
                    },
                    Some(()) = answers.next() => {}
                }
            }
        };
        // A client that does not read holds up its reports, and neither the call's deadline nor a cancel.
        let turn = tokio::select! {
            finished = outcome => Turn::Ended(finished),
            asked = asked => Turn::Asks(asked),
            () = context.ct.cancelled() => return Turn::Cancelled,
            never = async { (&mut reports).await; pending().await } => never,
            never = async { listening.await; pending().await } => never,
        };
        ended.cancel();
        let _ = tokio::time::timeout(FLUSH, reports).await;
        turn
    }

    /// Follows the call while no client does: until it ends, or asks.
    pub(crate) async fn alone(&mut self) -> Turn {
        tokio::select! {
            finished = &mut self.outcome => Turn::Ended(finished),
            asked = next(&mut self.questions) => Turn::Asks(vec![asked]),
        }
    }

    /// Lets the call go on while nobody follows it. Dropping what comes back still ends it.
    pub(crate) fn set_aside(self) -> Self {
        let task = AbortOnDropHandle::new(tokio::spawn(self.outcome));
        let outcome = async {
            match task.await {
                Ok(finished) => finished,
                Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                // Only when the whole program ends.
                Err(_) => pending().await,
            }
        };
        Self { outcome: Box::pin(outcome), ..self }
    }
}

async fn next(questions: &mut mpsc::Receiver<Asked>) -> Asked {
    match questions.recv().await {
        Some(asked) => asked,
        // Nobody is left who could ask.
        None => pending().await,
    }
}

/// Sends reports of progress as they come. Ends once the call has ended and all that was queued is sent.
async fn forward(
    reports: &mut mpsc::Receiver<Report>,
    token: Option<ProgressToken>,
    context: &RequestContext<RoleServer>,
    ended: &CancellationToken,
) {
    while let Some(token) = &token {
        let report = tokio::select! {
            biased;
            report = reports.recv() => report,
            () = ended.cancelled() => None,
        };
        let Some((progress, total, message)) = report else { break };
        let mut report = ProgressNotificationParam::new(token.clone(), progress);
        (report.total, report.message) = (total, message);
        let _ = context.peer.notify_progress(report).await;
    }
    ended.cancelled().await;
}

type Report = (f64, Option<f64>, Option<String>);

struct Sink {
    reports: Option<mpsc::Sender<Report>>,
    questions: mpsc::Sender<Asked>,
    client: Option<ClientCapabilities>,
    refused: Arc<OnceLock<String>>,
}

impl UpdateSink for Sink {
    fn send(&self, update: Update) -> Result<(), Overrun> {
        // MCP has no chunks of a result; the whole of it comes at the end.
        if let (Update::Progress { progress, total, message }, Some(reports)) = (update, &self.reports) {
            let _ = reports.try_send((progress, total, message));
        }
        Ok(())
    }

    fn ask(&self, question: Question) -> BoxFuture<'static, Result<RawJson, CallError>> {
        let refused = |error: CallError| -> BoxFuture<'static, Result<RawJson, CallError>> {
            Box::pin(std::future::ready(Err(error)))
        };
        if !self.client.as_ref().is_some_and(|client| questions::answers(client, &question)) {
            let _ = self.refused.set(question.what.clone());
            return refused(CallError::new(
                CallErrorKind::Failed,
                format!("the client that made the call did not declare that it answers {}", question.what),
            ));
        }
        let (answer, answered) = oneshot::channel();
        if self.questions.try_send(Asked { question, answer }).is_err() {
            return refused(CallError::new(CallErrorKind::Overloaded, "too many questions of this call wait already"));
        }
        Box::pin(async {
            let gone = || Err(CallError::new(CallErrorKind::Failed, "the client that made the call gave no answer"));
            answered.await.unwrap_or_else(|_| gone())
        })
    }
}
