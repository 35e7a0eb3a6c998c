//! Metered arguments: every access of a validator consumes fuel. Without fuel, the validator sees
//! no more values.
//!
//! The cost of checking arguments against a schema does not follow from their sizes alone.
//! `unevaluatedProperties` visits all members once for each branch beside it, and again for each of
//! their levels. `properties` looks up each of its names in each item. A comparison ends at the
//! first difference. So the work is not predicted, but counted while it is done. The validator
//! cannot be stopped. But when the fuel is used up, each value appears as `null` and each list
//! ends. The validator then finishes soon, and its result is discarded.

use std::borrow::Cow;
use std::cell::Cell;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};

use jsonschema::JsonType;
use jsonschema::json::{Array, Json, Node, NodeIdentity, Object, SerdeJson, cmp};
use serde_json::{Map, Number, Value, map};

/// Comparing, copying or counting this number of bytes takes about as long as one step.
const BYTES_PER_LOOK: u64 = 32;

/// The cost of dividing common numbers, and of all other numbers.
pub(super) const DIVISION: u64 = 8;
pub(super) const LONG_DIVISION: u64 = 128;

/// The costs of operations in steps. Most operations access a value and cost one step. The others
/// depend on the operation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Rates {
    /// For each byte of a text that is returned whole, in sixteenths of a step, because a pattern
    /// scans it.
    pub(super) text: u64,
    /// For each byte of a member's name, likewise, and for the name itself. All patterns of an
    /// object scan it.
    pub(super) name: u64,
    pub(super) names: u64,
    /// For a number that some `multipleOf` divides.
    pub(super) number: u64,
    /// For requesting a value's identity, which is compared with all values being checked to find
    /// circles.
    pub(super) identity: u64,
    /// Whether each such request scans a list, as `unevaluatedItems` does.
    pub(super) lists: bool,
    /// For an error that is recorded, and whether the invalid value is copied for it.
    pub(super) mistake: u64,
    pub(super) copied: bool,
}

thread_local! {
    static LEFT: Cell<u64> = const { Cell::new(0) };
    static RATES: Cell<Rates> = const {
        Cell::new(Rates { text: 0, name: 0, names: 0, number: 0, identity: 0, lists: false, mistake: 0, copied: false })
    };
}

/// Does some work with a fuel limit, and returns the remaining fuel. Zero means that the fuel was
/// not enough, and the result of the work is invalid.
pub(super) fn spending<T>(purse: u64, rates: Rates, work: impl FnOnce() -> T) -> (T, u64) {
    LEFT.set(purse);
    RATES.set(rates);
    let done = work();
    (done, LEFT.replace(0))
}

/// Consumes fuel, and returns whether there was enough.
fn pay(price: u64) -> bool {
    let left = LEFT.get();
    LEFT.set(left.saturating_sub(price));
    left > price
}

pub(super) fn has_few_digits(number: f64) -> bool {
    number == 0.0 || (1e-15..1e15).contains(&number.abs())
}

fn bytes(text: &str) -> u64 {
    text.len() as u64 / BYTES_PER_LOOK
}

/// Values as a validator sees them.
#[derive(Debug)]
pub(super) struct Metered;

#[derive(Debug, Clone, Copy)]
pub(super) struct Seen<'a>(pub(super) &'a Value);

impl Json for Metered {
    type Node<'a> = Seen<'a>;
    type PreparedKey = String;
    type StringBuffer = Value;

    // The same as for values without metering.
    const KEYS_PER_LOOKUP: usize = 2;

    fn prepare_key(key: &str) -> String {
        key.to_owned()
    }

    fn with_string_node<T>(buffer: &mut Value, string: &str, f: impl FnOnce(Seen<'_>) -> T) -> T {
        pay(1 + bytes(string));
        if let Value::String(existing) = buffer {
            existing.clear();
            existing.push_str(string);
        } else {
            *buffer = Value::String(string.to_owned());
        }
        f(Seen(buffer))
    }
}

impl<'a> Seen<'a> {
    fn look(self) -> &'a Value {
        if pay(1) { self.0 } else { &Value::Null }
    }
}

impl<'a> Node<'a, Metered> for Seen<'a> {
    type Object = Members<'a>;
    type Array = Items<'a>;
    type Number = &'a Number;

    fn as_object(&self) -> Option<Members<'a>> {
        self.look().as_object().map(Members)
    }

    fn as_array(&self) -> Option<Items<'a>> {
        self.look().as_array().map(|items| Items(items))
    }

    fn as_string(&self) -> Option<Cow<'a, str>> {
        let text = self.look().as_str()?;
        pay((text.len() as u64).saturating_mul(RATES.get().text) / 16)
            .then_some(Cow::Borrowed(text))
    }

    fn as_number(&self) -> Option<&'a Number> {
        let number = self.look().as_number()?;
        let rate = match RATES.get().number {
            0 => 0,
            // A number with many digits before or after the point is divided as a fraction with
            // that number of digits.
            _ if !number.as_f64().is_some_and(has_few_digits) => LONG_DIVISION,
            rate => rate,
        };
        pay(rate).then_some(number)
    }

    fn as_boolean(&self) -> Option<bool> {
        self.look().as_bool()
    }

    fn is_null(&self) -> bool {
        self.look().is_null()
    }

    fn json_type(&self) -> JsonType {
        match self.look() {
            Value::Null => JsonType::Null,
            Value::Bool(_) => JsonType::Boolean,
            Value::Number(_) => JsonType::Number,
            Value::String(_) => JsonType::String,
            Value::Array(_) => JsonType::Array,
            Value::Object(_) => JsonType::Object,
        }
    }

    fn string_length(&self) -> Option<u64> {
        let text = self.look();
        pay(bytes(text.as_str()?));
        <&Value as Node<'_, SerdeJson>>::string_length(&text)
    }

    fn equals_value(&self, expected: &Value) -> bool {
        equal(self.0, expected)
    }

    fn to_value(&self) -> Cow<'a, Value> {
        let rates = RATES.get();
        pay(rates.mistake);
        if rates.copied {
            pay_for_copy(self.0);
        }
        Cow::Borrowed(self.0)
    }

    /// The identity must be the same with and without fuel, because the validator looks it up again
    /// later.
    fn identity(&self) -> Option<NodeIdentity> {
        let rates = RATES.get();
        let list = if rates.lists {
            self.0.as_array().map_or(0, Vec::len) as u64 / BYTES_PER_LOOK
        } else {
            0
        };
        pay(1 + rates.identity + list);
        Some(NodeIdentity::new(std::ptr::from_ref(self.0) as usize))
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Members<'a>(&'a Map<String, Value>);

impl<'a> Object<'a, Metered> for Members<'a> {
    type Node = Seen<'a>;
    type MemberName = &'a str;
    type MembersIter = EachMember<'a>;

    fn len(&self) -> usize {
        self.0.len()
    }

    fn get(&self, key: &String) -> Option<Seen<'a>> {
        // The more members there are, the more of them are compared with the key.
        let compared = self.0.len().checked_ilog2().unwrap_or_default() / 4;
        if pay(1 + u64::from(compared)) { self.0.get(key).map(Seen) } else { None }
    }

    fn members(&self) -> EachMember<'a> {
        EachMember { members: self.0.iter(), rates: RATES.get() }
    }
}

#[derive(Debug)]
pub(super) struct EachMember<'a> {
    members: map::Iter<'a>,
    rates: Rates,
}

impl<'a> Iterator for EachMember<'a> {
    type Item = (&'a str, Seen<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let (name, value) = self.members.next()?;
        let matched = (name.len() as u64).saturating_mul(self.rates.name) / 16;
        pay(1 + self.rates.names + matched).then_some((name.as_str(), Seen(value)))
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Items<'a>(&'a [Value]);

impl<'a> Array<'a, Metered> for Items<'a> {
    type Node = Seen<'a>;
    type ElementsIter = EachItem<'a>;

    fn len(&self) -> usize {
        self.0.len()
    }

    fn elements(&self) -> EachItem<'a> {
        EachItem(self.0.iter())
    }

    fn is_unique(&self) -> bool {
        is_unique(self.0)
    }
}

#[derive(Debug)]
pub(super) struct EachItem<'a>(std::slice::Iter<'a, Value>);

impl<'a> Iterator for EachItem<'a> {
    type Item = Seen<'a>;

    fn next(&mut self) -> Option<Seen<'a>> {
        let item = self.0.next()?;
        pay(1).then_some(Seen(item))
    }
}

/// Returns whether two values are equal in JSON Schema, where `1` equals `1.0`.
fn equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Array(left), Value::Array(right)) => {
            pay(1)
                && left.len() == right.len()
                && left.iter().zip(right).all(|(left, right)| equal(left, right))
        }
        (Value::Object(left), Value::Object(right)) => {
            let same = |(name, left): (&String, &Value)| {
                right.get(name).is_some_and(|right| equal(left, right))
            };
            pay(1) && left.len() == right.len() && left.iter().all(same)
        }
        (Value::String(left), Value::String(right)) => {
            left.len() == right.len() && pay(1 + bytes(left)) && left == right
        }
        _ => pay(1) && cmp::equal(left, right),
    }
}

/// Returns whether all items are different. Compares items by randomly seeded hashes, so that an
/// attacker cannot choose colliding items.
fn is_unique(items: &[Value]) -> bool {
    const COMPARED: usize = 8;
    if items.len() <= COMPARED {
        let others = |at: usize| items.iter().skip(at + 1);
        return items
            .iter()
            .enumerate()
            .all(|(at, item)| others(at).all(|other| !equal(item, other)));
    }
    let state = RandomState::new();
    let mut hashed: Vec<(u64, &Value)> = Vec::with_capacity(items.len());
    for item in items {
        if !pay(4) {
            return false;
        }
        hashed.push((hash(&state, item), item));
    }
    hashed.sort_unstable_by_key(|(hash, _)| *hash);
    let mut alike = hashed.chunk_by(|(left, _), (right, _)| left == right);
    alike.all(|alike| {
        let others = |at: usize| alike.iter().skip(at + 1);
        alike
            .iter()
            .enumerate()
            .all(|(at, (_, item))| others(at).all(|(_, other)| !equal(item, other)))
    })
}

/// Returns a hash that is equal for equal values, whatever the order of their members is.
fn hash(state: &RandomState, value: &Value) -> u64 {
    let mut hasher = state.build_hasher();
    pay(2);
    match value {
        Value::Null => 0_u8.hash(&mut hasher),
        Value::Bool(value) => value.hash(&mut hasher),
        Value::Number(number) => {
            // Zero has two signs, but is one number.
            let number = number.as_f64().unwrap_or_default() + 0.0;
            number.to_bits().hash(&mut hasher);
        }
        Value::String(text) => {
            pay(bytes(text));
            text.hash(&mut hasher);
        }
        Value::Array(items) => items.iter().for_each(|item| hash(state, item).hash(&mut hasher)),
        Value::Object(members) => {
            let one =
                |(name, member): (&String, &Value)| state.hash_one((name, hash(state, member)));
            members.iter().map(one).fold(0, u64::wrapping_add).hash(&mut hasher);
        }
    }
    hasher.finish()
}

/// Consumes the fuel for copying a whole value, while there is fuel left.
fn pay_for_copy(value: &Value) -> bool {
    match value {
        Value::String(text) => pay(1 + bytes(text)),
        Value::Array(items) => pay(1) && items.iter().all(pay_for_copy),
        Value::Object(members) => pay(1) && members.values().all(pay_for_copy),
        _ => pay(1),
    }
}

#[cfg(test)]
mod tests {
    //! Rule: with enough fuel the answer is the same as without metering, and with too little there
    //! is none.

    use serde_json::json;

    use super::*;

    fn answer(schema: &Value, value: &Value, purse: u64) -> Option<bool> {
        let validator = jsonschema::options_for::<Metered>().build(schema).unwrap();
        let (valid, left) = spending(purse, Rates::default(), || validator.is_valid(Seen(value)));
        (left > 0).then_some(valid)
    }

    #[test]
    fn the_answer_is_the_same_as_without_a_meter() {
        let values = [
            json!(null),
            json!(true),
            json!(0),
            json!(-0.0),
            json!(1),
            json!(1.0),
            json!(2.5),
            json!("1"),
            json!("\u{fc}x"),
            json!([]),
            json!([1, 1.0]),
            json!([1, 2]),
            json!([[1], [1.0]]),
            json!({}),
            json!({"a": 1}),
            json!({"b": {"a": [1]}}),
            json!([0, 1, 2, 3, 4, 5, 6, 7, 8, -0.0]),
            json!([{"a": 1, "b": 2}, 1, 2, 3, 4, 5, 6, 7, 8, {"b": 2.0, "a": 1}]),
            json!([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, "9", null, false, [9], {"9": 9}]),
            json!([9_007_199_254_740_993_u64, 1]),
        ];
        let mut schemas: Vec<Value> = values
            .iter()
            .flat_map(|value| [json!({"const": value}), json!({"enum": [value, 7]})])
            .collect();
        schemas.extend([
            json!({"uniqueItems": true}),
            json!({"type": "integer"}),
            json!({"minLength": 2}),
            json!({"maxItems": 1}),
            json!({"required": ["a"]}),
            json!({"properties": {"a": {"type": "string"}}}),
            json!({"contains": {"const": 1}}),
            json!({"propertyNames": {"pattern": "^a"}}),
            json!({"patternProperties": {"^b": {"required": ["a"]}}}),
            json!({"anyOf": [{"properties": {"a": {}}}], "unevaluatedProperties": false}),
            json!({"multipleOf": 0.5}),
            json!({"prefixItems": [true], "unevaluatedItems": false}),
            json!({"type": ["null", "boolean", "string"]}),
        ]);
        for schema in &schemas {
            let plain = jsonschema::validator_for(schema).unwrap();
            for value in &values {
                assert_eq!(
                    answer(schema, value, u64::MAX),
                    Some(plain.is_valid(value)),
                    "{schema} {value}"
                );
            }
        }
    }

    #[test]
    fn with_too_little_there_is_no_answer_and_with_enough_there_is() {
        let schema = json!({"items": {"properties": {"a": {"minimum": 0}}}, "uniqueItems": true});
        let value: Value = (0..50).map(|n| json!({"a": n})).collect();
        let enough = (1..10_000).find(|purse| answer(&schema, &value, *purse).is_some()).unwrap();
        assert_eq!(answer(&schema, &value, enough), Some(true));
        assert!((300..2_000).contains(&enough), "{enough}");
    }

    #[test]
    fn each_branch_beside_unevaluated_properties_is_paid_for() {
        let spent = |branches: usize, members: usize| {
            let any: Vec<Value> =
                (0..branches).map(|n| json!({"properties": {format!("p{n}"): {}}})).collect();
            let schema = json!({"anyOf": any, "unevaluatedProperties": {"type": "number"}});
            let value = Value::Object((0..members).map(|n| (format!("q{n}"), json!(1))).collect());
            let validator = jsonschema::options_for::<Metered>().build(&schema).unwrap();
            u64::MAX - spending(u64::MAX, Rates::default(), || validator.is_valid(Seen(&value))).1
        };
        let (one, twice) = (spent(100, 1_000), spent(200, 2_000));
        assert!(one > 100 * 1_000 && twice > 39 * one / 10, "{one} {twice}");
    }
}
