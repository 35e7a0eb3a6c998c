//! Manifests: what a plugin says of itself. [`reader`] reads one; its parts are read by a file each.

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
