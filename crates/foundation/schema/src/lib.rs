//! JSON Schema for arguments and results: compiled once, on first use, without network, files or
//! backtracking.

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
use sa_limits::offload::{self, LARGE, offload};
use sa_text::closest;
use sa_text::json::{MAX_DEPTH, RawJson, is_too_deep, shortened};

/// Larger schemas are refused. No author writes one by hand, and every model that sees the tool
/// would read it.
pub const MAX_SCHEMA_BYTES: usize = 128 * 1024;

/// The maximum number of bytes copied to report errors.
const MAX_REPORT_BYTES: usize = 4 << 20;

/// The maximum number of errors in one response.
const MAX_MISTAKES: usize = 5;

/// The maximum memory of a compiled schema. A schema of a few kilobytes may need hundreds of
/// megabytes.
const MAX_COMPILED_BYTES: usize = 32 << 20;

/// The memory budget of all compiled schemas: those owned by their tools, and the cached ones.
static ROOM: Room<Compiled> = Room::new(128 << 20, 64 << 20);

/// The approximate memory of each value of a compiled schema, and of each byte of its text.
const BYTES_PER_VALUE: usize = 512;
const BYTES_PER_BYTE: usize = 4;

/// This number of steps takes about as long as reading a byte.
const LOOKS_PER_BYTE: usize = 4;

#[derive(Debug, Clone)]
pub struct Schema {
    raw: RawJson,
    /// See [`Self::with_formats`].
    formats: bool,
    compiled: Arc<OnceLock<Result<Kept<Compiled>, String>>>,
}

/// The subject of a check, in messages.
const ARGUMENTS: &str = "the arguments";
const RESULT: &str = "the result";

/// Why a value was not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("the schema cannot be used: {0}")]
    Schema(String),
    /// Validation would take too long.
    #[error("{0}")]
    TooExpensive(String),
    #[error("{0}")]
    Invalid(String),
}

#[derive(Debug)]
struct Compiled {
    validator: Validator<Metered>,
    schema: Value,
    cost: Cost,
    prices: Prices,
    /// The maximum number of steps per byte of arguments so far.
    looks_per_byte: AtomicUsize,
    /// The number of schemas in an `anyOf` or `oneOf`.
    alternatives: usize,
    bytes: usize,
}

impl Sizeable for Compiled {
    fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Returns the approximate memory of all compiled schemas.
pub fn compiled_bytes() -> usize {
    ROOM.bytes()
}

impl Schema {
    pub fn new(raw: RawJson) -> Self {
        Self { raw, formats: false, compiled: Arc::default() }
    }

    /// Creates a schema that checks `format` in every dialect. By default this depends on the
    /// dialect: drafts up to 7 check it, and later ones treat it as a comment.
    pub fn with_formats(raw: RawJson) -> Self {
        Self { formats: true, ..Self::new(raw) }
    }

    pub fn raw(&self) -> &RawJson {
        &self.raw
    }

    /// Checks whether the schema can be used. The error describes why not.
    pub fn check(&self) -> Result<(), &str> {
        let bytes = if self.is_at_hand() || self.is_soon_compiled() { 0 } else { LARGE };
        offload::run_if_free(bytes, || self.kept().map(drop))
    }

    /// Checks the schema quickly, for callers with many schemas. A schema without obvious errors
    /// costs little more than reading it, and is not cached. Other errors show when the schema is
    /// first used.
    pub fn look(&self) -> Result<(), &str> {
        if self.compiled.get().is_none() {
            // Only the compiler knows the target of a reference.
            let refers = self.is_soon_compiled() && self.raw.as_str().contains("\"$ref\"");
            let looked = if refers { self.compile().map(drop) } else { read(&self.raw).map(drop) };
            if let Err(why) = looked {
                let _ = self.compiled.set(Err(why));
            }
        }
        self.flaw().map_or(Ok(()), Err)
    }

    /// Returns the reason why the schema cannot be used, as far as it is known.
    pub fn flaw(&self) -> Option<&str> {
        self.compiled.get()?.as_ref().err().map(String::as_str)
    }

    /// Returns the cost of checking a call's arguments, in bytes of text with equal cost.
    pub fn validation_cost(&self, args: &RawJson) -> usize {
        match self.compiled.get() {
            Some(Ok(Kept::Owned(owned))) => owned.validation_cost(args.len()),
            Some(Err(_)) => 0,
            None if self.is_soon_compiled() => args.len(),
            // Cached schemas are rare, or expensive, or both.
            None | Some(Ok(Kept::Shelved(_))) => args.len().max(LARGE),
        }
    }

    /// Checks a call's arguments. The error names the wrong arguments and the expected values.
    pub fn validate(&self, args: &RawJson) -> Result<(), Error> {
        offload(self.validation_cost(args), || {
            self.check_value(args, ARGUMENTS, |error| error.to_string())
        })
    }

    /// Does the same for values that may hold secrets. The error contains only paths, and no
    /// values.
    pub fn validate_secret(&self, value: &RawJson) -> Result<(), Error> {
        offload::run_if_free(self.validation_cost(value), || {
            self.check_value(value, ARGUMENTS, |error| error.masked().to_string())
        })
    }

    /// Checks a call's result, and says where it does not fit. A result that cannot be checked in
    /// bounded time passes, and so does any result of a schema that cannot be used.
    pub fn misfit(&self, result: &RawJson) -> Option<String> {
        let checked = offload::run_if_free(self.validation_cost(result), || {
            self.check_value(result, RESULT, |error| error.to_string())
        });
        match checked {
            Err(Error::Invalid(why)) => Some(why),
            Ok(()) | Err(Error::Schema(_) | Error::TooExpensive(_)) => None,
        }
    }

    fn check_value(
        &self,
        value: &RawJson,
        whole: &str,
        words: impl Fn(&ValidationError<'_>) -> String,
    ) -> Result<(), Error> {
        let bytes = value.len();
        let compiled = self.compiled().map_err(Error::Schema)?;
        let value = value
            .to_value()
            .map_err(|error| Error::Invalid(format!("{whole} cannot be read: {error}")))?;
        let unchecked =
            |why: &str| Error::TooExpensive(format!("{whole} cannot be checked: {why}"));
        let levels = compiled.cost.levels(&value).map_err(unchecked)?;
        let (looks, rates) = compiled.prices.check(levels);
        let (valid, left) = spending(looks, rates, || compiled.validator.is_valid(Seen(&value)));
        let spent = usize::try_from(looks - left).unwrap_or(usize::MAX);
        compiled.looks_per_byte.fetch_max(spent / bytes.max(1), Ordering::Relaxed);
        match (valid, left) {
            (_, 0) => {
                return Err(unchecked("the check against the tool's schema would take too long"));
            }
            (true, _) => return Ok(()),
            (false, _) => {}
        }
        let unsaid = || {
            let message = format!(
                "the tool's schema does not allow {whole}; the value is too large to locate the error"
            );
            Err(Error::Invalid(message))
        };
        // A mistake in a choice is reported with a copy of the value for each alternative.
        if bytes.saturating_mul(compiled.alternatives) > MAX_REPORT_BYTES {
            return unsaid();
        }
        let (looks, rates) = compiled.prices.report(levels, compiled.alternatives > 0);
        let (errors, left) =
            spending(looks, rates, || compiled.validator.iter_errors(Seen(&value)));
        if left == 0 {
            return unsaid();
        }
        let mut message = String::new();
        for error in errors.take(MAX_MISTAKES) {
            let separator = if message.is_empty() { "" } else { "; " };
            let mistake = mistake(&error, &compiled.schema, whole, &words);
            let _ = write!(message, "{separator}{mistake}");
        }
        Err(Error::Invalid(message))
    }

    fn is_at_hand(&self) -> bool {
        self.compiled.get().is_some_and(|compiled| compiled.as_ref().is_ok_and(Kept::is_here))
    }

    /// Returns whether the schema can be compiled quickly. Patterns take longest, and few schemas
    /// have any.
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
    /// Returns the cost of checking arguments. The highest cost so far may occur again.
    fn validation_cost(&self, bytes: usize) -> usize {
        let seen =
            bytes.saturating_mul(self.looks_per_byte.load(Ordering::Relaxed) / LOOKS_PER_BYTE);
        self.cost.validation_cost(bytes).max(seen)
    }

    fn new(raw: &RawJson, formats: bool) -> Result<Self, String> {
        let (mut schema, cost) = read(raw)?;
        let patterns = patterns::relax(&mut schema)?;
        let bytes = patterns + BYTES_PER_VALUE * values(&schema) + BYTES_PER_BYTE * raw.len();
        if bytes > MAX_COMPILED_BYTES {
            let (much, most) = (bytes >> 20, MAX_COMPILED_BYTES >> 20);
            return Err(format!(
                "its compiled form would take about {much} MiB, more than {most}; use shorter patterns, such as \
                 {{1,50}} instead of {{1,500}}"
            ));
        }
        let options =
            jsonschema::options_for::<Metered>().with_pattern_options(patterns::engine()).offline();
        let options = if formats { options.should_validate_formats(true) } else { options };
        let validator = options.build(&schema).map_err(|error| unusable(&error))?;
        let alternatives = alternatives(&schema);
        let prices = Prices::new(&Graph::new(&schema), cost.chain);
        Ok(Self {
            validator,
            schema,
            cost,
            prices,
            looks_per_byte: AtomicUsize::new(0),
            alternatives,
            bytes,
        })
    }
}

/// Parses a schema, and checks it against its meta-schema. It is not compiled.
fn read(raw: &RawJson) -> Result<(Value, Cost), String> {
    if raw.len() > MAX_SCHEMA_BYTES {
        return Err(format!("it has {} bytes, more than {MAX_SCHEMA_BYTES}", raw.len()));
    }
    if is_too_deep(raw.as_str()) {
        return Err(format!("it is nested deeper than {MAX_DEPTH} levels"));
    }
    let schema = raw.to_value().map_err(|error| error.to_string())?;
    let cost = cost::weigh(&Graph::new(&schema))?;
    // The compiler handles unknown dialects, and schemas with parts in another dialect.
    let dialects = raw.as_str().matches("\"$schema\"").count();
    match jsonschema::meta::validate(&schema) {
        Err(error)
            if dialects < 2 && !matches!(error.kind(), ValidationErrorKind::Referencing(_)) =>
        {
            Err(unusable(&error))
        }
        _ => Ok((schema, cost)),
    }
}

/// Returns the number of values in a value, including itself.
fn values(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(values).sum::<usize>(),
        Value::Object(fields) => 1 + fields.values().map(values).sum::<usize>(),
        _ => 1,
    }
}

/// Describes the error in a schema and its location.
fn unusable(error: &ValidationError<'_>) -> String {
    let place = error.instance_path().to_string();
    match error.kind() {
        ValidationErrorKind::Referencing(_) => {
            format!(
                "a \"$ref\" has no target in it, and external references are not followed: {}",
                shortened(&error.to_string())
            )
        }
        ValidationErrorKind::AnyOf { .. } if place.ends_with("/type") => {
            let kinds = "\"string\", \"number\", \"integer\", \"boolean\", \"object\", \"array\" and \"null\"";
            format!(
                "{} is not a type; valid types are {kinds}{}",
                shortened(&error.instance().to_string()),
                at(&place)
            )
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
                let here = if key == "anyOf" || key == "oneOf" {
                    value.as_array().map_or(0, Vec::len)
                } else {
                    0
                };
                here + alternatives(value)
            })
            .sum(),
        _ => 0,
    }
}

fn mistake(
    error: &ValidationError<'_>,
    schema: &Value,
    whole: &str,
    words: impl Fn(&ValidationError<'_>) -> String,
) -> String {
    let place = error.instance_path().to_string();
    match error.kind() {
        ValidationErrorKind::Required { property } => {
            let name = property.as_str().unwrap_or_default();
            // The error's schema path ends in `/required`. The property's own schema is its
            // sibling.
            let beside = error.schema_path().to_string();
            let parent = beside.strip_suffix("/required").unwrap_or_default();
            let kind = schema
                .pointer(parent)
                .and_then(|schema| schema.get("properties")?.get(name)?.get("type"))
                .map(|kind| kind.as_str().map_or_else(|| kind.to_string(), str::to_owned))
                .map(|kind| format!(" ({})", shortened(&kind)));
            let given =
                schema.pointer(parent).and_then(|schema| misspelt(schema, name, error.instance()));
            let given = given
                .map(|given| format!(", did you misspell it as \"{given}\"?"))
                .unwrap_or_default();
            format!(
                "missing \"{}\"{}{}{given}",
                shortened(name),
                kind.unwrap_or_default(),
                at(&place)
            )
        }
        ValidationErrorKind::AdditionalProperties { unexpected } => {
            let beside = error.schema_path().to_string();
            let parent = beside.strip_suffix("/additionalProperties").unwrap_or_default();
            let known =
                schema.pointer(parent).and_then(|schema| schema.get("properties")?.as_object());
            let meant = meant(unexpected, known, error.instance());
            format!(
                "{}{}{meant}",
                shortened(&format!("unknown \"{}\"", unexpected.join("\", \""))),
                at(&place)
            )
        }
        ValidationErrorKind::Type { kind } => {
            let expected = match kind {
                TypeKind::Single(kind) => kind.to_string(),
                TypeKind::Multiple(kinds) => {
                    kinds.iter().map(|kind| kind.to_string()).collect::<Vec<_>>().join(" or ")
                }
            };
            let subject = subject(&place, whole);
            format!("{subject} must be {expected}, not {}", type_name(error.instance()))
        }
        ValidationErrorKind::Enum { options } => {
            let allowed: Vec<String> =
                options.as_array().into_iter().flatten().take(12).map(Value::to_string).collect();
            let more =
                if options.as_array().is_some_and(|all| all.len() > 12) { ", …" } else { "" };
            let subject = subject(&place, "the value");
            format!(
                "{subject} must be one of {}",
                shortened(&format!("{}{more}", allowed.join(", ")))
            )
        }
        _ if place.is_empty() => shortened(&words(error)).into_owned(),
        _ => format!("{}: {}", subject(&place, ""), shortened(&words(error))),
    }
}

/// The maximum number of names that are compared with known names.
const MAX_NAMES: usize = 16;

/// Returns the given name that is probably a misspelling of the missing one. If the schema refuses
/// other names, that error already suggests it.
fn misspelt<'a>(schema: &Value, missing: &str, given: &'a Value) -> Option<&'a str> {
    let known = schema.get("properties").and_then(Value::as_object);
    if schema.get("additionalProperties") == Some(&Value::Bool(false)) {
        return None;
    }
    let names = given.as_object()?.keys().map(String::as_str);
    let unknown = names.filter(|name| !known.is_some_and(|known| known.contains_key(*name)));
    closest(missing, unknown.take(MAX_NAMES))
}

/// Suggests known names that were not given, for unknown names.
fn meant(
    unknown: &[String],
    known: Option<&serde_json::Map<String, Value>>,
    given: &Value,
) -> String {
    let free = || {
        known
            .into_iter()
            .flat_map(|known| known.keys())
            .filter(|name| given.get(name.as_str()).is_none())
    };
    let near = |name: &String| closest(name, free().map(String::as_str));
    let meant: Vec<&str> = unknown.iter().take(MAX_NAMES).filter_map(near).collect();
    if meant.is_empty() {
        String::new()
    } else {
        format!(", did you mean \"{}\"?", meant.join("\", \""))
    }
}

fn at(place: &str) -> String {
    if place.is_empty() { String::new() } else { format!(" at {}", shortened(place)) }
}

/// Returns the subject of an error message for a location.
fn subject(place: &str, whole: &str) -> String {
    place
        .strip_prefix('/')
        .map_or_else(|| whole.to_owned(), |place| format!("\"{}\"", shortened(place)))
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
mod tests;
