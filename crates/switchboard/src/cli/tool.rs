//! One tool, for somebody who wants to call it: what it does, what it takes, what it gives back, and what to type.

use serde_json::Value;

use super::lists::text;
use super::output::{Failure, line};
use super::table::{facts, paragraph, table, terminal_width, whole, wrapped};
use crate::redact::printable;

/// What is told of a value's kind before it is cut.
const MAX_CHOICES: usize = 8;

pub(super) fn show(tool: &Value) -> Result<(), Failure> {
    let name = printable(text(&tool["name"])).into_owned();
    let title = printable(text(&tool["title"])).into_owned();
    line(&if title.is_empty() { name.clone() } else { format!("{name}: {title}") })?;
    let state = if tool["online"] == true { "online" } else { "offline" };
    let provider = format!("{} {}, {state}", text(&tool["provider"]["kind"]), text(&tool["provider"]["id"]));
    facts(&[("offered by", provider), ("effect", effect(&tool["annotations"]))])?;
    let description = text(&tool["description"]);
    if !description.trim().is_empty() {
        line("")?;
        paragraph(description, terminal_width()).iter().try_for_each(|own| line(own))?;
    }
    let (input, output) = (&tool["input_schema"], &tool["output_schema"]);
    let arguments = properties(input);
    if arguments.is_empty() {
        line(if open(input) { "\nArguments: any; it does not say which" } else { "\nArguments: none" })?;
    } else {
        line("")?;
        let columns = [whole("ARGUMENT"), wrapped("TYPE"), wrapped("DEFAULT"), wrapped("DESCRIPTION")];
        table(&columns, &arguments.iter().map(|(name, schema)| argument(input, name, schema)).collect::<Vec<_>>())?;
    }
    let results = properties(output);
    if !results.is_empty() {
        line("")?;
        let row = |(name, schema): &(&str, &Value)| vec![(*name).to_owned(), kind(schema), about(schema)];
        table(
            &[whole("RESULT"), wrapped("TYPE"), wrapped("DESCRIPTION")],
            &results.iter().map(row).collect::<Vec<_>>(),
        )?;
    }
    line(&format!("\nExample:\n  {}", example(&name, input)))
}

/// What the tool says of itself that somebody should know before they call it.
fn effect(annotations: &Value) -> String {
    let said = |key: &str, wanted: bool| annotations[key].as_bool() == Some(wanted);
    let words = [
        (said("readOnlyHint", true), "changes nothing"),
        (said("readOnlyHint", false) && said("destructiveHint", true), "may overwrite or delete"),
        (said("idempotentHint", true), "twice is as good as once"),
    ];
    words.iter().filter(|(said, _)| *said).map(|(_, words)| *words).collect::<Vec<_>>().join("; ")
}

/// The members that a schema names, those of its alternatives among them.
fn properties(schema: &Value) -> Vec<(&str, &Value)> {
    let alternatives = ["anyOf", "oneOf", "allOf"].into_iter().filter_map(|key| schema[key].as_array()).flatten();
    let mut all: Vec<(&str, &Value)> = Vec::new();
    for part in std::iter::once(schema).chain(alternatives) {
        for (name, about) in part["properties"].as_object().into_iter().flatten() {
            if !all.iter().any(|(known, _)| *known == name.as_str()) {
                all.push((name, about));
            }
        }
    }
    // What must be given comes first.
    all.sort_by_key(|(name, _)| !required(schema, name));
    all
}

fn required(schema: &Value, name: &str) -> bool {
    schema["required"].as_array().is_some_and(|names| names.iter().any(|known| known == name))
}

/// Whether a schema leaves open what it takes.
fn open(schema: &Value) -> bool {
    schema.is_null() || (!schema["properties"].is_object() && schema["additionalProperties"] != false)
}

fn argument(input: &Value, name: &str, schema: &Value) -> Vec<String> {
    let default = match &schema["default"] {
        _ if required(input, name) => "(required)".to_owned(),
        Value::Null => String::new(),
        default => default.to_string(),
    };
    vec![name.to_owned(), kind(schema), default, about(schema)]
}

fn about(schema: &Value) -> String {
    text(&schema["description"]).to_owned()
}

/// A kind of value in a few words: `string`, `number or string`, `array of string`, `"a" or "b"`.
fn kind(schema: &Value) -> String {
    if let Some(choices) = schema["enum"].as_array() {
        let more = (choices.len() > MAX_CHOICES).then(|| "…".to_owned());
        let choices = choices.iter().take(MAX_CHOICES).map(Value::to_string);
        return choices.chain(more).collect::<Vec<_>>().join(" or ");
    }
    if !schema["const"].is_null() {
        return schema["const"].to_string();
    }
    let one = |kind: &str| match kind {
        "array" if schema["items"].is_object() => match self::kind(&schema["items"]).as_str() {
            "" => "array".to_owned(),
            items => format!("array of {items}"),
        },
        kind => kind.to_owned(),
    };
    match &schema["type"] {
        Value::String(kind) => one(kind),
        // That nothing may be written as null, too, is for programs.
        Value::Array(kinds) => {
            kinds.iter().map(text).filter(|kind| *kind != "null").map(one).collect::<Vec<_>>().join(" or ")
        }
        _ => ["anyOf", "oneOf"]
            .into_iter()
            .filter_map(|key| schema[key].as_array())
            .flatten()
            .map(self::kind)
            .filter(|kind| !kind.is_empty() && kind != "null")
            .collect::<Vec<_>>()
            .join(" or "),
    }
}

/// What to type, with every argument that must be given.
fn example(name: &str, input: &Value) -> String {
    let needed = properties(input).into_iter().filter(|(name, _)| required(input, name));
    let words = needed.map(|(name, schema)| format!(" {name}={}", quoted(&sample(name, schema))));
    format!("switchboard call {name}{}", printable(&words.collect::<String>()))
}

/// A value that could stand there.
fn sample(name: &str, schema: &Value) -> String {
    let given = [&schema["default"], &schema["examples"][0], &schema["enum"][0], &schema["const"]];
    if let Some(value) = given.into_iter().find(|value| !value.is_null()) {
        return value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    }
    let kind = kind(schema);
    match kind.split(' ').next().unwrap_or_default() {
        "integer" | "number" => schema["minimum"].as_i64().unwrap_or(1).max(1).to_string(),
        "boolean" => "true".to_owned(),
        "array" => "[]".to_owned(),
        "object" => "{}".to_owned(),
        _ => name.to_uppercase(),
    }
}

/// As a shell takes it for one word.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:,@+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check_kind(schema: Value, expected: &str) {
        assert_eq!(kind(&schema), expected, "{schema}");
    }

    #[test]
    fn kinds_are_told_in_a_few_words() {
        check_kind(json!({ "type": "string" }), "string");
        check_kind(json!({ "type": ["number", "null"] }), "number");
        check_kind(json!({ "type": ["string", "number"] }), "string or number");
        check_kind(json!({ "type": "array", "items": { "type": "string" } }), "array of string");
        check_kind(json!({ "enum": ["a", "b"] }), "\"a\" or \"b\"");
        check_kind(json!({ "anyOf": [{ "type": "integer" }, { "type": "null" }] }), "integer");
        check_kind(json!({}), "");
    }

    #[test]
    fn an_example_has_what_must_be_given_and_can_be_typed() {
        let schema = json!({ "required": ["n", "path", "list"], "properties": {
            "path": { "type": "string" }, "n": { "type": "integer", "minimum": 3 }, "list": { "type": "array" },
            "more": { "type": "string" } } });
        assert_eq!(example("a_b", &schema), "switchboard call a_b list='[]' n=3 path=PATH");
        assert_eq!(example("a_b", &Value::Null), "switchboard call a_b");
        let hostile = json!({ "required": ["x"], "properties": { "x": { "default": "a'; rm -rf /\u{1b}" } } });
        assert_eq!(example("t", &hostile), "switchboard call t x='a'\\''; rm -rf /\\u{1b}'");
    }
}
