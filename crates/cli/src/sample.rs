//! Generates sample values for a JSON schema, for example commands that work when typed.

use sa_core::RawJson;
use sa_schema::Schema;
use serde_json::{Map, Number, Value, json};

/// The maximum depth of nested schemas.
const MAX_DEPTH: usize = 8;
/// The maximum number of items in a sample list.
const MAX_ITEMS: u64 = 32;
/// The maximum length of a sample string.
const MAX_TEXT: u64 = 256;

/// A sample value for each string format.
const FORMATS: [(&str, &str); 19] = [
    ("date-time", "2026-01-31T12:00:00Z"),
    ("date", "2026-01-31"),
    ("time", "12:00:00Z"),
    ("duration", "PT5M"),
    ("email", "somebody@example.com"),
    ("idn-email", "somebody@example.com"),
    ("hostname", "example.com"),
    ("idn-hostname", "example.com"),
    ("ipv4", "192.0.2.1"),
    ("ipv6", "2001:db8::1"),
    ("uri", "https://example.com/"),
    ("url", "https://example.com/"),
    ("uri-reference", "https://example.com/"),
    ("iri", "https://example.com/"),
    ("iri-reference", "https://example.com/"),
    ("uuid", "123e4567-e89b-42d3-a456-426614174000"),
    ("regex", ".*"),
    ("json-pointer", "/a"),
    ("uri-template", "https://example.com/{id}"),
];

/// Candidates for string patterns: words, numbers, versions, dates, colours and codes.
const TEXTS: [&str; 14] = [
    "a",
    "A",
    "abc",
    "ABC",
    "a1",
    "1",
    "12",
    "123",
    "1234",
    "12345",
    "1.0.0",
    "2026-01-31",
    "#336699",
    "12:00",
];

/// Returns the required arguments, each with a valid value if one is found.
pub(super) fn arguments(schema: &Value) -> Map<String, Value> {
    let sampler = Sampler { root: schema };
    match sampler.value("", schema, 0) {
        Value::Object(arguments) => arguments,
        _ => Map::new(),
    }
}

struct Sampler<'a> {
    root: &'a Value,
}

impl Sampler<'_> {
    fn value(&self, name: &str, schema: &Value, depth: usize) -> Value {
        if depth > MAX_DEPTH {
            return Value::Null;
        }
        let schema = &self.plain(schema, depth);
        let choices =
            ["examples", "enum"].into_iter().filter_map(|key| schema[key].as_array()).flatten();
        let given = ["default", "const"]
            .into_iter()
            .map(|key| &schema[key])
            .chain(choices)
            .filter(|it| !it.is_null());
        if let Some(value) = given.take(MAX_ITEMS as usize).find(|value| self.fits(schema, value)) {
            return value.clone();
        }
        let alternatives =
            ["anyOf", "oneOf"].into_iter().filter_map(|key| schema[key].as_array()).flatten();
        for alternative in alternatives.take(MAX_ITEMS as usize) {
            let mut narrowed = schema.clone();
            if let Some(fields) = narrowed.as_object_mut() {
                fields.retain(|key, _| key != "anyOf" && key != "oneOf");
            }
            merge(&mut narrowed, &self.plain(alternative, depth));
            let value = self.value(name, &narrowed, depth + 1);
            if !value.is_null() && self.fits(schema, &value) {
                return value;
            }
        }
        match kind(schema) {
            "null" => Value::Null,
            "boolean" => Value::Bool(true),
            "integer" => integer(schema),
            "number" => number(schema),
            "array" => self.list(name, schema, depth),
            "object" => self.object(schema, depth),
            _ => self.text(name, schema),
        }
    }

    /// Resolves `$ref` and merges `allOf` into one schema.
    fn plain(&self, schema: &Value, depth: usize) -> Value {
        let mut plain = schema.clone();
        for _ in 0..MAX_DEPTH {
            let Some(place) = plain["$ref"].as_str().and_then(|place| place.strip_prefix('#'))
            else {
                break;
            };
            let Some(found) = self.root.pointer(place).cloned() else { break };
            if let Some(fields) = plain.as_object_mut() {
                fields.remove("$ref");
            }
            merge(&mut plain, &found);
        }
        if depth < MAX_DEPTH {
            let parts = plain.as_object_mut().and_then(|fields| fields.remove("allOf"));
            for part in parts
                .as_ref()
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .take(MAX_ITEMS as usize)
            {
                merge(&mut plain, &self.plain(part, depth + 1));
            }
        }
        plain
    }

    /// Reports whether the gateway accepts the value for this schema. A value counts as valid if
    /// the check itself fails.
    fn fits(&self, schema: &Value, value: &Value) -> bool {
        let mut whole = schema.clone();
        if let Some(fields) = whole.as_object_mut() {
            for key in ["$defs", "definitions"] {
                fields.insert(
                    key.to_owned(),
                    self.root.get(key).cloned().unwrap_or_else(|| json!({})),
                );
            }
        }
        let checked = Schema::new(RawJson::of(&whole)).validate(&RawJson::of(value));
        !matches!(checked, Err(sa_schema::Error::Invalid(_) | sa_schema::Error::TooExpensive(_)))
    }

    fn text(&self, name: &str, schema: &Value) -> Value {
        let bound = |key: &str| schema[key].as_u64();
        let format = schema["format"]
            .as_str()
            .and_then(|wanted| FORMATS.iter().find(|(name, _)| *name == wanted));
        let named = if name.is_empty() { "TEXT".to_owned() } else { name.to_uppercase() };
        let word = format.map_or(named, |(_, example)| (*example).to_owned());
        let long = word.chars().chain(std::iter::repeat('X'));
        let least = bound("minLength").unwrap_or(0).min(MAX_TEXT).max(word.chars().count() as u64);
        let length = least.min(bound("maxLength").unwrap_or(u64::MAX));
        let fitted = Value::String(long.take(length as usize).collect());
        if !schema["pattern"].is_string() || self.fits(schema, &fitted) {
            return fitted;
        }
        let others = TEXTS.into_iter().chain(FORMATS.iter().map(|(_, example)| *example));
        let mut others = others.map(str::to_owned).chain([name.to_lowercase()]).map(Value::String);
        others.find(|text| self.fits(schema, text)).unwrap_or(fitted)
    }

    fn list(&self, name: &str, schema: &Value, depth: usize) -> Value {
        let count = schema["minItems"].as_u64().unwrap_or(0).min(MAX_ITEMS);
        let first = schema["prefixItems"].as_array().map(Vec::as_slice).unwrap_or_default();
        let one = singular(name);
        let mut items: Vec<Value> = Vec::new();
        for at in 0..count as usize {
            let own = first.get(at).unwrap_or(&schema["items"]);
            let mut item = self.value(&one, own, depth + 1);
            if schema["uniqueItems"] == true && items.contains(&item) {
                item = self.another(own, &item, &items).unwrap_or(item);
            }
            items.push(item);
        }
        Value::Array(items)
    }

    /// Returns a valid value similar to `like` that is not yet in `those`.
    fn another(&self, schema: &Value, like: &Value, those: &[Value]) -> Option<Value> {
        let schema = &self.plain(schema, 0);
        let choices = schema["enum"].as_array().cloned().unwrap_or_default();
        let varied = (2..=MAX_ITEMS + 1).map(|at| match like {
            Value::String(text) => Value::String(format!("{text}{at}")),
            Value::Number(number) => {
                json!(number.as_i64().unwrap_or(0).saturating_add(at.cast_signed()))
            }
            other => other.clone(),
        });
        choices
            .into_iter()
            .chain(varied)
            .find(|value| !those.contains(value) && self.fits(schema, value))
    }

    fn object(&self, schema: &Value, depth: usize) -> Value {
        let names = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let member = |name: &str| {
            (name.to_owned(), self.value(name, &schema["properties"][name], depth + 1))
        };
        Value::Object(names.take(MAX_ITEMS as usize).map(member).collect())
    }
}

/// Merges another schema into one, so that both apply.
fn merge(schema: &mut Value, more: &Value) {
    let (Some(fields), Some(more)) = (schema.as_object_mut(), more.as_object()) else { return };
    for (key, value) in more {
        match (fields.get_mut(key), value) {
            (Some(Value::Object(known)), Value::Object(_)) if key == "properties" => {
                known.extend(
                    value
                        .as_object()
                        .into_iter()
                        .flatten()
                        .map(|(name, about)| (name.clone(), about.clone())),
                );
            }
            (Some(Value::Array(known)), Value::Array(names)) if key == "required" => {
                known.extend(names.iter().cloned());
            }
            (Some(known), _) if tighter(key, known, value) => *known = value.clone(),
            (Some(_), _) => {}
            (None, _) => {
                fields.insert(key.clone(), value.clone());
            }
        }
    }
}

/// Reports whether the second bound is stricter than the first.
fn tighter(key: &str, known: &Value, other: &Value) -> bool {
    let (Some(known), Some(other)) = (known.as_f64(), other.as_f64()) else {
        return key == "type" && known.is_array();
    };
    (key.starts_with("min") || key == "exclusiveMinimum") && other > known
        || (key.starts_with("max") || key == "exclusiveMaximum") && other < known
}

/// Returns the value type of a schema, from `type` or from its other keywords.
fn kind(schema: &Value) -> &str {
    let named = match &schema["type"] {
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).find(|kind| *kind != "null"),
        kind => kind.as_str(),
    };
    let about = |keys: &[&str]| keys.iter().any(|key| !schema[*key].is_null());
    named.unwrap_or_else(|| match () {
        () if about(&["properties", "required"]) => "object",
        () if about(&["items", "minItems", "prefixItems"]) => "array",
        () if about(&[
            "minimum",
            "maximum",
            "exclusiveMinimum",
            "exclusiveMaximum",
            "multipleOf",
        ]) =>
        {
            "number"
        }
        () => "string",
    })
}

/// Returns the valid integer closest to 1.
fn integer(schema: &Value) -> Value {
    let bound = |key: &str| schema[key].as_f64();
    let least = bound("minimum")
        .map(f64::ceil)
        .into_iter()
        .chain(bound("exclusiveMinimum").map(|it| it.floor() + 1.0));
    let most = bound("maximum")
        .map(f64::floor)
        .into_iter()
        .chain(bound("exclusiveMaximum").map(|it| it.ceil() - 1.0));
    let (least, most) =
        (least.fold(f64::NEG_INFINITY, f64::max), most.fold(f64::INFINITY, f64::min));
    let near = 1.0_f64.min(most).max(least);
    let near = match bound("multipleOf").filter(|step| *step > 0.0) {
        Some(step) if (near / step).ceil() * step <= most => (near / step).ceil() * step,
        Some(step) => (most / step).floor() * step,
        None => near,
    };
    json!(near as i64)
}

/// Returns a valid number, preferably an integer.
fn number(schema: &Value) -> Value {
    let whole = integer(schema);
    let inside = |number: f64| {
        let bound = |key: &str| schema[key].as_f64();
        bound("minimum").is_none_or(|least| least <= number)
            && bound("maximum").is_none_or(|most| number <= most)
            && bound("exclusiveMinimum").is_none_or(|least| least < number)
            && bound("exclusiveMaximum").is_none_or(|most| number < most)
    };
    if inside(whole.as_f64().unwrap_or(f64::NAN)) {
        return whole;
    }
    // Try values between two integers.
    let bound = |keys: [&str; 2]| keys.into_iter().find_map(|key| schema[key].as_f64());
    let (least, most) =
        (bound(["minimum", "exclusiveMinimum"]), bound(["maximum", "exclusiveMaximum"]));
    let middle = least.zip(most).map(|(least, most)| f64::midpoint(least, most));
    let step =
        schema["multipleOf"].as_f64().zip(least).map(|(step, least)| (least / step).ceil() * step);
    let found =
        step.into_iter().chain(middle).chain(least).chain(most).find(|number| inside(*number));
    found.and_then(Number::from_f64).map_or(whole, Value::Number)
}

/// Returns the singular of a list name, for its items.
fn singular(name: &str) -> String {
    name.strip_suffix('s').filter(|one| !one.is_empty()).unwrap_or(name).to_owned()
}
