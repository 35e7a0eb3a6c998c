//! Rewrites a schema before it is compiled, so that the cost of validation is bounded.
//!
//! Patterns that the linear-time engine cannot run are removed. Look-around and back-references
//! need an engine that can take exponential time. Real schemas contain them, mostly look-ahead, and
//! a tool must not become unusable because of that. Only such a `pattern` is not checked here; the
//! tool may check it again. Clients receive the schema as its author wrote it.
//!
//! A subschema that accesses no value, such as `true`, would consume no fuel. It gets a keyword
//! that does.

use std::collections::HashMap;

use jsonschema::PatternOptions;
use serde_json::{Map, Value, json};

use crate::fuel::Rates;
use crate::graph::{Place, Shape, shape};

/// Compiling a pattern can take milliseconds.
const MAX_PATTERNS: usize = 200;

/// The size limits of a compiled pattern. The smallest sufficient one counts as the pattern's size.
/// A pattern that exceeds all of them cannot be run, because a few bytes may require a million
/// copies of something.
const SIZES: [usize; 3] = [16 << 10, 128 << 10, 1 << 20];

/// The memory factor: a pattern is compiled to run forwards and backwards, and has a cache while it
/// runs.
const MEMORY_PER_SIZE: usize = 3;

/// The maximum cache size of a running pattern.
const CACHE: usize = 32 << 10;

/// The fuel for each byte of a text, in sixteenths: with a small pattern, with a `format`, and with
/// a pattern of some positions, which may not fit into the engine's cache.
const TEXT: u64 = 2;
const FORMAT: u64 = 8;
const SOME: u64 = 32;

/// The fuel for each position of a larger pattern, which may have to track all of them at once.
const POSITION: u64 = 8;

/// The maximum number of positions of patterns with the rates [`TEXT`] and [`SOME`].
const FEW_POSITIONS: u64 = 6;
const SOME_POSITIONS: u64 = 12;

/// The fuel for recording that a member was seen, as `unevaluatedProperties` does, in sixteenths
/// for each byte of its name.
const UNEVALUATED: u64 = 8;

/// Returns the options for the engine, with memory limits for each pattern.
pub(crate) fn engine() -> PatternOptions<jsonschema::Regex> {
    engine_of(SIZES[SIZES.len() - 1])
}

fn engine_of(size: usize) -> PatternOptions<jsonschema::Regex> {
    PatternOptions::regex().size_limit(size).dfa_size_limit(CACHE)
}

/// Returns the fuel for texts and names: the maximum over the schema. All patterns in one
/// `patternProperties` scan a name one after the other, and `unevaluatedProperties` runs those of
/// all parts.
pub(crate) fn rates(schema: &Value) -> Rates {
    let mut rates = Rates { text: TEXT, ..Rates::default() };
    let (mut all_names, mut unevaluated) = (0_u64, false);
    each_object(schema, &mut |map| {
        if let Some(pattern) = map.get("pattern").and_then(Value::as_str) {
            rates.text = rates.text.max(per_byte(pattern));
        }
        // A text that must be JSON or a pattern is parsed, and one with another format is scanned.
        let format = map.get("format").and_then(Value::as_str);
        if format == Some("regex") || map.contains_key("contentMediaType") {
            rates.text = rates.text.max(SOME);
        } else if format.is_some() {
            rates.text = rates.text.max(FORMAT);
        }
        unevaluated |= map.contains_key("unevaluatedProperties");
        if let Some(Value::Object(patterns)) = map.get("patternProperties") {
            let sum = |sum: u64, pattern: &String| sum.saturating_add(per_byte(pattern));
            let name = patterns.keys().fold(0, sum);
            rates.name = rates.name.max(name);
            all_names = all_names.saturating_add(name);
        }
    });
    if unevaluated {
        rates.name = all_names.saturating_add(UNEVALUATED);
    }
    rates
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

/// Returns the fuel for each byte that a pattern scans, in sixteenths. A small pattern is in one
/// state at each byte.
fn per_byte(pattern: &str) -> u64 {
    match positions(pattern) {
        positions if positions <= FEW_POSITIONS => TEXT,
        positions if positions <= SOME_POSITIONS => SOME,
        positions => positions.saturating_mul(POSITION),
    }
}

/// Returns the number of characters and character classes in a pattern with its repetitions
/// expanded.
fn positions(pattern: &str) -> u64 {
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

/// Rewrites a schema for the compiler. Returns the memory of its patterns, in bytes.
pub(crate) fn rewrite(schema: &mut Value) -> Result<usize, String> {
    let mut tried = Tried::default();
    tried.rewrite(schema);
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
        let memory = if self.0.len() < MAX_PATTERNS { memory(pattern) } else { None };
        self.0.insert(pattern.to_owned(), memory);
        memory.is_some()
    }

    /// Only visits keywords that contain schemas: `pattern` may also be the name of a property, or
    /// part of an example.
    fn rewrite(&mut self, schema: &mut Value) {
        let Value::Object(map) = schema else { return };
        self.remove_pattern(map);
        self.remove_pattern_properties(map);
        for (keyword, value) in map.iter_mut() {
            let Some((shape, place)) = shape(keyword, value) else { continue };
            match (shape, value) {
                (Shape::One, schema) => self.rewrite_part(schema, place),
                (Shape::List, Value::Array(parts)) => {
                    for part in parts {
                        self.rewrite_part(part, place);
                    }
                }
                (Shape::Map, Value::Object(parts)) => {
                    for part in parts.values_mut() {
                        self.rewrite_part(part, place);
                    }
                }
                _ => {}
            }
        }
        if !accesses_value(map) {
            map.insert("minProperties".to_owned(), 0.into());
        }
    }

    /// A boolean schema below the value is applied to a member or an item, whose access consumes
    /// fuel.
    fn rewrite_part(&mut self, schema: &mut Value, place: Place) {
        match schema {
            Value::Bool(true) if place != Place::Below => *schema = json!({ "minProperties": 0 }),
            Value::Bool(false) if place != Place::Below => {
                *schema = json!({ "not": { "minProperties": 0 } });
            }
            _ => self.rewrite(schema),
        }
    }

    fn remove_pattern(&mut self, map: &mut Map<String, Value>) {
        if map.get("pattern").and_then(Value::as_str).is_some_and(|pattern| !self.can_run(pattern))
        {
            map.remove("pattern");
        }
    }

    fn remove_pattern_properties(&mut self, map: &mut Map<String, Value>) {
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
fn memory(pattern: &str) -> Option<usize> {
    let schema = json!({ "pattern": pattern });
    let fits = |size: usize| {
        jsonschema::options().with_pattern_options(engine_of(size)).build(&schema).is_ok()
    };
    SIZES.into_iter().find(|size| fits(*size)).map(|size| MEMORY_PER_SIZE * size)
}

/// Returns whether a schema certainly accesses the value. Older dialects ignore all keywords beside
/// a reference.
fn accesses_value(map: &Map<String, Value>) -> bool {
    !map.contains_key("$ref")
        && map.iter().any(|(keyword, value)| match keyword.as_str() {
            "type" | "enum" | "const" | "pattern" | "minLength" | "maxLength" | "minimum"
            | "maximum" | "multipleOf" | "minItems" | "maxItems" | "minProperties" => true,
            "properties" | "patternProperties" => {
                value.as_object().is_some_and(|map| !map.is_empty())
            }
            "required" => value.as_array().is_some_and(|names| !names.is_empty()),
            _ => false,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pattern: &str, expected: u64) {
        assert_eq!(positions(pattern), expected, "{pattern}");
    }

    #[test]
    fn repetitions_multiply_the_positions_of_a_pattern() {
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
    fn texts_consume_for_the_largest_pattern_and_names_for_all_patterns_of_an_object() {
        let rates = |schema: Value| (rates(&schema).text, rates(&schema).name);
        let schema = json!({"pattern": "^a+$", "properties": {"b": {"pattern": "a{100}"}},
            "patternProperties": {"^x": {}, "y{20}": {}}});
        assert_eq!(rates(schema), (800, TEXT + 160));
        let apart = json!({"anyOf": [{"patternProperties": {"^x": {}}}, {"patternProperties": {"^y": {}}}]});
        assert_eq!(rates(apart.clone()), (TEXT, TEXT));
        let unevaluated = json!({"allOf": [apart], "unevaluatedProperties": false});
        assert_eq!(rates(unevaluated), (TEXT, 2 * TEXT + UNEVALUATED));
        assert_eq!(rates(json!({"format": "uri"})), (FORMAT, 0));
        assert_eq!(rates(json!({"format": "regex"})), (SOME, 0));
        assert_eq!(rates(json!({"contentMediaType": "application/json"})), (SOME, 0));
    }

    #[test]
    fn subschemas_without_access_get_one() {
        let mut schema = json!({"allOf": [true, {"title": "x"}, {"type": "object"}], "not": false,
            "properties": {"a": true}, "additionalProperties": false});
        rewrite(&mut schema).unwrap();
        let access = json!({"minProperties": 0});
        assert_eq!(
            schema,
            json!({"allOf": [access, {"title": "x", "minProperties": 0}, {"type": "object"}],
                "not": {"not": access}, "properties": {"a": true}, "additionalProperties": false})
        );
    }
}
