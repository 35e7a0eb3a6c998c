//! The cost of a schema that is independent of the value, computed before it is compiled.
//!
//! A small schema can require an unbounded amount of work. For example, thirty levels of `allOf`
//! with two references to the next level are a billion checks of one value. So the checks of any
//! one value have a weight, and a schema above [`MAX_WEIGHT`] is refused when it is read. A schema
//! that is circular without going deeper into the value is refused as well. The work for the many
//! values of a call's arguments is counted while they are checked (`metered.rs`).

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::graph::{Graph, Place};

/// The maximum number of schemas that apply to one value. Long lists of alternatives are common;
/// many thousands of them are not.
const MAX_WEIGHT: u64 = 4_000;

/// The maximum length of a chain of schemas at one value, such as a reference to a reference.
const MAX_CHAIN: u64 = 64;

/// The maximum number of schema levels on the stack: the value's depth times the longest chain. The
/// smallest stack that runs calls has space for far more.
const MAX_LEVELS: u64 = 1_500;

/// Checking this number of schemas at one value takes about as long as reading the value.
const SCHEMAS_PER_READING: u64 = 64;

/// A total number of schemas that is negligible for any value.
const MAX_SPREAD: u64 = 20_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cost {
    weight: u64,
    pub(super) chain: u64,
    spread: u64,
}

/// Computes the cost of a schema. The error describes why it is refused.
pub(super) fn weigh(graph: &Graph<'_>) -> Result<Cost, String> {
    let mut cost = Cost {
        weight: 1,
        chain: 1,
        spread: sum(graph, graph.root, |_| true, &mut HashMap::new()).total,
    };
    let mut sums = HashMap::new();
    let mut seen = HashSet::new();
    let mut waiting = vec![graph.root];
    while let Some(schema) = waiting.pop() {
        if !seen.insert(key(schema)) {
            continue;
        }
        let here = sum(graph, schema, |place| place == Place::Here, &mut sums);
        if here.circular {
            return Err("it refers to itself without going deeper into the arguments".to_owned());
        }
        if here.total > MAX_WEIGHT {
            return Err(format!("it applies more than {MAX_WEIGHT} schemas to one value"));
        }
        if here.longest > MAX_CHAIN {
            return Err(format!("it nests or chains more than {MAX_CHAIN} schemas at one value"));
        }
        cost.weight = cost.weight.max(here.total);
        cost.chain = cost.chain.max(here.longest);
        waiting.extend(graph.parts(schema).into_iter().map(|(_, part)| part));
    }
    Ok(cost)
}

impl Cost {
    /// Returns the cost of checking a value with this size, in bytes of text with equal cost.
    pub(super) fn validation_cost(self, bytes: usize) -> usize {
        let readings =
            1 + (self.weight.max(self.spread / MAX_SPREAD) / SCHEMAS_PER_READING) as usize;
        bytes.saturating_mul(readings)
    }

    /// Returns the maximum number of schemas on the stack for a value. The error describes why the
    /// number is too high.
    pub(super) fn levels(self, value: &Value) -> Result<u64, &'static str> {
        let levels = depth(value).saturating_mul(self.chain);
        if levels > MAX_LEVELS {
            return Err("values are nested too deeply for the tool's schema");
        }
        Ok(levels)
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
    /// The longest path.
    longest: u64,
    /// Whether a path leads back to its start.
    circular: bool,
}

/// Computes the sums below a schema, over the parts that match `follow`. This function is
/// iterative, because a chain of references can be as long as the schema.
fn sum<'s>(
    graph: &Graph<'s>,
    schema: &'s Value,
    follow: impl Fn(Place<'s>) -> bool,
    sums: &mut HashMap<usize, Option<Sum>>,
) -> Sum {
    let mut stack = vec![(schema, false)];
    while let Some((schema, ready)) = stack.pop() {
        let parts = || {
            graph
                .parts(schema)
                .into_iter()
                .filter(|(place, _)| follow(*place))
                .map(|(_, part)| part)
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

pub(super) fn key(value: &Value) -> usize {
    std::ptr::from_ref(value) as usize
}
