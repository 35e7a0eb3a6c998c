//! The functions that a manifest lists. Each is read separately, so that an invalid one does not
//! affect the others.

use sa_core::{RawJson, Schema};
use serde_json::{Value, json};

use super::reader::{Reader, excerpt};
use super::{Api, Kind};

const MAX_APIS: usize = 500;
const API_NAMES: [&str; 4] = ["name", "description", "url", "parameters"];

impl Reader<'_> {
    pub(super) fn apis(
        &mut self,
        value: Option<&Value>,
        kind: Kind,
        has_openapi: bool,
    ) -> Vec<Api> {
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
                self.error(
                    &path,
                    format!("there are more than {MAX_APIS} functions; the rest is ignored"),
                );
                break;
            }
            let Some(api) = self.api(&path, value, kind == Kind::Standalone || has_openapi) else {
                continue;
            };
            if apis.iter().any(|known| known.name == api.name) {
                self.error(
                    &format!("{path}/name"),
                    format!("\"{}\" appears twice; the first one is used", api.name),
                );
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
        let Some(name) =
            value.get("name").and_then(Value::as_str).filter(|name| !name.trim().is_empty())
        else {
            self.error(path, "a function needs a \"name\"");
            return None;
        };
        if name.len() > 128 {
            self.error(&format!("{path}/name"), "the name has more than 128 bytes");
            return None;
        }
        if let Err(why) = sa_protocol::validate_name(name) {
            self.error(&format!("{path}/name"), format!("\"{}\" is ignored: {why}", excerpt(name)));
            return None;
        }
        let description =
            value.get("description").and_then(Value::as_str).filter(|text| !text.trim().is_empty());
        if description.is_none() {
            self.warn(
                path,
                format!(
                    "\"{name}\" has no \"description\"; models need it to decide when to call it"
                ),
            );
        }
        let url = match value.get("url") {
            Some(Value::String(text)) if !text.is_empty() => {
                Some(self.url(&format!("{path}/url"), text)?)
            }
            _ if needs_no_url => None,
            _ => {
                self.error(
                    path,
                    format!("\"{name}\" needs a \"url\", to which its calls are posted"),
                );
                return None;
            }
        };
        let empty = json!({ "type": "object", "properties": {} });
        let parameters = match value.get("parameters") {
            None | Some(Value::Null) => &empty,
            Some(schema @ Value::Object(fields)) if takes_objects(fields.get("type")) => schema,
            Some(_) => {
                let message = format!(
                    "\"{name}\" is ignored: its \"parameters\" must be a JSON Schema of type object"
                );
                self.error(&format!("{path}/parameters"), message);
                return None;
            }
        };
        let parameters = RawJson::of(parameters);
        if let Err(why) = Schema::new(parameters.clone()).check() {
            self.error(
                &format!("{path}/parameters"),
                format!("the schema of \"{name}\" cannot be used: {why}"),
            );
        }
        Some(Api {
            name: name.to_owned(),
            description: description.map(str::to_owned),
            url,
            parameters,
        })
    }
}

/// Returns whether an object can match a schema of this type.
fn takes_objects(kind: Option<&Value>) -> bool {
    kind.is_none_or(|kind| {
        kind == "object" || kind.as_array().is_some_and(|kinds| kinds.iter().any(|k| k == "object"))
    })
}
