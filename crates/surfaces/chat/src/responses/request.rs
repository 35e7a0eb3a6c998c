//! The fields of a request. Every field is translated, ignored on purpose, or rejected by name.

use serde_json::{Map, Value, json};

use super::response::Settings;
use super::{input, unsupported};
use crate::error::ChatError;
use crate::request::{Fields, optional, raw, required};

/// Fields that have the same name in chat completions.
const UNCHANGED_FIELDS: [&str; 11] = [
    "model",
    "parallel_tool_calls",
    "prompt_cache_key",
    "prompt_cache_retention",
    "safety_identifier",
    "service_tier",
    "stream",
    "switchboard",
    "temperature",
    "top_p",
    "user",
];

/// Fields that do not change the answer. Nothing is stored, even if `store` is set.
const IGNORED: [&str; 5] = ["include", "metadata", "store", "stream_options", "truncation"];

/// Translates a request into chat completions. Also returns the settings that the response repeats.
pub(crate) fn translate(mut fields: Fields) -> Result<(Fields, Settings), ChatError> {
    // Clients send null for empty fields.
    fields.retain(|_, value| value.get() != "null");
    let settings = Settings::of(&fields);
    let instructions: Option<String> = optional(&mut fields, "instructions")?;
    let input: Value = required(&mut fields, "input", "a string or a list of items")?;
    let mut chat = Fields::new();
    let mut set = |name: &str, value: Value| drop(chat.insert(name.to_owned(), raw(&value)));
    set("messages", input::messages(instructions, &input)?.into());
    if let Some(tools) = optional::<Vec<Value>>(&mut fields, "tools")? {
        set(
            "tools",
            tools
                .iter()
                .enumerate()
                .map(|(index, tool)| function(index, tool))
                .collect::<Result<_, _>>()?,
        );
    }
    if let Some(choice) = optional::<Value>(&mut fields, "tool_choice")? {
        set("tool_choice", tool_choice(choice)?);
    }
    if let Some(most) = optional::<Value>(&mut fields, "max_output_tokens")? {
        set("max_completion_tokens", most);
    }
    if let Some(text) = optional::<Map<String, Value>>(&mut fields, "text")? {
        if let Some(format) = text.get("format").and_then(response_format) {
            set("response_format", format);
        }
        if let Some(verbosity) = text.get("verbosity").filter(|verbosity| !verbosity.is_null()) {
            set("verbosity", verbosity.clone());
        }
    }
    if let Some(reasoning) = optional::<Map<String, Value>>(&mut fields, "reasoning")?
        && let Some(effort) = reasoning.get("effort").filter(|effort| !effort.is_null())
    {
        set("reasoning_effort", effort.clone());
    }
    // The response reports the tokens, also in a stream.
    if fields.get("stream").is_some_and(|stream| stream.get() == "true") {
        set("stream_options", json!({ "include_usage": true }));
    }
    for (name, value) in fields {
        match name.as_str() {
            same if UNCHANGED_FIELDS.contains(&same) => drop(chat.insert(name, value)),
            ignored if IGNORED.contains(&ignored) => {}
            _ if matches!(value.get(), "false" | "0") => {}
            "previous_response_id" | "conversation" => {
                let message = format!(
                    "{name} is not supported: the gateway stores no responses; send the whole conversation as input"
                );
                return Err(unsupported(&name, message));
            }
            _ => {
                return Err(unsupported(
                    &name,
                    format!("the field {name} is not supported; omit it"),
                ));
            }
        }
    }
    Ok((chat, settings))
}

fn function(index: usize, tool: &Value) -> Result<Value, ChatError> {
    let kind = tool["type"].as_str().unwrap_or_default();
    if kind != "function" {
        let kind = crate::error::quoted(kind, &[]);
        return Err(unsupported(
            &format!("tools[{index}].type"),
            format!(
                "tools of the type \"{kind}\" are not supported, only functions; the gateway offers its own tools automatically"
            ),
        ));
    }
    if !tool["name"].is_string() {
        return Err(ChatError::invalid(&format!("tools[{index}].name"), "a function needs a name"));
    }
    let known = ["name", "description", "parameters", "strict"];
    let function: Map<String, Value> = known
        .into_iter()
        .filter(|field| !tool[*field].is_null())
        .map(|field| (field.to_owned(), tool[field].clone()))
        .collect();
    Ok(json!({ "type": "function", "function": function }))
}

fn tool_choice(choice: Value) -> Result<Value, ChatError> {
    let named =
        |choice: &Value| json!({ "type": "function", "function": { "name": choice["name"] } });
    match choice["type"].as_str() {
        None if choice.is_string() => Ok(choice),
        Some("function") => Ok(named(&choice)),
        Some("allowed_tools") => {
            let tools: Vec<Value> =
                choice["tools"].as_array().into_iter().flatten().map(named).collect();
            Ok(
                json!({ "type": "allowed_tools", "allowed_tools": { "mode": choice["mode"], "tools": tools } }),
            )
        }
        _ => Err(unsupported(
            "tool_choice",
            "tool_choice must be \"auto\", \"none\", \"required\", a function or allowed_tools",
        )),
    }
}

/// Translates the format of the text. Chat completions nest the schema one level deeper, and plain
/// text is the default.
fn response_format(format: &Value) -> Option<Value> {
    match format["type"].as_str()? {
        "text" => None,
        "json_schema" => {
            let mut schema = format.clone();
            schema.as_object_mut()?.remove("type");
            Some(json!({ "type": "json_schema", "json_schema": schema }))
        }
        _ => Some(format.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chat(request: &Value) -> Result<Value, ChatError> {
        let fields: Fields = serde_json::from_str(&request.to_string()).unwrap();
        let (chat, _) = translate(fields)?;
        Ok(serde_json::to_value(chat).unwrap())
    }

    #[test]
    fn every_supported_field_is_translated() {
        let schema = json!({ "type": "object" });
        let request = json!({
            "model": "m", "input": "hello", "instructions": "be short", "stream": true, "temperature": 0.5,
            "max_output_tokens": 9, "reasoning": { "effort": "low", "summary": "auto" }, "store": true, "metadata": { "a": "b" },
            "background": false, "previous_response_id": null, "include": [],
            "text": { "format": { "type": "json_schema", "name": "n", "schema": schema, "strict": true }, "verbosity": "low" },
            "tools": [{ "type": "function", "name": "f", "description": null, "parameters": schema, "strict": true }],
            "tool_choice": { "type": "function", "name": "f" },
        });
        assert_eq!(
            chat(&request).unwrap(),
            json!({
                "model": "m", "stream": true, "stream_options": { "include_usage": true }, "temperature": 0.5,
                "messages": [{ "role": "system", "content": "be short" }, { "role": "user", "content": "hello" }],
                "max_completion_tokens": 9, "reasoning_effort": "low", "verbosity": "low",
                "response_format": { "type": "json_schema", "json_schema": { "name": "n", "schema": schema, "strict": true } },
                "tools": [{ "type": "function", "function": { "name": "f", "parameters": schema, "strict": true } }],
                "tool_choice": { "type": "function", "function": { "name": "f" } },
            })
        );
    }

    #[test]
    fn the_allowed_tools_are_named_as_chat_completions_name_them() {
        let tools = json!([{ "type": "function", "name": "f" }]);
        let choice = json!({ "type": "allowed_tools", "mode": "required", "tools": tools });
        let chat = chat(&json!({ "model": "m", "input": "x", "tool_choice": choice })).unwrap();
        let named = json!([{ "type": "function", "function": { "name": "f" } }]);
        assert_eq!(
            chat["tool_choice"],
            json!({ "type": "allowed_tools", "allowed_tools": { "mode": "required", "tools": named } })
        );
    }

    #[track_caller]
    fn check_refused(field: &str, value: Value, param: &str) {
        let mut request = json!({ "model": "m", "input": "hello" });
        request[field] = value;
        let error = chat(&request).unwrap_err();
        assert_eq!(
            (error.status, error.param.as_deref()),
            (400, Some(param)),
            "{request}: {}",
            error.message
        );
    }

    #[test]
    fn unsupported_fields_are_refused_by_name() {
        check_refused("previous_response_id", json!("resp_1"), "previous_response_id");
        check_refused("conversation", json!({ "id": "conv_1" }), "conversation");
        check_refused("background", json!(true), "background");
        check_refused("prompt", json!({ "id": "p" }), "prompt");
        check_refused("top_logprobs", json!(5), "top_logprobs");
        check_refused("not_yet_known", json!("x"), "not_yet_known");
        check_refused("tools", json!([{ "type": "web_search" }]), "tools[0].type");
        check_refused("tools", json!([{ "type": "function" }]), "tools[0].name");
        check_refused("tool_choice", json!({ "type": "file_search" }), "tool_choice");
        check_refused("input", json!(5), "input");
        check_refused("input", json!(null), "input");
        check_refused("instructions", json!(["x"]), "instructions");
    }

    proptest::proptest! {
        #[test]
        fn no_request_breaks_the_translation(
            tools in sa_hostile::json(&["type", "function", "name", "f", "parameters"]),
            choice in sa_hostile::json(&["type", "allowed_tools", "tools", "mode", "auto"]),
            text in sa_hostile::json(&["format", "type", "json_schema", "schema", "name", "verbosity"]),
        ) {
            let _ = chat(&json!({ "input": "x", "tools": tools, "tool_choice": choice, "text": text }));
            let _ = chat(&json!({ "input": "x", "tools": [tools], "tool_choice": choice, "text": { "format": text } }));
        }
    }
}
