//! Runs the calls of a model through the router, several concurrently.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream;
use sa_core::{
    CallId, CallRequest, Overrun, RawJson, Router, TraceContext, Update, UpdateSink, View,
};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::formats::{Answer, ToolCall};
use crate::result::RenderedResult;

/// The maximum length, in characters, of the excerpts of results and progress messages in events.
const MAX_EVENT_TEXT: usize = 2_000;

/// The maximum number of queued events about running calls.
pub(crate) const EVENT_QUEUE: usize = 64;

/// The caller, and its view of the tools.
#[derive(Debug, Clone)]
pub struct Caller {
    pub view: View,
    pub session_key: Option<Arc<str>>,
    pub trace: TraceContext,
}

/// The settings with which calls are run.
#[derive(Debug)]
pub(crate) struct Runner<'a> {
    pub(crate) router: &'a Arc<Router>,
    pub(crate) caller: &'a Caller,
    pub(crate) surface: &'static str,
    pub(crate) max_parallel: usize,
    pub(crate) max_result_bytes: usize,
}

/// A call and its tool; `None` if the tool does not exist.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) wanted: ToolCall,
    pub(crate) tool: Option<Arc<str>>,
}

/// The outcome of a call.
#[derive(Debug)]
pub(crate) struct FinishedCall {
    pub(crate) answer: Answer,
    pub(crate) call: Option<CallId>,
    pub(crate) duration: Duration,
}

impl FinishedCall {
    /// Returns the event that reports the result.
    pub(crate) fn event(&self) -> Value {
        let Answer { wanted, rendered } = &self.answer;
        let mut event = json!({
            "event": "tool_result", "id": wanted.id, "name": wanted.name, "ok": !rendered.is_error,
            "duration_ms": self.duration.as_millis() as u64,
            "result": beginning(&rendered.text),
        });
        if let Some(call) = self.call {
            event["call_id"] = json!(call.to_string());
        }
        if let Some(reason) = rendered.reason {
            event["reason"] = json!(reason);
        }
        event
    }
}

impl Runner<'_> {
    /// Runs all calls and returns their outcomes in order. Dropping the future cancels the calls
    /// that still run.
    pub(crate) async fn run(
        &self,
        orders: Vec<Order>,
        events: Option<&mpsc::Sender<Value>>,
    ) -> Vec<FinishedCall> {
        let running = stream::iter(orders)
            .map(|order| self.one(order, events))
            .buffered(self.max_parallel.max(1));
        running.collect().await
    }

    async fn one(&self, order: Order, events: Option<&mpsc::Sender<Value>>) -> FinishedCall {
        let Order { wanted, tool } = order;
        let finished_call = match (&tool, &wanted.arguments) {
            (None, _) => {
                let words = format!(
                    "not_found: there is no tool \"{}\" (use one of the offered tools)",
                    wanted.name
                );
                FinishedCall {
                    answer: Answer { wanted, rendered: RenderedResult::error(&words) },
                    call: None,
                    duration: Duration::ZERO,
                }
            }
            (_, Err(why)) => {
                let words = format!(
                    "invalid_args: {why} (call it again with one JSON object that matches its schema)"
                );
                FinishedCall {
                    answer: Answer { wanted, rendered: RenderedResult::error(&words) },
                    call: None,
                    duration: Duration::ZERO,
                }
            }
            (Some(tool), Ok(arguments)) => {
                let request = self.request(tool, arguments.clone());
                let sink = events.map(|events| {
                    let (id, name) = (wanted.id.clone().unwrap_or_default(), wanted.name.clone());
                    Arc::new(Progress { id, name, events: events.clone() }) as Arc<dyn UpdateSink>
                });
                let call = self.router.start(request, sink);
                if let Some(events) = events {
                    let started = json!({ "event": "tool_call", "id": wanted.id, "name": wanted.name,
                        "arguments": arguments.as_str(), "call_id": call.id().to_string() });
                    let _ = events.send(started).await;
                }
                let finished = call.outcome().await;
                let rendered = finished
                    .render(|finished| RenderedResult::of(&finished.outcome, self.max_result_bytes))
                    .await;
                FinishedCall {
                    answer: Answer { wanted, rendered },
                    call: Some(finished.id),
                    duration: finished.duration,
                }
            }
        };
        if let Some(events) = events {
            let _ = events.send(finished_call.event()).await;
        }
        finished_call
    }

    fn request(&self, tool: &str, args: RawJson) -> CallRequest {
        let Caller { view, session_key, trace } = self.caller;
        CallRequest {
            tool: tool.to_owned(),
            args,
            view: view.clone(),
            surface: self.surface,
            session_key: session_key.clone(),
            timeout: None,
            idle_timeout: None,
            idempotency_key: None,
            // The calls share one trace, and each has its own span.
            trace: TraceContext { span: TraceContext::root().span, ..*trace },
        }
    }
}

fn beginning(text: &str) -> &str {
    text.char_indices().nth(MAX_EVENT_TEXT).map_or(text, |(end, _)| &text[..end])
}

struct Progress {
    id: Value,
    name: String,
    events: mpsc::Sender<Value>,
}

impl UpdateSink for Progress {
    fn send(&self, update: Update) -> Result<(), Overrun> {
        // Reports that exceed the queue are dropped, because only the latest matters. A result's
        // chunks are part of the whole result at the end.
        if let Update::Progress { progress, total, message } = update {
            let message = message.as_deref().map(beginning);
            let report = json!({ "event": "tool_progress", "id": self.id, "name": self.name,
                "progress": progress, "total": total, "message": message });
            let _ = self.events.try_send(report);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    //! Rule: the queue of events for a reader is bounded in bytes, even if a tool reports progress
    //! without a limit.

    use super::*;

    /// Returns the queued events after a tool has reported this number of times, with messages of
    /// this length.
    fn waiting(times: usize, chars: usize) -> Vec<Value> {
        let (events, mut waiting) = mpsc::channel(EVENT_QUEUE);
        let sink = Progress { id: json!("1"), name: "slow".into(), events };
        for _ in 0..times {
            let message = Some("é".repeat(chars));
            sink.send(Update::Progress { progress: 1.0, total: None, message }).unwrap();
        }
        std::iter::from_fn(|| waiting.try_recv().ok()).collect()
    }

    #[test]
    fn a_long_update_is_truncated() {
        let waiting = waiting(2 * EVENT_QUEUE, 1 << 16);
        let bytes: usize = waiting.iter().map(|event| event.to_string().len()).sum();
        assert!(
            waiting.len() == EVENT_QUEUE && bytes < EVENT_QUEUE * 3 * MAX_EVENT_TEXT,
            "{} with {bytes} bytes",
            waiting.len()
        );
    }

    #[test]
    fn a_short_update_is_sent_unchanged() {
        assert_eq!(waiting(1, 5)[0]["message"], "ééééé");
    }

    #[test]
    fn the_reason_of_a_failure_is_reported() {
        let error = sa_core::CallError::new(sa_core::CallErrorKind::Failed, "no key");
        let wanted =
            ToolCall { id: None, name: "a".into(), arguments: Ok(RawJson::empty_object()) };
        let event = |error| {
            let answer =
                Answer { wanted: wanted.clone(), rendered: RenderedResult::of(&Err(error), 1_000) };
            FinishedCall { answer, call: None, duration: Duration::ZERO }.event()
        };
        assert_eq!(event(error.clone()).get("reason"), None);
        assert_eq!(event(error.with_reason("settings_invalid"))["reason"], "settings_invalid");
    }
}
