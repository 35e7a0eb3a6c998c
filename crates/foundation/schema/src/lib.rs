//! JSON Schema for arguments and results: compiled once, on first use, without network, files or
//! backtracking.
//!
//! The author of a schema and the sender of a value may both be hostile. One walk over a schema
//! refuses what is too expensive (`walk.rs`). Validation consumes fuel (`fuel.rs`). Compiled
//! schemas share a cache with a memory limit.

mod fuel;
mod graph;
mod report;
mod rewrite;
mod walk;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};

use jsonschema::error::ValidationErrorKind;
use jsonschema::{ValidationError, Validator};
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};
use sa_limits::offload::{self, LARGE, offload};
use sa_text::json::{MAX_DEPTH, RawJson, check_parsed_bytes, is_too_deep};
use serde_json::Value;

use self::fuel::{Fueled, Viewed, with_fuel};
use self::walk::Bounds;

/// Larger schemas are refused. No author writes one by hand, and every model that sees the tool
/// would read it.
pub const MAX_SCHEMA_BYTES: usize = 128 * 1024;

/// The maximum number of bytes copied to report errors.
const MAX_REPORT_BYTES: usize = 4 << 20;

/// The maximum memory of a compiled schema. A schema of a few kilobytes may need hundreds of
/// megabytes.
const MAX_COMPILED_BYTES: usize = 32 << 20;

/// The approximate memory of each value of a compiled schema, and of each byte of its text.
const BYTES_PER_VALUE: usize = 512;
const BYTES_PER_BYTE: usize = 4;

/// This amount of fuel takes about as long as parsing a byte.
const FUEL_PER_BYTE: usize = 4;

/// The memory limit of all compiled schemas. A compiled schema takes a hundred times the memory of
/// its text, and the providers control their number. An evicted schema is compiled again when it is
/// used.
const MAX_CACHE_BYTES: u64 = 192 << 20;

static CACHE: LazyLock<Cache<u64, Arc<Compiled>, Bytes>> = LazyLock::new(|| {
    // Each shard has space for the largest schema.
    let options = OptionsBuilder::new()
        .shards(4)
        .estimated_items_capacity(10_000)
        .weight_capacity(MAX_CACHE_BYTES)
        .build()
        .expect("the capacities are set");
    Cache::with_options(options, Bytes, DefaultHashBuilder::default(), DefaultLifecycle::default())
});

#[derive(Clone)]
struct Bytes;

impl Weighter<u64, Arc<Compiled>> for Bytes {
    fn weight(&self, _: &u64, compiled: &Arc<Compiled>) -> u64 {
        compiled.bytes as u64
    }
}

/// Returns the approximate memory of all compiled schemas.
pub fn compiled_bytes() -> u64 {
    CACHE.weight()
}

#[derive(Debug, Clone)]
pub struct Schema(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    raw: RawJson,
    /// See [`Schema::with_formats`].
    formats: bool,
    /// The key in the cache.
    id: u64,
    /// Whether the schema can be used, once this is known.
    usable: OnceLock<Result<(), String>>,
    /// The maximum amount of fuel per byte so far.
    fuel_per_byte: AtomicUsize,
}

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

/// The subject of an error message.
const ARGUMENTS: &str = "the arguments";
const RESULT: &str = "the result";

impl Schema {
    pub fn new(raw: RawJson) -> Self {
        Self::of(raw, false)
    }

    /// Creates a schema that checks `format` in every dialect. By default this depends on the
    /// dialect: drafts up to 7 check it, and later ones treat it as a comment.
    pub fn with_formats(raw: RawJson) -> Self {
        Self::of(raw, true)
    }

    fn of(raw: RawJson, formats: bool) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        Self(Arc::new(Inner {
            raw,
            formats,
            id,
            usable: OnceLock::new(),
            fuel_per_byte: AtomicUsize::new(0),
        }))
    }

    pub fn raw(&self) -> &RawJson {
        &self.0.raw
    }

    /// Checks whether the schema can be used, and compiles it. The error describes why not.
    pub fn check(&self) -> Result<(), &str> {
        let bytes = if self.is_cached() || self.compiles_fast() { 0 } else { LARGE };
        let _ = offload::run_if_free(bytes, || self.compiled());
        self.flaw().map_or(Ok(()), Err)
    }

    /// Checks the schema quickly, for callers with many schemas. A schema without obvious errors
    /// costs little more than parsing it, and is not compiled. Other errors show when the schema is
    /// first used.
    pub fn check_fast(&self) -> Result<(), &str> {
        if self.0.usable.get().is_none() {
            // Only the compiler knows the target of a reference.
            let refers = self.compiles_fast() && self.raw().as_str().contains("\"$ref\"");
            let checked =
                if refers { self.compile().map(drop) } else { read(self.raw()).map(drop) };
            if let Err(why) = checked {
                let _ = self.0.usable.set(Err(why));
            }
        }
        self.flaw().map_or(Ok(()), Err)
    }

    /// Returns the reason why the schema cannot be used, as far as it is known.
    pub fn flaw(&self) -> Option<&str> {
        self.0.usable.get()?.as_ref().err().map(String::as_str)
    }

    /// Returns the cost of validating a value, in bytes of text with equal cost.
    pub fn validation_cost(&self, value: &RawJson) -> usize {
        if self.flaw().is_some() {
            return 0;
        }
        match CACHE.peek(&self.0.id) {
            // The highest cost so far may occur again.
            Some(compiled) => {
                let seen = self.0.fuel_per_byte.load(Ordering::Relaxed) / FUEL_PER_BYTE;
                compiled.bounds.cost(value.len()).max(value.len().saturating_mul(seen))
            }
            None if self.compiles_fast() => value.len(),
            None => value.len().max(LARGE),
        }
    }

    /// Validates a call's arguments. The error names the wrong arguments and the expected values.
    pub fn validate(&self, args: &RawJson) -> Result<(), Error> {
        offload(self.validation_cost(args), || {
            self.validate_value(args, ARGUMENTS, |error| error.to_string())
        })
    }

    /// Does the same for values that may contain secrets. The error contains only paths, and no
    /// values.
    pub fn validate_secret(&self, value: &RawJson) -> Result<(), Error> {
        offload::run_if_free(self.validation_cost(value), || {
            self.validate_value(value, ARGUMENTS, |error| error.masked().to_string())
        })
    }

    /// Validates a call's result, and describes the errors. A result that cannot be validated in
    /// bounded time passes, and so does any result of a schema that cannot be used.
    pub fn result_error(&self, result: &RawJson) -> Option<String> {
        let validated = offload::run_if_free(self.validation_cost(result), || {
            self.validate_value(result, RESULT, |error| error.to_string())
        });
        match validated {
            Err(Error::Invalid(why)) => Some(why),
            Ok(()) | Err(Error::Schema(_) | Error::TooExpensive(_)) => None,
        }
    }

    fn validate_value(
        &self,
        value: &RawJson,
        whole: &str,
        describe: impl Fn(&ValidationError<'_>) -> String,
    ) -> Result<(), Error> {
        let bytes = value.len();
        let compiled = self.compiled().map_err(Error::Schema)?;
        let too_expensive =
            |why: &str| Error::TooExpensive(format!("{whole} cannot be checked: {why}"));
        if let Err(error) = check_parsed_bytes(value.as_str().as_bytes()) {
            return Err(too_expensive(&error.to_string()));
        }
        let value = value
            .to_value()
            .map_err(|error| Error::Invalid(format!("{whole} cannot be read: {error}")))?;
        let (fuel, rates) = compiled.bounds.fuel(&value).map_err(too_expensive)?;
        let (is_valid, left) =
            with_fuel(fuel, rates, || compiled.validator.is_valid(Viewed(&value)));
        let consumed = usize::try_from(fuel - left).unwrap_or(usize::MAX);
        self.0.fuel_per_byte.fetch_max(consumed / bytes.max(1), Ordering::Relaxed);
        if left == 0 {
            return Err(too_expensive("the check against the tool's schema would take too long"));
        }
        if is_valid {
            return Ok(());
        }
        let too_large = || {
            Error::Invalid(format!(
                "the tool's schema does not allow {whole}; the value is too large to locate the error"
            ))
        };
        // An error in a choice is reported with a copy of the value for each alternative.
        if bytes.saturating_mul(compiled.bounds.alternatives) > MAX_REPORT_BYTES {
            return Err(too_large());
        }
        let (fuel, rates) = Bounds::fuel_for_report(fuel, rates);
        let (errors, left) =
            with_fuel(fuel, rates, || compiled.validator.iter_errors(Viewed(&value)));
        if left == 0 {
            return Err(too_large());
        }
        Err(Error::Invalid(report::message(errors, &compiled.schema, whole, describe)))
    }

    fn is_cached(&self) -> bool {
        CACHE.contains_key(&self.0.id)
    }

    /// Returns whether the schema can be compiled quickly. Patterns take longest, and few schemas
    /// have any.
    fn compiles_fast(&self) -> bool {
        const SHORT: usize = 4 << 10;
        let text = self.raw().as_str();
        text.len() < SHORT && !text.contains("\"pattern") && !text.contains('\\')
    }

    fn compiled(&self) -> Result<Arc<Compiled>, String> {
        if let Some(compiled) = CACHE.get(&self.0.id) {
            return Ok(compiled);
        }
        if let Some(why) = self.flaw() {
            return Err(why.to_owned());
        }
        let compiled = self.compile();
        let usable = compiled.as_ref().map(|_| ()).map_err(String::clone);
        let _ = self.0.usable.set(usable);
        let compiled = Arc::new(compiled?);
        CACHE.insert(self.0.id, Arc::clone(&compiled));
        Ok(compiled)
    }

    fn compile(&self) -> Result<Compiled, String> {
        Compiled::new(self.raw(), self.0.formats)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.usable.get().is_some_and(Result::is_ok) {
            CACHE.remove(&self.id);
        }
    }
}

#[derive(Debug)]
struct Compiled {
    validator: Validator<Fueled>,
    schema: Value,
    bounds: Bounds,
    bytes: usize,
}

impl Compiled {
    fn new(raw: &RawJson, formats: bool) -> Result<Self, String> {
        let (mut schema, bounds) = read(raw)?;
        let patterns = rewrite::rewrite(&mut schema)?;
        let bytes = patterns + BYTES_PER_VALUE * bounds.values + BYTES_PER_BYTE * raw.len();
        if bytes > MAX_COMPILED_BYTES {
            let (needed, max) = (bytes >> 20, MAX_COMPILED_BYTES >> 20);
            return Err(format!(
                "its compiled form would take about {needed} MiB, more than {max}; use shorter patterns, such as \
                 {{1,50}} instead of {{1,500}}"
            ));
        }
        let options =
            jsonschema::options_for::<Fueled>().with_pattern_options(rewrite::engine()).offline();
        let options = if formats { options.should_validate_formats(true) } else { options };
        let validator = options.build(&schema).map_err(|error| report::schema_error(&error))?;
        Ok(Self { validator, schema, bounds, bytes })
    }
}

/// Parses a schema, and checks it against its meta-schema. It is not compiled.
fn read(raw: &RawJson) -> Result<(Value, Bounds), String> {
    if raw.len() > MAX_SCHEMA_BYTES {
        return Err(format!("it has {} bytes, more than {MAX_SCHEMA_BYTES}", raw.len()));
    }
    if is_too_deep(raw.as_str()) {
        return Err(format!("it is nested deeper than {MAX_DEPTH} levels"));
    }
    let schema = raw.to_value().map_err(|error| error.to_string())?;
    let bounds = walk::walk(&schema)?;
    // The compiler handles unknown dialects, and schemas with parts in another dialect.
    let dialects = raw.as_str().matches("\"$schema\"").count();
    match jsonschema::meta::validate(&schema) {
        Err(error)
            if dialects < 2 && !matches!(error.kind(), ValidationErrorKind::Referencing(_)) =>
        {
            Err(report::schema_error(&error))
        }
        _ => Ok((schema, bounds)),
    }
}

#[cfg(test)]
mod tests;
