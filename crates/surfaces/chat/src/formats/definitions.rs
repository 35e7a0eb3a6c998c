//! Definitions of tools, within the limits of each format.

use sa_core::ToolView;
use sa_core::naming::{MAX_NAME, with_hash};
use sa_text::excerpt;
use serde_json::{Value, json};

use super::{Format, gemini, schema};

/// OpenAI rejects a request with a longer description.
const MAX_DESCRIPTION: usize = 1_024;

/// A tool with its name in a format.
#[derive(Debug, Clone)]
pub(crate) struct Definition {
    pub(crate) name: String,
    pub(crate) tool: ToolView,
}

impl Definition {
    pub(crate) fn new(format: Format, tool: ToolView) -> Self {
        Self { name: name(format, &tool.name), tool }
    }
}

/// Returns the name in a format. Exposed names are valid in every format, except that Gemini
/// restricts the first character.
fn name(format: Format, exposed: &str) -> String {
    let odd = !exposed.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    match format {
        Format::Gemini if odd && exposed.len() < MAX_NAME => format!("_{exposed}"),
        Format::Gemini if odd => with_hash(&format!("_{exposed}"), exposed),
        _ => exposed.to_owned(),
    }
}

/// Returns all definitions in the form that a request of the format needs.
pub(crate) fn definitions(format: Format, tools: &[Definition]) -> Value {
    let each = |define: fn(&Definition) -> Value| tools.iter().map(define).collect::<Vec<Value>>();
    match format {
        Format::OpenAi => json!({ "tools": each(|tool| openai_tool(&tool.name, &tool.tool)) }),
        Format::OpenAiLegacy => {
            json!({ "functions": each(|tool| function(&tool.name, &tool.tool)) })
        }
        Format::Anthropic => json!({ "tools": each(anthropic) }),
        Format::Gemini if tools.is_empty() => json!({ "tools": [] }),
        Format::Gemini => json!({ "tools": [{ "functionDeclarations": each(declaration) }] }),
        Format::Mcp => json!({ "tools": each(mcp) }),
    }
}

pub(crate) fn openai_tool(name: &str, tool: &ToolView) -> Value {
    json!({ "type": "function", "function": function(name, tool) })
}

fn function(name: &str, tool: &ToolView) -> Value {
    let description = short(&described(tool), MAX_DESCRIPTION);
    let mut function = json!({ "name": name, "parameters": schema::object(input(tool)) });
    if !description.is_empty() {
        function["description"] = json!(description);
    }
    function
}

fn anthropic(tool: &Definition) -> Value {
    let mut defined =
        json!({ "name": tool.name, "input_schema": schema::object(input(&tool.tool)) });
    let description = described(&tool.tool);
    if !description.is_empty() {
        defined["description"] = json!(description);
    }
    defined
}

fn declaration(tool: &Definition) -> Value {
    // Gemini requires a description of every function.
    let description = Some(described(&tool.tool))
        .filter(|text| !text.is_empty())
        .unwrap_or_else(|| tool.name.clone());
    let mut declared = json!({ "name": tool.name, "description": description });
    let parameters = gemini::subset(&schema::object(input(&tool.tool)));
    // Gemini accepts no object without properties here.
    if parameters["properties"].as_object().is_some_and(|properties| !properties.is_empty()) {
        declared["parameters"] = parameters;
    }
    declared
}

/// Returns the definition without an output schema. Clients would validate results by it, and
/// results for models are shortened.
fn mcp(tool: &Definition) -> Value {
    let inner = &tool.tool.tool;
    let mut schema = input(&tool.tool).filter(Value::is_object).unwrap_or_else(|| json!({}));
    // Clients require an object, and a tool without a schema accepts any arguments.
    if schema.get("type").is_none() {
        schema["type"] = json!("object");
    }
    let mut defined = json!({ "name": tool.name, "inputSchema": schema });
    let parsed = |json: &sa_core::RawJson| json.to_value().ok();
    let optional = [
        ("title", inner.title.as_ref().map(|title| json!(title))),
        ("description", inner.description.as_ref().map(|text| json!(text))),
        ("annotations", inner.annotations.as_ref().and_then(parsed).filter(Value::is_object)),
    ];
    for (field, value) in optional {
        if let Some(value) = value {
            defined[field] = value;
        }
    }
    defined
}

fn input(tool: &ToolView) -> Option<Value> {
    tool.tool.input.as_ref().and_then(|schema| schema.raw().to_value().ok())
}

fn described(tool: &ToolView) -> String {
    let tool = &tool.tool;
    tool.description.clone().or_else(|| tool.title.clone()).unwrap_or_default()
}

fn short(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        text.to_owned()
    } else {
        excerpt(most - 1, text).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sa_core::{ProviderId, RawJson, Schema, Scope, Tool};

    use super::*;

    fn tool(name: &str, schema: Option<Value>, description: Option<&str>) -> ToolView {
        let mut tool = Tool::named(name);
        tool.input = schema.map(|schema| Schema::new(RawJson::of(&schema)));
        tool.description = description.map(Into::into);
        ToolView {
            name: name.into(),
            leading: Vec::new(),
            tool: Arc::new(tool),
            provider: ProviderId { kind: "node", id: "n".into() },
            scope: Scope::Everyone,
            online: true,
        }
    }

    #[track_caller]
    fn check(format: Format, tool: ToolView, expected: Value) {
        assert_eq!(definitions(format, &[Definition::new(format, tool)]), expected, "{format:?}");
    }

    #[test]
    fn each_format_is_written_in_its_own_form() {
        let schema = json!({ "type": "object", "properties": { "q": { "type": "string" } }, "required": ["q"] });
        let search = || tool("search", Some(schema.clone()), Some("Searches."));
        let function =
            json!({ "name": "search", "description": "Searches.", "parameters": schema });
        check(
            Format::OpenAi,
            search(),
            json!({ "tools": [{ "type": "function", "function": function }] }),
        );
        check(Format::OpenAiLegacy, search(), json!({ "functions": [function] }));
        let anthropic =
            json!({ "name": "search", "description": "Searches.", "input_schema": schema });
        check(Format::Anthropic, search(), json!({ "tools": [anthropic] }));
        let mcp = json!({ "name": "search", "description": "Searches.", "inputSchema": schema });
        check(Format::Mcp, search(), json!({ "tools": [mcp] }));
        let parameters = json!({ "type": "OBJECT", "properties": { "q": { "type": "STRING" } }, "required": ["q"] });
        let declared =
            json!({ "name": "search", "description": "Searches.", "parameters": parameters });
        check(
            Format::Gemini,
            search(),
            json!({ "tools": [{ "functionDeclarations": [declared] }] }),
        );
    }

    #[test]
    fn no_format_promises_an_output_schema() {
        let schema = Schema::new(RawJson::of(&json!({ "type": "object", "title": "promise" })));
        let mut bare = Tool::named("search");
        bare.output = Some(schema);
        let with_output = ToolView { tool: Arc::new(bare), ..tool("search", None, None) };
        let all =
            [Format::OpenAi, Format::OpenAiLegacy, Format::Anthropic, Format::Gemini, Format::Mcp];
        for format in all {
            let defined = definitions(format, &[Definition::new(format, with_output.clone())]);
            assert!(!defined.to_string().contains("promise"), "{format:?}: {defined}");
        }
    }

    #[test]
    fn a_tool_without_a_description_is_defined() {
        let bare = || tool("9lives", None, None);
        let empty = json!({ "type": "object", "properties": {} });
        let function = json!({ "name": "9lives", "parameters": empty });
        check(
            Format::OpenAi,
            bare(),
            json!({ "tools": [{ "type": "function", "function": function }] }),
        );
        check(
            Format::Anthropic,
            bare(),
            json!({ "tools": [{ "name": "9lives", "input_schema": empty }] }),
        );
        let declared = json!({ "name": "_9lives", "description": "_9lives" });
        check(Format::Gemini, bare(), json!({ "tools": [{ "functionDeclarations": [declared] }] }));
    }

    #[test]
    fn names_and_descriptions_keep_within_the_limits() {
        let long = format!("1{}", "a".repeat(63));
        let name = name(Format::Gemini, &long);
        assert!(name.len() <= MAX_NAME && name.starts_with('_'), "{name}");
        let defined = function("x", &tool("x", None, Some(&"ä".repeat(2_000))));
        assert_eq!(defined["description"].as_str().unwrap().chars().count(), MAX_DESCRIPTION);
    }
}
