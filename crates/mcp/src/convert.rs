//! Tools and results in the words of MCP.

use std::sync::Arc;

use rmcp::model::{CallToolResult, ContentBlock, JsonObject, Tool};
use sa_core::directory::ToolView;
use sa_core::outcome::{Block, Outcome};
use sa_core::{CallError, RawJson};
use serde_json::{Value, json};

pub(crate) fn tool(view: &ToolView) -> Tool {
    let tool = &view.tool;
    let mut input = tool.input.as_ref().and_then(|schema| object(schema.raw())).unwrap_or_default();
    // Clients insist on an object, and a tool that says nothing of its arguments takes any.
    input.entry("type").or_insert_with(|| "object".into());
    let description = tool.description.clone().unwrap_or_default();
    let mut converted = Tool::new(view.name.to_string(), description, Arc::new(input));
    converted.title.clone_from(&tool.title);
    converted.output_schema = tool
        .output_schema
        .as_ref()
        .and_then(object)
        .filter(|schema| schema.get("type") == Some(&json!("object")))
        .map(Arc::new);
    converted.annotations =
        tool.annotations.as_ref().and_then(|annotations| serde_json::from_str(annotations.as_str()).ok());
    converted
}

pub(crate) fn result(outcome: &Outcome) -> CallToolResult {
    // What a provider says in MCP's own words needs no translation.
    let native = outcome.as_ref().map_or_else(CallError::native, |output| output.native.as_ref());
    if let Some(result) = native.and_then(|native| serde_json::from_str(native.as_str()).ok()) {
        return result;
    }
    match outcome {
        Ok(output) => {
            let mut blocks: Vec<ContentBlock> = output.blocks.iter().map(block).collect();
            if blocks.is_empty() {
                blocks.push(ContentBlock::text(text(&output.content)));
            }
            let mut result = CallToolResult::success(blocks);
            result.structured_content = object(&output.content).map(Value::Object);
            result
        }
        Err(error) => failure(error),
    }
}

/// A failed call is a result that the model can read: what happened, and what to do.
fn failure(error: &CallError) -> CallToolResult {
    let hint = error.hint.as_ref().map(|hint| format!(" ({hint})")).unwrap_or_default();
    CallToolResult::error(vec![ContentBlock::text(format!("{}: {}{hint}", error.kind, error.message))])
}

fn block(block: &Block) -> ContentBlock {
    match block {
        Block::Text(text) => ContentBlock::text(text.clone()),
        Block::Image { data, mime_type } => ContentBlock::image(data.clone(), mime_type.clone()),
        Block::Other(json) => serde_json::from_str(json.as_str()).unwrap_or_else(|_| ContentBlock::text(json.as_str())),
    }
}

/// A text result as text, any other as JSON.
fn text(content: &RawJson) -> String {
    serde_json::from_str::<String>(content.as_str()).unwrap_or_else(|_| content.as_str().to_owned())
}

fn object(json: &RawJson) -> Option<JsonObject> {
    serde_json::from_str(json.as_str()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sa_core::{CallErrorKind, Output};

    #[test]
    fn a_result_is_text_and_an_object_is_structured_too() {
        let converted = result(&Ok(Output::json(RawJson::parse(r#"{"a":1}"#).unwrap())));
        assert_eq!(converted.structured_content, Some(json!({ "a": 1 })));
        assert_eq!(converted.content.len(), 1);
        let converted = result(&Ok(Output::json(RawJson::parse("\"plain\"").unwrap())));
        assert_eq!(converted.structured_content, None);
        assert_eq!(serde_json::to_value(&converted.content).unwrap()[0]["text"], "plain");
    }

    #[test]
    fn a_failure_is_an_error_that_the_model_can_read() {
        let error = CallError::new(CallErrorKind::InvalidArgs, "missing \"query\"").hint("see the schema");
        let converted = result(&Err(error));
        assert_eq!(converted.is_error, Some(true));
        let text = serde_json::to_value(&converted.content).unwrap()[0]["text"].as_str().unwrap().to_owned();
        assert_eq!(text, "invalid_args: missing \"query\" (see the schema)");
    }
}
