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

use crate::formats::{Answer, Wanted};
use crate::result::Shown;

/// The maximum length, in characters, of the excerpts of results and progress messages in events.
const MAX_TOLD: usize = 2_000;

/// The maximum number of queued events about running calls.
pub(crate) const NEWS: usize = 64;

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
    pub(crate) at_once: usize,
    pub(crate) max_result_bytes: usize,
}

/// A call and its tool; `None` if the tool does not exist.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) wanted: Wanted,
    pub(crate) tool: Option<Arc<str>>,
}

/// The outcome of a call.
#[derive(Debug)]
pub(crate) struct Carried {
    pub(crate) answer: Answer,
    pub(crate) call: Option<CallId>,
    pub(crate) duration: Duration,
}

impl Carried {
    /// Returns the event that reports the result.
    pub(crate) fn news(&self) -> Value {
        let Answer { wanted, shown } = &self.answer;
        let mut news = json!({
            "event": "tool_result", "id": wanted.id, "name": wanted.name, "ok": !shown.is_error,
            "duration_ms": self.duration.as_millis() as u64,
            "result": beginning(&shown.text),
        });
        if let Some(call) = self.call {
            news["call_id"] = json!(call.to_string());
        }
        if let Some(reason) = shown.reason {
            news["reason"] = json!(reason);
        }
        news
    }
}

impl Runner<'_> {
    /// Runs all calls and returns their outcomes in order. Dropping the future cancels the calls
    /// that still run.
    pub(crate) async fn run(
        &self,
        orders: Vec<Order>,
        news: Option<&mpsc::Sender<Value>>,
    ) -> Vec<Carried> {
        let running =
            stream::iter(orders).map(|order| self.one(order, news)).buffered(self.at_once.max(1));
        running.collect().await
    }

    async fn one(&self, order: Order, news: Option<&mpsc::Sender<Value>>) -> Carried {
        let Order { wanted, tool } = order;
        let carried = match (&tool, &wanted.arguments) {
            (None, _) => {
                let words = format!(
                    "not_found: there is no tool \"{}\" (use one of the offered tools)",
                    wanted.name
                );
                Carried {
                    answer: Answer { wanted, shown: Shown::error(&words) },
                    call: None,
                    duration: Duration::ZERO,
                }
            }
            (_, Err(why)) => {
                let words = format!(
                    "invalid_args: {why} (call it again with one JSON object that matches its schema)"
                );
                Carried {
                    answer: Answer { wanted, shown: Shown::error(&words) },
                    call: None,
                    duration: Duration::ZERO,
                }
            }
            (Some(tool), Ok(arguments)) => {
                let request = self.request(tool, arguments.clone());
                let sink = news.map(|news| {
                    let (id, name) = (wanted.id.clone().unwrap_or_default(), wanted.name.clone());
                    Arc::new(Progress { id, name, news: news.clone() }) as Arc<dyn UpdateSink>
                });
                let call = self.router.start(request, sink);
                if let Some(news) = news {
                    let started = json!({ "event": "tool_call", "id": wanted.id, "name": wanted.name,
                        "arguments": arguments.as_str(), "call_id": call.id().to_string() });
                    let _ = news.send(started).await;
                }
                let finished = call.outcome().await;
                let shown = finished
                    .render(|finished| Shown::of(&finished.outcome, self.max_result_bytes))
                    .await;
                Carried {
                    answer: Answer { wanted, shown },
                    call: Some(finished.id),
                    duration: finished.duration,
                }
            }
        };
        if let Some(news) = news {
            let _ = news.send(carried.news()).await;
        }
        carried
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
    text.char_indices().nth(MAX_TOLD).map_or(text, |(end, _)| &text[..end])
}

struct Progress {
    id: Value,
    name: String,
    news: mpsc::Sender<Value>,
}

impl UpdateSink for Progress {
    fn send(&self, update: Update) -> Result<(), Overrun> {
        // Reports that exceed the queue are dropped, because only the latest matters. A result's
        // chunks are part of the whole result at the end.
        if let Update::Progress { progress, total, message } = update {
            let message = message.as_deref().map(beginning);
            let report = json!({ "event": "tool_progress", "id": self.id, "name": self.name,
                "progress": progress, "total": total, "message": message });
            let _ = self.news.try_send(report);
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
        let (news, mut waiting) = mpsc::channel(NEWS);
        let sink = Progress { id: json!("1"), name: "slow".into(), news };
        for _ in 0..times {
            let message = Some("é".repeat(chars));
            sink.send(Update::Progress { progress: 1.0, total: None, message }).unwrap();
        }
        std::iter::from_fn(|| waiting.try_recv().ok()).collect()
    }

    #[test]
    fn much_is_cut() {
        let waiting = waiting(2 * NEWS, 1 << 16);
        let bytes: usize = waiting.iter().map(|news| news.to_string().len()).sum();
        assert!(
            waiting.len() == NEWS && bytes < NEWS * 3 * MAX_TOLD,
            "{} with {bytes} bytes",
            waiting.len()
        );
    }

    #[test]
    fn little_is_told_as_it_was_said() {
        assert_eq!(waiting(1, 5)[0]["message"], "ééééé");
    }

    #[test]
    fn the_reason_of_a_failure_is_reported() {
        let error = sa_core::CallError::new(sa_core::CallErrorKind::Failed, "no key");
        let wanted = Wanted { id: None, name: "a".into(), arguments: Ok(RawJson::empty_object()) };
        let news = |error| {
            let answer = Answer { wanted: wanted.clone(), shown: Shown::of(&Err(error), 1_000) };
            Carried { answer, call: None, duration: Duration::ZERO }.news()
        };
        assert_eq!(news(error.clone()).get("reason"), None);
        assert_eq!(news(error.with_reason("settings_invalid"))["reason"], "settings_invalid");
    }
}
