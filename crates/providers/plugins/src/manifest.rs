//! Manifests: the descriptions of plugins. [`reader`] reads one, and each part has its own file.

mod about;
mod functions;
mod reader;
mod settings;
#[cfg(test)]
mod tests;

use sa_core::RawJson;
use serde::Serialize;
use serde_json::Value;
use url::Url;

pub(crate) use self::about::is_identifier;
pub use self::reader::{MAX_MANIFEST, Problem, Reading, Severity, read};
pub(crate) use self::reader::{place, read_beside};

/// The usable content of a plugin's manifest.
#[derive(Debug, Clone, PartialEq)]
pub struct Manifest {
    pub identifier: String,
    pub meta: Meta,
    pub kind: Kind,
    pub ui: Option<Ui>,
    pub apis: Vec<Api>,
    /// The JSON Schema of the settings that users can store.
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
    /// The author's instructions about the plugin for a model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_role: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_at: Option<String>,
}

/// How a host handles an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// The host passes it to the model, which answers the user.
    Default,
    /// The host shows it to the user unchanged.
    Markdown,
    /// The plugin's own page handles everything.
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
    /// `None` if the plugin's page does the work, and for an operation of its OpenAPI document.
    pub url: Option<Url>,
    pub parameters: RawJson,
}
