//! Every successful result matches the output schema that its tool lists.

use sa_node_sdk::NodeTool;
use serde_json::{Value, json};

/// Checks a result of a tool. Each of its fields must be in the schema.
#[track_caller]
pub(crate) fn check(tool: &dyn NodeTool, result: &Value) {
    let mut schema = tool.output_schema().expect("the tool lists no output schema");
    // Any tool may have this field. Schemas of MCP do not list it.
    schema["properties"]["_meta"] = json!({ "type": "object" });
    schema["unevaluatedProperties"] = json!(false);
    let validator = jsonschema::draft202012::new(&schema).unwrap();
    let mistakes: Vec<String> = validator
        .iter_errors(result)
        .map(|error| format!("{error} at {}", error.instance_path()))
        .collect();
    assert!(mistakes.is_empty(), "{mistakes:?} in {result}");
}
