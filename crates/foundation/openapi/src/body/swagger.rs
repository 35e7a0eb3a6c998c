//! Bodies in Swagger 2.0: one parameter in `body`, or one in `formData` per field.

use serde_json::{Map, Value, json};

use super::{Body, Declared, Field, Format, find_fields, format_of, usable_media};
use crate::error::{Problem, ProblemKind};
use crate::parameter::Place;
use crate::refs::{MAX_TEXT, Root, Trail};
use crate::schema::{Collector, is_file};
use crate::swagger::writing;

/// A parameter that is part of the body, and its position in the document.
#[derive(Debug)]
pub(crate) struct InBody<'a> {
    pub(crate) written: &'a Value,
    pub(crate) pointer: String,
}

impl InBody<'_> {
    pub(crate) fn is_one(parameter: &Value) -> bool {
        matches!(parameter.get("in").and_then(Value::as_str), Some("body" | "formData"))
    }

    fn is_body(&self) -> bool {
        self.written.get("in").and_then(Value::as_str) == Some("body")
    }

    fn is_required(&self) -> bool {
        self.written.get("required") == Some(&Value::Bool(true))
    }

    fn name(&self) -> Option<&str> {
        self.written.get("name")?.as_str().filter(|name| !name.is_empty() && name.len() <= MAX_TEXT)
    }
}

impl<'a> Declared<'a> {
    /// Builds the body from parameters. The operation's own parameters come before those of its
    /// path.
    pub(crate) fn of_parameters(
        root: Root<'a>,
        mut parts: Vec<InBody<'a>>,
        consumes: Option<&'a Value>,
        problems: &mut Vec<Problem>,
    ) -> Option<Self> {
        let consumes =
            consumes.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
        let media = consumes.filter(|media| media.len() <= MAX_TEXT && usable_media(media));
        let Some(whole) = parts.iter().position(InBody::is_body) else {
            return Self::form(parts, media.map(format_of).collect(), problems);
        };
        let InBody { written, pointer } = parts.swap_remove(whole);
        if parts.iter().any(|part| !part.is_body()) {
            let message = "an operation can have either a parameter in \"body\" or some in \"formData\"; the latter \
                           are ignored";
            problems.push(Problem::new(ProblemKind::Malformed, &pointer, message));
        }
        let media = media.filter(|media| !media.contains('*')).min_by_key(|media| format_of(media));
        let schema = written.get("schema");
        let meant = schema.map(|schema| root.follow(schema, "").unwrap_or(schema));
        let bytes = is_file(meant.unwrap_or(written));
        let usual = if bytes { "application/octet-stream" } else { "application/json" };
        let media = media.unwrap_or(usual).to_owned();
        let format = format_of(&media);
        let is_form = matches!(format, Format::Form | Format::Multipart);
        let fields =
            schema.filter(|_| is_form).map(|schema| find_fields(root, schema)).unwrap_or_default();
        let required = written.get("required") == Some(&Value::Bool(true));
        let description = written.get("description").filter(|said| said.is_string());
        let body = Body { required, media, format, fields };
        Some(Self { body, schema, fields: Vec::new(), description, pointer })
    }

    fn form(
        mut parts: Vec<InBody<'a>>,
        formats: Vec<Format>,
        problems: &mut Vec<Problem>,
    ) -> Option<Self> {
        let mut fields = std::collections::BTreeMap::new();
        parts.retain(|part| {
            let Some(name) = part.name() else {
                let message = "the parameter has no name, or one that is too long";
                problems.push(Problem::new(ProblemKind::Malformed, &part.pointer, message));
                return false;
            };
            if fields.contains_key(name) {
                return false;
            }
            let is_list = part.written.get("type").and_then(Value::as_str) == Some("array");
            let file = is_file(part.written) || part.written.get("items").is_some_and(is_file);
            let writing = (is_list && !file).then(|| writing(part.written, Place::Query));
            fields.insert(name.to_owned(), Field { writing, media: None, file });
            true
        });
        let pointer = parts.first()?.pointer.clone();
        let only_parts = formats.contains(&Format::Multipart) && !formats.contains(&Format::Form);
        let (format, media) = if only_parts || fields.values().any(|field| field.file) {
            (Format::Multipart, "multipart/form-data")
        } else {
            (Format::Form, "application/x-www-form-urlencoded")
        };
        let required = parts.iter().any(InBody::is_required);
        let body = Body { required, media: media.to_owned(), format, fields };
        Some(Self { body, schema: None, fields: parts, description: None, pointer })
    }
}

/// Builds one schema for the fields of a form. A parameter is nearly a schema: its other keys are
/// left out.
pub(super) fn form<'a>(
    parts: &[InBody<'a>],
    collector: &mut Collector<'a>,
) -> Result<Value, Problem> {
    let mut properties = Map::new();
    for part in parts {
        let schema = collector.convert(part.written, Trail::Start(&part.pointer))?;
        properties.insert(part.name().unwrap_or_default().to_owned(), schema);
    }
    let required: Vec<_> =
        parts.iter().filter(|part| part.is_required()).filter_map(InBody::name).collect();
    let mut schema = json!({"type": "object", "properties": properties});
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    Ok(schema)
}
