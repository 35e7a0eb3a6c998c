//! The identifier, the descriptive fields and the type of a plugin.

use serde_json::{Map, Value};

use super::reader::Reader;
use super::{Kind, Meta, Ui};

const META_NAMES: [&str; 4] = ["title", "description", "avatar", "tags"];
const UI_NAMES: [&str; 4] = ["url", "height", "width", "mode"];

impl Reader<'_> {
    pub(super) fn identifier(&mut self, value: Option<&Value>) -> Option<String> {
        let Some(Value::String(text)) = value else {
            self.error(
                "/identifier",
                "\"identifier\" is missing: use a unique string, such as \"my-plugin\"",
            );
            return None;
        };
        if !is_identifier(text) {
            self.error(
                "/identifier",
                "\"identifier\" must have 1 to 64 letters, digits, \"-\", \"_\", \".\" or \"@\"",
            );
            return None;
        }
        Some(text.clone())
    }

    pub(super) fn kind(&mut self, value: Option<&Value>) -> Kind {
        match value.and_then(Value::as_str) {
            Some("markdown") => Kind::Markdown,
            Some("standalone") => Kind::Standalone,
            Some("default") => Kind::Default,
            None if value.is_none_or(Value::is_null) => Kind::Default,
            _ => {
                self.warn(
                    "/type",
                    "\"type\" must be \"default\", \"markdown\" or \"standalone\"; \"default\" is used",
                );
                Kind::Default
            }
        }
    }

    pub(super) fn ui(&mut self, ui: &Value) -> Option<Ui> {
        if let Some(fields) = ui.as_object() {
            self.names("/ui", fields, &UI_NAMES);
        }
        let Some(text) = ui.get("url").and_then(Value::as_str) else {
            self.error("/ui", "\"ui\" needs a \"url\"");
            return None;
        };
        let url = self.url("/ui/url", text)?.to_string();
        let size =
            |key: &str| ui.get(key).filter(|size| size.is_number() || size.is_string()).cloned();
        let mode = ui.get("mode").and_then(Value::as_str).map(str::to_owned);
        if mode.as_deref().is_some_and(|mode| mode != "iframe" && mode != "module") {
            self.warn("/ui/mode", "\"mode\" must be \"iframe\" or \"module\"");
        }
        Some(Ui { url, height: size("height"), width: size("width"), mode })
    }

    pub(super) fn meta(&mut self, fields: &Map<String, Value>) -> Meta {
        let meta = fields.get("meta");
        if meta.is_none_or(|meta| !meta.is_object()) {
            self.warn(
                "/meta",
                "\"meta\" is missing: users see its \"title\", \"description\", \"avatar\" and \"tags\"",
            );
        }
        if let Some(Value::Object(inner)) = meta {
            self.names("/meta", inner, &META_NAMES);
        }
        let tags = meta.and_then(|meta| meta.get("tags")).filter(|tags| !tags.is_null());
        let texts = |tags: &Value| {
            Some(tags.as_array()?.iter().filter_map(Value::as_str).map(str::to_owned).collect())
        };
        let tags = tags.map(|tags| (texts(tags).unwrap_or_default(), tags));
        let unread = |(read, tags): &(Vec<String>, &Value)| {
            tags.as_array().is_none_or(|all| all.len() > read.len())
        };
        if tags.as_ref().is_some_and(unread) {
            self.warn("/meta/tags", "\"tags\" must be a list of strings; other values are ignored");
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
            created_at: self
                .text("", outer, "createdAt")
                .or_else(|| self.text("", outer, "createAt")),
        }
    }
}

pub(crate) fn is_identifier(text: &str) -> bool {
    // "." and ".." are not usable as URL path segments: such a plugin could not be addressed or
    // removed.
    let named = !text.bytes().all(|byte| byte == b'.');
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.@".contains(&byte);
    named && text.len() <= 64 && text.bytes().all(fits)
}
