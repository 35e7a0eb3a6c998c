//! The bounds of a schema, from one walk when it is read.
//!
//! A small schema can require an unbounded amount of work. For example, thirty levels of `allOf`
//! with two references to the next level are a billion checks of one value. So the number of
//! schemas that apply to one value is bounded, and a schema above [`MAX_WEIGHT`] is refused. A
//! schema that is circular without going deeper into the value is refused as well. The work for the
//! many values of a call's arguments is counted while they are validated (`fuel.rs`).

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use serde_json::Value;

use crate::fuel::{Rates, has_few_digits};
use crate::graph::{Graph, Place};
use crate::rewrite;

/// The maximum number of schemas that apply to one value. Long lists of alternatives are common;
/// many thousands of them are not.
const MAX_WEIGHT: u64 = 4_000;

/// The maximum length of a chain of schemas at one value, such as a reference to a reference.
const MAX_CHAIN: u64 = 64;

/// The maximum number of schemas on the stack: the value's depth times the longest chain. The
/// smallest stack that runs calls has space for far more.
const MAX_LEVELS: u64 = 1_500;

/// Validating one value with this number of schemas takes about as long as parsing the value.
const SCHEMAS_PER_PARSE: u64 = 64;

/// The fuel of one validation: about a tenth of a second.
const MAX_FUEL: u64 = 10_000_000;

/// Recording errors takes longer than finding out that there are some.
const REPORT_FACTOR: u64 = 8;

/// The number of schemas in a chain that are passed in the time of one access.
const CHAIN_PER_ACCESS: u64 = 8;

/// What the walk finds out about a schema.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// The maximum number of schemas that apply to one value.
    weight: u64,
    /// The length of the longest chain of schemas at one value.
    chain: u64,
    /// The number of schemas in `anyOf` and `oneOf`.
    pub(crate) alternatives: usize,
    /// The number of values in the schema.
    pub(crate) values: usize,
    rates: Rates,
}

/// Walks through a schema. The error describes why the schema is refused.
pub(crate) fn walk(root: &Value) -> Result<Bounds, String> {
    let graph = Graph::new(root);
    let rates = rewrite::rates(root);
    let mut bounds = Bounds { weight: 1, chain: 1, alternatives: 0, values: 0, rates };
    count(root, &mut bounds)?;
    let mut sums = HashMap::new();
    let mut seen = HashSet::new();
    let mut waiting = vec![root];
    while let Some(schema) = waiting.pop() {
        if !seen.insert(key(schema)) {
            continue;
        }
        let here = sum(&graph, schema, &mut sums);
        if here.circular {
            return Err("it refers to itself without going deeper into the arguments".to_owned());
        }
        if here.total > MAX_WEIGHT {
            return Err(format!("it applies more than {MAX_WEIGHT} schemas to one value"));
        }
        if here.longest > MAX_CHAIN {
            return Err(format!("it nests or chains more than {MAX_CHAIN} schemas at one value"));
        }
        bounds.weight = bounds.weight.max(here.total);
        bounds.chain = bounds.chain.max(here.longest);
        waiting.extend(graph.parts(schema).into_iter().map(|(_, part)| part));
    }
    Ok(bounds)
}

impl Bounds {
    /// Returns the cost of validating a value of this size, in bytes of text with equal cost.
    pub(crate) fn cost(&self, bytes: usize) -> usize {
        bytes.saturating_mul(1 + (self.weight / SCHEMAS_PER_PARSE) as usize)
    }

    /// Returns the fuel and its rates for validating a value. The error describes why the value
    /// cannot be validated.
    pub(crate) fn fuel(&self, value: &Value) -> Result<(u64, Rates), &'static str> {
        let levels = depth(value).saturating_mul(self.chain);
        if levels > MAX_LEVELS {
            return Err("values are nested too deeply for the tool's schema");
        }
        let fuel = MAX_FUEL / (1 + self.chain / CHAIN_PER_ACCESS);
        Ok((fuel, Rates { levels, ..self.rates }))
    }

    /// Returns the fuel and its rates for reporting the errors of a value. Scanning a text takes as
    /// long as before.
    pub(crate) fn fuel_for_report(fuel: u64, rates: Rates) -> (u64, Rates) {
        let (text, name) = (rates.text.div_ceil(REPORT_FACTOR), rates.name.div_ceil(REPORT_FACTOR));
        (fuel / REPORT_FACTOR, Rates { text, name, ..rates })
    }
}

/// Counts values and alternatives, and checks divisors.
fn count(value: &Value, bounds: &mut Bounds) -> Result<(), String> {
    bounds.values += 1;
    match value {
        Value::Array(items) => items.iter().try_for_each(|item| count(item, bounds)),
        Value::Object(fields) => fields.iter().try_for_each(|(key, value)| {
            match key.as_str() {
                "anyOf" | "oneOf" => bounds.alternatives += value.as_array().map_or(0, Vec::len),
                "multipleOf" => {
                    if !value.as_f64().is_none_or(has_few_digits) {
                        return Err(format!("\"multipleOf\": {value} has more than 15 digits"));
                    }
                    bounds.rates.divides = true;
                }
                _ => {}
            }
            count(value, bounds)
        }),
        _ => Ok(()),
    }
}

/// Returns the depth of a value.
fn depth(value: &Value) -> u64 {
    let below = match value {
        Value::Array(items) => items.iter().map(depth).max(),
        Value::Object(map) => map.values().map(depth).max(),
        _ => None,
    };
    1 + below.unwrap_or_default()
}

#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    /// The number of schemas, each counted as often as it is reached.
    total: u64,
    /// The length of the longest path.
    longest: u64,
    /// Whether a path leads back to its start.
    circular: bool,
}

/// Sums up the schemas that apply to the same value as `schema`. This function is iterative,
/// because a chain of references can be as long as the document.
fn sum<'s>(graph: &Graph<'s>, schema: &'s Value, sums: &mut HashMap<usize, Option<Sum>>) -> Sum {
    let mut stack = vec![(schema, false)];
    while let Some((schema, ready)) = stack.pop() {
        let parts = || {
            let parts = graph.parts(schema).into_iter();
            parts.filter(|(place, _)| *place == Place::Here).map(|(_, part)| part)
        };
        if ready {
            let mut sum = Sum { total: 1, longest: 1, circular: false };
            for part in parts() {
                match sums.get(&key(part)) {
                    Some(Some(below)) => {
                        sum.total = sum.total.saturating_add(below.total);
                        sum.longest = sum.longest.max(below.longest.saturating_add(1));
                        sum.circular |= below.circular;
                    }
                    // Started but not finished: the path leads back to it.
                    _ => sum.circular = true,
                }
            }
            sums.insert(key(schema), Some(sum));
        } else if let Entry::Vacant(vacant) = sums.entry(key(schema)) {
            vacant.insert(None);
            stack.push((schema, true));
            stack.extend(
                parts().filter(|part| !sums.contains_key(&key(part))).map(|part| (part, false)),
            );
        }
    }
    sums.get(&key(schema)).copied().flatten().unwrap_or_default()
}

fn key(value: &Value) -> usize {
    std::ptr::from_ref(value) as usize
}
