//! Finds the calls in a model's reply.

use sa_core::RawJson;
use serde_json::{Value, json};

use super::Format;

/// A call that a model requests.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ToolCall {
    /// The call's id in the reply; some formats and servers leave it out.
    pub(crate) id: Option<Value>,
    pub(crate) name: String,
    /// The arguments as one JSON object, or the reason why they are invalid.
    pub(crate) arguments: Result<RawJson, String>,
}

/// Returns the format of a reply, if it can be detected.
pub(crate) fn detect(reply: &Value) -> Option<Format> {
    let present = |field: &str| reply.get(field).is_some_and(|value| !value.is_null());
    match reply {
        Value::Array(items) => items.iter().find_map(detect),
        _ if present("jsonrpc") || reply["method"] == "tools/call" => Some(Format::Mcp),
        _ if present("choices") => {
            Some(detect(&reply["choices"][0]["message"]).unwrap_or(Format::OpenAi))
        }
        _ if present("tool_calls") || present("function") => Some(Format::OpenAi),
        _ if present("function_call") => Some(Format::OpenAiLegacy),
        _ if present("candidates") || present("parts") || present("functionCall") => {
            Some(Format::Gemini)
        }
        _ if present("stop_reason")
            || reply["type"] == "message"
            || reply["type"] == "tool_use" =>
        {
            Some(Format::Anthropic)
        }
        _ => match &reply["content"] {
            Value::Array(blocks) if blocks.iter().any(|block| block["type"] == "tool_use") => {
                Some(Format::Anthropic)
            }
            _ if reply["role"] == "assistant" => Some(Format::OpenAi),
            _ if reply["role"] == "model" => Some(Format::Gemini),
            _ if present("name") && (present("arguments") || present("params")) => {
                Some(Format::Mcp)
            }
            _ => None,
        },
    }
}

/// Returns the calls of a reply: of a whole response, of its message, or of a bare list of calls.
pub(crate) fn wanted(format: Format, reply: &Value) -> Vec<ToolCall> {
    match format {
        Format::OpenAi => {
            let calls = list(reply, &["/choices/0/message/tool_calls", "/tool_calls", ""]);
            let call = |call: &Value| {
                Some(of_text(
                    call.get("id"),
                    name(&call["function"])?,
                    &call["function"]["arguments"],
                ))
            };
            calls.into_iter().filter_map(call).collect()
        }
        Format::OpenAiLegacy => {
            let places = ["/choices/0/message/function_call", "/function_call", ""];
            let call = places
                .iter()
                .filter_map(|place| reply.pointer(place))
                .find(|call| call["name"].is_string());
            call.and_then(|call| Some(of_text(None, name(call)?, &call["arguments"])))
                .into_iter()
                .collect()
        }
        Format::Anthropic => {
            let blocks = list(reply, &["/content", ""]);
            let blocks = blocks.into_iter().filter(|block| block["type"] == "tool_use");
            blocks
                .filter_map(|block| Some(of_object(block.get("id"), name(block)?, &block["input"])))
                .collect()
        }
        Format::Gemini => {
            let parts = list(reply, &["/candidates/0/content/parts", "/parts", ""]);
            let call = |part: &Value| {
                let call = part.get("functionCall")?;
                Some(of_object(call.get("id"), name(call)?, &call["args"]))
            };
            parts.into_iter().filter_map(call).collect()
        }
        Format::Mcp => {
            let requests = list(reply, &[""]);
            let call = |request: &Value| {
                let params = request.get("params").unwrap_or(request);
                Some(of_object(request.get("id"), name(params)?, &params["arguments"]))
            };
            requests.into_iter().filter_map(call).collect()
        }
    }
}

/// Returns the first of these fields that is not null, as a list.
fn list<'a>(reply: &'a Value, places: &[&str]) -> Vec<&'a Value> {
    match places.iter().filter_map(|place| reply.pointer(place)).find(|found| !found.is_null()) {
        Some(Value::Array(items)) => items.iter().collect(),
        Some(one) => vec![one],
        None => Vec::new(),
    }
}

fn name(call: &Value) -> Option<String> {
    call["name"].as_str().map(ToOwned::to_owned)
}

fn of_text(id: Option<&Value>, name: String, arguments: &Value) -> ToolCall {
    match arguments {
        Value::String(text) => ToolCall::new(id.cloned(), name, text),
        // Some servers send the arguments as an object instead of a text.
        other => of_object(id, name, other),
    }
}

fn of_object(id: Option<&Value>, name: String, arguments: &Value) -> ToolCall {
    let arguments = if arguments.is_null() { &json!({}) } else { arguments };
    ToolCall::new(id.cloned(), name, &arguments.to_string())
}

impl ToolCall {
    /// Creates a call with its arguments as the model wrote them, which may not be valid JSON.
    pub(crate) fn new(id: Option<Value>, name: String, arguments: &str) -> Self {
        let id = id.filter(|id| !id.is_null() && *id != json!(""));
        let text = arguments.trim();
        let arguments =
            match RawJson::parse(if text.is_empty() || text == "null" { "{}" } else { text }) {
                Ok(arguments) if arguments.as_str().starts_with('{') => Ok(arguments),
                Ok(_) => Err("the arguments must be one JSON object".to_owned()),
                Err(error) => Err(format!("the arguments are not valid JSON: {error}")),
            };
        Self { id, name, arguments }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(reply: Value, format: Format, expected: &[(Option<&str>, &str, &str)]) {
        assert_eq!(detect(&reply), Some(format), "{reply}");
        let found = wanted(format, &reply);
        let found: Vec<_> = found
            .iter()
            .map(|call| {
                let id = call.id.as_ref().and_then(Value::as_str);
                (
                    id,
                    call.name.as_str(),
                    call.arguments.as_ref().map_or("bad", |args| args.as_str()),
                )
            })
            .collect();
        assert_eq!(found, expected, "{reply}");
    }

    #[test]
    fn replies_of_every_format_whole_and_in_part() {
        let call = json!({ "id": "c1", "type": "function", "function": { "name": "f", "arguments": "{\"a\":1}" } });
        let message = json!({ "role": "assistant", "content": null, "tool_calls": [call] });
        let expected = [(Some("c1"), "f", "{\"a\":1}")];
        check(json!({ "choices": [{ "message": message }] }), Format::OpenAi, &expected);
        check(message, Format::OpenAi, &expected);
        check(json!([call]), Format::OpenAi, &expected);
        check(json!({ "role": "assistant", "content": "hello" }), Format::OpenAi, &[]);

        let legacy =
            json!({ "role": "assistant", "function_call": { "name": "f", "arguments": "{}" } });
        check(
            json!({ "choices": [{ "message": legacy }] }),
            Format::OpenAiLegacy,
            &[(None, "f", "{}")],
        );
        check(legacy, Format::OpenAiLegacy, &[(None, "f", "{}")]);

        let block = json!({ "type": "tool_use", "id": "t1", "name": "f", "input": { "a": 1 } });
        let content = json!([{ "type": "text", "text": "x" }, block]);
        let reply = json!({ "type": "message", "role": "assistant", "content": content, "stop_reason": "tool_use" });
        check(reply, Format::Anthropic, &[(Some("t1"), "f", "{\"a\":1}")]);
        check(
            json!({ "role": "assistant", "content": content }),
            Format::Anthropic,
            &[(Some("t1"), "f", "{\"a\":1}")],
        );
        check(content, Format::Anthropic, &[(Some("t1"), "f", "{\"a\":1}")]);

        let content = json!({ "role": "model", "parts": [{ "functionCall": { "name": "f", "args": { "a": 1 } } }] });
        check(
            json!({ "candidates": [{ "content": content }] }),
            Format::Gemini,
            &[(None, "f", "{\"a\":1}")],
        );
        check(content, Format::Gemini, &[(None, "f", "{\"a\":1}")]);

        let params = json!({ "name": "f", "arguments": { "a": 1 } });
        check(params.clone(), Format::Mcp, &[(None, "f", "{\"a\":1}")]);
        let request =
            json!({ "jsonrpc": "2.0", "id": "7", "method": "tools/call", "params": params });
        check(json!([request]), Format::Mcp, &[(Some("7"), "f", "{\"a\":1}")]);
        assert_eq!(detect(&json!({ "hello": 1 })), None);
    }

    #[test]
    fn arguments_that_are_no_object_are_noticed() {
        let arguments = |text: &str| {
            ToolCall::new(None, "f".into(), text).arguments.map(|json| json.as_str().to_owned())
        };
        assert_eq!(arguments(""), Ok("{}".into()));
        assert_eq!(arguments(" null "), Ok("{}".into()));
        assert!(arguments("{\"a\":").unwrap_err().contains("not valid JSON"));
        assert!(arguments("[1]").unwrap_err().contains("object"));
    }

    const WORDS: &[&str] = &[
        "choices",
        "message",
        "tool_calls",
        "function_call",
        "function",
        "functionCall",
        "name",
        "arguments",
        "args",
        "input",
        "content",
        "parts",
        "candidates",
        "role",
        "model",
        "assistant",
        "type",
        "tool_use",
        "stop_reason",
        "jsonrpc",
        "method",
        "tools/call",
        "params",
        "id",
        "{}",
        "null",
    ];

    proptest::proptest! {
        #[test]
        fn every_reply_can_be_read(reply in sa_hostile::json(WORDS)) {
            for reply in [reply.clone(), json!([reply]), json!({ "choices": [{ "message": reply }] })] {
                let _ = detect(&reply);
                for wanted in Format::ALL.into_iter().flat_map(|format| wanted(format, &reply)) {
                    match wanted.arguments {
                        Ok(arguments) => proptest::prop_assert!(arguments.as_str().starts_with('{'), "the rule is broken"),
                        Err(why) => proptest::prop_assert!(why.len() < sa_hostile::SHORT),
                    }
                }
            }
        }
    }
}
