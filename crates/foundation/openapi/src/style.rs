//! The notation of a value in a path, a query, a header or a cookie: OpenAPI's `style` and
//! `explode`.

use crate::encode::{encode, encode_reserved};
use crate::json::Json;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    Simple,
    Label,
    Matrix,
    Form,
    SpaceDelimited,
    PipeDelimited,
    /// Only in Swagger 2.0.
    TabDelimited,
    DeepObject,
    /// A cookie without percent-encoding, in OpenAPI 3.2.
    Cookie,
}

impl Style {
    pub(crate) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "simple" => Self::Simple,
            "label" => Self::Label,
            "matrix" => Self::Matrix,
            "form" => Self::Form,
            "spaceDelimited" => Self::SpaceDelimited,
            "pipeDelimited" => Self::PipeDelimited,
            "deepObject" => Self::DeepObject,
            "cookie" => Self::Cookie,
            _ => return None,
        })
    }
}

/// The notation of one parameter, or of one field of a form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Writing {
    pub(crate) style: Style,
    pub(crate) explode: bool,
    pub(crate) allow_reserved: bool,
}

impl Writing {
    fn text(self, text: &str) -> String {
        match self {
            Self { style: Style::Cookie, .. } => text.to_owned(),
            Self { allow_reserved: true, .. } => encode_reserved(text),
            _ => encode(text),
        }
    }

    fn texts(self, texts: &[String], separator: &str) -> String {
        texts.iter().map(|text| self.text(text)).collect::<Vec<_>>().join(separator)
    }

    /// Returns the text for `{name}` in a path. `None` means no text at all, as for an empty list.
    pub(crate) fn path(self, name: &str, value: &Json) -> Option<String> {
        let name = encode(name);
        let shape = Shape::of(value)?;
        let equals =
            |(key, value): &(String, String)| format!("{}={}", self.text(key), self.text(value));
        Some(match (self.style, self.explode, shape) {
            (Style::Matrix, _, Shape::One(text)) if text.is_empty() => format!(";{name}"),
            (Style::Matrix, _, Shape::One(text)) => format!(";{name}={}", self.text(&text)),
            (Style::Matrix, false, shape) => format!(";{name}={}", self.texts(&shape.flat(), ",")),
            (Style::Matrix, true, Shape::Many(items)) => items
                .iter()
                .map(|item| format!(";{name}={}", self.text(item)))
                .collect::<Vec<_>>()
                .concat(),
            (Style::Matrix, true, Shape::Fields(fields)) => fields
                .iter()
                .map(|field| format!(";{}", equals(field)))
                .collect::<Vec<_>>()
                .concat(),
            (Style::Label, true, Shape::Many(items)) => format!(".{}", self.texts(&items, ".")),
            (Style::Label, true, Shape::Fields(fields)) => fields
                .iter()
                .map(|field| format!(".{}", equals(field)))
                .collect::<Vec<_>>()
                .concat(),
            (Style::Label, _, shape) => format!(".{}", self.texts(&shape.flat(), ",")),
            (_, true, Shape::Fields(fields)) => {
                fields.iter().map(equals).collect::<Vec<_>>().join(",")
            }
            (_, _, shape) => self.texts(&shape.flat(), ","),
        })
    }

    /// Returns the encoded pairs of a query, a form or a cookie.
    pub(crate) fn pairs(self, name: &str, value: &Json) -> Vec<(String, String)> {
        if self.style == Style::DeepObject && matches!(value, Json::Object(_) | Json::Array(_)) {
            let mut pairs = Vec::new();
            self.deep(name.to_owned(), value, &mut pairs);
            return pairs;
        }
        let Some(shape) = Shape::of(value) else { return Vec::new() };
        let name = if self.style == Style::Cookie { name.to_owned() } else { encode(name) };
        match (self.explode, shape) {
            (_, Shape::One(text)) => vec![(name, self.text(&text))],
            (true, Shape::Many(items)) => {
                items.iter().map(|item| (name.clone(), self.text(item))).collect()
            }
            (true, Shape::Fields(fields)) => {
                fields.iter().map(|(key, value)| (self.text(key), self.text(value))).collect()
            }
            (false, shape) => {
                let separator = match self.style {
                    Style::SpaceDelimited => "%20",
                    Style::PipeDelimited => "%7C",
                    Style::TabDelimited => "%09",
                    _ => ",",
                };
                vec![(name, self.texts(&shape.flat(), separator))]
            }
        }
    }

    /// Writes pairs such as `color[R]=100`. The specification defines one level; deeper ones, and
    /// lists, follow the convention of servers that support them.
    fn deep(self, name: String, value: &Json, pairs: &mut Vec<(String, String)>) {
        match value {
            Json::Null => {}
            Json::Object(fields) => {
                for (key, value) in fields {
                    self.deep(format!("{name}[{key}]"), value, pairs);
                }
            }
            Json::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    self.deep(format!("{name}[{index}]"), item, pairs);
                }
            }
            single => pairs.push((encode(&name), self.text(&text_of(single)))),
        }
    }
}

/// Returns the value of a header: `simple`, and not encoded, because headers are not decoded.
pub(crate) fn header(value: &Json, explode: bool) -> Option<String> {
    Some(match Shape::of(value)? {
        Shape::Fields(fields) if explode => {
            fields.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
        }
        shape => shape.flat().join(","),
    })
}

/// Returns a single value as text. Nested values that a style does not support are written as JSON.
pub(crate) fn text_of(value: &Json) -> String {
    match value {
        Json::String(text) => text.clone(),
        Json::Null => String::new(),
        other => other.to_string(),
    }
}

enum Shape {
    One(String),
    Many(Vec<String>),
    Fields(Vec<(String, String)>),
}

impl Shape {
    /// Returns `None` for a value that is undefined according to RFC 6570: `null`, and a list or
    /// object without values.
    fn of(value: &Json) -> Option<Self> {
        Some(match value {
            Json::Null => return None,
            Json::Array(items) => {
                let items: Vec<_> =
                    items.iter().filter(|item| !item.is_null()).map(text_of).collect();
                if items.is_empty() {
                    return None;
                }
                Self::Many(items)
            }
            Json::Object(fields) => {
                let fields = fields.iter().filter(|(_, value)| !value.is_null());
                let fields: Vec<_> =
                    fields.map(|(key, value)| (key.clone(), text_of(value))).collect();
                if fields.is_empty() {
                    return None;
                }
                Self::Fields(fields)
            }
            single => Self::One(text_of(single)),
        })
    }

    fn flat(self) -> Vec<String> {
        match self {
            Self::One(text) => vec![text],
            Self::Many(items) => items,
            Self::Fields(fields) => {
                fields.into_iter().flat_map(|(key, value)| [key, value]).collect()
            }
        }
    }
}
