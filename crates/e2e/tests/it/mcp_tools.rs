//! The tools that the official conformance suite expects of a server, as a provider inside the gateway.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use sa_core::directory::Registration;
use sa_core::{
    Call, CallError, CallErrorKind, Outcome, Output, Question, RawJson, Schema, Scope, Tool, Update, Updates,
};
use sa_testkit::Gateway;
use serde_json::{Value, json};

use crate::mcp_support::{self, attach};

const PIXEL: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==";
const SILENCE: &str = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAAA";

pub(crate) fn attach_all(gateway: &Gateway) -> Registration {
    let directory = Arc::clone(gateway.inner().router.directory());
    attach(gateway, "conformance", Scope::Everyone, tools(), move |call, updates| {
        if &*call.tool == "test_trigger_tool_change" {
            // Whoever comes and goes changes the list.
            directory.attach(mcp_support::passing()).unwrap().withdraw();
        }
        Box::pin(run(call, updates))
    })
}

fn tools() -> Vec<Tool> {
    let plain = [
        "test_simple_text",
        "test_image_content",
        "test_audio_content",
        "test_embedded_resource",
        "test_multiple_content_types",
        "test_error_handling",
        "test_missing_capability",
        "test_trigger_tool_change",
        "test_tool_with_progress",
        "test_elicitation_sep1034_defaults",
        "test_elicitation_sep1330_enums",
        "test_input_required_result_elicitation",
        "test_input_required_result_sampling",
        "test_input_required_result_list_roots",
        "test_input_required_result_request_state",
        "test_input_required_result_multiple_inputs",
        "test_input_required_result_multi_round",
        "test_input_required_result_tampered_state",
        "test_input_required_result_capabilities",
    ];
    let described = |name: &str, schema: &Value| Tool {
        description: Some(format!("What the suite calls {name}.")),
        input: Some(Schema::new(RawJson::of(schema))),
        ..Tool::named(name)
    };
    let text =
        |field: &str| json!({ "type": "object", "properties": { field: { "type": "string" } }, "required": [field] });
    let mut tools: Vec<_> =
        plain.iter().map(|name| described(name, &json!({ "type": "object", "properties": {} }))).collect();
    tools.push(described("test_sampling", &text("prompt")));
    tools.push(described("test_elicitation", &text("message")));
    tools.push(described("json_schema_2020_12_tool", &modern_schema()));
    let region = json!({ "type": "object", "properties": {
        "region": { "type": "string", "x-mcp-header": "Region" } }, "required": ["region"] });
    tools.push(described("test_custom_headers", &region));
    tools
}

fn modern_schema() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": { "address": { "$anchor": "addressDef", "type": "object",
            "properties": { "street": { "type": "string" }, "city": { "type": "string" } } } },
        "properties": {
            "name": { "type": "string" },
            "address": { "$ref": "#/$defs/address" },
            "contactMethod": { "type": "string", "enum": ["phone", "email"] },
            "phone": { "type": "string" },
            "email": { "type": "string" },
        },
        "allOf": [{ "anyOf": [{ "required": ["phone"] }, { "required": ["email"] }] }],
        "if": { "properties": { "contactMethod": { "const": "phone" } }, "required": ["contactMethod"] },
        "then": { "required": ["phone"] },
        "else": { "required": ["email"] },
        "additionalProperties": false,
    })
}

async fn run(call: Arc<Call>, updates: Updates) -> Outcome {
    let args: Value = serde_json::from_str(call.args.as_str()).unwrap();
    let image = json!({ "type": "image", "data": PIXEL, "mimeType": "image/png" });
    let resource = |uri: &str| json!({ "type": "resource", "resource": { "uri": uri, "mimeType": "text/plain", "text": "An embedded resource." } });
    let blocks = match &*call.tool {
        "test_simple_text" => json!([text("This is a simple text response for testing.")]),
        "test_image_content" => json!([image]),
        "test_audio_content" => json!([{ "type": "audio", "data": SILENCE, "mimeType": "audio/wav" }]),
        "test_embedded_resource" => json!([resource("test://embedded-resource")]),
        "test_multiple_content_types" => json!([text("Multiple content types test:"), image, resource("test://mixed")]),
        "test_error_handling" => {
            return Err(CallError::new(CallErrorKind::Failed, "This tool intentionally returns an error for testing"));
        }
        "test_tool_with_progress" => {
            for progress in [0.0, 50.0, 100.0] {
                updates.send(Update::Progress { progress, total: Some(100.0), message: None });
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            json!([text("done")])
        }
        "test_trigger_tool_change" => json!([text("changed")]),
        "test_custom_headers" => json!([text("headers are right")]),
        tool => json!([text(&answers(tool, &args, &updates).await?)]),
    };
    Ok(Output::from_provider(RawJson::of(&json!({ "content": blocks })), Vec::new()))
}

fn text(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

/// Asks what the tool has to ask, and says what came back.
async fn answers(tool: &str, args: &Value, updates: &Updates) -> Result<String, CallError> {
    let name = || {
        let (what, mut params) = form("What is your name?", &json!({ "name": { "type": "string" } }));
        params["_meta"] = json!({ "switchboard/question": "user_name" });
        (what, params)
    };
    let roots = || ("roots/list", Value::Null);
    let rounds: Vec<Vec<(&str, Value)>> = match tool {
        "test_sampling" | "test_missing_capability" => vec![vec![sample(args["prompt"].as_str().unwrap_or_default())]],
        "test_elicitation" => {
            let fields = json!({ "username": { "type": "string" }, "email": { "type": "string" } });
            vec![vec![form(args["message"].as_str().unwrap_or_default(), &fields)]]
        }
        "test_elicitation_sep1034_defaults" => vec![vec![form("Look these over", &defaults())]],
        "test_elicitation_sep1330_enums" => vec![vec![form("Choose", &choices())]],
        "test_input_required_result_sampling" => vec![vec![sample("What is the capital of France?")]],
        "test_input_required_result_list_roots" => vec![vec![roots()]],
        "test_input_required_result_multiple_inputs" => vec![vec![name(), sample("Generate a greeting"), roots()]],
        "test_input_required_result_multi_round" => {
            vec![
                vec![name()],
                vec![form("Step 2: What is your favorite color?", &json!({ "color": { "type": "string" } }))],
            ]
        }
        "test_input_required_result_capabilities" => vec![vec![name(), sample("Hi")]],
        _ => vec![vec![name()]],
    };
    let may_fail = tool.ends_with("capabilities");
    let mut said = vec!["state-ok".to_owned()];
    for round in rounds {
        let asked = round
            .into_iter()
            .map(|(what, params)| updates.ask(Question { what: what.into(), params: RawJson::of(&params) }));
        for answer in join_all(asked).await {
            match answer {
                Ok(answer) => said.push(answer.as_str().to_owned()),
                Err(_) if may_fail => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(said.join(" "))
}

fn form(message: &str, fields: &Value) -> (&'static str, Value) {
    ("elicitation/create", json!({ "message": message, "requestedSchema": { "type": "object", "properties": fields } }))
}

fn sample(prompt: &str) -> (&'static str, Value) {
    let message = json!({ "role": "user", "content": text(prompt) });
    ("sampling/createMessage", json!({ "messages": [message], "maxTokens": 100 }))
}

fn defaults() -> Value {
    json!({
        "name": { "type": "string", "default": "John Doe" },
        "age": { "type": "integer", "default": 30 },
        "score": { "type": "number", "default": 95.5 },
        "status": { "type": "string", "enum": ["active", "inactive", "pending"], "default": "active" },
        "verified": { "type": "boolean", "default": true },
    })
}

fn choices() -> Value {
    let titled = json!([{ "const": "value1", "title": "First" }, { "const": "value2", "title": "Second" },
        { "const": "value3", "title": "Third" }]);
    let plain = json!(["option1", "option2", "option3"]);
    json!({
        "untitledSingle": { "type": "string", "enum": plain },
        "titledSingle": { "type": "string", "oneOf": titled },
        "legacyEnum": { "type": "string", "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"] },
        "untitledMulti": { "type": "array", "items": { "type": "string", "enum": plain } },
        "titledMulti": { "type": "array", "items": { "anyOf": titled } },
    })
}
