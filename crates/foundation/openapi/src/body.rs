//! Request bodies: selects the media type, and converts the argument `_requestBody` into bytes.

use std::collections::{BTreeMap, HashSet};

use serde_json::{Value, json};

use crate::encode::encode;
use crate::error::{Problem, ProblemKind, RequestError};
use crate::json::Json;
use crate::multipart::{self, File, Part};
use crate::parameter::is_json;
use crate::refs::{MAX_TEXT, Root, Trail, join};
use crate::request::{Draft, header_value};
use crate::schema::{Collector, FILE_NOTE, is_file};
use crate::style::{Style, Writing, text_of};

mod swagger;

pub(crate) use self::swagger::InBody;

/// The name of the tool's argument for the body.
pub(crate) const ARGUMENT: &str = "_requestBody";

/// The maximum number of described fields of a form. Further fields are sent as plain text.
const MAX_FIELDS: usize = 1_000;

#[derive(Debug, Clone)]
pub(crate) struct Body {
    pub(crate) required: bool,
    media: String,
    format: Format,
    fields: BTreeMap<String, Field>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Format {
    Json,
    Form,
    Multipart,
    Text,
    Bytes,
    /// XML and similar formats: the caller writes the text.
    Raw,
}

/// The description of a field of a form.
#[derive(Debug, Clone, Default)]
struct Field {
    writing: Option<Writing>,
    media: Option<String>,
    file: bool,
}

/// A body in the document, with its schema.
#[derive(Debug)]
pub(crate) struct Declared<'a> {
    pub(crate) body: Body,
    schema: Option<&'a Value>,
    /// The fields of a form in Swagger 2.0, which replace a schema.
    fields: Vec<InBody<'a>>,
    description: Option<&'a Value>,
    pointer: String,
}

impl<'a> Declared<'a> {
    pub(crate) fn read(
        root: Root<'a>,
        written: &'a Value,
        pointer: &str,
        problems: &mut Vec<Problem>,
    ) -> Result<Option<Self>, Problem> {
        let written = root.follow(written, pointer)?;
        let content = written.get("content").and_then(Value::as_object).into_iter().flatten();
        let usable = content.filter(|(media, _)| media.len() <= MAX_TEXT && usable_media(media));
        let best = usable
            .map(|(media, about)| (format_of(media), media, about))
            .min_by_key(|(rank, ..)| *rank);
        let Some((format, media, about)) = best else {
            let message =
                "the request body has no usable \"content\"; the operation is added without a body";
            problems.push(Problem::new(ProblemKind::Malformed, pointer, message));
            return Ok(None);
        };
        let pointer = join(&join(pointer, "content"), media);
        let about = root.follow(about, &pointer)?;
        let schema = about.get("schema");
        let mut fields = BTreeMap::new();
        if matches!(format, Format::Form | Format::Multipart) {
            fields = schema.map(|schema| find_fields(root, schema)).unwrap_or_default();
            let encodings = about.get("encoding").and_then(Value::as_object).into_iter().flatten();
            for (name, encoding) in
                encodings.filter(|(name, _)| name.len() <= MAX_TEXT).take(MAX_FIELDS)
            {
                encoded(encoding, fields.entry(name.clone()).or_default());
            }
        }
        let media = if media.contains('*') { "application/json".to_owned() } else { media.clone() };
        let required = written.get("required") == Some(&Value::Bool(true));
        let description = written.get("description").filter(|said| said.is_string());
        Ok(Some(Self {
            body: Body { required, media, format, fields },
            schema,
            fields: Vec::new(),
            description,
            pointer,
        }))
    }

    pub(crate) fn schema(&self, collector: &mut Collector<'a>) -> Result<Value, Problem> {
        collector.files = self.body.format == Format::Multipart;
        let mut schema = match (self.body.format, self.schema) {
            (Format::Bytes, _) => json!({"type": "string", "description": FILE_NOTE}),
            (Format::Raw, _) => {
                json!({"type": "string", "description": format!("The body, as text in {}.", self.body.media)})
            }
            (_, None) if !self.fields.is_empty() => swagger::form(&self.fields, collector)?,
            (Format::Text, None) => json!({"type": "string"}),
            (_, Some(schema)) => {
                collector.convert(schema, Trail::Name(&Trail::Start(&self.pointer), "schema"))?
            }
            (Format::Form | Format::Multipart, None) => json!({"type": "object"}),
            (Format::Json, None) => json!({}),
        };
        if let (Value::Object(schema), Some(said)) =
            (&mut schema, collector.prose(self.description, &self.pointer)?)
        {
            schema.entry("description").or_insert(said);
        }
        Ok(schema)
    }
}

fn usable_media(media: &str) -> bool {
    media.is_ascii() && header_value(media).is_ok()
}

fn format_of(media: &str) -> Format {
    let essence = media.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match essence.as_str() {
        "*/*" | "application/*" => Format::Json,
        "application/x-www-form-urlencoded" => Format::Form,
        "multipart/form-data" | "multipart/*" => Format::Multipart,
        "application/xml" | "text/xml" => Format::Raw,
        "application/octet-stream" | "application/pdf" | "application/zip" | "application/gzip" => {
            Format::Bytes
        }
        _ if is_json(&essence) => Format::Json,
        _ if essence.starts_with("text/") => Format::Text,
        _ if ["image/", "audio/", "video/", "font/"]
            .iter()
            .any(|kind| essence.starts_with(kind)) =>
        {
            Format::Bytes
        }
        _ => Format::Raw,
    }
}

/// Returns the fields of a form's schema, including those of its component schemas. Each schema is
/// visited once, so that cycles end.
fn find_fields(root: Root<'_>, schema: &Value) -> BTreeMap<String, Field> {
    const MAX_SCHEMAS: usize = 64;
    let mut fields: BTreeMap<String, Field> = BTreeMap::new();
    let mut seen = HashSet::new();
    let mut waiting = vec![schema];
    while let Some(schema) = waiting.pop() {
        let Ok(schema) = root.follow(schema, "") else { continue };
        if seen.len() >= MAX_SCHEMAS || !seen.insert(std::ptr::from_ref(schema)) {
            continue;
        }
        let properties = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
        for (name, property) in
            properties.filter(|(name, _)| name.len() <= MAX_TEXT).take(MAX_FIELDS)
        {
            if fields.len() >= MAX_FIELDS {
                return fields;
            }
            let property = root.follow(property, "").unwrap_or(property);
            let items = property.get("items").map(|items| root.follow(items, "").unwrap_or(items));
            fields.entry(name.clone()).or_default().file |=
                is_file(property) || items.is_some_and(is_file);
        }
        for keyword in ["allOf", "anyOf", "oneOf"] {
            waiting.extend(
                schema
                    .get(keyword)
                    .and_then(Value::as_array)
                    .into_iter()
                    .flatten()
                    .take(MAX_SCHEMAS),
            );
        }
    }
    fields
}

fn encoded(encoding: &Value, field: &mut Field) {
    let media = encoding
        .get("contentType")
        .and_then(Value::as_str)
        .and_then(|media| media.split(',').next());
    let media = media.map(str::trim).filter(|media| media.len() <= MAX_TEXT && usable_media(media));
    field.media = media.filter(|media| !media.contains('*')).map(str::to_owned);
    let style = encoding.get("style").and_then(Value::as_str).and_then(Style::named);
    let explode = encoding.get("explode").and_then(Value::as_bool);
    let allow_reserved = encoding.get("allowReserved").and_then(Value::as_bool);
    if style.is_some() || explode.is_some() || allow_reserved.is_some() {
        let style = match style {
            Some(style @ (Style::SpaceDelimited | Style::PipeDelimited | Style::DeepObject)) => {
                style
            }
            _ => Style::Form,
        };
        let explode = explode.unwrap_or(style == Style::Form);
        field.writing =
            Some(Writing { style, explode, allow_reserved: allow_reserved == Some(true) });
    }
}

impl Body {
    pub(crate) fn write(&self, value: &Json, draft: &mut Draft) -> Result<(), RequestError> {
        let wrong = |what: &str| RequestError::argument(ARGUMENT, what);
        let text =
            |value: &Json| value.as_str().map(str::to_owned).ok_or_else(|| wrong("has to be text"));
        let object = || {
            value
                .as_object()
                .ok_or_else(|| wrong("has to be an object with the fields of the form"))
        };
        let mut media = self.media.clone();
        let bytes = match self.format {
            Format::Json => value.to_string().into_bytes(),
            Format::Text => text_of(value).into_bytes(),
            Format::Raw => text(value)?.into_bytes(),
            Format::Bytes => File::read(&text(value)?).map_err(wrong)?.bytes,
            Format::Form => {
                let pairs = object()?.iter().flat_map(|(name, value)| self.pairs(name, value));
                pairs
                    .map(|(name, value)| format!("{name}={value}"))
                    .collect::<Vec<_>>()
                    .join("&")
                    .into_bytes()
            }
            Format::Multipart => {
                let mut parts = Vec::new();
                for (name, value) in object()? {
                    self.parts(name, value, &mut parts)?;
                }
                let (bytes, named) = multipart::write(parts);
                media = named;
                bytes
            }
        };
        draft.set_header("Content-Type", media);
        draft.body = Some(bytes);
        Ok(())
    }

    /// Returns a field of a URL-encoded form. Without a style, objects become JSON, and lists
    /// become repeated fields.
    fn pairs(&self, name: &str, value: &Json) -> Vec<(String, String)> {
        let field = self.fields.get(name);
        if let Some(writing) = field.and_then(|field| field.writing) {
            return writing.pairs(name, value);
        }
        let pair = |value: &Json| (encode(name), encode(&text_of(value)));
        let json = field.and_then(|field| field.media.as_deref()).is_some_and(is_json);
        match value {
            Json::Null => Vec::new(),
            Json::Array(items) if !json => {
                items.iter().filter(|item| !item.is_null()).map(pair).collect()
            }
            value => vec![pair(value)],
        }
    }

    fn parts(&self, name: &str, value: &Json, parts: &mut Vec<Part>) -> Result<(), RequestError> {
        let unknown = Field::default();
        let field = self.fields.get(name).unwrap_or(&unknown);
        let json = field.media.as_deref().is_some_and(is_json);
        let joined = |writing: &Writing| matches!(value, Json::Array(_)) && !writing.explode;
        if let Some(writing) =
            field.writing.filter(|writing| joined(writing) || matches!(value, Json::Object(_)))
        {
            let pairs = writing.pairs(name, value);
            parts.extend(pairs.into_iter().map(|(name, value)| {
                let plain = |text: &str| {
                    percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned()
                };
                Part {
                    name: plain(&name),
                    filename: None,
                    media: None,
                    bytes: plain(&value).into_bytes(),
                }
            }));
            return Ok(());
        }
        match value {
            Json::Null => {}
            Json::Array(items) if !json => {
                for item in items {
                    part(name, item, field, parts)?;
                }
            }
            value => part(name, value, field, parts)?,
        }
        Ok(())
    }
}

fn part(
    name: &str,
    value: &Json,
    field: &Field,
    parts: &mut Vec<Part>,
) -> Result<(), RequestError> {
    let (filename, media, bytes) = match value {
        Json::Null => return Ok(()),
        Json::String(text) if field.file => {
            let wrong = |what| {
                RequestError::argument(
                    ARGUMENT,
                    format_args!("is a form whose field \"{name}\" {what}"),
                )
            };
            let file = File::read(text).map_err(wrong)?;
            let media = file.media.or_else(|| field.media.clone());
            let filename = file.name.unwrap_or_else(|| name.to_owned());
            (
                Some(filename),
                media.or_else(|| Some("application/octet-stream".to_owned())),
                file.bytes,
            )
        }
        Json::Object(_) | Json::Array(_) => {
            let media = field.media.clone().unwrap_or_else(|| "application/json".to_owned());
            (None, Some(media), value.to_string().into_bytes())
        }
        single => (None, field.media.clone(), text_of(single).into_bytes()),
    };
    parts.push(Part { name: name.to_owned(), filename, media, bytes });
    Ok(())
}
