//! Reads a manifest field by field, because published ones are often incomplete. Each mistake is
//! reported.

use sa_core::RawJson;
use sa_text::closest;
use sa_text::json::why;
use serde::Serialize;
use serde_json::{Map, Value};
use url::Url;

use super::{Kind, Manifest};
use crate::places;

/// The maximum size of a manifest.
pub const MAX_MANIFEST: usize = 512 * 1024;
const MAX_PROBLEMS: usize = 100;
/// The known fields of a manifest. `createAt` is a common misspelling of `createdAt`.
const NAMES: [&str; 12] = [
    "identifier",
    "meta",
    "type",
    "ui",
    "api",
    "settings",
    "openapi",
    "author",
    "homepage",
    "systemRole",
    "createdAt",
    "createAt",
];

/// A problem of a manifest, and its position.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    pub severity: Severity,
    /// The line of the text, counted from 1.
    pub line: usize,
    /// A JSON pointer.
    pub path: String,
    pub message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// This part, or the whole manifest, cannot be used.
    Error,
    /// It can be used, but is probably a mistake.
    Warning,
}

/// The usable part of a manifest, or `None` if it cannot be used.
#[derive(Debug)]
pub struct Reading {
    pub manifest: Option<Manifest>,
    pub problems: Vec<Problem>,
}

impl Reading {
    /// Returns the errors as one message.
    pub fn errors(&self) -> String {
        let errors =
            self.problems.iter().filter(|problem| problem.severity == Severity::Error).take(5);
        let texts: Vec<String> =
            errors.map(|problem| format!("line {}: {}", problem.line, problem.message)).collect();
        if texts.is_empty() { "it cannot be used".into() } else { texts.join("; ") }
    }
}

/// Reads a manifest from `base`, to which its relative URLs are resolved.
pub fn read(text: &str, base: Option<&Url>) -> Reading {
    read_beside(text, base, false)
}

/// Reads a manifest that may have been passed together with its OpenAPI document.
pub(crate) fn read_beside(text: &str, base: Option<&Url>, has_document: bool) -> Reading {
    let mut problems = Vec::new();
    let mut fatal = |line, message: String| {
        problems.push(Problem { severity: Severity::Error, line, path: String::new(), message });
        None
    };
    let value = if text.len() > MAX_MANIFEST {
        fatal(1, format!("the manifest has more than {MAX_MANIFEST} bytes"))
    } else {
        match RawJson::parse(text).and_then(|json| json.to_value()) {
            Ok(Value::Object(fields)) => Some(fields),
            Ok(_) => fatal(1, "the manifest must be a JSON object".into()),
            Err(error) => fatal(
                error.line().max(1),
                format!("the manifest is not valid JSON: {}", why(&error)),
            ),
        }
    };
    let Some(fields) = value else { return Reading { manifest: None, problems } };
    let mut reader = Reader { problems, base, has_document };
    let manifest = reader.manifest(&fields);
    place(text, &mut reader.problems);
    Reading { manifest, problems: reader.problems }
}

/// Sets the line of each problem, and sorts the problems by line.
pub(crate) fn place(text: &str, problems: &mut [Problem]) {
    let lines = places::lines(text, problems.iter().map(|problem| problem.path.as_str()));
    for (problem, line) in problems.iter_mut().zip(lines) {
        problem.line = line;
    }
    problems.sort_by_key(|problem| problem.line);
}

/// Reads a manifest, and collects its problems.
pub(super) struct Reader<'a> {
    problems: Vec<Problem>,
    base: Option<&'a Url>,
    has_document: bool,
}

impl Reader<'_> {
    fn manifest(&mut self, fields: &Map<String, Value>) -> Option<Manifest> {
        self.names("", fields, &NAMES);
        let identifier = self.identifier(fields.get("identifier"));
        let kind = self.kind(fields.get("type"));
        let ui = fields.get("ui").filter(|ui| !ui.is_null()).and_then(|ui| self.ui(ui));
        let openapi = match fields.get("openapi") {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) => self.url("/openapi", text),
            Some(_) => {
                self.error("/openapi", "\"openapi\" must be the URL of an OpenAPI document");
                None
            }
        };
        let settings = self.settings(fields.get("settings"));
        let has_openapi = openapi.is_some() || self.has_document;
        let apis = self.apis(fields.get("api"), kind, has_openapi);
        if kind == Kind::Standalone && ui.is_none() {
            self.warn("/ui", "a standalone plugin needs \"ui\": { \"url\": … }; without it there is nothing to show");
        }
        let nothing = apis.is_empty() && !has_openapi && ui.is_none();
        if nothing {
            self.error(
                "/api",
                "the manifest has no function that can be used: \"api\" must list one, or \"openapi\" must name a document",
            );
        }
        let meta = self.meta(fields);
        let identifier = identifier?;
        (!nothing).then_some(Manifest { identifier, meta, kind, ui, apis, settings, openapi })
    }

    fn say(&mut self, severity: Severity, path: &str, message: impl Into<String>) {
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(Problem {
                severity,
                line: 1,
                path: path.to_owned(),
                message: message.into(),
            });
        }
    }

    pub(super) fn error(&mut self, path: &str, message: impl Into<String>) {
        self.say(Severity::Error, path, message);
    }

    pub(super) fn warn(&mut self, path: &str, message: impl Into<String>) {
        self.say(Severity::Warning, path, message);
    }

    /// Warns about fields that are probably misspelled. Other unknown fields are ignored, because
    /// they may be meant for other programs.
    pub(super) fn names(
        &mut self,
        path: &str,
        fields: &Map<String, Value>,
        known: &[&'static str],
    ) {
        for name in fields.keys().filter(|name| !known.contains(&name.as_str())) {
            // If the correct field exists, too, the other one is intended.
            let meant =
                closest(name, known.iter().copied()).filter(|meant| !fields.contains_key(*meant));
            if let Some(meant) = meant {
                let path = format!("{path}/{}", places::escape(name));
                self.warn(
                    &path,
                    format!(
                        "the field \"{}\" is unknown; did you mean \"{meant}\"?",
                        excerpt(name)
                    ),
                );
            }
        }
    }

    /// Reads an optional string, with a warning for other types.
    pub(super) fn text(
        &mut self,
        path: &str,
        fields: Option<&Value>,
        name: &str,
    ) -> Option<String> {
        match fields?.get(name)? {
            Value::String(text) => Some(text.clone()),
            Value::Null => None,
            _ => {
                self.warn(
                    &format!("{path}/{name}"),
                    format!("\"{name}\" must be a string; the field is ignored"),
                );
                None
            }
        }
    }

    pub(super) fn url(&mut self, path: &str, text: &str) -> Option<Url> {
        let parsed = match self.base {
            Some(base) => base.join(text),
            None => Url::parse(text),
        };
        match parsed {
            Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() => {
                if !url.username().is_empty() || url.password().is_some() {
                    self.error(path, "a URL must not contain a user name or a password");
                    return None;
                }
                Some(url)
            }
            _ => {
                self.error(
                    path,
                    format!(
                        "\"{}\" must be a URL that begins with http:// or https://",
                        excerpt(text)
                    ),
                );
                None
            }
        }
    }
}

pub(super) fn excerpt(text: &str) -> String {
    sa_text::excerpt(120, text).replace(char::is_control, "")
}
