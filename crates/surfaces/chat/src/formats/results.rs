//! Converts the results of calls into messages that are appended to a conversation.

use serde_json::{Value, json};

use super::{Format, ToolCall};
use crate::result::{Image, RenderedResult};

/// A call and its result.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) wanted: ToolCall,
    pub(crate) rendered: RenderedResult,
}

pub(crate) fn messages(format: Format, answers: &[Answer]) -> Vec<Value> {
    if answers.is_empty() {
        return Vec::new();
    }
    match format {
        Format::OpenAi => {
            let (mut messages, images) = openai_messages(answers);
            messages.extend(images);
            messages
        }
        Format::OpenAiLegacy => {
            let function = |answer: &Answer| json!({ "role": "function", "name": answer.wanted.name, "content": message(answer) });
            answers.iter().map(function).chain(image_message(answers)).collect()
        }
        Format::Anthropic => {
            let results: Vec<Value> = answers.iter().map(anthropic).collect();
            vec![json!({ "role": "user", "content": results })]
        }
        Format::Gemini => {
            let parts: Vec<Value> = answers.iter().flat_map(gemini).collect();
            vec![json!({ "role": "user", "parts": parts })]
        }
        Format::Mcp => answers.iter().map(mcp).collect(),
    }
}

/// Returns the messages of the results, and one more with the images. A `tool` message may contain
/// only text, so the images follow in a user message after all results.
pub(crate) fn openai_messages(answers: &[Answer]) -> (Vec<Value>, Option<Value>) {
    let tool = |answer: &Answer| json!({ "role": "tool", "tool_call_id": answer.wanted.id, "content": message(answer) });
    (answers.iter().map(tool).collect(), image_message(answers))
}

/// Returns the text of a result, with a note about its images.
fn message(answer: &Answer) -> String {
    let rendered = &answer.rendered;
    let note = match rendered.images.len() {
        0 => return rendered.text.clone(),
        1 => "[its image is in the next message]".to_owned(),
        images => format!("[its {images} images are in the next message]"),
    };
    format!("{}\n{note}", rendered.text).trim().to_owned()
}

fn image_message(answers: &[Answer]) -> Option<Value> {
    let mut parts = Vec::new();
    for answer in answers.iter().filter(|answer| !answer.rendered.images.is_empty()) {
        parts.push(json!({ "type": "text", "text": format!("From the result of {}:", answer.wanted.name) }));
        let url = |image: &Image| format!("data:{};base64,{}", image.mime_type, image.data);
        let images = answer.rendered.images.iter();
        parts.extend(
            images.map(|image| json!({ "type": "image_url", "image_url": { "url": url(image) } })),
        );
    }
    (!parts.is_empty()).then(|| json!({ "role": "user", "content": parts }))
}

fn anthropic(answer: &Answer) -> Value {
    let rendered = &answer.rendered;
    let mut content = Vec::new();
    if !rendered.text.is_empty() {
        content.push(json!({ "type": "text", "text": rendered.text }));
    }
    content.extend(rendered.images.iter().map(|image| {
        let source = json!({ "type": "base64", "media_type": image.mime_type, "data": image.data });
        json!({ "type": "image", "source": source })
    }));
    let mut result =
        json!({ "type": "tool_result", "tool_use_id": answer.wanted.id, "content": content });
    if rendered.is_error {
        result["is_error"] = json!(true);
    }
    result
}

/// Returns the result, followed by its images as parts.
fn gemini(answer: &Answer) -> Vec<Value> {
    let rendered = &answer.rendered;
    let field = if rendered.is_error { "error" } else { "result" };
    // JSON is passed as JSON, and text as a string.
    let value = serde_json::from_str(&rendered.text).unwrap_or_else(|_| json!(rendered.text));
    let mut response = json!({ "name": answer.wanted.name, "response": { field: value } });
    if let Some(id) = &answer.wanted.id {
        response["id"] = id.clone();
    }
    let image = |image: &Image| json!({ "inlineData": { "mimeType": image.mime_type, "data": image.data } });
    std::iter::once(json!({ "functionResponse": response }))
        .chain(rendered.images.iter().map(image))
        .collect()
}

fn mcp(answer: &Answer) -> Value {
    let rendered = &answer.rendered;
    let result =
        rendered.mcp.as_ref().and_then(|result| result.to_value().ok()).unwrap_or_else(|| {
            let mut content = Vec::new();
            if !rendered.text.is_empty() {
                content.push(json!({ "type": "text", "text": rendered.text }));
            }
            content.extend(rendered.images.iter().map(
                |image| json!({ "type": "image", "data": image.data, "mimeType": image.mime_type }),
            ));
            let mut result = json!({ "content": content, "isError": rendered.is_error });
            if let Ok(structured @ Value::Object(_)) = serde_json::from_str(&rendered.text) {
                result["structuredContent"] = structured;
            }
            result
        });
    match &answer.wanted.id {
        Some(id) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
        None => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(id: Option<&str>, rendered: RenderedResult) -> Answer {
        Answer { wanted: ToolCall::new(id.map(|id| json!(id)), "f".into(), "{}"), rendered }
    }

    fn with_image() -> RenderedResult {
        let images = vec![Image { mime_type: "image/png".into(), data: "AA==".into() }];
        RenderedResult { text: "seen".into(), images, ..RenderedResult::default() }
    }

    #[track_caller]
    fn check(format: Format, rendered: RenderedResult, expected: Value) {
        assert_eq!(json!(messages(format, &[answer(Some("c"), rendered)])), expected, "{format:?}");
    }

    #[test]
    fn images_go_where_the_format_requires_them() {
        let url =
            json!({ "type": "image_url", "image_url": { "url": "data:image/png;base64,AA==" } });
        let user = json!({ "role": "user", "content": [{ "type": "text", "text": "From the result of f:" }, url] });
        let note = "seen\n[its image is in the next message]";
        let tool = json!({ "role": "tool", "tool_call_id": "c", "content": note });
        check(Format::OpenAi, with_image(), json!([tool, user]));
        let function = json!({ "role": "function", "name": "f", "content": note });
        check(Format::OpenAiLegacy, with_image(), json!([function, user]));
        let source = json!({ "type": "base64", "media_type": "image/png", "data": "AA==" });
        let content =
            json!([{ "type": "text", "text": "seen" }, { "type": "image", "source": source }]);
        let result = json!({ "type": "tool_result", "tool_use_id": "c", "content": content });
        check(Format::Anthropic, with_image(), json!([{ "role": "user", "content": [result] }]));
        let response = json!({ "id": "c", "name": "f", "response": { "result": "seen" } });
        let data = json!({ "inlineData": { "mimeType": "image/png", "data": "AA==" } });
        check(
            Format::Gemini,
            with_image(),
            json!([{ "role": "user", "parts": [{ "functionResponse": response }, data] }]),
        );
    }

    #[test]
    fn errors_are_marked_where_the_format_has_a_mark() {
        let error = || RenderedResult::error("not_found: there is none");
        let content = json!([{ "type": "text", "text": "Error: not_found: there is none" }]);
        let result = json!({ "type": "tool_result", "tool_use_id": "c", "content": content, "is_error": true });
        check(Format::Anthropic, error(), json!([{ "role": "user", "content": [result] }]));
        let result = json!({ "content": content, "isError": true });
        check(Format::Mcp, error(), json!([{ "jsonrpc": "2.0", "id": "c", "result": result }]));
        assert_eq!(messages(Format::OpenAi, &[]), Vec::<Value>::new());
    }
}
