//! Builds the final answer from the last round's.

use serde_json::{Map, Value, json};

use super::{End, Run};
use crate::round::Call;

impl Run<'_> {
    /// Converts the last round's answer into the final answer.
    pub(super) fn answer(&mut self, end: End) -> Map<String, Value> {
        let mut answer = self.last.take().unwrap_or_default();
        let mut choice =
            answer.get("choices").and_then(|choices| choices.get(0)).cloned().unwrap_or_default();
        let mut message = choice["message"].as_object().cloned().unwrap_or_default();
        message.remove("tool_calls");
        message.remove("function_call");
        message.insert("role".into(), json!("assistant"));
        if self.rounds > 1 || end.stopped.is_some() {
            let text = self.texts.join("\n\n");
            let content = if text.is_empty() {
                end.stopped.map(|stop| json!(stop.note()))
            } else {
                Some(json!(text))
            };
            message.insert("content".into(), content.unwrap_or_default());
        }
        if let (Some(call), true) = (end.calls.first(), self.chat_request.legacy) {
            message.insert(
                "function_call".into(),
                json!({ "name": call.name, "arguments": call.arguments }),
            );
        } else if !end.calls.is_empty() {
            message.insert("tool_calls".into(), end.calls.iter().map(Call::to_value).collect());
        }
        choice["message"] = Value::Object(message);
        choice["finish_reason"] = json!(end.finish);
        answer.insert("choices".into(), json!([choice]));
        if let Some(usage) = self.usage.sum() {
            answer.insert("usage".into(), usage.clone());
        }
        if end.stopped.is_some() || self.chat_request.extension.events {
            let mut about = self.about(&end);
            about["calls"] = Value::Array(std::mem::take(&mut self.call_events));
            answer.insert("switchboard".into(), about);
        }
        answer
    }

    /// Returns the report of the gateway's calls, for clients that asked for it or need it.
    pub(super) fn about(&self, end: &End) -> Value {
        let mut about =
            json!({ "event": "end", "rounds": self.rounds, "tool_calls": self.calls_made });
        if let Some(stop) = end.stopped {
            about["stopped"] = json!({ "reason": stop.code(), "message": stop.words() });
        }
        about
    }
}
