//! Converts schemas of the document into JSON Schema 2020-12: upgraded from OpenAPI 3.0, cleaned,
//! and finite.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde_json::{Map, Value, json};

use crate::document::Version;
use crate::error::{Problem, ProblemKind};
use crate::parameter::is_json;
use crate::refs::{Root, Trail};

/// The keywords of JSON Schema that contain no schema, and `example` of OpenAPI 3.0.
const DATA: [&str; 28] = [
    "type",
    "title",
    "description",
    "pattern",
    "format",
    "contentEncoding",
    "contentMediaType",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "minContains",
    "maxContains",
    "uniqueItems",
    "deprecated",
    "enum",
    "examples",
    "example",
    "const",
    "default",
    "required",
];

/// The keywords that are only documentation.
const PROSE: [&str; 4] = ["title", "description", "examples", "example"];

/// The note for a model on an argument that is a file.
pub(crate) const FILE_NOTE: &str = "A file, as base64 or as a data: URL.";

/// Returns whether a schema describes raw bytes, in the notation of any version of OpenAPI.
pub(crate) fn is_file(schema: &Value) -> bool {
    let text = |keyword: &str| schema.get(keyword).and_then(Value::as_str);
    let media = text("contentMediaType")
        .is_some_and(|media| !media.starts_with("text/") && !is_json(media));
    text("format") == Some("binary")
        || text("type") == Some("file")
        || (media
            && schema.get("contentEncoding").is_none()
            && matches!(text("type"), None | Some("string")))
}

/// Collects the schemas of one operation. Referenced schemas are added to `$defs` once, even if
/// they are used repeatedly or recursively. A reference is never expanded in place, so no document
/// can cause exponential growth.
#[derive(Debug)]
pub(crate) struct Collector<'a> {
    root: Root<'a>,
    /// Whether the document is OpenAPI 3.0 or Swagger 2.0, in which schemas are not exactly JSON
    /// Schema.
    old: bool,
    /// Whether descriptions and examples are left out, so that a very large schema fits.
    terse: bool,
    /// Whether binary strings are files in base64.
    pub(crate) files: bool,
    /// The remaining budget in bytes.
    left: usize,
    /// The names in `$defs`, by reference.
    names: BTreeMap<&'a str, String>,
    taken: HashSet<String>,
    /// The last number that was appended to a name with collisions.
    numbers: HashMap<String, usize>,
    waiting: Vec<(String, &'a str, &'a Value)>,
    pub(crate) problems: Vec<Problem>,
}

impl<'a> Collector<'a> {
    pub(crate) fn new(root: Root<'a>, version: Version, terse: bool, bytes: usize) -> Self {
        Self {
            root,
            old: version != Version::ThreeOne,
            terse,
            files: false,
            left: bytes,
            names: BTreeMap::new(),
            taken: HashSet::new(),
            numbers: HashMap::new(),
            waiting: Vec::new(),
            problems: Vec::new(),
        }
    }

    /// Returns all referenced schemas, by name.
    pub(crate) fn definitions(&mut self) -> Result<Map<String, Value>, Problem> {
        let mut definitions = Map::new();
        while let Some((name, reference, schema)) = self.waiting.pop() {
            let converted =
                self.convert(schema, Trail::Start(reference.trim_start_matches('#')))?;
            definitions.insert(name, converted);
        }
        Ok(definitions)
    }

    /// Converts one schema; its references are left for [`Self::definitions`].
    pub(crate) fn convert(
        &mut self,
        schema: &'a Value,
        trail: Trail<'_>,
    ) -> Result<Value, Problem> {
        self.spend(16, trail)?;
        let written = match schema {
            Value::Bool(any) => return Ok(Value::Bool(*any)),
            Value::Object(written) => written,
            _ => return Ok(Value::Bool(true)),
        };
        let mut lifted = Map::new();
        if let Some(reference) = written.get("$ref").and_then(Value::as_str) {
            match self.reference(reference, trail) {
                Ok(name) => {
                    drop(
                        lifted.insert("$ref".to_owned(), Value::String(format!("#/$defs/{name}"))),
                    );
                }
                Err(problem) if problem.kind == ProblemKind::RemoteReference => {
                    return Err(problem);
                }
                // An error in one field does not invalidate the whole operation: the field accepts
                // any value.
                Err(problem) => self.problems.push(problem),
            }
        }
        for (keyword, value) in written {
            // In 3.0, keywords next to a `$ref` do not count, except documentation.
            if self.old
                && written.contains_key("$ref")
                && !["description", "default", "deprecated"].contains(&keyword.as_str())
            {
                continue;
            }
            // A list of schemas for `items` is an old notation for a tuple.
            let keyword =
                if keyword == "items" && value.is_array() { "prefixItems" } else { keyword };
            if let Some(value) = self.keyword(keyword, value, trail)? {
                self.spend(keyword.len() + 4, trail)?;
                lifted.insert(keyword.to_owned(), value);
            }
        }
        lift(written, &mut lifted, self.terse);
        if self.files && is_file(schema) {
            let said = lifted.get("description").and_then(Value::as_str).unwrap_or_default();
            let said = format!("{said} {FILE_NOTE}").trim_start().to_owned();
            lifted.insert("type".to_owned(), json!("string"));
            lifted.insert("description".to_owned(), Value::String(said));
        }
        drop_read_only(self.root, written, &mut lifted);
        Ok(nullable(written, lifted))
    }

    /// Converts a keyword if its value is valid in JSON Schema. Other keywords are dropped, because
    /// a validator would reject the whole schema.
    fn keyword(
        &mut self,
        keyword: &str,
        value: &'a Value,
        trail: Trail<'_>,
    ) -> Result<Option<Value>, Problem> {
        let trail = &Trail::Name(&trail, keyword);
        match (keyword, value) {
            (
                "items"
                | "additionalProperties"
                | "not"
                | "contains"
                | "propertyNames"
                | "if"
                | "then"
                | "else"
                | "unevaluatedItems"
                | "unevaluatedProperties",
                Value::Object(_) | Value::Bool(_),
            ) => return self.convert(value, *trail).map(Some),
            ("allOf" | "anyOf" | "oneOf" | "prefixItems", Value::Array(schemas))
                if !schemas.is_empty() =>
            {
                let schemas = schemas.iter().enumerate();
                let schemas =
                    schemas.map(|(index, schema)| self.convert(schema, Trail::Index(trail, index)));
                return Ok(Some(Value::Array(schemas.collect::<Result<_, _>>()?)));
            }
            ("properties" | "patternProperties" | "dependentSchemas", Value::Object(schemas)) => {
                let mut converted = Map::new();
                for (name, schema) in schemas {
                    self.spend(name.len(), *trail)?;
                    converted.insert(name.clone(), self.convert(schema, Trail::Name(trail, name))?);
                }
                return Ok(Some(Value::Object(converted)));
            }
            _ => {}
        }
        if !DATA.contains(&keyword) || (self.terse && PROSE.contains(&keyword)) {
            return Ok(None);
        }
        // The size is checked before the copy: a document may share a huge value among all its
        // operations.
        self.spend(weight(value, self.left), *trail)?;
        Ok(match (keyword, value) {
            ("type", _) => types(value),
            (
                "title" | "description" | "pattern" | "format" | "contentEncoding"
                | "contentMediaType",
                Value::String(_),
            ) => Some(value.clone()),
            ("minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum", Value::Number(_)) => {
                Some(value.clone())
            }
            ("multipleOf", Value::Number(number)) => {
                number.as_f64().is_some_and(|number| number > 0.0).then(|| value.clone())
            }
            (
                "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties"
                | "maxProperties" | "minContains" | "maxContains",
                Value::Number(number),
            ) => number.as_u64().map(Value::from),
            ("uniqueItems" | "deprecated", Value::Bool(_)) => Some(value.clone()),
            ("enum", Value::Array(values)) => (!values.is_empty()).then(|| value.clone()),
            ("examples", Value::Array(_)) | ("const" | "default" | "example", _) => {
                Some(value.clone())
            }
            ("required", Value::Array(names)) => {
                let mut seen = HashSet::new();
                let names =
                    names.iter().filter(|name| name.as_str().is_some_and(|name| seen.insert(name)));
                Some(Value::Array(names.cloned().collect()))
            }
            _ => None,
        })
    }

    /// Returns the documentation next to a schema, if the budget allows it.
    pub(crate) fn prose(
        &mut self,
        value: Option<&Value>,
        pointer: &str,
    ) -> Result<Option<Value>, Problem> {
        let Some(value) = value.filter(|_| !self.terse) else { return Ok(None) };
        self.spend(weight(value, self.left), Trail::Start(pointer))?;
        Ok(Some(value.clone()))
    }

    /// Returns the unused bytes of the limit.
    pub(crate) fn left(&self) -> usize {
        self.left
    }

    /// Returns the name in `$defs` for the target of a reference.
    fn reference(&mut self, reference: &'a str, trail: Trail<'_>) -> Result<String, Problem> {
        if let Some(name) = self.names.get(reference) {
            return Ok(name.clone());
        }
        let target = self.root.target(reference, trail)?;
        // A reference that leads back to itself would make a validator loop forever.
        self.root
            .follow(target, "")
            .map_err(|problem| Problem { pointer: trail.pointer(), ..problem })?;
        let last = reference.rsplit('/').next().unwrap_or_default();
        let allowed = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        let plain: String =
            last.chars().take(80).map(|c| if allowed(c) { c } else { '_' }).collect();
        let plain = if plain.is_empty() { "schema".to_owned() } else { plain };
        let mut name = plain.clone();
        while !self.taken.insert(name.clone()) {
            let number = self.numbers.entry(plain.clone()).or_insert(1);
            *number += 1;
            name = format!("{plain}_{number}");
        }
        self.names.insert(reference, name.clone());
        self.waiting.push((name.clone(), reference, target));
        Ok(name)
    }

    fn spend(&mut self, bytes: usize, trail: Trail<'_>) -> Result<(), Problem> {
        self.left = self.left.checked_sub(bytes).ok_or_else(|| {
            let message =
                "the schema of the operation's input is too large for a tool; make it smaller";
            Problem::new(ProblemKind::TooLarge, trail.pointer(), message)
        })?;
        Ok(())
    }
}

/// Converts the keywords that are specific to OpenAPI 3.0. Many 3.1 documents still use them, so
/// they are always supported.
fn lift(written: &Map<String, Value>, lifted: &mut Map<String, Value>, terse: bool) {
    for (bound, exclusive) in [("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")] {
        if written.get(exclusive) == Some(&Value::Bool(true))
            && let Some(number) = lifted.remove(bound)
        {
            lifted.insert(exclusive.to_owned(), number);
        }
    }
    choices_of_list(lifted);
    if let Some(example) = lifted.remove("example")
        && !terse
    {
        lifted.entry("examples").or_insert_with(|| json!([example]));
    }
    let format = lifted.get("format").and_then(Value::as_str);
    let file = written.get("type").and_then(Value::as_str) == Some("file");
    if file || format == Some("binary") {
        lifted.remove("format");
        lifted.entry("contentMediaType").or_insert_with(|| json!("application/octet-stream"));
    } else if let Some("byte" | "base64") = format {
        lifted.remove("format");
        lifted.entry("contentEncoding").or_insert_with(|| json!("base64"));
    }
}

/// Moves the choices of a list to its items. Springfox writes them next to the list, where no list
/// could equal one of them.
fn choices_of_list(lifted: &mut Map<String, Value>) {
    let is_list = lifted.get("type").and_then(Value::as_str) == Some("array");
    let misplaced = |choices: &Value| {
        choices.as_array().is_some_and(|choices| !choices.iter().any(Value::is_array))
    };
    if !is_list || !lifted.get("enum").is_some_and(misplaced) {
        return;
    }
    let choices = lifted.remove("enum").unwrap_or_default();
    if let Some(items) = lifted.entry("items").or_insert_with(|| json!({})).as_object_mut() {
        items.entry("enum").or_insert(choices);
    }
}

/// Removes fields that only the server sets, because they are not sent.
fn drop_read_only(root: Root<'_>, written: &Map<String, Value>, lifted: &mut Map<String, Value>) {
    let Some(Value::Object(properties)) = written.get("properties") else { return };
    for (name, schema) in properties {
        let meant = root.follow(schema, "").unwrap_or(schema);
        if [schema, meant].iter().any(|schema| schema.get("readOnly") == Some(&Value::Bool(true))) {
            if let Some(Value::Object(kept)) = lifted.get_mut("properties") {
                kept.remove(name);
            }
            if let Some(Value::Array(required)) = lifted.get_mut("required") {
                required.retain(|required| required.as_str() != Some(name));
            }
        }
    }
}

fn nullable(written: &Map<String, Value>, mut lifted: Map<String, Value>) -> Value {
    let asked = ["nullable", "x-nullable"]
        .iter()
        .any(|keyword| written.get(*keyword) == Some(&Value::Bool(true)));
    if !asked {
        return Value::Object(lifted);
    }
    if let Some(Value::Array(values)) = lifted.get_mut("enum")
        && !values.contains(&Value::Null)
    {
        values.push(Value::Null);
    }
    if let Some(kind) = lifted.remove("type") {
        let mut kinds = match kind {
            Value::Array(kinds) => kinds,
            kind => vec![kind],
        };
        if !kinds.contains(&json!("null")) {
            kinds.push(json!("null"));
        }
        lifted.insert("type".to_owned(), Value::Array(kinds));
    } else if ["$ref", "allOf", "anyOf", "oneOf"]
        .iter()
        .any(|keyword| lifted.contains_key(*keyword))
    {
        return json!({"anyOf": [lifted, {"type": "null"}]});
    }
    Value::Object(lifted)
}

/// Returns the types of JSON Schema, also for the spellings of other languages.
fn types(value: &Value) -> Option<Value> {
    let known = |name: &str| {
        Some(match name.to_ascii_lowercase().as_str() {
            "string" | "file" => "string",
            "integer" | "int" | "long" => "integer",
            "number" | "float" | "double" => "number",
            "boolean" | "bool" => "boolean",
            "array" => "array",
            "object" => "object",
            "null" => "null",
            _ => return None,
        })
    };
    match value {
        Value::String(name) => known(name).map(Value::from),
        Value::Array(names) => {
            let mut kinds = Vec::new();
            for kind in names.iter().filter_map(Value::as_str).filter_map(known) {
                if !kinds.contains(&kind) {
                    kinds.push(kind);
                }
            }
            (!kinds.is_empty()).then(|| json!(kinds))
        }
        _ => None,
    }
}

/// Returns the approximate size of a value as text. Counting stops at `limit`, so that a huge value
/// costs no time.
fn weight(value: &Value, limit: usize) -> usize {
    fn add(value: &Value, sum: &mut usize, limit: usize) {
        if *sum > limit {
            return;
        }
        match value {
            Value::String(text) => *sum += text.len() + 3,
            Value::Array(items) => {
                *sum += 2;
                items.iter().take(limit).for_each(|item| add(item, sum, limit));
            }
            Value::Object(fields) => {
                *sum += 2;
                for (key, value) in fields.iter().take(limit) {
                    *sum += key.len() + 4;
                    add(value, sum, limit);
                }
            }
            _ => *sum += 5,
        }
    }
    let mut sum = 0;
    add(value, &mut sum, limit);
    sum
}
