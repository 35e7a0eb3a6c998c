//! Builds a response from the answer to a chat completion.

use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::request::{Fields, peek};

/// The settings of the request that its response repeats.
const REPEATED: [&str; 12] = [
    "instructions",
    "max_output_tokens",
    "metadata",
    "model",
    "parallel_tool_calls",
    "reasoning",
    "temperature",
    "text",
    "tool_choice",
    "tools",
    "top_p",
    "truncation",
];

#[derive(Debug)]
pub(crate) struct Settings(Map<String, Value>);

impl Settings {
    pub(super) fn of(fields: &Fields) -> Self {
        let repeated = REPEATED
            .iter()
            .filter_map(|name| Some(((*name).to_owned(), peek(fields, name).ok()??)));
        Self(repeated.collect())
    }

    /// Returns a response that has just begun, with every field that the official clients require.
    pub(super) fn begin(&self) -> Map<String, Value> {
        let mut response = json!({
            "id": new_id("resp"), "object": "response", "created_at": sa_core::clock::now_ms() / 1_000,
            "status": "in_progress", "error": null, "incomplete_details": null, "output": [], "usage": null,
            "background": false, "store": false, "previous_response_id": null,
            "instructions": null, "max_output_tokens": null, "metadata": {}, "model": "", "parallel_tool_calls": true,
            "reasoning": { "effort": null, "summary": null }, "temperature": null, "text": { "format": { "type": "text" } },
            "tool_choice": "auto", "tools": [], "top_p": null, "truncation": "disabled",
        });
        for (name, value) in &self.0 {
            response[name] = value.clone();
        }
        response.as_object().cloned().unwrap_or_default()
    }

    /// Returns the response to a request without a stream.
    pub(crate) fn response(&self, mut completion: Map<String, Value>) -> Value {
        let choice =
            completion.get("choices").map(|choices| choices[0].clone()).unwrap_or_default();
        let ending = Ending::of(choice["finish_reason"].as_str());
        let message = &choice["message"];
        let mut output = Vec::new();
        for (part, text) in
            [(Part::Text, &message["content"]), (Part::Refusal, &message["refusal"])]
        {
            if let Some(text) = text.as_str().filter(|text| !text.is_empty()) {
                output.push(message_item(&new_id("msg"), ending.status(), Some(part.value(text))));
            }
        }
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let function = &call["function"];
            let call = CallItem {
                id: new_id("fc"),
                call_id: text(&call["id"]),
                name: text(&function["name"]),
                arguments: text(&function["arguments"]),
            };
            output.push(call.value(ending.status()));
        }
        let mut response = self.begin();
        ending.finish(&mut response, output, completion.get("usage"));
        if let Some(about) = completion.remove("switchboard") {
            response.insert("switchboard".into(), about);
        }
        Value::Object(response)
    }
}

/// The way in which an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    Completed,
    /// The reason why it is incomplete.
    Incomplete(&'static str),
}

impl Ending {
    pub(super) fn of(finish_reason: Option<&str>) -> Self {
        match finish_reason {
            Some("length") => Self::Incomplete("max_output_tokens"),
            Some("content_filter") => Self::Incomplete("content_filter"),
            _ => Self::Completed,
        }
    }

    /// Returns the status of the response and of the items that were open at the end.
    pub(super) fn status(self) -> &'static str {
        if self == Self::Completed { "completed" } else { "incomplete" }
    }

    pub(super) fn finish(
        self,
        response: &mut Map<String, Value>,
        output: Vec<Value>,
        usage: Option<&Value>,
    ) {
        response.insert("status".into(), json!(self.status()));
        if let Self::Incomplete(reason) = self {
            response.insert("incomplete_details".into(), json!({ "reason": reason }));
        }
        response.insert("output".into(), Value::Array(output));
        response.insert(
            "usage".into(),
            usage.filter(|usage| usage.is_object()).map(tokens).unwrap_or_default(),
        );
    }
}

/// A part of a message's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Text,
    Refusal,
}

impl Part {
    pub(super) fn value(self, text: &str) -> Value {
        match self {
            Self::Text => {
                json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] })
            }
            Self::Refusal => json!({ "type": "refusal", "refusal": text }),
        }
    }
}

pub(super) fn message_item(id: &str, status: &str, part: Option<Value>) -> Value {
    let content: Vec<Value> = part.into_iter().collect();
    json!({ "type": "message", "id": id, "status": status, "role": "assistant", "content": content })
}

/// A call of one of the client's functions.
#[derive(Debug)]
pub(super) struct CallItem {
    pub(super) id: String,
    pub(super) call_id: String,
    pub(super) name: String,
    pub(super) arguments: String,
}

impl CallItem {
    pub(super) fn value(&self, status: &str) -> Value {
        let Self { id, call_id, name, arguments } = self;
        json!({ "type": "function_call", "id": id, "call_id": call_id, "name": name, "arguments": arguments, "status": status })
    }
}

pub(super) fn new_id(kind: &str) -> String {
    format!("{kind}_{}", Uuid::new_v4().simple())
}

/// Converts the token usage to the names of the Responses API.
fn tokens(usage: &Value) -> Value {
    let count = |value: &Value| value.as_u64().unwrap_or(0);
    let (input, output) = (count(&usage["prompt_tokens"]), count(&usage["completion_tokens"]));
    let cached = count(&usage["prompt_tokens_details"]["cached_tokens"]);
    json!({
        "input_tokens": input, "input_tokens_details": { "cached_tokens": cached, "cache_write_tokens": 0 },
        "output_tokens": output,
        "output_tokens_details": { "reasoning_tokens": count(&usage["completion_tokens_details"]["reasoning_tokens"]) },
        "total_tokens": usage["total_tokens"].as_u64().unwrap_or(input.saturating_add(output)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(request: &Value, completion: Value) -> Value {
        let fields: Fields = serde_json::from_str(&request.to_string()).unwrap();
        Settings::of(&fields).response(completion.as_object().unwrap().clone())
    }

    #[test]
    fn text_calls_tokens_and_the_settings_of_the_request() {
        let call = json!({ "id": "call_1", "type": "function", "function": { "name": "f", "arguments": "{}" } });
        let response = response(
            &json!({ "model": "m", "temperature": 0.5, "metadata": { "a": "b" } }),
            json!({
                "choices": [{ "message": { "content": "hi", "tool_calls": [call] }, "finish_reason": "tool_calls" }],
                "usage": { "prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5,
                    "prompt_tokens_details": { "cached_tokens": 1 } },
            }),
        );
        assert_eq!(
            (&response["status"], &response["model"], &response["temperature"]),
            (&json!("completed"), &json!("m"), &json!(0.5))
        );
        assert_eq!(response["metadata"], json!({ "a": "b" }));
        assert_eq!(response["output"][0]["content"][0]["text"], "hi");
        let call = &response["output"][1];
        assert_eq!(
            (&call["type"], &call["call_id"], &call["arguments"]),
            (&json!("function_call"), &json!("call_1"), &json!("{}"))
        );
        assert_eq!(
            response["usage"],
            json!({ "input_tokens": 3, "input_tokens_details": { "cached_tokens": 1, "cache_write_tokens": 0 },
                "output_tokens": 2, "output_tokens_details": { "reasoning_tokens": 0 }, "total_tokens": 5 })
        );
    }

    #[test]
    fn an_answer_that_was_cut_is_incomplete() {
        for (finish, reason) in
            [("length", "max_output_tokens"), ("content_filter", "content_filter")]
        {
            let choice =
                json!({ "message": { "content": "h", "refusal": null }, "finish_reason": finish });
            let response = response(&json!({}), json!({ "choices": [choice] }));
            assert_eq!(
                (&response["status"], &response["output"][0]["status"]),
                (&json!("incomplete"), &json!("incomplete"))
            );
            assert_eq!(response["incomplete_details"], json!({ "reason": reason }));
        }
    }
}
