//! What it costs to check a value against a schema, worked out before it is done.
//!
//! A small schema can ask for an endless amount of work: thirty levels of `allOf`, each with two references to the
//! next, are a billion checks of one value. Two limits keep this away, because a schema comes from whoever offers a
//! tool, and the arguments from whoever calls it:
//!
//! - What a schema asks of any one value has a weight, and a schema above [`MAX_WEIGHT`] is refused when it is read.
//!   One that goes in circles without going deeper into the value is refused as well.
//! - A schema that multiplies from level to level of the value is weighed again with the value at hand.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::graph::{Graph, Place};

/// How many schemas may apply to one value. Long lists of alternatives are real; many thousands of them are not.
const MAX_WEIGHT: u64 = 4_000;

/// How long a chain of schemas at one value may be, such as a reference to a reference.
const MAX_CHAIN: u64 = 64;

/// Levels of schemas on the stack at once: the value's depth times the longest chain. Well below what the smallest
/// stack that calls run on can hold.
const MAX_LEVELS: u64 = 1_500;

/// Above this, a schema's checks are counted for each value before they are done. Below it, they are few whatever
/// the value: the compiled form checks no value twice against a schema that refers to itself.
const MAX_SPREAD: u64 = 20_000;

/// Checks of one value and everything in it. Some tenths of a second.
const MAX_STEPS: u64 = 10_000_000;

/// Checks when every mistake is to be named, which costs far more than to see that there is one.
const MAX_REPORT_STEPS: u64 = 100_000;

/// So many schemas at one value are checked in about the time that it takes to read it.
const SCHEMAS_PER_READING: u64 = 64;

/// Counting must not cost more than what it prevents.
const MAX_COUNTED: usize = 500_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cost {
    weight: u64,
    chain: u64,
    spread: u64,
}

/// Weighs a schema; the error says why it is refused.
pub(super) fn weigh(graph: &Graph<'_>) -> Result<Cost, String> {
    let mut cost = Cost { weight: 1, chain: 1, spread: sum(graph, graph.root, |_| true, &mut HashMap::new()).total };
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
    /// How much work it is to check a value of so many bytes, as so many bytes of text would be.
    pub(super) fn burden(self, bytes: usize) -> usize {
        let readings = 1 + (self.weight.max(self.spread / MAX_SPREAD) / SCHEMAS_PER_READING) as usize;
        bytes.saturating_mul(readings)
    }

    /// Whether a value can be checked at all; the error says why not.
    pub(super) fn allows(self, schema: &Value, value: &Value) -> Result<(), &'static str> {
        let (nodes, depth) = extent(value);
        if depth.saturating_mul(self.chain) > MAX_LEVELS {
            return Err("they are nested too deeply for the tool's input_schema");
        }
        let may_be_much = self.spread > MAX_SPREAD || nodes.saturating_mul(self.weight) > MAX_STEPS;
        if may_be_much && !is_within(schema, value, MAX_STEPS) {
            return Err("checking them against the tool's input_schema would take too long");
        }
        Ok(())
    }

    /// Whether every mistake in a value can be named in a reasonable time.
    pub(super) fn allows_report(schema: &Value, value: &Value) -> bool {
        is_within(schema, value, MAX_REPORT_STEPS)
    }
}

/// How many values there are in a value, itself included, and how deep they lie.
fn extent(value: &Value) -> (u64, u64) {
    let sum = |(nodes, depth): (u64, u64), (more, deeper): (u64, u64)| (nodes + more, depth.max(deeper + 1));
    match value {
        Value::Array(items) => items.iter().map(extent).fold((1, 1), sum),
        Value::Object(map) => map.values().map(extent).fold((1, 1), sum),
        _ => (1, 1),
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    /// The number of schemas, each counted as often as it is reached.
    total: u64,
    /// The longest way down.
    longest: u64,
    /// Whether there is a way back to where one came from.
    circular: bool,
}

/// Sums up what lies below a schema, over the parts for which `follow` holds. Without recursion: a chain of
/// references can be as long as the schema.
fn sum<'s>(
    graph: &Graph<'s>,
    schema: &'s Value,
    follow: impl Fn(Place<'s>) -> bool,
    sums: &mut HashMap<usize, Option<Sum>>,
) -> Sum {
    let mut stack = vec![(schema, false)];
    while let Some((schema, ready)) = stack.pop() {
        let parts = || graph.parts(schema).into_iter().filter(|(place, _)| follow(*place)).map(|(_, part)| part);
        if ready {
            let mut sum = Sum { total: 1, longest: 1, circular: false };
            for part in parts() {
                match sums.get(&key(part)) {
                    Some(Some(below)) => {
                        sum.total = sum.total.saturating_add(below.total);
                        sum.longest = sum.longest.max(below.longest.saturating_add(1));
                        sum.circular |= below.circular;
                    }
                    // Begun and not done: the way leads back to it.
                    _ => sum.circular = true,
                }
            }
            sums.insert(key(schema), Some(sum));
        } else if let Entry::Vacant(vacant) = sums.entry(key(schema)) {
            vacant.insert(None);
            stack.push((schema, true));
            stack.extend(parts().filter(|part| !sums.contains_key(&key(part))).map(|part| (part, false)));
        }
    }
    sums.get(&key(schema)).copied().flatten().unwrap_or_default()
}

/// Whether checking a value takes no more than `most` steps, each schema counted as often as it is met.
fn is_within(schema: &Value, value: &Value, most: u64) -> bool {
    let graph = &Graph::new(schema);
    let mut meter = Meter { graph, known: HashMap::new() };
    meter.steps(graph.root, value).is_some_and(|steps| steps <= most)
}

struct Meter<'g, 's> {
    graph: &'g Graph<'s>,
    known: HashMap<(usize, usize), u64>,
}

impl<'s> Meter<'_, 's> {
    /// `None` when there are too many to count. The recursion is as deep as [`MAX_LEVELS`] allows.
    fn steps(&mut self, schema: &'s Value, value: &Value) -> Option<u64> {
        let place = (key(schema), key(value));
        if let Some(steps) = self.known.get(&place) {
            return Some(*steps);
        }
        if self.known.len() > MAX_COUNTED {
            return None;
        }
        let mut steps = 1_u64;
        for (place, part) in self.graph.parts(schema) {
            let found = match (place, value) {
                (Place::Here, _) => self.steps(part, value)?,
                (Place::Member(name), Value::Object(map)) => match map.get(name) {
                    Some(member) => self.steps(part, member)?,
                    None => 0,
                },
                (Place::Members, Value::Object(map)) => {
                    let mut all = 0_u64;
                    for member in map.values() {
                        all = all.saturating_add(self.steps(part, member)?);
                    }
                    all
                }
                (Place::Items, Value::Array(items)) => {
                    let mut all = 0_u64;
                    for item in items {
                        all = all.saturating_add(self.steps(part, item)?);
                    }
                    all
                }
                (Place::Names, Value::Object(map)) => self.steps(part, &Value::Null)?.saturating_mul(map.len() as u64),
                _ => 0,
            };
            steps = steps.saturating_add(found);
        }
        self.known.insert(place, steps);
        Some(steps)
    }
}

fn key(value: &Value) -> usize {
    std::ptr::from_ref(value) as usize
}
