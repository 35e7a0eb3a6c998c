//! Removes patterns that the linear-time engine cannot run, before a schema is compiled.
//!
//! Look-around and back-references need an engine that can take exponential time. Real schemas
//! contain them, mostly look-ahead, and a tool must not become unusable because of that. Only such
//! a `pattern` is not checked here; the tool may check it again. Clients receive the schema as its
//! author wrote it.

use std::collections::HashMap;

use jsonschema::PatternOptions;
use serde_json::{Map, Value, json};

/// Compiling a pattern can take milliseconds.
const MAX_PATTERNS: usize = 200;

/// The size limits of a compiled pattern. The smallest sufficient one counts as the pattern's size.
/// A pattern that exceeds all of them cannot be run, because a few bytes may require a million
/// copies of something.
const SIZES: [usize; 3] = [16 << 10, 128 << 10, 1 << 20];

/// The memory factor: a pattern is compiled to run forwards and backwards, and has a cache while it
/// runs.
const ROOM_PER_SIZE: usize = 3;

/// The maximum cache size of a running pattern.
const NOTES: usize = 32 << 10;

/// The minimum cost of each byte of a text, in sixteenths of a step. A small pattern costs this.
const TEXT: u64 = 2;

/// The cost for a text with a `format`.
const FORMAT: u64 = 8;

/// A pattern with few positions fits into its cache; one with some positions may not. Costs are in
/// sixteenths of a step.
const FEW_PLACES: u64 = 6;
const SOME_PLACES: u64 = 12;
const SOME: u64 = 32;

/// The cost of each position of a larger pattern for each byte, in sixteenths of a step.
const PLACE: u64 = 8;

/// The cost of starting a match, in steps.
const MATCH: u64 = 4;

/// The cost of recording that a member was seen, as `unevaluatedProperties` does, in steps.
const GATHERED: u64 = 5;

/// Returns the options for the engine, with memory limits for each pattern.
pub(super) fn engine() -> PatternOptions<jsonschema::Regex> {
    engine_of(SIZES[SIZES.len() - 1])
}

fn engine_of(size: usize) -> PatternOptions<jsonschema::Regex> {
    PatternOptions::regex().size_limit(size).dfa_size_limit(NOTES)
}

/// The costs of patterns at the locations where they run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Toll {
    /// For each byte of a text, in sixteenths of a step.
    pub(super) text: u64,
    /// For each member's name, in steps, and for each byte of it, in sixteenths.
    pub(super) names: u64,
    pub(super) name: u64,
}

/// Returns the maximum costs of a schema's patterns. All patterns in one `patternProperties` run
/// over a name one after the other, and `unevaluatedProperties` runs those of all parts.
pub(super) fn toll(schema: &Value) -> Toll {
    let mut toll = Toll { text: TEXT, ..Toll::default() };
    let (mut all, mut gathered) = (Toll::default(), false);
    each_object(schema, &mut |map| {
        if let Some(pattern) = map.get("pattern").and_then(Value::as_str) {
            toll.text = toll.text.max(per_byte(pattern));
        }
        // A text that must be JSON or a pattern is parsed, and one with another format is scanned.
        let format = map.get("format").and_then(Value::as_str);
        if format == Some("regex") || map.contains_key("contentMediaType") {
            toll.text = toll.text.max(SOME);
        } else if format.is_some() {
            toll.text = toll.text.max(FORMAT);
        }
        gathered |= map.contains_key("unevaluatedProperties");
        if let Some(Value::Object(patterns)) = map.get("patternProperties") {
            let names = MATCH.saturating_mul(patterns.len() as u64);
            let name =
                patterns.keys().fold(0_u64, |sum, pattern| sum.saturating_add(per_byte(pattern)));
            (toll.names, toll.name) = (toll.names.max(names), toll.name.max(name));
            (all.names, all.name) =
                (all.names.saturating_add(names), all.name.saturating_add(name));
        }
    });
    if gathered {
        (toll.names, toll.name) = (all.names.saturating_add(GATHERED), all.name);
    }
    toll
}

fn each_object<'s>(value: &'s Value, visit: &mut impl FnMut(&'s Map<String, Value>)) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| each_object(item, visit)),
        Value::Object(map) => {
            visit(map);
            map.values().for_each(|value| each_object(value, visit));
        }
        _ => {}
    }
}

/// Returns the cost of a pattern for each byte that it scans, in sixteenths of a step. A small one
/// is in one state at each byte. The others may have to track all of their positions at once.
fn per_byte(pattern: &str) -> u64 {
    match places(pattern) {
        places if places <= FEW_PLACES => TEXT,
        places if places <= SOME_PLACES => SOME,
        places => places.saturating_mul(PLACE),
    }
}

/// Returns the number of characters and character classes in a pattern with its repetitions
/// expanded.
fn places(pattern: &str) -> u64 {
    let (mut sum, mut last, mut outer) = (0_u64, 0_u64, Vec::new());
    let mut rest = pattern.chars().peekable();
    while let Some(next) = rest.next() {
        let atom = match next {
            '(' => {
                outer.push(sum);
                (sum, last) = (0, 0);
                continue;
            }
            ')' => {
                let group = sum;
                sum = outer.pop().unwrap_or_default();
                group
            }
            '*' | '+' | '?' | '|' | '^' | '$' => continue,
            '{' => {
                let counts: String = rest.clone().take_while(|next| *next != '}').collect();
                let most = counts.split(',').filter_map(|count| count.trim().parse().ok()).max();
                if let Some(most) = most {
                    rest.nth(counts.chars().count());
                    let again = last.saturating_mul(u64::max(most, 1) - 1);
                    (sum, last) = (sum.saturating_add(again), last.saturating_add(again));
                    continue;
                }
                1
            }
            '[' => {
                let mut depth = 1;
                while depth > 0 {
                    match rest.next() {
                        Some('\\') => _ = rest.next(),
                        Some('[') => depth += 1,
                        Some(']') => depth -= 1,
                        Some(_) => {}
                        None => break,
                    }
                }
                1
            }
            '\\' => {
                let class = rest.next();
                if matches!(class, Some('p' | 'P' | 'x' | 'u')) && rest.peek() == Some(&'{') {
                    let _ = rest.by_ref().take_while(|next| *next != '}').count();
                }
                1
            }
            _ => 1,
        };
        sum = sum.saturating_add(atom);
        last = atom;
    }
    // An unclosed group is not a valid pattern, but its positions count nonetheless.
    outer.into_iter().fold(sum, u64::saturating_add)
}

/// Removes patterns that cannot be run. Returns the memory of the others, in bytes.
pub(super) fn relax(schema: &mut Value) -> Result<usize, String> {
    let mut tried = Tried::default();
    tried.relax(schema);
    if tried.0.len() > MAX_PATTERNS {
        return Err(format!("it has more than {MAX_PATTERNS} different patterns"));
    }
    Ok(tried.0.values().flatten().sum())
}

/// The memory of each pattern; `None` for those that cannot be run.
#[derive(Default)]
struct Tried(HashMap<String, Option<usize>>);

impl Tried {
    fn can_run(&mut self, pattern: &str) -> bool {
        if let Some(known) = self.0.get(pattern) {
            return known.is_some();
        }
        // One pattern above the limit is enough to report the error, so it is not compiled.
        let room = if self.0.len() < MAX_PATTERNS { room(pattern) } else { None };
        self.0.insert(pattern.to_owned(), room);
        room.is_some()
    }

    /// Only visits keywords that hold schemas: `pattern` may also be the name of a property, or
    /// part of an example.
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
                    "properties" | "patternProperties" | "dependentSchemas" | "dependencies"
                    | "$defs" | "definitions",
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
        if map.get("pattern").and_then(Value::as_str).is_some_and(|pattern| !self.can_run(pattern))
        {
            map.remove("pattern");
        }
    }

    fn relax_pattern_properties(&mut self, map: &mut Map<String, Value>) {
        let Some(Value::Object(patterns)) = map.get_mut("patternProperties") else { return };
        let before = patterns.len();
        patterns.retain(|pattern, _| self.can_run(pattern));
        // Members that the pattern would have covered are not unexpected, only unchecked.
        if patterns.len() < before {
            map.remove("additionalProperties");
            map.remove("unevaluatedProperties");
        }
    }
}

/// Returns the memory of a pattern, or `None` if it cannot be run.
fn room(pattern: &str) -> Option<usize> {
    let schema = json!({ "pattern": pattern });
    let fits = |size: usize| {
        jsonschema::options().with_pattern_options(engine_of(size)).build(&schema).is_ok()
    };
    SIZES.into_iter().find(|size| fits(*size)).map(|size| ROOM_PER_SIZE * size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pattern: &str, expected: u64) {
        assert_eq!(places(pattern), expected, "{pattern}");
    }

    #[test]
    fn a_pattern_has_as_many_places_as_its_repetitions_make_of_it() {
        check("", 0);
        check("^abc$", 3);
        check("^(a+)+$", 1);
        check("a|b|[^\\]c-z]", 3);
        check("^[A-Za-z0-9+/]{4}==$", 6);
        check("(ab{3}){2,10}", 40);
        check("((a{1,100}){1,100}){5}", 50_000);
        check("a{2,}", 2);
        check("a{,b}", 5);
        check(r"\p{L}\d\.", 3);
        check("((((", 0);
    }

    #[test]
    fn the_largest_pattern_is_what_a_text_costs_and_all_of_an_object_what_a_name_does() {
        let schema = json!({"pattern": "^a+$", "properties": {"b": {"pattern": "a{100}"}},
            "patternProperties": {"^x": {}, "y{20}": {}}});
        assert_eq!(toll(&schema), Toll { text: 800, names: 8, name: 162 });
        let apart = json!({"anyOf": [{"patternProperties": {"^x": {}}}, {"patternProperties": {"^y": {}}}]});
        assert_eq!(toll(&apart), Toll { text: 2, names: 4, name: 2 });
        for (schema, text) in [
            (json!({"format": "uri"}), FORMAT),
            (json!({"format": "regex"}), SOME),
            (json!({"contentMediaType": "application/json"}), SOME),
        ] {
            assert_eq!(toll(&schema).text, text, "{schema}");
        }
        let gathered = json!({"allOf": [apart], "unevaluatedProperties": false});
        assert_eq!(toll(&gathered), Toll { text: 2, names: 13, name: 4 });
    }
}
