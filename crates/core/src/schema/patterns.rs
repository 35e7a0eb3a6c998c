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

/// How large a compiled pattern may be, in steps: the first one that it fits into is what it is taken to be. One that
/// fits into none cannot be run: a few bytes may ask for a million copies of something.
const SIZES: [usize; 3] = [16 << 10, 128 << 10, 1 << 20];

/// A pattern is compiled to be run forwards and backwards, and writes down what it has found out while it runs.
const ROOM_PER_SIZE: usize = 3;

/// How much a pattern may write down while it runs.
const NOTES: usize = 32 << 10;

/// The engine, with bounds on the memory of each pattern.
pub(super) fn engine() -> PatternOptions<jsonschema::Regex> {
    engine_of(SIZES[SIZES.len() - 1])
}

fn engine_of(size: usize) -> PatternOptions<jsonschema::Regex> {
    PatternOptions::regex().size_limit(size).dfa_size_limit(NOTES)
}

/// Takes out what cannot be run, and says how much room the others take, in bytes.
pub(super) fn relax(schema: &mut Value) -> Result<usize, String> {
    let mut tried = Tried::default();
    tried.relax(schema);
    if tried.0.len() > MAX_PATTERNS {
        return Err(format!("it has more than {MAX_PATTERNS} different patterns"));
    }
    Ok(tried.0.values().flatten().sum())
}

/// Which patterns can be run, and how much room each of them takes.
#[derive(Default)]
struct Tried(HashMap<String, Option<usize>>);

impl Tried {
    fn can_run(&mut self, pattern: &str) -> bool {
        if let Some(known) = self.0.get(pattern) {
            return known.is_some();
        }
        // One too many shows that there are too many; what they are need not be found out.
        let room = if self.0.len() < MAX_PATTERNS { room(pattern) } else { None };
        self.0.insert(pattern.to_owned(), room);
        room.is_some()
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

/// How much room a pattern takes; `None` if it cannot be run.
fn room(pattern: &str) -> Option<usize> {
    let schema = json!({ "pattern": pattern });
    let fits = |size: usize| jsonschema::options().with_pattern_options(engine_of(size)).build(&schema).is_ok();
    SIZES.into_iter().find(|size| fits(*size)).map(|size| ROOM_PER_SIZE * size)
}
