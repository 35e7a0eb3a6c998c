//! JSON Schema for arguments: compiled once, on first use, without network, files or backtracking.

mod cost;
mod graph;
mod kept;
mod metered;
mod patterns;
mod prices;

use std::fmt::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::{ValidationError, Validator};
use serde_json::Value;

use self::cost::Cost;
use self::graph::Graph;
use self::kept::{Handle, Kept, Room, Sizeable};
use self::metered::{Metered, Seen, spending};
use self::prices::Prices;
use crate::aside::{self, LARGE, aside};
use crate::json::{MAX_DEPTH, RawJson, is_too_deep, shortened};
use crate::nearest;
use crate::outcome::{CallError, CallErrorKind};

/// A larger schema is refused: nobody writes one by hand, and it would be read by every model that sees the tool.
pub const MAX_SCHEMA_BYTES: usize = 128 * 1024;

/// How much may be copied to name them.
const MAX_REPORT_BYTES: usize = 4 << 20;

/// How many mistakes are named in one answer.
const MAX_MISTAKES: usize = 5;

/// How much room a compiled schema may take. What a schema of a few kilobytes asks for may be hundreds of megabytes.
const MAX_COMPILED_BYTES: usize = 32 << 20;

/// Room for all of them: with their tools, and on the shelf.
static ROOM: Room<Compiled> = Room::new(128 << 20, 64 << 20);

/// About what each value of a schema takes once it is compiled, and each byte of its text.
const BYTES_PER_VALUE: usize = 512;
const BYTES_PER_BYTE: usize = 4;

/// So many looks take about as long as it does to read a byte.
const LOOKS_PER_BYTE: usize = 4;

#[derive(Debug, Clone)]
pub struct Schema {
    raw: RawJson,
    /// See [`Self::with_formats`].
    formats: bool,
    compiled: Arc<OnceLock<Result<Kept<Compiled>, String>>>,
}

#[derive(Debug)]
struct Compiled {
    validator: Validator<Metered>,
    schema: Value,
    cost: Cost,
    prices: Prices,
    /// The most looks that a byte of arguments has taken so far.
    looks_per_byte: AtomicUsize,
    /// How many schemas stand in an `anyOf` or `oneOf`.
    alternatives: usize,
    bytes: usize,
}

impl Sizeable for Compiled {
    fn bytes(&self) -> usize {
        self.bytes
    }
}

/// About how much memory all compiled schemas take.
pub fn compiled_bytes() -> usize {
    ROOM.bytes()
}

impl Schema {
    pub fn new(raw: RawJson) -> Self {
        Self { raw, formats: false, compiled: Arc::default() }
    }

    /// A schema whose `format`s are checked in every dialect. By default that depends on the dialect: drafts up to 7 check
    /// them, and later ones take them for a comment.
    pub fn with_formats(raw: RawJson) -> Self {
        Self { formats: true, ..Self::new(raw) }
    }

    pub fn raw(&self) -> &RawJson {
        &self.raw
    }

    /// Whether the schema can be used at all, and if not, why.
    pub fn check(&self) -> Result<(), &str> {
        let bytes = if self.is_at_hand() || self.is_soon_compiled() { 0 } else { LARGE };
        aside::if_free(bytes, || self.kept().map(drop))
    }

    /// The same at a glance, for whoever has many of them: a schema that seems right costs little more than to read it, and
    /// leaves nothing behind. What cannot be seen like this shows when it is first used.
    pub fn look(&self) -> Result<(), &str> {
        if self.compiled.get().is_none() {
            // Where a reference leads is only known to the compiler.
            let refers = self.is_soon_compiled() && self.raw.as_str().contains("\"$ref\"");
            let looked = if refers { self.compile().map(drop) } else { read(&self.raw).map(drop) };
            if let Err(why) = looked {
                let _ = self.compiled.set(Err(why));
            }
        }
        self.flaw().map_or(Ok(()), Err)
    }

    /// Why it cannot be used, as far as that has shown.
    pub fn flaw(&self) -> Option<&str> {
        self.compiled.get()?.as_ref().err().map(String::as_str)
    }

    /// How much work it is to check a call's arguments, as so many bytes of text would be.
    pub fn burden(&self, args: &RawJson) -> usize {
        match self.compiled.get() {
            Some(Ok(Kept::Owned(owned))) => owned.burden(args.len()),
            Some(Err(_)) => 0,
            None if self.is_soon_compiled() => args.len(),
            // Those on the shelf are few, or costly, or both.
            None | Some(Ok(Kept::Shelved(_))) => args.len().max(LARGE),
        }
    }

    /// Checks a call's arguments, and says which of them is wrong and what was expected.
    pub fn validate(&self, args: &RawJson) -> Result<(), CallError> {
        aside(self.burden(args), || self.check_value(args, |error| error.to_string()))
    }

    /// The same for what may hold secrets: what is said names places, and never what stands there.
    pub fn validate_secret(&self, value: &RawJson) -> Result<(), CallError> {
        aside::if_free(self.burden(value), || self.check_value(value, |error| error.masked().to_string()))
    }

    fn check_value(&self, args: &RawJson, words: impl Fn(&ValidationError<'_>) -> String) -> Result<(), CallError> {
        let bytes = args.len();
        let compiled = self.compiled().map_err(|why| {
            CallError::new(CallErrorKind::Failed, format!("the tool's input schema cannot be used: {why}"))
                .hint("the tool's author has to mend the schema")
        })?;
        let args = args.to_value().map_err(|error| invalid(format!("the arguments cannot be read: {error}")))?;
        let unchecked = |why: &str| {
            invalid(format!("the arguments cannot be checked: {why}")).hint("pass fewer or flatter arguments")
        };
        let levels = compiled.cost.levels(&args).map_err(unchecked)?;
        let (looks, rates) = compiled.prices.check(levels);
        let (valid, left) = spending(looks, rates, || compiled.validator.is_valid(Seen(&args)));
        let spent = usize::try_from(looks - left).unwrap_or(usize::MAX);
        compiled.looks_per_byte.fetch_max(spent / bytes.max(1), Ordering::Relaxed);
        match (valid, left) {
            (_, 0) => return Err(unchecked("checking them against the tool's input_schema would take too long")),
            (true, _) => return Ok(()),
            (false, _) => {}
        }
        let unsaid = || {
            Err(invalid("the arguments do not fit the tool's input_schema, and are too large to say where")
                .hint("see the tool's input_schema"))
        };
        // A mistake in a choice is reported with a copy of the arguments for each alternative.
        if bytes.saturating_mul(compiled.alternatives) > MAX_REPORT_BYTES {
            return unsaid();
        }
        let (looks, rates) = compiled.prices.report(levels, compiled.alternatives > 0);
        let (errors, left) = spending(looks, rates, || compiled.validator.iter_errors(Seen(&args)));
        if left == 0 {
            return unsaid();
        }
        let mut message = String::new();
        for error in errors.take(MAX_MISTAKES) {
            let separator = if message.is_empty() { "" } else { "; " };
            let _ = write!(message, "{separator}{}", mistake(&error, &compiled.schema, &words));
        }
        Err(invalid(message).hint("see the tool's input_schema"))
    }

    fn is_at_hand(&self) -> bool {
        self.compiled.get().is_some_and(|compiled| compiled.as_ref().is_ok_and(Kept::is_here))
    }

    /// Whether there is nothing in it that could take long. What takes longest are patterns, and few schemas have any.
    fn is_soon_compiled(&self) -> bool {
        const SHORT: usize = 4 << 10;
        let text = self.raw.as_str();
        text.len() < SHORT && !text.contains("\"pattern") && !text.contains('\\')
    }

    fn kept(&self) -> Result<&Kept<Compiled>, &str> {
        let kept = self.compiled.get_or_init(|| self.compile().map(|compiled| ROOM.keep(compiled)));
        kept.as_ref().map_err(String::as_str)
    }

    fn compiled(&self) -> Result<Handle<'_, Compiled>, String> {
        self.kept()?.get(|| self.compile())
    }

    fn compile(&self) -> Result<Compiled, String> {
        Compiled::new(&self.raw, self.formats)
    }
}

impl Compiled {
    /// What it has come to for others, it may come to again.
    fn burden(&self, bytes: usize) -> usize {
        let seen = bytes.saturating_mul(self.looks_per_byte.load(Ordering::Relaxed) / LOOKS_PER_BYTE);
        self.cost.burden(bytes).max(seen)
    }

    fn new(raw: &RawJson, formats: bool) -> Result<Self, String> {
        let (mut schema, cost) = read(raw)?;
        let patterns = patterns::relax(&mut schema)?;
        let bytes = patterns + BYTES_PER_VALUE * values(&schema) + BYTES_PER_BYTE * raw.len();
        if bytes > MAX_COMPILED_BYTES {
            let (much, most) = (bytes >> 20, MAX_COMPILED_BYTES >> 20);
            return Err(format!(
                "compiled, it would take about {much} MiB, more than {most}; shorter patterns take less, such as {{1,50}} \
                 in place of {{1,500}}"
            ));
        }
        let options = jsonschema::options_for::<Metered>().with_pattern_options(patterns::engine()).offline();
        let options = if formats { options.should_validate_formats(true) } else { options };
        let validator = options.build(&schema).map_err(|error| unusable(&error))?;
        let alternatives = alternatives(&schema);
        let prices = Prices::new(&Graph::new(&schema), cost.chain);
        Ok(Self { validator, schema, cost, prices, looks_per_byte: AtomicUsize::new(0), alternatives, bytes })
    }
}

/// Reads a schema, and looks whether it is one. Nothing of it is compiled.
fn read(raw: &RawJson) -> Result<(Value, Cost), String> {
    if raw.len() > MAX_SCHEMA_BYTES {
        return Err(format!("it has {} bytes, more than {MAX_SCHEMA_BYTES}", raw.len()));
    }
    if is_too_deep(raw.as_str()) {
        return Err(format!("it is nested deeper than {MAX_DEPTH} levels"));
    }
    let schema = raw.to_value().map_err(|error| error.to_string())?;
    let cost = cost::weigh(&Graph::new(&schema))?;
    // Parts in another dialect than the whole are for the compiler, and so is a dialect that is not known.
    let dialects = raw.as_str().matches("\"$schema\"").count();
    match jsonschema::meta::validate(&schema) {
        Err(error) if dialects < 2 && !matches!(error.kind(), ValidationErrorKind::Referencing(_)) => {
            Err(unusable(&error))
        }
        _ => Ok((schema, cost)),
    }
}

/// How many values there are in a value, itself included.
fn values(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(values).sum::<usize>(),
        Value::Object(fields) => 1 + fields.values().map(values).sum::<usize>(),
        _ => 1,
    }
}

/// What is wrong with a schema, and where in it.
fn unusable(error: &ValidationError<'_>) -> String {
    let place = error.instance_path().to_string();
    match error.kind() {
        ValidationErrorKind::Referencing(_) => {
            format!("a \"$ref\" leads nowhere in it, and none is followed out of it: {}", shortened(&error.to_string()))
        }
        ValidationErrorKind::AnyOf { .. } if place.ends_with("/type") => {
            let kinds = "\"string\", \"number\", \"integer\", \"boolean\", \"object\", \"array\" or \"null\"";
            format!("{} is no type, which is {kinds}{}", shortened(&error.instance().to_string()), at(&place))
        }
        _ => format!("{}{}", shortened(&error.to_string()), at(&place)),
    }
}

fn alternatives(schema: &Value) -> usize {
    match schema {
        Value::Array(items) => items.iter().map(alternatives).sum(),
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| {
                let here = if key == "anyOf" || key == "oneOf" { value.as_array().map_or(0, Vec::len) } else { 0 };
                here + alternatives(value)
            })
            .sum(),
        _ => 0,
    }
}

fn invalid(message: impl Into<String>) -> CallError {
    CallError::new(CallErrorKind::InvalidArgs, message)
}

fn mistake(error: &ValidationError<'_>, schema: &Value, words: impl Fn(&ValidationError<'_>) -> String) -> String {
    let place = error.instance_path().to_string();
    match error.kind() {
        ValidationErrorKind::Required { property } => {
            let name = property.as_str().unwrap_or_default();
            // The error's schema path ends in `/required`; the property's own schema lies beside that.
            let beside = error.schema_path().to_string();
            let parent = beside.strip_suffix("/required").unwrap_or_default();
            let kind = schema
                .pointer(parent)
                .and_then(|schema| schema.get("properties")?.get(name)?.get("type"))
                .map(|kind| kind.as_str().map_or_else(|| kind.to_string(), str::to_owned))
                .map(|kind| format!(" ({})", shortened(&kind)));
            let given = schema.pointer(parent).and_then(|schema| misspelt(schema, name, error.instance()));
            let given = given.map(|given| format!(", did you mean it by \"{given}\"?")).unwrap_or_default();
            format!("missing \"{}\"{}{}{given}", shortened(name), kind.unwrap_or_default(), at(&place))
        }
        ValidationErrorKind::AdditionalProperties { unexpected } => {
            let beside = error.schema_path().to_string();
            let parent = beside.strip_suffix("/additionalProperties").unwrap_or_default();
            let known = schema.pointer(parent).and_then(|schema| schema.get("properties")?.as_object());
            let meant = meant(unexpected, known, error.instance());
            format!("{}{}{meant}", shortened(&format!("unknown \"{}\"", unexpected.join("\", \""))), at(&place))
        }
        ValidationErrorKind::Type { kind } => {
            let expected = match kind {
                TypeKind::Single(kind) => kind.to_string(),
                TypeKind::Multiple(kinds) => kinds.iter().map(|kind| kind.to_string()).collect::<Vec<_>>().join(" or "),
            };
            let subject = subject(&place, "the arguments");
            format!("{subject} must be {expected}, not {}", type_name(error.instance()))
        }
        ValidationErrorKind::Enum { options } => {
            let allowed: Vec<String> =
                options.as_array().into_iter().flatten().take(12).map(Value::to_string).collect();
            let more = if options.as_array().is_some_and(|all| all.len() > 12) { ", …" } else { "" };
            let subject = subject(&place, "the value");
            format!("{subject} must be one of {}", shortened(&format!("{}{more}", allowed.join(", "))))
        }
        _ if place.is_empty() => shortened(&words(error)).into_owned(),
        _ => format!("{}: {}", subject(&place, ""), shortened(&words(error))),
    }
}

/// No more than these are compared with what is known.
const MAX_NAMES: usize = 16;

/// The name that stands in the place of one that is missing. Where other names are refused anyway, that says it.
fn misspelt<'a>(schema: &Value, missing: &str, given: &'a Value) -> Option<&'a str> {
    let known = schema.get("properties").and_then(Value::as_object);
    if schema.get("additionalProperties") == Some(&Value::Bool(false)) {
        return None;
    }
    let names = given.as_object()?.keys().map(String::as_str);
    let unknown = names.filter(|name| !known.is_some_and(|known| known.contains_key(*name)));
    nearest(missing, unknown.take(MAX_NAMES))
}

/// What was probably meant by names that are not known: one that is, and was not given.
fn meant(unknown: &[String], known: Option<&serde_json::Map<String, Value>>, given: &Value) -> String {
    let free = || known.into_iter().flat_map(|known| known.keys()).filter(|name| given.get(name.as_str()).is_none());
    let near = |name: &String| nearest(name, free().map(String::as_str));
    let meant: Vec<&str> = unknown.iter().take(MAX_NAMES).filter_map(near).collect();
    if meant.is_empty() { String::new() } else { format!(", did you mean \"{}\"?", meant.join("\", \"")) }
}

fn at(place: &str) -> String {
    if place.is_empty() { String::new() } else { format!(" at {}", shortened(place)) }
}

/// What a mistake is about, by its place.
fn subject(place: &str, whole: &str) -> String {
    place.strip_prefix('/').map_or_else(|| whole.to_owned(), |place| format!("\"{}\"", shortened(place)))
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(schema: &str, args: &str, expected: Option<&str>) {
        let schema = Schema::new(RawJson::parse(schema).unwrap());
        let result = schema.validate(&RawJson::parse(args).unwrap());
        assert_eq!(result.err().map(|error| error.message).as_deref(), expected);
    }

    const SEARCH: &str = r#"{"type":"object","properties":{"query":{"type":"string"},"limit":{"type":"integer","minimum":1}},
        "required":["query"],"additionalProperties":false}"#;

    #[test]
    fn mistakes_are_named() {
        check(SEARCH, r#"{"query":"x"}"#, None);
        check(SEARCH, "{}", Some("missing \"query\" (string)"));
        check(SEARCH, r#"{"query":5}"#, Some("\"query\" must be string, not number"));
        check(SEARCH, "null", Some("the arguments must be object, not null"));
        check(SEARCH, r#"{"query":"x","limt":1}"#, Some("unknown \"limt\", did you mean \"limit\"?"));
        check(SEARCH, r#"{"query":"x","colour":1}"#, Some("unknown \"colour\""));
        check(SEARCH, r#"{"query":"x","limit":1,"limt":1}"#, Some("unknown \"limt\""));
        check(SEARCH, r#"{"query":"x","limit":0}"#, Some("\"limit\": 0 is less than the minimum of 1"));
    }

    #[test]
    fn a_name_that_is_missing_may_have_been_misspelt() {
        let open = r#"{"properties":{"text":{"type":"string"},"next":{}},"required":["text"]}"#;
        check(open, r#"{"txt":"x"}"#, Some("missing \"text\" (string), did you mean it by \"txt\"?"));
        check(open, r#"{"next":"x"}"#, Some("missing \"text\" (string)"));
        check(open, r#"{"colour":"x"}"#, Some("missing \"text\" (string)"));
        let closed = r#"{"properties":{"text":{}},"required":["text"],"additionalProperties":false}"#;
        let told = "unknown \"txt\", did you mean \"text\"?; missing \"text\"";
        check(closed, r#"{"txt":"x"}"#, Some(told));
    }

    #[test]
    fn formats_are_checked_where_that_is_asked_for() {
        let schema =
            r#"{"properties":{"at":{"format":"date-time"},"n":{"format":"int32"},"key":{"format":"password"}}}"#;
        let args = RawJson::parse(r#"{"at":"yesterday","n":1,"key":"x"}"#).unwrap();
        assert!(Schema::new(RawJson::parse(schema).unwrap()).validate(&args).is_ok());
        let checked = Schema::with_formats(RawJson::parse(schema).unwrap());
        let error = checked.validate(&args).unwrap_err();
        assert_eq!(error.message, "\"at\": \"yesterday\" is not a \"date-time\"");
        assert!(!checked.validate_secret(&args).unwrap_err().message.contains("yesterday"));
        let right = RawJson::parse(r#"{"at":"2026-11-18T08:00:00Z","n":1,"key":"x"}"#).unwrap();
        assert!(checked.validate(&right).is_ok());
    }

    #[test]
    fn a_secret_is_not_repeated() {
        let schema = r#"{"properties":{"a":{"minLength":99},"b":{"pattern":"^x$"},"c":{"enum":["x"]},"d":{"const":1},
            "e":{"type":"integer"},"f":{"maximum":3},"g":{"not":{}},"h":{"anyOf":[{"type":"null"}]}}}"#;
        let schema = Schema::new(RawJson::parse(schema).unwrap());
        for key in ["a", "b", "c", "d", "e", "g", "h"] {
            let value = RawJson::of(&serde_json::json!({ key: "canary-91" }));
            let error = schema.validate_secret(&value).unwrap_err();
            assert!(!error.message.contains("canary") && error.message.contains(key), "{}", error.message);
        }
        let error = schema.validate_secret(&RawJson::parse(r#"{"f":40417}"#).unwrap()).unwrap_err();
        assert!(!error.message.contains("40417"), "{}", error.message);
    }

    #[test]
    fn what_is_wrong_with_a_schema_is_said_with_its_place() {
        let check = |schema: Value, words: &[&str]| {
            let schema = Schema::new(RawJson::of(&schema));
            let said = schema.check().unwrap_err();
            assert!(words.iter().all(|word| said.contains(word)), "{said}");
        };
        check(
            serde_json::json!({ "properties": { "a": { "type": "strin" } } }),
            &["\"strin\" is no type", "/properties/a/type"],
        );
        check(serde_json::json!({ "properties": { "a": { "minLength": "x" } } }), &["/properties/a/minLength"]);
        check(serde_json::json!({ "$ref": "https://evil.example/s.json" }), &["none is followed out of it"]);
    }

    #[test]
    fn a_glance_sees_what_is_plainly_wrong_and_compiles_nothing() {
        let check = |schema: Value, wrong: bool| {
            let schema = Schema::new(RawJson::of(&schema));
            assert_eq!((schema.look().is_err(), schema.flaw().is_some()), (wrong, wrong), "{}", schema.raw().as_str());
            assert_eq!(schema.check().is_err(), wrong, "what is seen at a glance is so: {}", schema.raw().as_str());
            assert_eq!(schema.look().is_err(), wrong);
        };
        check(serde_json::json!({ "type": "objekt" }), true);
        check(serde_json::json!({ "properties": { "a": { "type": "strin", "pattern": "^a+$" } } }), true);
        check(serde_json::json!({ "$ref": "#/$defs/none" }), true);
        check(serde_json::json!({ "$ref": "#" }), true);
        check(serde_json::json!({ "$ref": "#/$defs/a", "$defs": { "a": { "type": "string" } } }), false);
        check(serde_json::json!({ "pattern": "(" }), false);
        check(serde_json::json!({ "$schema": "http://json-schema.org/draft-07/schema#", "minimum": 1 }), false);
        check(serde_json::json!({}), false);
        let sound = Schema::new(RawJson::parse(SEARCH).unwrap());
        assert!(sound.look().is_ok() && sound.compiled.get().is_none());
    }

    #[test]
    fn a_schema_never_reaches_out() {
        for reference in ["http://127.0.0.1:1/schema.json", "file:///etc/passwd"] {
            let schema = Schema::new(RawJson::of(&serde_json::json!({ "$ref": reference })));
            assert!(schema.check().is_err(), "{reference}");
        }
    }

    #[test]
    fn a_catastrophic_pattern_takes_linear_time() {
        let long = format!("\"{}!\"", "a".repeat(200_000));
        let schema = Schema::new(RawJson::parse(r#"{"pattern":"^(a+)+$"}"#).unwrap());
        assert!(schema.validate(&RawJson::parse(&long).unwrap()).is_err());
    }
}
