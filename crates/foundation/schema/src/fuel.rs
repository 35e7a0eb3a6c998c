//! Values whose every access consumes fuel. Without fuel, the validator sees no more values.
//!
//! The cost of validating a value does not follow from its size. `unevaluatedProperties` visits all
//! members once for each branch beside it, and again for each of their levels. `properties` looks
//! up each of its names in each item. A comparison ends at the first difference. So the work is not
//! predicted, but counted while it is done. The validator cannot be stopped. But when the fuel is
//! used up, each value appears as `null` and each list ends. The validator then finishes soon, and
//! its result is discarded.

use std::borrow::Cow;
use std::cell::Cell;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};

use jsonschema::JsonType;
use jsonschema::json::{Array, Json, Node, NodeIdentity, Object, SerdeJson, cmp};
use serde_json::{Map, Number, Value, map};

/// Comparing, copying or counting this number of bytes takes about as long as one access.
const BYTES_PER_ACCESS: u64 = 32;

/// The fuel for dividing a number with few digits, and any other number. The latter is divided as a
/// fraction.
const DIVISION: u64 = 8;
const LONG_DIVISION: u64 = 128;

/// The fuel for recording an error.
const ERROR: u64 = 64;

/// The number of values under validation that are scanned in the time of one access.
const LEVELS_PER_ACCESS: u64 = 16;

/// The fuel for operations whose cost depends on the schema. Any other access of a value consumes
/// one unit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Rates {
    /// For each byte of a text, in sixteenths, because patterns scan it.
    pub(crate) text: u64,
    /// For each byte of a member's name, in sixteenths, because patterns scan it.
    pub(crate) name: u64,
    /// Whether the schema divides numbers.
    pub(crate) divides: bool,
    /// The number of schemas on the stack. A value's identity is compared with all of them.
    pub(crate) levels: u64,
}

thread_local! {
    static FUEL: Cell<u64> = const { Cell::new(0) };
    static RATES: Cell<Rates> =
        const { Cell::new(Rates { text: 0, name: 0, divides: false, levels: 0 }) };
}

/// Runs a closure with a fuel limit, and returns the remaining fuel. Zero means that the fuel was
/// not enough, and the result is invalid.
pub(crate) fn with_fuel<T>(fuel: u64, rates: Rates, work: impl FnOnce() -> T) -> (T, u64) {
    FUEL.set(fuel);
    RATES.set(rates);
    let done = work();
    (done, FUEL.replace(0))
}

/// Consumes fuel, and returns whether there was enough.
fn consume(fuel: u64) -> bool {
    let left = FUEL.get();
    FUEL.set(left.saturating_sub(fuel));
    left > fuel
}

/// Returns whether a number has at most 15 digits before and after the point.
pub(crate) fn has_few_digits(number: f64) -> bool {
    number == 0.0 || (1e-15..1e15).contains(&number.abs())
}

fn bytes(text: &str) -> u64 {
    text.len() as u64 / BYTES_PER_ACCESS
}

/// Returns the fuel for matching a text, with a rate in sixteenths for each byte.
fn scan(text: &str, rate: u64) -> u64 {
    /// Starting a match takes as long as scanning this number of bytes.
    const START: u64 = 8;
    (START + text.len() as u64).saturating_mul(rate) / 16
}

/// The kind of values that a validator sees.
#[derive(Debug)]
pub(crate) struct Fueled;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Viewed<'a>(pub(crate) &'a Value);

impl Json for Fueled {
    type Node<'a> = Viewed<'a>;
    type PreparedKey = String;
    type StringBuffer = Value;

    // The same as for values without metering.
    const KEYS_PER_LOOKUP: usize = 2;

    fn prepare_key(key: &str) -> String {
        key.to_owned()
    }

    fn with_string_node<T>(buffer: &mut Value, string: &str, f: impl FnOnce(Viewed<'_>) -> T) -> T {
        consume(1 + bytes(string));
        if let Value::String(existing) = buffer {
            existing.clear();
            existing.push_str(string);
        } else {
            *buffer = Value::String(string.to_owned());
        }
        f(Viewed(buffer))
    }
}

impl<'a> Viewed<'a> {
    fn access(self) -> &'a Value {
        if consume(1) { self.0 } else { &Value::Null }
    }
}

impl<'a> Node<'a, Fueled> for Viewed<'a> {
    type Object = Members<'a>;
    type Array = Items<'a>;
    type Number = &'a Number;

    fn as_object(&self) -> Option<Members<'a>> {
        self.access().as_object().map(Members)
    }

    fn as_array(&self) -> Option<Items<'a>> {
        self.access().as_array().map(|items| Items(items))
    }

    fn as_string(&self) -> Option<Cow<'a, str>> {
        let text = self.access().as_str()?;
        consume(scan(text, RATES.get().text)).then_some(Cow::Borrowed(text))
    }

    fn as_number(&self) -> Option<&'a Number> {
        let number = self.access().as_number()?;
        let fuel = match number.as_f64() {
            _ if !RATES.get().divides => 0,
            Some(few) if has_few_digits(few) => DIVISION,
            _ => LONG_DIVISION,
        };
        consume(fuel).then_some(number)
    }

    fn as_boolean(&self) -> Option<bool> {
        self.access().as_bool()
    }

    fn is_null(&self) -> bool {
        self.access().is_null()
    }

    fn json_type(&self) -> JsonType {
        match self.access() {
            Value::Null => JsonType::Null,
            Value::Bool(_) => JsonType::Boolean,
            Value::Number(_) => JsonType::Number,
            Value::String(_) => JsonType::String,
            Value::Array(_) => JsonType::Array,
            Value::Object(_) => JsonType::Object,
        }
    }

    fn string_length(&self) -> Option<u64> {
        let text = self.access();
        consume(bytes(text.as_str()?));
        <&Value as Node<'_, SerdeJson>>::string_length(&text)
    }

    fn equals_value(&self, expected: &Value) -> bool {
        equal(self.0, expected)
    }

    fn to_value(&self) -> Cow<'a, Value> {
        // It is copied into an error.
        consume(ERROR);
        consume_for_copy(self.0);
        Cow::Borrowed(self.0)
    }

    /// The identity must be the same with and without fuel, because the validator looks it up again
    /// later.
    fn identity(&self) -> Option<NodeIdentity> {
        // `unevaluatedItems` scans the list.
        let items = self.0.as_array().map_or(0, Vec::len) as u64 / BYTES_PER_ACCESS;
        consume(1 + RATES.get().levels / LEVELS_PER_ACCESS + items);
        Some(NodeIdentity::new(std::ptr::from_ref(self.0) as usize))
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Members<'a>(&'a Map<String, Value>);

impl<'a> Object<'a, Fueled> for Members<'a> {
    type Node = Viewed<'a>;
    type MemberName = &'a str;
    type MembersIter = EachMember<'a>;

    fn len(&self) -> usize {
        self.0.len()
    }

    fn get(&self, key: &String) -> Option<Viewed<'a>> {
        // The more members there are, the more of them are compared with the key.
        let compared = self.0.len().checked_ilog2().unwrap_or_default() / 4;
        if consume(1 + u64::from(compared)) { self.0.get(key).map(Viewed) } else { None }
    }

    fn members(&self) -> EachMember<'a> {
        EachMember { members: self.0.iter(), rate: RATES.get().name }
    }
}

#[derive(Debug)]
pub(crate) struct EachMember<'a> {
    members: map::Iter<'a>,
    rate: u64,
}

impl<'a> Iterator for EachMember<'a> {
    type Item = (&'a str, Viewed<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let (name, value) = self.members.next()?;
        consume(1 + scan(name, self.rate)).then_some((name.as_str(), Viewed(value)))
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Items<'a>(&'a [Value]);

impl<'a> Array<'a, Fueled> for Items<'a> {
    type Node = Viewed<'a>;
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
pub(crate) struct EachItem<'a>(std::slice::Iter<'a, Value>);

impl<'a> Iterator for EachItem<'a> {
    type Item = Viewed<'a>;

    fn next(&mut self) -> Option<Viewed<'a>> {
        let item = self.0.next()?;
        consume(1).then_some(Viewed(item))
    }
}

/// Returns whether two values are equal in JSON Schema, where `1` equals `1.0`.
fn equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Array(left), Value::Array(right)) => {
            consume(1)
                && left.len() == right.len()
                && left.iter().zip(right).all(|(left, right)| equal(left, right))
        }
        (Value::Object(left), Value::Object(right)) => {
            let same = |(name, left): (&String, &Value)| {
                right.get(name).is_some_and(|right| equal(left, right))
            };
            consume(1) && left.len() == right.len() && left.iter().all(same)
        }
        (Value::String(left), Value::String(right)) => {
            left.len() == right.len() && consume(1 + bytes(left)) && left == right
        }
        _ => consume(1) && cmp::equal(left, right),
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
        if !consume(4) {
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
    consume(2);
    match value {
        Value::Null => 0_u8.hash(&mut hasher),
        Value::Bool(value) => value.hash(&mut hasher),
        Value::Number(number) => {
            // Zero has two signs, but is one number.
            let number = number.as_f64().unwrap_or_default() + 0.0;
            number.to_bits().hash(&mut hasher);
        }
        Value::String(text) => {
            consume(bytes(text));
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

/// Consumes the fuel for copying a whole value.
fn consume_for_copy(value: &Value) -> bool {
    match value {
        Value::String(text) => consume(1 + bytes(text)),
        Value::Array(items) => consume(1) && items.iter().all(consume_for_copy),
        Value::Object(members) => consume(1) && members.values().all(consume_for_copy),
        _ => consume(1),
    }
}

#[cfg(test)]
mod tests {
    //! Rule: with enough fuel the result is the same as without it, and with too little there is
    //! none.

    use serde_json::json;

    use super::*;

    fn result(schema: &Value, value: &Value, fuel: u64) -> Option<bool> {
        let validator = jsonschema::options_for::<Fueled>().build(schema).unwrap();
        let (valid, left) = with_fuel(fuel, Rates::default(), || validator.is_valid(Viewed(value)));
        (left > 0).then_some(valid)
    }

    #[test]
    fn the_result_is_the_same_as_without_fuel() {
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
                    result(schema, value, u64::MAX),
                    Some(plain.is_valid(value)),
                    "{schema} {value}"
                );
            }
        }
    }

    #[test]
    fn too_little_fuel_gives_no_result() {
        let schema = json!({"items": {"properties": {"a": {"minimum": 0}}}, "uniqueItems": true});
        let value: Value = (0..50).map(|n| json!({"a": n})).collect();
        let enough = (1..10_000).find(|fuel| result(&schema, &value, *fuel).is_some()).unwrap();
        assert_eq!(result(&schema, &value, enough), Some(true));
        assert!((300..2_000).contains(&enough), "{enough}");
    }

    #[test]
    fn each_branch_beside_unevaluated_properties_consumes_fuel() {
        let spent = |branches: usize, members: usize| {
            let any: Vec<Value> =
                (0..branches).map(|n| json!({"properties": {format!("p{n}"): {}}})).collect();
            let schema = json!({"anyOf": any, "unevaluatedProperties": {"type": "number"}});
            let value = Value::Object((0..members).map(|n| (format!("q{n}"), json!(1))).collect());
            let validator = jsonschema::options_for::<Fueled>().build(&schema).unwrap();
            u64::MAX
                - with_fuel(u64::MAX, Rates::default(), || validator.is_valid(Viewed(&value))).1
        };
        let (one, twice) = (spent(100, 1_000), spent(200, 2_000));
        assert!(one > 100 * 1_000 && twice > 39 * one / 10, "{one} {twice}");
    }
}
