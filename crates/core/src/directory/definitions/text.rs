//! Definitions as text: JSON objects with sorted keys, which can be compared and saved.

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::json::RawJson;
use crate::json::difference::{self, Change};
use crate::schema::Schema;
use crate::tool::Tool;

impl Tool {
    /// The tool with another definition. It is held: nobody can call it.
    pub(super) fn defined_as(&self, definition: &str) -> Self {
        let mut parts = parse(definition);
        let mut text = |key: &str| parts.remove(key).and_then(|text| text.as_str().map(str::to_owned));
        let (title, description) = (text("title"), text("description"));
        let mut json = |key: &str| parts.remove(key).as_ref().map(RawJson::of);
        Self {
            title,
            description,
            input: json("input").map(Schema::new),
            output_schema: json("output"),
            annotations: json("annotations"),
            held: true,
            ..self.clone()
        }
    }
}

/// What a tool is judged by, as a JSON object. Its keys are sorted: many servers write them in another order each time.
pub(super) fn definition(tool: &Tool) -> Arc<str> {
    let text = |text: &Option<String>| text.as_deref().map(Value::from);
    let json = |json: Option<&RawJson>| json.map(|json| json.to_value().unwrap_or_else(|_| json.as_str().into()));
    let parts = [
        ("title", text(&tool.title)),
        ("description", text(&tool.description)),
        ("input", json(tool.input.as_ref().map(Schema::raw))),
        ("output", json(tool.output_schema.as_ref())),
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

/// Whether this is the definition of an open tool. When the provider begins to describe the tools that it stands for, it goes.
pub(super) fn stands_for_others(definition: &str) -> bool {
    parse(definition).get("input").is_some_and(Tool::is_open_schema)
}
