//! Converts the items of a request's input into the messages of a conversation.

use serde_json::{Value, json};

use super::unsupported;
use crate::error::{ChatError, quoted};
use crate::request::MAX_MESSAGES;

/// Returns the messages. Consecutive calls, and a message before them, become one message of the
/// assistant.
pub(super) fn messages(
    instructions: Option<String>,
    input: &Value,
) -> Result<Vec<Value>, ChatError> {
    let mut conversation = Conversation::default();
    if let Some(instructions) = instructions {
        conversation.push(json!({ "role": "system", "content": instructions }));
    }
    match input {
        Value::String(text) => conversation.push(json!({ "role": "user", "content": text })),
        Value::Array(items) if (1..=MAX_MESSAGES).contains(&items.len()) => {
            for (index, item) in items.iter().enumerate() {
                conversation.add(&format!("input[{index}]"), item)?;
            }
        }
        _ => {
            let message = format!("input must be a string or a list of 1 to {MAX_MESSAGES} items");
            return Err(ChatError::invalid("input", message));
        }
    }
    conversation.flush();
    if conversation.messages.is_empty() {
        return Err(ChatError::invalid("input", "input has no message"));
    }
    Ok(conversation.messages)
}

#[derive(Default)]
struct Conversation {
    messages: Vec<Value>,
    /// Images and files of results: the role `tool` may contain only text, so they follow in a user
    /// message.
    attached: Vec<Value>,
}

impl Conversation {
    fn push(&mut self, message: Value) {
        self.flush();
        self.messages.push(message);
    }

    fn flush(&mut self) {
        if !self.attached.is_empty() {
            let parts = std::mem::take(&mut self.attached);
            self.messages.push(json!({ "role": "user", "content": parts }));
        }
    }

    fn add(&mut self, place: &str, item: &Value) -> Result<(), ChatError> {
        // A message may have no type.
        let kind = item["type"].as_str().or_else(|| item.get("role").map(|_| "message"));
        match kind {
            Some("message") => self.push(message(place, item)?),
            Some("function_call") => self.call(place, item)?,
            Some("function_call_output") => self.result(place, item)?,
            // Its text is for people, and its encrypted content is for OpenAI's servers only.
            Some("reasoning") => {}
            Some("item_reference") => {
                let message = "item_reference is not supported: the gateway stores no items; send the item itself";
                return Err(unsupported(&format!("{place}.type"), message));
            }
            kind => {
                let kind = quoted(kind.unwrap_or_default(), &[]);
                let message = format!("items of the type \"{kind}\" are not supported");
                return Err(unsupported(&format!("{place}.type"), message));
            }
        }
        Ok(())
    }

    fn call(&mut self, place: &str, item: &Value) -> Result<(), ChatError> {
        let id = text(place, item, "call_id")?;
        let function = json!({ "name": text(place, item, "name")?, "arguments": text(place, item, "arguments")? });
        let call = json!({ "id": id, "type": "function", "function": function });
        self.flush();
        match self.messages.last_mut().filter(|last| last["role"] == "assistant") {
            Some(last) => match last["tool_calls"].as_array_mut() {
                Some(calls) => calls.push(call),
                None => last["tool_calls"] = json!([call]),
            },
            None => self
                .messages
                .push(json!({ "role": "assistant", "content": null, "tool_calls": [call] })),
        }
        Ok(())
    }

    fn result(&mut self, place: &str, item: &Value) -> Result<(), ChatError> {
        let id = text(place, item, "call_id")?;
        let content = match &item["output"] {
            Value::Array(output) => {
                let (texts, attached): (Vec<Value>, Vec<Value>) =
                    parts(&format!("{place}.output"), output)?
                        .into_iter()
                        .partition(|part| part["type"] == "text");
                let note = (!attached.is_empty())
                    .then(|| "[its images and files are in the next message]".to_owned());
                self.attached.extend(attached);
                let texts =
                    texts.iter().filter_map(|part| part["text"].as_str().map(ToOwned::to_owned));
                texts.chain(note).collect::<Vec<_>>().join("\n")
            }
            _ => text(place, item, "output")?.to_owned(),
        };
        self.messages.push(json!({ "role": "tool", "tool_call_id": id, "content": content }));
        Ok(())
    }
}

fn message(place: &str, item: &Value) -> Result<Value, ChatError> {
    let role = match item["role"].as_str() {
        // Few servers other than OpenAI's know the role `developer`.
        Some("developer" | "system") => "system",
        Some(role @ ("user" | "assistant")) => role,
        _ => {
            let message = "the role must be user, assistant, system or developer";
            return Err(ChatError::invalid(&format!("{place}.role"), message));
        }
    };
    let content = match &item["content"] {
        Value::Array(content) => {
            let parts = parts(&format!("{place}.content"), content)?;
            // Every server supports plain text.
            let texts: Option<Vec<&str>> = parts.iter().map(|part| part["text"].as_str()).collect();
            texts.map_or_else(|| json!(parts), |texts| json!(texts.join("\n")))
        }
        _ => json!(text(place, item, "content")?),
    };
    Ok(json!({ "role": role, "content": content }))
}

fn parts(place: &str, parts: &[Value]) -> Result<Vec<Value>, ChatError> {
    parts
        .iter()
        .enumerate()
        .map(|(index, value)| part(&format!("{place}[{index}]"), value))
        .collect()
}

fn part(place: &str, part: &Value) -> Result<Value, ChatError> {
    match part["type"].as_str() {
        Some("input_text" | "output_text") => {
            Ok(json!({ "type": "text", "text": text(place, part, "text")? }))
        }
        Some("refusal") => Ok(json!({ "type": "text", "text": text(place, part, "refusal")? })),
        Some("input_image") if part["image_url"].is_string() => {
            let mut image = json!({ "url": part["image_url"] });
            if part["detail"].is_string() {
                image["detail"] = part["detail"].clone();
            }
            Ok(json!({ "type": "image_url", "image_url": image }))
        }
        Some("input_file") if part["file_data"].is_string() => Ok(
            json!({ "type": "file", "file": { "file_data": part["file_data"], "filename": part["filename"] } }),
        ),
        Some(kind @ ("input_image" | "input_file")) => {
            let with = if kind == "input_image" { "image_url" } else { "file_data" };
            Err(unsupported(
                place,
                format!("{kind} is supported only with {with}: the gateway stores no files"),
            ))
        }
        kind => {
            let kind = quoted(kind.unwrap_or_default(), &[]);
            Err(unsupported(
                &format!("{place}.type"),
                format!("content of the type \"{kind}\" is not supported"),
            ))
        }
    }
}

fn text<'a>(place: &str, item: &'a Value, field: &str) -> Result<&'a str, ChatError> {
    let place = format!("{place}.{field}");
    item[field]
        .as_str()
        .ok_or_else(|| ChatError::invalid(&place, format!("{place} must be a string")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(input: Value, expected: Value) {
        assert_eq!(Value::Array(messages(None, &input).unwrap()), expected, "{input}");
    }

    #[test]
    fn messages_in_every_form() {
        check(json!("hello"), json!([{ "role": "user", "content": "hello" }]));
        check(
            json!([
                { "role": "developer", "content": "be short" },
                { "type": "message", "role": "user", "content": [{ "type": "input_text", "text": "hello" }] },
                { "type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
                  "content": [{ "type": "output_text", "text": "hi", "annotations": [] }] },
                { "role": "user", "content": [
                    { "type": "input_text", "text": "look" },
                    { "type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "low" },
                    { "type": "input_file", "file_data": "data:text/plain;base64,AA==", "filename": "a.txt" } ] },
            ]),
            json!([
                { "role": "system", "content": "be short" },
                { "role": "user", "content": "hello" },
                { "role": "assistant", "content": "hi" },
                { "role": "user", "content": [
                    { "type": "text", "text": "look" },
                    { "type": "image_url", "image_url": { "url": "data:image/png;base64,AA==", "detail": "low" } },
                    { "type": "file", "file": { "file_data": "data:text/plain;base64,AA==", "filename": "a.txt" } } ] },
            ]),
        );
    }

    #[test]
    fn calls_and_their_results() {
        let item = |id: &str| json!({ "type": "function_call", "id": "fc_1", "call_id": id, "name": "f", "arguments": "{}" });
        let call = |id: &str| json!({ "id": id, "type": "function", "function": { "name": "f", "arguments": "{}" } });
        check(
            json!([
                { "role": "user", "content": "go" },
                { "type": "reasoning", "id": "rs_1", "summary": [] },
                { "role": "assistant", "content": "I call both." },
                item("a"),
                item("b"),
                { "type": "function_call_output", "call_id": "a", "output": "1" },
                { "type": "function_call_output", "call_id": "b", "output": [
                    { "type": "input_text", "text": "2" }, { "type": "input_image", "image_url": "https://example/a.png" } ] },
                item("c"),
            ]),
            json!([
                { "role": "user", "content": "go" },
                { "role": "assistant", "content": "I call both.", "tool_calls": [call("a"), call("b")] },
                { "role": "tool", "tool_call_id": "a", "content": "1" },
                { "role": "tool", "tool_call_id": "b", "content": "2\n[its images and files are in the next message]" },
                { "role": "user", "content": [{ "type": "image_url", "image_url": { "url": "https://example/a.png" } }] },
                { "role": "assistant", "content": null, "tool_calls": [call("c")] },
            ]),
        );
    }

    #[track_caller]
    fn check_refused(item: Value, param: &str) {
        let error = messages(None, &json!([item])).unwrap_err();
        assert_eq!(
            (error.status, error.param.as_deref()),
            (400, Some(param)),
            "{item}: {}",
            error.message
        );
    }

    #[test]
    fn the_number_of_items_is_bounded() {
        for items in [vec![], vec![json!({ "role": "user", "content": "x" }); MAX_MESSAGES + 1]] {
            assert_eq!(
                messages(None, &Value::Array(items)).unwrap_err().param.as_deref(),
                Some("input")
            );
        }
    }

    #[test]
    fn unsupported_fields_are_refused_with_their_path() {
        check_refused(json!({ "type": "item_reference", "id": "msg_1" }), "input[0].type");
        check_refused(json!({ "type": "computer_call" }), "input[0].type");
        check_refused(json!("hello"), "input[0].type");
        check_refused(json!({ "role": "robot", "content": "x" }), "input[0].role");
        check_refused(json!({ "role": "user" }), "input[0].content");
        check_refused(
            json!({ "role": "user", "content": [{ "type": "input_audio" }] }),
            "input[0].content[0].type",
        );
        check_refused(
            json!({ "role": "user", "content": [{ "type": "input_image", "file_id": "f" }] }),
            "input[0].content[0]",
        );
        check_refused(
            json!({ "type": "function_call", "name": "f", "arguments": "" }),
            "input[0].call_id",
        );
        check_refused(json!({ "type": "function_call_output", "call_id": "a" }), "input[0].output");
        check_refused(json!({ "type": "reasoning" }), "input");
    }

    proptest::proptest! {
        #[test]
        fn no_input_breaks_the_translation(items in proptest::collection::vec(sa_hostile::json(&[
            "type", "role", "user", "assistant", "content", "message", "function_call", "function_call_output", "call_id",
            "output", "name", "arguments", "input_text", "text", "input_image", "image_url",
        ]), 0..6)) {
            for item in &items {
                let _ = messages(None, item);
            }
            let _ = messages(None, &Value::Array(items));
        }
    }
}
