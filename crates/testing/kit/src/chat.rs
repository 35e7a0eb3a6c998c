//! Requests to models over the OpenAI-compatible API, and their answers.

use serde_json::{Value, json};

use crate::{Reply, Server};

/// A request with this text as its only message.
pub fn ask(text: &str) -> Value {
    json!({ "model": "scripted", "messages": [{ "role": "user", "content": text }] })
}

/// Returns the request with this field.
pub fn with(mut body: Value, field: &str, value: Value) -> Value {
    body[field] = value;
    body
}

/// Sends a request for a chat completion as the operator.
pub async fn complete(gateway: &Server, body: &Value) -> Reply {
    gateway.operator().post("/v1/chat/completions", body).await
}

/// A stream that was read to its end and assembled as a client does it.
#[derive(Debug, Default)]
pub struct Streamed {
    pub status: u16,
    pub text: String,
    pub finish: String,
    /// Tool calls by their index.
    pub calls: Vec<Value>,
    pub function_call: Value,
    pub usage: Value,
    pub events: Vec<Value>,
    pub error: Value,
    pub done: bool,
}

impl Streamed {
    /// Sends this request for a stream, and reads all of it.
    pub async fn of(gateway: &Server, body: Value) -> Self {
        let reply = complete(gateway, &with(body, "stream", json!(true))).await;
        let mut streamed =
            Self { status: reply.status, error: reply.body["error"].clone(), ..Self::default() };
        let mut ids: Vec<String> = Vec::new();
        for event in reply.text.split("\n\n").filter_map(|event| event.strip_prefix("data: ")) {
            assert!(!streamed.done, "nothing comes after the end: {event}");
            if event == "[DONE]" {
                streamed.done = true;
                continue;
            }
            let piece: Value = serde_json::from_str(event).unwrap();
            if piece["error"].is_object() {
                streamed.error = piece["error"].clone();
                continue;
            }
            assert_eq!(piece["object"], "chat.completion.chunk", "{piece}");
            ids.push(piece["id"].as_str().unwrap().to_owned());
            streamed.take(&piece);
        }
        ids.dedup();
        assert!(ids.len() <= 1, "the pieces of one answer have one id: {ids:?}");
        streamed
    }

    fn take(&mut self, piece: &Value) {
        if piece["switchboard"].is_object() {
            self.events.push(piece["switchboard"].clone());
        }
        if piece["usage"].is_object() {
            self.usage = piece["usage"].clone();
        }
        let choice = &piece["choices"][0];
        self.text.push_str(choice["delta"]["content"].as_str().unwrap_or_default());
        if let Some(finish) = choice["finish_reason"].as_str() {
            assert_eq!(self.finish, "", "it ends once");
            finish.clone_into(&mut self.finish);
        }
        let join = |known: &mut Value, more: &Value| {
            *known = json!(format!(
                "{}{}",
                known.as_str().unwrap_or_default(),
                more.as_str().unwrap_or_default()
            ));
        };
        for call in choice["delta"]["tool_calls"].as_array().into_iter().flatten() {
            let index = call["index"].as_u64().unwrap() as usize;
            if index == self.calls.len() {
                assert!(call["id"].is_string() && call["function"]["name"].is_string(), "{call}");
                self.calls
                    .push(json!({ "id": call["id"], "function": { "name": "", "arguments": "" } }));
            }
            for field in ["name", "arguments"] {
                join(&mut self.calls[index]["function"][field], &call["function"][field]);
            }
        }
        if let Some(call) = choice["delta"].get("function_call") {
            if self.function_call.is_null() {
                self.function_call = json!({ "name": "", "arguments": "" });
            }
            for field in ["name", "arguments"] {
                join(&mut self.function_call[field], &call[field]);
            }
        }
    }
}

/// Returns the content of a request's tool result, by the id of its call.
pub fn result(request: &Value, id: &str) -> String {
    let messages = request["messages"].as_array().unwrap();
    let result = messages.iter().find(|message| message["tool_call_id"] == id);
    result.unwrap_or_else(|| panic!("no result of {id}: {request}"))["content"]
        .as_str()
        .unwrap()
        .to_owned()
}

/// Returns the names of the tools that a request offers.
pub fn tool_names(request: &Value) -> Vec<&str> {
    request["tools"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|tool| tool["function"]["name"].as_str().unwrap())
        .collect()
}
