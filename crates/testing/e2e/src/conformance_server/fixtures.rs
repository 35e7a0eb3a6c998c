//! The tools, resources and prompts that the suite expects, with exactly these names.

use std::time::Duration;

use serde_json::{Value, json};

const PIXEL: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==";
pub(crate) const SILENCE: &str = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAAA";

/// Long enough that a gateway turns the call into a task.
pub(crate) const LONG: Duration = Duration::from_millis(400);

/// Tools without arguments.
const PLAIN: [&str; 32] = [
    "confirm_delete",
    "failing_job",
    "multi_input",
    "protocol_error_job",
    "test_audio_content",
    "test_elicitation_sep1034_defaults",
    "test_elicitation_sep1330_enums",
    "test_embedded_resource",
    "test_error_handling",
    "test_image_content",
    "test_input_required_result_capabilities",
    "test_input_required_result_elicitation",
    "test_input_required_result_list_roots",
    "test_input_required_result_multi_round",
    "test_input_required_result_multiple_inputs",
    "test_input_required_result_request_state",
    "test_input_required_result_sampling",
    "test_input_required_result_tampered_state",
    "test_logging_tool",
    "test_missing_capability",
    "test_multiple_content_types",
    "test_reconnection",
    "test_simple_text",
    "test_streaming_elicitation",
    "test_tool_with_logging",
    "test_tool_with_progress",
    "test_tool_with_task",
    "test_trigger_prompt_change",
    "test_trigger_tool_change",
    "greet",
    "slow_compute",
    "test_touch_resource",
];

pub(crate) fn tools() -> Value {
    let mut tools: Vec<Value> = PLAIN
        .iter()
        .map(|name| {
            json!({ "name": name, "description": format!("What the suite calls {name}."),
            "inputSchema": { "type": "object" } })
        })
        .collect();
    for (name, field) in [("test_sampling", "prompt"), ("test_elicitation", "message")] {
        tools
            .push(json!({ "name": name, "description": "Asks.", "inputSchema": { "type": "object",
            "properties": { field: { "type": "string" } }, "required": [field] } }));
    }
    tools.push(
        json!({ "name": "test_custom_headers", "description": "Repeats an argument in a header.",
        "inputSchema": { "type": "object", "required": ["region"],
            "properties": { "region": { "type": "string", "x-mcp-header": "Region" } } },
        "icons": [{ "src": "https://example.com/region.png", "mimeType": "image/png" }],
        "_meta": { "example.com/kept": true } }),
    );
    tools.push(json!({ "name": "json_schema_2020_12_tool", "description": "Has a modern schema.", "inputSchema": {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": { "address": { "$anchor": "addressDef", "type": "object",
            "properties": { "street": { "type": "string" }, "city": { "type": "string" } } } },
        "properties": { "name": { "type": "string" }, "address": { "$ref": "#/$defs/address" },
            "contactMethod": { "type": "string", "enum": ["phone", "email"] },
            "phone": { "type": "string" }, "email": { "type": "string" } },
        "allOf": [{ "anyOf": [{ "required": ["phone"] }, { "required": ["email"] }] }],
        "if": { "properties": { "contactMethod": { "const": "phone" } }, "required": ["contactMethod"] },
        "then": { "required": ["phone"] },
        "else": { "required": ["email"] },
        "additionalProperties": false } }));
    Value::Array(tools)
}

pub(crate) fn image() -> Value {
    json!({ "type": "image", "data": PIXEL, "mimeType": "image/png" })
}

pub(crate) fn embedded(uri: &str) -> Value {
    json!({ "type": "resource", "resource": { "uri": uri, "mimeType": "text/plain", "text": "An embedded resource." } })
}

pub(crate) fn resources() -> Value {
    json!([
        { "uri": "test://static-text", "name": "text", "description": "A text.", "mimeType": "text/plain" },
        { "uri": "test://static-binary", "name": "binary", "description": "A picture.", "mimeType": "image/png" },
        { "uri": "test://watched-resource", "name": "watched", "description": "It changes.", "mimeType": "text/plain" },
    ])
}

pub(crate) fn read(uri: &str) -> Option<Value> {
    let id = uri.strip_prefix("test://template/").and_then(|rest| rest.strip_suffix("/data"));
    Some(match (uri, id) {
        ("test://static-text" | "test://watched-resource", _) => {
            json!({ "uri": uri, "mimeType": "text/plain", "text": "This is the content of the resource." })
        }
        ("test://static-binary", _) => {
            json!({ "uri": uri, "mimeType": "image/png", "blob": PIXEL })
        }
        (_, Some(id)) => {
            json!({ "uri": uri, "mimeType": "application/json", "text": json!({ "id": id }).to_string() })
        }
        _ => return None,
    })
}

/// Returns all prompts; `late_prompt` appears and disappears.
pub(crate) fn prompts(late: bool) -> Value {
    let prompt = |name: &str, arguments: &[&str]| {
        let arguments: Vec<_> =
            arguments.iter().map(|name| json!({ "name": name, "required": true })).collect();
        json!({ "name": name, "description": format!("What the suite calls {name}."), "arguments": arguments })
    };
    let mut prompts = vec![
        prompt("test_simple_prompt", &[]),
        prompt("test_prompt_with_arguments", &["arg1", "arg2"]),
        prompt("test_prompt_with_embedded_resource", &["resourceUri"]),
        prompt("test_prompt_with_image", &[]),
        prompt("test_input_required_result_prompt", &[]),
    ];
    if late {
        prompts.push(prompt("late_prompt", &[]));
    }
    Value::Array(prompts)
}

pub(crate) fn messages(prompt: &str, args: &Value) -> Option<Value> {
    let user = |content: Value| json!({ "role": "user", "content": content });
    let text = |text: &str| user(json!({ "type": "text", "text": text }));
    Some(match prompt {
        "test_simple_prompt" => json!([text("This is a simple prompt for testing.")]),
        "test_prompt_with_arguments" => {
            json!([text(&format!(
                "Prompt with arguments: arg1={}, arg2={}",
                args["arg1"], args["arg2"]
            ))])
        }
        "test_prompt_with_embedded_resource" => {
            let uri = args["resourceUri"].as_str().unwrap_or_default();
            json!([user(embedded(uri)), text("Please process the embedded resource above.")])
        }
        "test_prompt_with_image" => json!([user(image()), text("Please analyze the image above.")]),
        _ => return None,
    })
}
