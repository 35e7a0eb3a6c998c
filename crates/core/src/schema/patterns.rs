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

/// What a byte of a text costs at least, in sixteenths of a look: a pattern that is small takes it.
const TEXT: u64 = 2;

/// What it costs where it is to have a format.
const FORMAT: u64 = 8;

/// A pattern of so few places finds its way within its notes, and one of some places may not; sixteenths of a look.
const FEW_PLACES: u64 = 6;
const SOME_PLACES: u64 = 12;
const SOME: u64 = 32;

/// What each place of a larger one costs for each byte, in sixteenths of a look.
const PLACE: u64 = 8;

/// What it costs to begin, in looks.
const MATCH: u64 = 4;

/// What it costs to note that a member was seen, as `unevaluatedProperties` does, in looks.
const GATHERED: u64 = 5;

/// The engine, with bounds on the memory of each pattern.
pub(super) fn engine() -> PatternOptions<jsonschema::Regex> {
    engine_of(SIZES[SIZES.len() - 1])
}

fn engine_of(size: usize) -> PatternOptions<jsonschema::Regex> {
    PatternOptions::regex().size_limit(size).dfa_size_limit(NOTES)
}

/// What patterns cost where they run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Toll {
    /// For each byte of a text, in sixteenths of a look.
    pub(super) text: u64,
    /// For each member's name, in looks, and for each byte of it, in sixteenths.
    pub(super) names: u64,
    pub(super) name: u64,
}

/// What the patterns of a schema cost, at most. All that stand in one `patternProperties` run over a name one after the
/// other, and `unevaluatedProperties` has those of all parts run.
pub(super) fn toll(schema: &Value) -> Toll {
    let mut toll = Toll { text: TEXT, ..Toll::default() };
    let (mut all, mut gathered) = (Toll::default(), false);
    each_object(schema, &mut |map| {
        if let Some(pattern) = map.get("pattern").and_then(Value::as_str) {
            toll.text = toll.text.max(per_byte(pattern));
        }
        // A text that is to be JSON or a pattern is parsed, and one of another format is gone over.
        let format = map.get("format").and_then(Value::as_str);
        if format == Some("regex") || map.contains_key("contentMediaType") {
            toll.text = toll.text.max(SOME);
        } else if format.is_some() {
            toll.text = toll.text.max(FORMAT);
        }
        gathered |= map.contains_key("unevaluatedProperties");
        if let Some(Value::Object(patterns)) = map.get("patternProperties") {
            let names = MATCH.saturating_mul(patterns.len() as u64);
            let name = patterns.keys().fold(0_u64, |sum, pattern| sum.saturating_add(per_byte(pattern)));
            (toll.names, toll.name) = (toll.names.max(names), toll.name.max(name));
            (all.names, all.name) = (all.names.saturating_add(names), all.name.saturating_add(name));
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

/// What a pattern costs for each byte that it runs over, in sixteenths of a look. A small one knows at each byte where it
/// stands; the others may have to try all of their places at once.
fn per_byte(pattern: &str) -> u64 {
    match places(pattern) {
        places if places <= FEW_PLACES => TEXT,
        places if places <= SOME_PLACES => SOME,
        places => places.saturating_mul(PLACE),
    }
}

/// How many characters, or sets of them, a pattern consists of once its repetitions are written out.
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
    // What was opened and never closed is no pattern; its places count nonetheless.
    outer.into_iter().fold(sum, u64::saturating_add)
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
