//! Parameters in path, query, header and cookie.

use serde_json::{Map, Value, json};

use crate::document::Version;
use crate::encode::encode;
use crate::error::{Problem, ProblemKind, RequestError};
use crate::json::Json;
use crate::refs::{MAX_TEXT, Trail, shown};
use crate::request::{Draft, forbidden_header, header_name, header_value};
use crate::schema::Collector;
use crate::style::{Style, Writing, header, text_of};
use crate::swagger;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    Path,
    Query,
    Header,
    Cookie,
}

impl Place {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Path => "path",
            Self::Query => "query",
            Self::Header => "header",
            Self::Cookie => "cookie",
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Parameter {
    pub(crate) name: String,
    pub(crate) place: Place,
    /// The name of the tool's argument.
    pub(crate) argument: String,
    /// Whether the document's own name is accepted too, if it differs: some hosts create tools
    /// themselves.
    pub(crate) by_name: bool,
    pub(crate) required: bool,
    format: Format,
}

#[derive(Debug, Clone, Copy)]
enum Format {
    Styled(Writing),
    /// A parameter with `content` of a JSON type.
    Json,
    /// A parameter with `content` of any other type: plain text.
    Text,
}

/// A parameter in the document, with its schema.
#[derive(Debug, Clone)]
pub(crate) struct Declared<'a> {
    pub(crate) parameter: Parameter,
    written: &'a Value,
    schema: Option<&'a Value>,
    pointer: String,
}

impl<'a> Declared<'a> {
    /// Reads a parameter. Returns `None` for an ignored parameter, and adds the reason to the
    /// problems.
    pub(crate) fn read(
        version: Version,
        written: &'a Value,
        pointer: &str,
        problems: &mut Vec<Problem>,
    ) -> Option<Self> {
        let text = |key: &str| written.get(key).and_then(Value::as_str).unwrap_or_default();
        let mut ignore =
            |kind, message: String| problems.push(Problem::new(kind, pointer, message));
        let name = text("name").to_owned();
        let place = match text("in") {
            "path" => Place::Path,
            "query" => Place::Query,
            "header" => Place::Header,
            "cookie" => Place::Cookie,
            other => {
                ignore(
                    ProblemKind::Unsupported,
                    format!("a parameter in \"{}\" is not supported", shown(other)),
                );
                return None;
            }
        };
        if name.is_empty() || name.len() > MAX_TEXT {
            ignore(
                ProblemKind::Malformed,
                "the parameter has no name, or one that is too long".to_owned(),
            );
            return None;
        }
        if place == Place::Header && forbidden_header(&name) {
            let message = format!(
                "the header \"{name}\" is not set by a parameter; for credentials, use securitySchemes"
            );
            ignore(ProblemKind::Ignored, message);
            return None;
        }
        if matches!(place, Place::Header | Place::Cookie) && !header_name(&name) {
            ignore(
                ProblemKind::Malformed,
                format!("\"{}\" is not a valid name for a header or cookie", shown(&name)),
            );
            return None;
        }
        let content = written
            .get("content")
            .and_then(Value::as_object)
            .and_then(|content| content.iter().next());
        let format = match content {
            Some((media, _)) if is_json(media) => Format::Json,
            Some(_) => Format::Text,
            None if version == Version::Swagger => Format::Styled(swagger::writing(written, place)),
            None => Format::Styled(writing(written, place)),
        };
        let schema = match content {
            Some((_, media)) => media.get("schema"),
            // Swagger 2.0 has the type here, and so do some later documents.
            None => written.get("schema").or_else(|| written.get("type").map(|_| written)),
        };
        let required = place == Place::Path || written.get("required") == Some(&Value::Bool(true));
        let parameter =
            Parameter { argument: name.clone(), by_name: false, name, place, required, format };
        Some(Self { parameter, written, schema, pointer: pointer.to_owned() })
    }

    /// Returns the schema of the tool's argument.
    pub(crate) fn schema(&self, collector: &mut Collector<'a>) -> Result<Value, Problem> {
        let mut schema = match self.schema {
            Some(schema) => {
                collector.convert(schema, Trail::Name(&Trail::Start(&self.pointer), "schema"))?
            }
            None => json!({"type": "string"}),
        };
        // The description is next to the schema of a parameter, not in it.
        if schema == Value::Bool(true) {
            schema = Value::Object(Map::new());
        }
        if let Value::Object(schema) = &mut schema {
            let said = self
                .written
                .get("description")
                .filter(|said| said.as_str().is_some_and(|said| !said.is_empty()));
            if let Some(said) = collector.prose(said, &self.pointer)? {
                schema.insert("description".to_owned(), said);
            }
            if self.written.get("deprecated") == Some(&Value::Bool(true)) {
                schema.insert("deprecated".to_owned(), json!(true));
            }
            if let Some(example) = collector.prose(self.written.get("example"), &self.pointer)? {
                schema.entry("examples").or_insert_with(|| json!([example]));
            }
        }
        Ok(schema)
    }
}

/// Creates a variable of the path that the document does not declare.
pub(crate) fn undeclared(name: &str) -> Parameter {
    let writing = Writing { style: Style::Simple, explode: false, allow_reserved: false };
    Parameter {
        name: name.to_owned(),
        place: Place::Path,
        argument: name.to_owned(),
        by_name: false,
        required: true,
        format: Format::Styled(writing),
    }
}

fn writing(written: &Value, place: Place) -> Writing {
    let style = written.get("style").and_then(Value::as_str).and_then(Style::named);
    // A style that is invalid for the location counts as none.
    let style = match (place, style) {
        (Place::Path, Some(style @ (Style::Label | Style::Matrix))) => style,
        (Place::Path | Place::Header, _) => Style::Simple,
        (
            Place::Query,
            Some(style @ (Style::SpaceDelimited | Style::PipeDelimited | Style::DeepObject)),
        ) => style,
        (Place::Cookie, Some(Style::Cookie)) => Style::Cookie,
        (Place::Query | Place::Cookie, _) => Style::Form,
    };
    let explode = written.get("explode").and_then(Value::as_bool);
    let allow_reserved =
        place == Place::Query && written.get("allowReserved") == Some(&Value::Bool(true));
    Writing {
        style,
        explode: explode.unwrap_or(matches!(style, Style::Form | Style::Cookie)),
        allow_reserved,
    }
}

impl Parameter {
    pub(crate) fn alias(&self) -> Option<&String> {
        self.by_name.then_some(&self.name)
    }

    /// Returns the text of the parameter in the path.
    pub(crate) fn in_path(&self, value: &Json) -> Result<String, RequestError> {
        let text = match self.format {
            Format::Styled(writing) => writing.path(&self.name, value),
            Format::Json => Some(encode(&value.to_string())),
            Format::Text => Some(encode(&text_of(value))),
        };
        // An empty segment is another path: "/users/" is not a user.
        text.filter(|text| !text.is_empty()).ok_or_else(|| {
            RequestError::argument(
                &self.argument,
                "may not be empty, because it is part of the path",
            )
        })
    }

    /// Writes a query, header or cookie parameter.
    pub(crate) fn write(&self, value: &Json, draft: &mut Draft) -> Result<(), RequestError> {
        let content = match self.format {
            Format::Styled(_) => None,
            Format::Json => Some(value.to_string()),
            Format::Text => Some(text_of(value)),
        };
        match (self.place, self.format, content) {
            (Place::Query, Format::Styled(writing), _) => {
                draft.query.extend(writing.pairs(&self.name, value));
            }
            (Place::Query, _, Some(text)) => draft.query.push((encode(&self.name), encode(&text))),
            (Place::Cookie, Format::Styled(writing), _) => {
                for (name, value) in writing.pairs(&self.name, value) {
                    let bad = |text: &str| {
                        text.contains([';', ',', '"', '\\', ' ', '\t'])
                            || header_value(text).is_err()
                    };
                    if writing.style == Style::Cookie
                        && (bad(&name) || name.contains('=') || bad(&value))
                    {
                        return Err(RequestError::argument(
                            &self.argument,
                            "has a character that a cookie cannot carry",
                        ));
                    }
                    draft.cookies.push((name, value));
                }
            }
            (Place::Cookie, _, Some(text)) => {
                draft.cookies.push((self.name.clone(), encode(&text)));
            }
            (Place::Header, Format::Styled(writing), _) => {
                if let Some(text) = header(value, writing.explode) {
                    self.write_header(text, draft)?;
                }
            }
            (Place::Header, _, Some(text)) => self.write_header(text, draft)?,
            (Place::Path, _, _) | (_, _, None) => {}
        }
        Ok(())
    }

    fn write_header(&self, text: String, draft: &mut Draft) -> Result<(), RequestError> {
        header_value(&text).map_err(|why| RequestError::argument(&self.argument, why))?;
        draft.set_header(&self.name, text);
        Ok(())
    }
}

/// Returns whether a media type is JSON: `application/json`, `application/problem+json`, with or
/// without parameters.
pub(crate) fn is_json(media: &str) -> bool {
    let essence = media.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence == "application/json" || essence == "text/json" || essence.ends_with("+json")
}
