//! The request for a round, in the form that the model's server supports.

use std::borrow::Cow;
use std::collections::BTreeMap;

use sa_limits::offload;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use super::Run;
use crate::error::ChatError;
use crate::legacy;
use crate::request::{raw, tool_name};

impl Run<'_> {
    /// Returns the request for the next round.
    pub(super) async fn body(&self) -> Result<Vec<u8>, ChatError> {
        let messages: usize =
            self.messages.iter().chain(&self.added).map(|message| message.get().len()).sum();
        offload::run_queued(self.weight + messages, || self.written()).await
    }

    fn written(&self) -> Result<Vec<u8>, ChatError> {
        let spec = self.server.spec;
        let messages: Vec<&RawValue> =
            self.messages.iter().chain(&self.added).map(|message| &**message).collect();
        let old_messages = spec.legacy_functions.then(|| legacy::to_legacy(&messages));
        let messages = match &old_messages {
            Some(messages) => to_raw_value(messages),
            None => to_raw_value(&messages),
        };
        let unwritable =
            |error: serde_json::Error| ChatError::invalid("messages", error.to_string());
        let mut body: BTreeMap<&str, Box<RawValue>> = BTreeMap::new();
        for (name, value) in &self.chat_request.fields {
            body.insert(name, value.clone());
        }
        body.insert("model", raw(&json!(spec.model(self.server.name))));
        body.insert("messages", messages.map_err(unwritable)?);
        let choice = self.chat_request.choice(self.rounds <= 1).map(Cow::into_owned);
        if spec.legacy_functions {
            body.remove("parallel_tool_calls");
            let functions: Vec<&Value> = self
                .tools
                .iter()
                .filter(|tool| tool_name(tool).is_some())
                .map(|tool| &tool["function"])
                .collect();
            if !functions.is_empty() {
                body.insert("functions", raw(&json!(functions)));
            }
            if let Some(choice) = choice {
                let named = choice["function"]["name"].as_str().map(|name| json!({ "name": name }));
                let plain = if choice == "none" { "none" } else { "auto" };
                body.insert("function_call", raw(&named.unwrap_or_else(|| json!(plain))));
            }
        } else {
            if !self.tools.is_empty() {
                body.insert("tools", raw(&json!(self.tools)));
            }
            if let Some(choice) = choice {
                body.insert("tool_choice", raw(&choice));
            }
        }
        if self.chat_request.stream && spec.max_total_tokens > 0 && !self.chat_request.include_usage
        {
            let given = self
                .chat_request
                .fields
                .get("stream_options")
                .and_then(|given| serde_json::from_str(given.get()).ok());
            let mut options: Value = given.filter(Value::is_object).unwrap_or_else(|| json!({}));
            options["include_usage"] = json!(true);
            body.insert("stream_options", raw(&options));
        }
        serde_json::to_vec(&body).map_err(unwritable)
    }
}
