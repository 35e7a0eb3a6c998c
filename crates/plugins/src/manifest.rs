//! Manifests: read field by field, because published ones are often incomplete, and with a word on everything in them
//! that is wrong.

use sa_core::{RawJson, Schema};
use serde::Serialize;
use serde_json::{Map, Value, json};
use url::Url;

use crate::nearest::nearest;
use crate::places;

/// The largest manifest that is read.
pub const MAX_MANIFEST: usize = 512 * 1024;
const MAX_APIS: usize = 500;
const MAX_PROBLEMS: usize = 100;
/// What is read of a manifest and of its parts. `createAt` is how many have written `createdAt`.
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
const META_NAMES: [&str; 4] = ["title", "description", "avatar", "tags"];
const UI_NAMES: [&str; 4] = ["url", "height", "width", "mode"];
const API_NAMES: [&str; 4] = ["name", "description", "url", "parameters"];

/// What a plugin is, as far as its manifest can be used.
#[derive(Debug, Clone, PartialEq)]
pub struct Manifest {
    pub identifier: String,
    pub meta: Meta,
    pub kind: Kind,
    pub ui: Option<Ui>,
    pub apis: Vec<Api>,
    /// JSON Schema of what users can set.
    pub settings: Option<Value>,
    pub openapi: Option<Url>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Meta {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub avatar: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub homepage: Option<String>,
    /// What the author wants a model to be told about the plugin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_role: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_at: Option<String>,
}

/// What a host does with an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Shows it to the model, which tells the user about it.
    Default,
    /// Shows it to the user as it is.
    Markdown,
    /// Leaves everything to the plugin's own page.
    Standalone,
}

/// The plugin's own page.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Ui {
    pub url: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub height: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub width: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
}

/// A function of a plugin.
#[derive(Debug, Clone, PartialEq)]
pub struct Api {
    pub name: String,
    pub description: Option<String>,
    /// Absent where the plugin's page does the work, and for an operation of its OpenAPI document.
    pub url: Option<Url>,
    pub parameters: RawJson,
}

/// What is wrong with a manifest, and where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    pub severity: Severity,
    /// The line of the text, from 1 on.
    pub line: usize,
    /// A JSON pointer.
    pub path: String,
    pub message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// This part, or the whole, cannot be used.
    Error,
    /// It can be used, and is probably not what was meant.
    Warning,
}

/// A manifest as far as it can be used; none if it cannot.
#[derive(Debug)]
pub struct Reading {
    pub manifest: Option<Manifest>,
    pub problems: Vec<Problem>,
}

impl Reading {
    /// The errors in one sentence.
    pub fn errors(&self) -> String {
        let errors = self.problems.iter().filter(|problem| problem.severity == Severity::Error).take(5);
        let texts: Vec<String> = errors.map(|problem| format!("line {}: {}", problem.line, problem.message)).collect();
        if texts.is_empty() { "it cannot be used".into() } else { texts.join("; ") }
    }
}

/// Reads a manifest that came from `base`, which its relative URLs are relative to.
pub fn read(text: &str, base: Option<&Url>) -> Reading {
    read_beside(text, base, false)
}

/// The same for one whose OpenAPI document was handed over with it.
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
            Err(error) => fatal(error.line().max(1), format!("this is not JSON: {error}")),
        }
    };
    let Some(fields) = value else { return Reading { manifest: None, problems } };
    let mut reader = Reader { problems, base, has_document };
    let manifest = reader.manifest(&fields);
    let lines = places::lines(text);
    for problem in &mut reader.problems {
        problem.line = places::line_of(&lines, &problem.path);
    }
    reader.problems.sort_by_key(|problem| problem.line);
    Reading { manifest, problems: reader.problems }
}

struct Reader<'a> {
    problems: Vec<Problem>,
    base: Option<&'a Url>,
    has_document: bool,
}

impl Reader<'_> {
    fn say(&mut self, severity: Severity, path: &str, message: impl Into<String>) {
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(Problem { severity, line: 1, path: path.to_owned(), message: message.into() });
        }
    }

    fn error(&mut self, path: &str, message: impl Into<String>) {
        self.say(Severity::Error, path, message);
    }

    fn warn(&mut self, path: &str, message: impl Into<String>) {
        self.say(Severity::Warning, path, message);
    }

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
                "there is no function that can be used: \"api\" must list at least one, or \"openapi\" name a document",
            );
        }
        let meta = self.meta(fields);
        let identifier = identifier?;
        (!nothing).then_some(Manifest { identifier, meta, kind, ui, apis, settings, openapi })
    }

    /// Names that are probably misspelt. Others are somebody else's, and none of ours.
    fn names(&mut self, path: &str, fields: &Map<String, Value>, known: &[&'static str]) {
        for name in fields.keys().filter(|name| !known.contains(&name.as_str())) {
            // What is there twice, rightly and wrongly, is meant so.
            let meant = nearest(name, known.iter().copied()).filter(|meant| !fields.contains_key(*meant));
            if let Some(meant) = meant {
                let path = format!("{path}/{}", places::escape(name));
                self.warn(&path, format!("\"{}\" is not read; did you mean \"{meant}\"?", excerpt(name)));
            }
        }
    }

    /// A text that people see.
    fn text(&mut self, path: &str, fields: Option<&Value>, name: &str) -> Option<String> {
        match fields?.get(name)? {
            Value::String(text) => Some(text.clone()),
            Value::Null => None,
            _ => {
                self.warn(&format!("{path}/{name}"), format!("\"{name}\" must be a text, and is left out"));
                None
            }
        }
    }

    fn identifier(&mut self, value: Option<&Value>) -> Option<String> {
        let Some(Value::String(text)) = value else {
            self.error(
                "/identifier",
                "\"identifier\" is missing: a text that no other plugin has, such as \"my-plugin\"",
            );
            return None;
        };
        if !is_identifier(text) {
            self.error("/identifier", "\"identifier\" must have 1 to 64 letters, digits, \"-\", \"_\", \".\" or \"@\"");
            return None;
        }
        Some(text.clone())
    }

    fn kind(&mut self, value: Option<&Value>) -> Kind {
        match value.and_then(Value::as_str) {
            Some("markdown") => Kind::Markdown,
            Some("standalone") => Kind::Standalone,
            Some("default") => Kind::Default,
            None if value.is_none_or(Value::is_null) => Kind::Default,
            _ => {
                self.warn(
                    "/type",
                    "\"type\" must be \"default\", \"markdown\" or \"standalone\"; it is taken as \"default\"",
                );
                Kind::Default
            }
        }
    }

    fn ui(&mut self, ui: &Value) -> Option<Ui> {
        if let Some(fields) = ui.as_object() {
            self.names("/ui", fields, &UI_NAMES);
        }
        let Some(text) = ui.get("url").and_then(Value::as_str) else {
            self.error("/ui", "\"ui\" needs a \"url\"");
            return None;
        };
        let url = self.url("/ui/url", text)?.to_string();
        let size = |key: &str| ui.get(key).filter(|size| size.is_number() || size.is_string()).cloned();
        let mode = ui.get("mode").and_then(Value::as_str).map(str::to_owned);
        if mode.as_deref().is_some_and(|mode| mode != "iframe" && mode != "module") {
            self.warn("/ui/mode", "\"mode\" must be \"iframe\" or \"module\"");
        }
        Some(Ui { url, height: size("height"), width: size("width"), mode })
    }

    fn settings(&mut self, value: Option<&Value>) -> Option<Value> {
        let value = value.filter(|value| !value.is_null())?;
        if !value.is_object() {
            self.error("/settings", "\"settings\" must be a JSON Schema of type object");
            return None;
        }
        if value.get("type").is_some_and(|kind| kind != "object") {
            self.error("/settings/type", "the schema of the settings must be of type \"object\"");
            return None;
        }
        if let Err(why) = Schema::new(RawJson::of(value)).check() {
            self.error("/settings", format!("the schema of the settings cannot be used: {why}"));
        }
        for (name, field) in value.get("properties").and_then(Value::as_object).into_iter().flatten() {
            let secret = field.get("format").and_then(Value::as_str) == Some("password");
            if !secret && sounds_secret(name) {
                let path = format!("/settings/properties/{}", places::escape(name));
                self.warn(&path, format!("\"{name}\" sounds like a secret and is not \"format\": \"password\", so it is shown to its user"));
            }
        }
        Some(value.clone())
    }

    fn apis(&mut self, value: Option<&Value>, kind: Kind, has_openapi: bool) -> Vec<Api> {
        let list = match value {
            None | Some(Value::Null) => return Vec::new(),
            Some(Value::Array(list)) => list,
            Some(_) => {
                self.error("/api", "\"api\" must be a list of functions");
                return Vec::new();
            }
        };
        let mut apis: Vec<Api> = Vec::new();
        for (at, value) in list.iter().enumerate() {
            let path = format!("/api/{at}");
            if at >= MAX_APIS {
                self.error(&path, format!("there are more than {MAX_APIS} functions; the rest is left out"));
                break;
            }
            let Some(api) = self.api(&path, value, kind == Kind::Standalone || has_openapi) else { continue };
            if apis.iter().any(|known| known.name == api.name) {
                self.error(&format!("{path}/name"), format!("\"{}\" appears twice; the first one counts", api.name));
                continue;
            }
            apis.push(api);
        }
        apis
    }

    fn api(&mut self, path: &str, value: &Value, needs_no_url: bool) -> Option<Api> {
        if let Some(fields) = value.as_object() {
            self.names(path, fields, &API_NAMES);
        }
        let Some(name) = value.get("name").and_then(Value::as_str).filter(|name| !name.trim().is_empty()) else {
            self.error(path, "a function needs a \"name\"");
            return None;
        };
        if name.len() > 128 {
            self.error(&format!("{path}/name"), "the name has more than 128 bytes");
            return None;
        }
        let description = value.get("description").and_then(Value::as_str).filter(|text| !text.trim().is_empty());
        if description.is_none() {
            self.warn(path, format!("\"{name}\" has no \"description\", by which models decide when to call it"));
        }
        let url = match value.get("url") {
            Some(Value::String(text)) if !text.is_empty() => Some(self.url(&format!("{path}/url"), text)?),
            _ if needs_no_url => None,
            _ => {
                self.error(path, format!("\"{name}\" needs the \"url\" that its calls are posted to"));
                return None;
            }
        };
        let empty = json!({ "type": "object", "properties": {} });
        let parameters = match value.get("parameters") {
            None | Some(Value::Null) => &empty,
            Some(schema @ Value::Object(fields)) if takes_objects(fields.get("type")) => schema,
            Some(_) => {
                let message =
                    format!("\"{name}\" is left out: its \"parameters\" must be a JSON Schema of type object");
                self.error(&format!("{path}/parameters"), message);
                return None;
            }
        };
        let parameters = RawJson::of(parameters);
        if let Err(why) = Schema::new(parameters.clone()).check() {
            self.error(&format!("{path}/parameters"), format!("the schema of \"{name}\" cannot be used: {why}"));
        }
        Some(Api { name: name.to_owned(), description: description.map(str::to_owned), url, parameters })
    }

    fn url(&mut self, path: &str, text: &str) -> Option<Url> {
        let parsed = match self.base {
            Some(base) => base.join(text),
            None => Url::parse(text),
        };
        match parsed {
            Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() => {
                if !url.username().is_empty() || url.password().is_some() {
                    self.error(path, "a URL with a user name or a password in it is not used");
                    return None;
                }
                Some(url)
            }
            _ => {
                self.error(path, format!("\"{}\" is no URL that begins with http:// or https://", excerpt(text)));
                None
            }
        }
    }

    fn meta(&mut self, fields: &Map<String, Value>) -> Meta {
        let meta = fields.get("meta");
        if meta.is_none_or(|meta| !meta.is_object()) {
            self.warn(
                "/meta",
                "\"meta\" is missing: { \"title\", \"description\", \"avatar\", \"tags\" } is what people see",
            );
        }
        if let Some(Value::Object(inner)) = meta {
            self.names("/meta", inner, &META_NAMES);
        }
        let tags = meta.and_then(|meta| meta.get("tags")).filter(|tags| !tags.is_null());
        let texts = |tags: &Value| Some(tags.as_array()?.iter().filter_map(Value::as_str).map(str::to_owned).collect());
        let tags = tags.map(|tags| (texts(tags).unwrap_or_default(), tags));
        let unread = |(read, tags): &(Vec<String>, &Value)| tags.as_array().is_none_or(|all| all.len() > read.len());
        if tags.as_ref().is_some_and(unread) {
            self.warn("/meta/tags", "\"tags\" must be a list of texts; anything else is left out");
        }
        let outer = Value::Object(fields.clone());
        let outer = Some(&outer);
        Meta {
            title: self.text("/meta", meta, "title"),
            description: self.text("/meta", meta, "description"),
            avatar: self.text("/meta", meta, "avatar"),
            tags: tags.map(|(read, _)| read).unwrap_or_default(),
            author: self.text("", outer, "author"),
            homepage: self.text("", outer, "homepage"),
            system_role: self.text("", outer, "systemRole"),
            created_at: self.text("", outer, "createdAt").or_else(|| self.text("", outer, "createAt")),
        }
    }
}

/// Whether arguments, which are an object, can fit a schema of this type.
fn takes_objects(kind: Option<&Value>) -> bool {
    kind.is_none_or(|kind| kind == "object" || kind.as_array().is_some_and(|kinds| kinds.iter().any(|k| k == "object")))
}

pub(crate) fn is_identifier(text: &str) -> bool {
    // "." and ".." are no segments of a path: such a plugin could not be named in a URL, nor be removed.
    let named = !text.bytes().all(|byte| byte == b'.');
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.@".contains(&byte);
    named && text.len() <= 64 && text.bytes().all(fits)
}

fn sounds_secret(name: &str) -> bool {
    let plain: String = name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
    ["password", "secret", "token", "apikey", "credential"].iter().any(|word| plain.contains(word))
}

fn excerpt(text: &str) -> String {
    text.chars().take(120).filter(|c| !c.is_control()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(manifest: &str, usable: bool, said: &[(usize, Severity, &str)]) {
        let reading = read(manifest, Some(&"https://a.example/p/manifest.json".parse().unwrap()));
        assert_eq!(reading.manifest.is_some(), usable, "{:?}", reading.problems);
        for (line, severity, words) in said {
            let found = reading.problems.iter().any(|problem| {
                problem.line == *line && problem.severity == *severity && problem.message.contains(words)
            });
            assert!(found, "line {line}: {words}; but {:?}", reading.problems);
        }
        if said.is_empty() {
            assert_eq!(reading.problems, []);
        }
    }

    use Severity::{Error, Warning};

    #[test]
    fn an_identifier_is_a_segment_of_a_path() {
        for good in ["a", "a.b", "@a_b-1", ".a", &"x".repeat(64)] {
            assert!(is_identifier(good), "{good}");
        }
        for bad in ["", ".", "..", "...", "../a", "a/b", "a b", "ü", "a%2f", "a\n", &"x".repeat(65)] {
            assert!(!is_identifier(bad), "{bad}");
        }
    }

    #[test]
    fn problems_are_named_line_by_line() {
        check("{", false, &[(1, Error, "not JSON")]);
        check("{\n \"a\": 1,\n}", false, &[(3, Error, "not JSON")]);
        check("[]", false, &[(1, Error, "object")]);
        check(
            "{\n \"identifier\": \"a b\",\n \"api\": []\n}",
            false,
            &[(2, Error, "identifier"), (3, Error, "no function")],
        );
        let whole = r#"{
            "identifier": "weather", "meta": {"title": "W"},
            "type": "markdwon",
            "api": [
                {"name": "now", "description": "d", "url": "/now"},
                {"name": "now", "description": "d", "url": "/now"},
                {"name": "later"},
                {"name": "x", "description": "d", "url": "ftp://a/"},
                {"name": "y", "description": "d", "url": "/y", "parameters": {"$ref": "http://evil/"}}
            ],
            "settings": {"type": "object", "properties": {
                "apiKey": {"type": "string"}
            }}
        }"#;
        let said = [
            (3, Warning, "\"type\""),
            (6, Error, "twice"),
            (7, Error, "\"url\""),
            (7, Warning, "description"),
            (8, Error, "no URL"),
            (9, Error, "schema"),
            (12, Warning, "secret"),
        ];
        check(whole, true, &said);
    }

    #[test]
    fn misspelt_names_and_wrong_types_are_found() {
        let wrong = r#"{
            "identifier": "weather", "meta": {
                "title": 5,
                "tags": ["a", 7], "x-own": true },
            "setings": {},
            "createAt": "2024-01-01",
            "api": [
                {"name": "now", "description": "d", "url": "/now",
                 "paramaters": {}, "returns": {}},
                {"name": "later", "description": "d", "url": "/later",
                 "parameters": {"type": "string"}}
            ],
            "ui": {"url": "/ui", "hieght": 3}
        }"#;
        let said = [
            (3, Warning, "\"title\" must be a text"),
            (4, Warning, "\"tags\""),
            (5, Warning, "did you mean \"settings\"?"),
            (9, Warning, "did you mean \"parameters\"?"),
            (11, Error, "\"later\" is left out"),
            (13, Warning, "did you mean \"height\"?"),
        ];
        check(wrong, true, &said);
        let count = read(wrong, Some(&"https://a.example/".parse().unwrap())).problems.len();
        assert_eq!(count, said.len(), "names that are nobody's misspelling are left in peace");
    }

    #[test]
    fn incomplete_manifests_are_taken_as_they_are() {
        let good = r#"{"identifier":"w","meta":{},"api":[{"name":"a","description":"d","url":"https://x.example/a"}]}"#;
        check(good, true, &[]);
        check(r#"{"identifier":"w","meta":{},"openapi":"./openapi.json"}"#, true, &[]);
        check(
            r#"{"identifier":"w","meta":{},"type":"standalone","ui":{"url":"/ui"},"api":[{"name":"a","description":"d"}]}"#,
            true,
            &[],
        );
        let relative =
            read(good.replace("https://x.example", "").as_str(), Some(&"https://b.example/m.json".parse().unwrap()));
        assert_eq!(relative.manifest.unwrap().apis[0].url.as_ref().unwrap().as_str(), "https://b.example/a");
        assert!(read(&good.replace("https://x.example", ""), None).manifest.is_none(), "nothing to be relative to");
    }
}
