//! Definitions as text: JSON objects with sorted keys, which can be compared and saved.

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::tool::Tool;
use sa_schema::Schema;
use sa_text::json::RawJson;
use sa_text::json::difference::{self, Change};

impl Tool {
    /// Returns the tool with another definition. It is held and cannot be called.
    pub(super) fn defined_as(&self, definition: &str) -> Self {
        let mut parts = parse(definition);
        let mut text =
            |key: &str| parts.remove(key).and_then(|text| text.as_str().map(str::to_owned));
        let (title, description) = (text("title"), text("description"));
        let mut json = |key: &str| parts.remove(key).as_ref().map(RawJson::of);
        Self {
            title,
            description,
            input: json("input").map(Schema::new),
            output: json("output").map(Schema::new),
            annotations: json("annotations"),
            held: true,
            ..self.clone()
        }
    }
}

/// Returns the definition of a tool as a JSON object. Its keys are sorted, because many servers
/// write them in a different order each time.
pub(super) fn definition(tool: &Tool) -> Arc<str> {
    let text = |text: &Option<String>| text.as_deref().map(Value::from);
    let json = |json: Option<&RawJson>| {
        json.map(|json| json.to_value().unwrap_or_else(|_| json.as_str().into()))
    };
    let parts = [
        ("title", text(&tool.title)),
        ("description", text(&tool.description)),
        ("input", json(tool.input.as_ref().map(Schema::raw))),
        ("output", json(tool.output.as_ref().map(Schema::raw))),
        ("annotations", json(tool.annotations.as_ref())),
    ];
    let parts = parts.into_iter().filter_map(|(key, part)| Some((key.to_owned(), part?)));
    let mut all = Value::Object(parts.collect());
    all.sort_all_objects();
    all.to_string().into()
}

fn parse(definition: &str) -> Map<String, Value> {
    serde_json::from_str(definition).unwrap_or_default()
}

pub(super) fn differences(was: &str, now: &str) -> Vec<Change> {
    difference::between(&Value::Object(parse(was)), &Value::Object(parse(now)))
}

/// Returns whether this is the definition of an open tool. An open tool disappears when the
/// provider begins to describe the tools below it.
pub(super) fn is_open_definition(definition: &str) -> bool {
    parse(definition).get("input").is_some_and(Tool::is_open_schema)
}
