//! Patterns that the linear-time engine cannot run, taken out of a schema before it is compiled.
//!
//! Look-around and back-references need an engine that can take exponential time. Real schemas contain them, mostly
//! look-ahead, and a tool must not become unusable for that: such a `pattern` alone is left unchecked here (the tool
//! checks it again if it must), and clients are shown the schema as its author wrote it.

use std::collections::HashMap;

use jsonschema::PatternOptions;
use serde_json::{Map, Value, json};

/// Compiling a pattern can take milliseconds.
const MAX_PATTERNS: usize = 200;

/// The engine, with bounds on the memory of each pattern.
pub(super) fn engine() -> PatternOptions<jsonschema::Regex> {
    PatternOptions::regex().size_limit(1 << 20).dfa_size_limit(1 << 20)
}

/// Takes out what cannot be run.
pub(super) fn relax(schema: &mut Value) -> Result<(), String> {
    let mut tried = Tried::default();
    tried.relax(schema);
    if tried.0.len() > MAX_PATTERNS {
        return Err(format!("it has more than {MAX_PATTERNS} different patterns"));
    }
    Ok(())
}

/// Which patterns can be run.
#[derive(Default)]
struct Tried(HashMap<String, bool>);

impl Tried {
    fn can_run(&mut self, pattern: &str) -> bool {
        if let Some(known) = self.0.get(pattern) {
            return *known;
        }
        // One too many shows that there are too many; what they are need not be found out.
        let can_run = self.0.len() < MAX_PATTERNS
            && jsonschema::options().with_pattern_options(engine()).build(&json!({ "pattern": pattern })).is_ok();
        self.0.insert(pattern.to_owned(), can_run);
        can_run
    }

    /// Looks only where a keyword holds schemas: `pattern` may also be the name of a property, or part of an example.
    fn relax(&mut self, schema: &mut Value) {
        let Value::Object(map) = schema else { return };
        self.relax_pattern(map);
        self.relax_pattern_properties(map);
        for (keyword, value) in map {
            match (keyword.as_str(), value) {
                ("allOf" | "anyOf" | "oneOf" | "prefixItems" | "items", Value::Array(schemas)) => {
                    for schema in schemas {
                        self.relax(schema);
                    }
                }
                (
                    "properties" | "patternProperties" | "dependentSchemas" | "dependencies" | "$defs" | "definitions",
                    Value::Object(schemas),
                ) => schemas.values_mut().for_each(|schema| self.relax(schema)),
                (
                    "not"
                    | "if"
                    | "then"
                    | "else"
                    | "contentSchema"
                    | "additionalProperties"
                    | "unevaluatedProperties"
                    | "propertyNames"
                    | "items"
                    | "additionalItems"
                    | "unevaluatedItems"
                    | "contains",
                    schema,
                ) => self.relax(schema),
                _ => {}
            }
        }
    }

    fn relax_pattern(&mut self, map: &mut Map<String, Value>) {
        if map.get("pattern").and_then(Value::as_str).is_some_and(|pattern| !self.can_run(pattern)) {
            map.remove("pattern");
        }
    }

    fn relax_pattern_properties(&mut self, map: &mut Map<String, Value>) {
        let Some(Value::Object(patterns)) = map.get_mut("patternProperties") else { return };
        let before = patterns.len();
        patterns.retain(|pattern, _| self.can_run(pattern));
        // Members that the pattern would have covered are not surplus, only unchecked.
        if patterns.len() < before {
            map.remove("additionalProperties");
            map.remove("unevaluatedProperties");
        }
    }
}
