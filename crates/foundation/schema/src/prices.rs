//! The cost of checking arguments per step: the schema's additional work for each value, by its
//! patterns and by its parts that access no value.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::cost::key;
use super::graph::{Graph, Place};
use super::metered::{DIVISION, LONG_DIVISION, Rates, has_few_digits};
use super::patterns::{self, Toll};

/// The maximum number of steps of a check: about a tenth of a second.
const MAX_LOOKS: u64 = 10_000_000;

/// The cost factor of a step that reports errors, because the path to each error is recorded.
/// The cost of a pattern is the same, so its rate is divided by this.
const REPORT: u64 = 8;

/// The maximum number of errors that are found. Few of them are reported.
const MAX_FOUND: u64 = 20_000;

/// The number of schemas that are skipped in the time of one step, because they access no value.
/// The second constant is the number for schemas in a chain to one that does.
const SILENT_PER_LOOK: u64 = 4;
const CHAIN_PER_LOOK: u64 = 8;

/// The number of values being checked that are scanned in the time of one step.
const LEVELS_PER_LOOK: u64 = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Prices {
    looks: u64,
    rates: Rates,
}

impl Prices {
    pub(super) fn new(graph: &Graph<'_>, chain: u64) -> Self {
        let Toll { text, names, name } = patterns::toll(graph.root);
        let silent = silent(graph);
        let lists = mentions(graph.root, "unevaluatedItems");
        let number = division(graph.root);
        let rates = Rates { text, name, names, number, lists, ..Rates::default() };
        Self { looks: MAX_LOOKS / (1 + silent / SILENT_PER_LOOK + chain / CHAIN_PER_LOOK), rates }
    }

    /// Returns the fuel and costs for checking whether there is an error, with this number of
    /// schema levels.
    pub(super) fn check(self, levels: u64) -> (u64, Rates) {
        (self.looks, Rates { identity: levels / LEVELS_PER_LOOK, ..self.rates })
    }

    /// Returns the fuel and costs for reporting errors. With alternatives, a value that matches
    /// none of them is copied for each. `unevaluatedItems` also copies each item.
    pub(super) fn report(self, levels: u64, alternatives: bool) -> (u64, Rates) {
        let (looks, rates) = self.check(levels);
        let looks = looks / REPORT;
        let (text, name) = (rates.text.div_ceil(REPORT), rates.name.div_ceil(REPORT));
        (
            looks,
            Rates {
                text,
                name,
                mistake: looks / MAX_FOUND,
                copied: alternatives || rates.lists,
                ..rates
            },
        )
    }
}

/// Returns the cost of dividing a number, by the most expensive `multipleOf`.
fn division(value: &Value) -> u64 {
    match value {
        Value::Array(items) => items.iter().map(division).max().unwrap_or_default(),
        Value::Object(map) => {
            let here = match map.get("multipleOf").and_then(Value::as_f64) {
                None => 0,
                Some(divisor) if has_few_digits(divisor) => DIVISION,
                Some(_) => LONG_DIVISION,
            };
            map.values().map(division).fold(here, u64::max)
        }
        _ => 0,
    }
}

/// Returns whether a keyword occurs anywhere.
fn mentions(value: &Value, keyword: &str) -> bool {
    match value {
        Value::Array(items) => items.iter().any(|item| mentions(item, keyword)),
        Value::Object(map) => {
            map.iter().any(|(name, value)| name == keyword || mentions(value, keyword))
        }
        _ => false,
    }
}

/// Returns the maximum number of schemas that apply to one value without access to it: `true`, or
/// one with only a title.
fn silent(graph: &Graph<'_>) -> u64 {
    let mut most = 0;
    let mut known = HashMap::new();
    let mut seen = HashSet::new();
    let mut waiting = vec![graph.root];
    while let Some(schema) = waiting.pop() {
        if seen.insert(key(schema)) {
            most = most.max(silent_at(graph, schema, &mut known).1);
            waiting.extend(graph.parts(schema).into_iter().map(|(_, part)| part));
        }
    }
    most
}

/// Returns whether a schema is silent, and the number of silent schemas with it. The recursion is
/// as deep as the longest chain of schemas at one value, which is bounded already.
fn silent_at<'s>(
    graph: &Graph<'s>,
    schema: &'s Value,
    known: &mut HashMap<usize, (bool, u64)>,
) -> (bool, u64) {
    if let Some(found) = known.get(&key(schema)) {
        return *found;
    }
    let (mut is_silent, mut count) = (!looks(schema), 0_u64);
    for (place, part) in graph.parts(schema) {
        if place == Place::Here {
            let (silent, more) = silent_at(graph, part, known);
            is_silent &= silent;
            count = count.saturating_add(more);
        }
    }
    let found = (is_silent, count.saturating_add(u64::from(is_silent)));
    known.insert(key(schema), found);
    found
}

/// Returns whether a schema certainly accesses the value itself. Older dialects ignore all keywords
/// beside a reference.
fn looks(schema: &Value) -> bool {
    let Value::Object(map) = schema else { return false };
    !map.contains_key("$ref")
        && map.iter().any(|(keyword, value)| match keyword.as_str() {
            "type" | "enum" | "const" | "pattern" | "minLength" | "maxLength" | "minimum"
            | "maximum" | "multipleOf" | "minItems" | "maxItems" => true,
            "properties" | "patternProperties" => {
                value.as_object().is_some_and(|map| !map.is_empty())
            }
            "required" => value.as_array().is_some_and(|names| !names.is_empty()),
            _ => false,
        })
}
