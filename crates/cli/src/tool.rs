//! Prints the details of one tool: its description, arguments, result and an example command.

use serde_json::Value;

use super::lists::text;
use super::output::{Failure, line};
use super::sample;
use super::table::{facts, prose, table, whole, wrapped};
use sa_text::printable;
use sa_text::{excerpt, quote};

/// The maximum number of enum values that are shown.
const MAX_CHOICES: usize = 8;
/// The maximum length of a pattern that is shown in full.
const MAX_PATTERN: usize = 40;

/// Prints a tool. `call` is the command that calls it, without arguments.
pub(super) fn show(tool: &Value, call: &str) -> Result<(), Failure> {
    let name = printable(text(&tool["name"])).into_owned();
    let title = printable(text(&tool["title"])).into_owned();
    line(&if title.is_empty() { name.clone() } else { format!("{name}: {title}") })?;
    let state = if tool["online"] == true { "online" } else { "offline" };
    let provider =
        format!("{} {}, {state}", text(&tool["provider"]["kind"]), text(&tool["provider"]["id"]));
    facts(&[("offered by", provider), ("effect", effect(&tool["annotations"]))])?;
    let description = text(&tool["description"]);
    if !description.trim().is_empty() {
        line("")?;
        prose(description)?;
    }
    let (input, output) = (&tool["input_schema"], &tool["output_schema"]);
    let arguments = properties(input);
    if let Some(why) = tool["schema_problem"].as_str() {
        line("")?;
        let told =
            format!("Arguments: the input schema cannot be used, and every call fails: {why}");
        prose(&told)?;
    } else if arguments.is_empty() {
        line(if open(input) {
            "\nArguments: any; the tool does not declare them"
        } else {
            "\nArguments: none"
        })?;
    } else {
        line("")?;
        let columns =
            [whole("ARGUMENT"), wrapped("TYPE"), wrapped("DEFAULT"), wrapped("DESCRIPTION")];
        table(&columns, &members(input))?;
    }
    let results = properties(output);
    if !results.is_empty() {
        line("")?;
        let row = |(name, schema): &(&str, &Value)| {
            vec![(*name).to_owned(), bounded_kind(schema), about(schema)]
        };
        table(
            &[whole("RESULT"), wrapped("TYPE"), wrapped("DESCRIPTION")],
            &results.iter().map(row).collect::<Vec<_>>(),
        )?;
    }
    line(&format!("\nExample:\n  {}", example(&printable(call), input)))
}

/// Returns the members of an object schema: name, type, default and description.
pub(super) fn members(schema: &Value) -> Vec<Vec<String>> {
    properties(schema).iter().map(|(name, about)| argument(schema, name, about)).collect()
}

/// Describes the effects of a tool, from its annotations.
fn effect(annotations: &Value) -> String {
    let said = |key: &str, wanted: bool| annotations[key].as_bool() == Some(wanted);
    let words = [
        (said("readOnlyHint", true), "read-only"),
        (said("readOnlyHint", false) && said("destructiveHint", true), "may overwrite or delete"),
        (said("idempotentHint", true), "idempotent"),
    ];
    words.iter().filter(|(said, _)| *said).map(|(_, words)| *words).collect::<Vec<_>>().join("; ")
}

/// Returns the properties of a schema, including those of its alternatives.
fn properties(schema: &Value) -> Vec<(&str, &Value)> {
    let alternatives =
        ["anyOf", "oneOf", "allOf"].into_iter().filter_map(|key| schema[key].as_array()).flatten();
    let mut all: Vec<(&str, &Value)> = Vec::new();
    for part in std::iter::once(schema).chain(alternatives) {
        for (name, about) in part["properties"].as_object().into_iter().flatten() {
            if !all.iter().any(|(known, _)| *known == name.as_str()) {
                all.push((name, about));
            }
        }
    }
    // Required properties come first.
    all.sort_by_key(|(name, _)| !required(schema, name));
    all
}

fn required(schema: &Value, name: &str) -> bool {
    schema["required"].as_array().is_some_and(|names| names.iter().any(|known| known == name))
}

/// Reports whether the schema accepts arbitrary properties.
fn open(schema: &Value) -> bool {
    schema.is_null()
        || (!schema["properties"].is_object() && schema["additionalProperties"] != false)
}

fn argument(input: &Value, name: &str, schema: &Value) -> Vec<String> {
    let default = match &schema["default"] {
        _ if required(input, name) => "(required)".to_owned(),
        Value::Null => String::new(),
        default => default.to_string(),
    };
    vec![name.to_owned(), bounded_kind(schema), default, about(schema)]
}

fn about(schema: &Value) -> String {
    text(&schema["description"]).to_owned()
}

/// Formats a type with its bounds: `integer, 1 to 100`.
fn bounded_kind(schema: &Value) -> String {
    let bounds = [
        range(&schema["minimum"], &schema["maximum"], ""),
        some(&schema["exclusiveMinimum"], |bound| format!("above {bound}")),
        some(&schema["exclusiveMaximum"], |bound| format!("below {bound}")),
        some(&schema["multipleOf"], |step| format!("a multiple of {step}")),
        range(&schema["minLength"], &schema["maxLength"], "character"),
        range(&schema["minItems"], &schema["maxItems"], "item"),
        // For numbers, the format only describes the memory representation.
        Some(text(&schema["format"]).to_owned()).filter(|format| {
            !format.is_empty() && schema["type"] != "integer" && schema["type"] != "number"
        }),
        Some(text(&schema["pattern"]))
            .filter(|pattern| !pattern.is_empty())
            .map(|pattern| format!("matching {}", excerpt(MAX_PATTERN, pattern))),
    ];
    let chosen = schema["enum"].is_array() || !schema["const"].is_null();
    let bounds = bounds.into_iter().flatten().filter(|_| !chosen);
    Some(kind(schema))
        .filter(|kind| !kind.is_empty())
        .into_iter()
        .chain(bounds)
        .collect::<Vec<_>>()
        .join(", ")
}

fn some(bound: &Value, words: impl Fn(&Value) -> String) -> Option<String> {
    bound.is_number().then(|| words(bound))
}

/// Formats a range: `1 to 100`, `at least 1 character`, `at most 3 items`.
fn range(least: &Value, most: &Value, unit: &str) -> Option<String> {
    let counted = |bound: &Value| match unit {
        "" => bound.to_string(),
        unit => format!("{bound} {unit}{}", if *bound == 1 { "" } else { "s" }),
    };
    match (least.is_number(), most.is_number()) {
        (true, true) if least == most => Some(counted(least)),
        (true, true) => Some(format!("{least} to {}", counted(most))),
        (true, false) => Some(format!("at least {}", counted(least))),
        (false, true) => Some(format!("at most {}", counted(most))),
        (false, false) => None,
    }
}

/// Formats a type: `string`, `number or string`, `array of string`, `"a" or "b"`.
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
        // That null is accepted, too, is only relevant for programs.
        Value::Array(kinds) => kinds
            .iter()
            .map(text)
            .filter(|kind| *kind != "null")
            .map(one)
            .collect::<Vec<_>>()
            .join(" or "),
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

/// Returns an example command with all required arguments.
fn example(call: &str, input: &Value) -> String {
    let words = words(input).into_iter().map(|(key, value)| format!(" {key}{}", quote(&value)));
    format!("{call}{}", printable(&words.collect::<String>()))
}

/// Returns the arguments of the example in the syntax of `call`. `key:=` is used for a string that
/// would be parsed as JSON.
fn words(input: &Value) -> Vec<(String, String)> {
    let mut arguments = sample::arguments(input);
    let known: Vec<&str> = properties(input).into_iter().map(|(name, _)| name).collect();
    let in_order: Vec<(String, Value)> =
        known.iter().filter_map(|name| arguments.remove_entry(*name)).collect();
    let word = |(name, value): (String, Value)| match value {
        Value::String(text) if serde_json::from_str::<Value>(&text).is_ok() => {
            (format!("{name}:="), text)
        }
        Value::String(text) => (format!("{name}="), text),
        value => (format!("{name}="), value.to_string()),
    };
    in_order.into_iter().chain(arguments).map(word).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sa_core::{RawJson, Schema};
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

    #[track_caller]
    fn check_bounded(schema: Value, expected: &str) {
        assert_eq!(bounded_kind(&schema), expected, "{schema}");
    }

    #[test]
    fn a_kind_is_told_with_its_bounds() {
        check_bounded(
            json!({ "type": "integer", "minimum": 1, "maximum": 100 }),
            "integer, 1 to 100",
        );
        check_bounded(
            json!({ "type": "integer", "minimum": 0, "format": "uint32" }),
            "integer, at least 0",
        );
        check_bounded(json!({ "type": "number", "maximum": 0.5 }), "number, at most 0.5");
        check_bounded(
            json!({ "type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1 }),
            "number, above 0, below 1",
        );
        check_bounded(json!({ "type": "integer", "multipleOf": 4 }), "integer, a multiple of 4");
        check_bounded(json!({ "type": "string", "minLength": 1 }), "string, at least 1 character");
        check_bounded(
            json!({ "type": "string", "minLength": 2, "maxLength": 2 }),
            "string, 2 characters",
        );
        check_bounded(json!({ "type": "string", "format": "date-time" }), "string, date-time");
        check_bounded(
            json!({ "type": "string", "pattern": "^[a-z]+$" }),
            "string, matching ^[a-z]+$",
        );
        check_bounded(
            json!({ "type": "array", "items": { "type": "string" }, "minItems": 1, "maxItems": 3 }),
            "array of string, 1 to 3 items",
        );
        check_bounded(json!({ "enum": ["a", "b"], "minLength": 1 }), "\"a\" or \"b\"");
        check_bounded(json!({ "maxLength": "nonsense" }), "");
    }

    #[test]
    fn an_example_has_what_must_be_given_and_can_be_typed() {
        let schema = json!({ "required": ["n", "path", "list"], "properties": {
            "path": { "type": "string" }, "n": { "type": "integer", "minimum": 3 }, "list": { "type": "array" },
            "more": { "type": "string" } } });
        assert_eq!(
            example("switchboard call a_b", &schema),
            "switchboard call a_b list='[]' n=3 path=PATH"
        );
        assert_eq!(example("switchboard call a_b", &Value::Null), "switchboard call a_b");
        let hostile = json!({ "required": ["x"], "properties": { "x": { "default": "a'; rm -rf /\u{1b}" } } });
        assert_eq!(
            example("switchboard call t", &hostile),
            "switchboard call t x='a'\\''; rm -rf /\\u{1b}'"
        );
        let texts = json!({ "required": ["a", "b"], "properties": {
            "a": { "type": "string", "examples": ["5"] }, "b": { "type": "array", "minItems": 1 } } });
        assert_eq!(example("switchboard call t", &texts), "switchboard call t a:=5 b='[\"B\"]'");
    }

    /// Checks that the example arguments are valid when parsed as typed.
    #[track_caller]
    fn check_example(schema: &Value) {
        let typed = words(schema).into_iter().map(|(key, value)| {
            let (key, value, _) =
                crate::call::parse_arg(&format!("{key}{value}")).map(owned).unwrap();
            (key, value)
        });
        let arguments = RawJson::of(&Value::Object(typed.collect()));
        let checked = Schema::new(RawJson::of(schema)).validate(&arguments);
        assert!(checked.is_ok(), "{schema}\n{}\n{checked:?}", arguments.as_str());
    }

    fn owned((key, value, text): (String, Value, &str)) -> (String, Value, String) {
        (key, value, text.to_owned())
    }

    #[track_caller]
    fn check_value(about: Value) {
        check_example(
            &json!({ "type": "object", "properties": { "value": about }, "required": ["value"] }),
        );
    }

    #[test]
    fn an_example_fits_the_schema() {
        check_value(json!({ "type": "array", "minItems": 1, "items": { "type": "string" } }));
        check_value(
            json!({ "type": "array", "minItems": 3, "uniqueItems": true, "items": { "enum": [1, 2, 3] } }),
        );
        check_value(
            json!({ "type": "array", "minItems": 2, "prefixItems": [{ "type": "integer" }] }),
        );
        check_value(json!({ "type": "string", "minLength": 12, "maxLength": 20 }));
        check_value(json!({ "type": "string", "maxLength": 2 }));
        check_value(json!({ "type": "string", "pattern": "^[a-z]+$" }));
        check_value(json!({ "type": "string", "pattern": "^\\d{4}-\\d{2}-\\d{2}$" }));
        check_value(json!({ "type": "integer", "minimum": 5, "multipleOf": 4 }));
        check_value(json!({ "type": "integer", "exclusiveMaximum": 0 }));
        check_value(json!({ "type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1 }));
        check_value(json!({ "type": "number", "minimum": 0.25, "maximum": 0.75 }));
        check_value(json!({ "const": "only" }));
        check_value(json!({ "type": "string", "default": 5 }));
        check_value(json!({ "type": "integer", "maximum": 3, "examples": [9, 2] }));
        check_value(json!({ "anyOf": [{ "type": "null" }, { "type": "integer", "minimum": 7 }] }));
        check_value(json!({ "allOf": [{ "type": "integer", "minimum": 2 }, { "minimum": 7 }] }));
        check_value(
            json!({ "type": "object", "required": ["a"], "properties": { "a": { "type": "boolean" } } }),
        );
        check_example(
            &json!({ "type": "object", "required": ["p"], "properties": { "p": { "$ref": "#/$defs/P" } },
            "$defs": { "P": { "type": "array", "minItems": 2, "items": { "$ref": "#/$defs/I" } }, "I": { "minimum": 9 } } }),
        );
        check_example(
            &json!({ "type": "object", "oneOf": [{ "required": ["a"], "properties": { "a": { "minimum": 3 } } }] }),
        );
    }

    #[test]
    fn a_schema_that_never_ends_has_an_example_that_does() {
        let endless = json!({ "$defs": { "a": { "type": "array", "minItems": 9, "items": { "$ref": "#/$defs/b" } },
            "b": { "$ref": "#/$defs/c" }, "c": { "$ref": "#/$defs/b" } }, "required": ["x", "y"], "properties": {
            "x": { "$ref": "#/$defs/a" }, "y": { "type": "string", "minLength": 900_000_000_000_u64 } } });
        assert!(example("switchboard call t", &endless).len() < 4_000);
    }

    /// Generates common, satisfiable schemas.
    fn simple() -> impl Strategy<Value = Value> {
        let whole = (-50_i64..50, 0_i64..9).prop_map(
            |(least, room)| json!({ "type": "integer", "minimum": least, "maximum": least + room }),
        );
        let step = (1_i64..9, -50_i64..50).prop_map(
            |(step, least)| json!({ "type": "integer", "minimum": least, "multipleOf": step }),
        );
        let real = (-50_i64..50, 1_i64..9).prop_map(
            |(least, room)| json!({ "type": "number", "exclusiveMinimum": least, "exclusiveMaximum": least + room }),
        );
        let word = (0_u64..20, 0_u64..9)
            .prop_map(|(least, room)| json!({ "type": "string", "minLength": least, "maxLength": least + room }));
        let format = prop::sample::select(vec![
            "date",
            "date-time",
            "email",
            "uri",
            "uuid",
            "ipv4",
            "ipv6",
            "hostname",
        ])
        .prop_map(|format| json!({ "type": "string", "format": format }));
        let choice = prop::collection::vec("[a-z0-9 ]{0,5}", 1..4)
            .prop_map(|words| json!({ "enum": words }));
        let fixed = any::<i32>().prop_map(|number| json!({ "const": number }));
        let leaf = prop_oneof![
            whole,
            step,
            real,
            word,
            format,
            choice,
            fixed,
            Just(json!({ "type": "boolean" })),
            Just(json!({}))
        ];
        leaf.prop_recursive(3, 12, 3, |inner| {
            let list = (0_u64..4, inner.clone()).prop_map(|(least, items)| json!({ "type": "array", "minItems": least, "items": items }));
            let object = prop::collection::btree_map("[a-z]{1,6}", inner, 0..3).prop_map(|properties| {
                let required: Vec<String> = properties.keys().cloned().collect();
                json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false })
            });
            prop_oneof![list, object]
        })
    }

    proptest::proptest! {
        #[test]
        fn an_example_of_a_simple_schema_fits_it(about in simple()) {
            check_value(about);
        }
    }
}
