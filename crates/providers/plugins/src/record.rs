//! The stored record of a plugin: the accepted version, and a change that waits for review.

use sa_core::store::{Records, StoreError};
use sa_egress::Allowed;
use sa_text::json::difference::{Change, between};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use url::Url;

use crate::manifest::{self, Manifest, Reading};
use crate::openapi;
use crate::plugin::Plugin;
use crate::source::Validators;

pub(crate) const BUCKET: &str = "plugins";
/// The path of the OpenAPI document in a difference.
const DOCUMENT: &str = "/openapi document";

/// The texts that define a plugin.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Texts {
    pub(crate) manifest: String,
    /// Its OpenAPI document, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) openapi: Option<String>,
}

/// A plugin as it is stored.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The URL from which it was added; `None` if its text was passed directly.
    pub(crate) source: Option<String>,
    /// Whether an OpenAPI document was added, without a manifest.
    #[serde(default)]
    pub(crate) is_document: bool,
    /// The accepted texts.
    #[serde(flatten)]
    pub(crate) texts: Texts,
    #[serde(default)]
    pub(crate) validators: Validators,
    /// `host:port` of the private servers that it may reach.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) allow_private: Vec<String>,
    pub(crate) enabled: bool,
    pub(crate) added_ms: i64,
    /// When the source was last fetched.
    pub(crate) fetched_ms: i64,
    /// The source's current version, which is not accepted yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) held_back: Option<HeldBack>,
    /// The hash of a rejected change, so that it is not shown again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) refused: Option<String>,
}

#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct HeldBack {
    #[serde(flatten)]
    pub(crate) texts: Texts,
    pub(crate) at_ms: i64,
}

impl Record {
    pub(crate) fn base(&self) -> Option<Url> {
        self.source.as_ref().and_then(|source| Url::parse(source).ok())
    }

    /// Builds the plugin from the accepted texts.
    pub(crate) fn plugin(&self) -> Result<Plugin, String> {
        let base = self.base();
        let manifest = made(manifest::read_beside(
            &self.texts.manifest,
            base.as_ref(),
            self.texts.openapi.is_some(),
        ))?;
        let source = if self.is_document { base } else { manifest.openapi.clone() };
        let document = self.texts.openapi.as_deref().map(|text| (text, source.as_ref()));
        let plugin = Plugin::new(manifest, document, true, "");
        let plugin = plugin.map_err(|why| format!("its OpenAPI document cannot be used: {why}"))?;
        Ok(plugin.allowed(self.allowed()?))
    }

    pub(crate) fn allowed(&self) -> Result<Allowed, String> {
        Allowed::parse(&self.allow_private)
    }

    /// Returns the changes between the accepted texts and these.
    pub(crate) fn difference(&self, now: &Texts) -> Vec<Change> {
        let mut changes = between(&self.compared(&self.texts), &self.compared(now));
        if changes.is_empty() && self.texts.openapi != now.openapi {
            let now = Some("the text has changed, but no function".to_owned());
            changes.push(Change { path: DOCUMENT.to_owned(), was: None, now });
        }
        changes
    }

    /// Returns the texts in a comparable form: the manifest as JSON, and a summary of the
    /// document.
    fn compared(&self, texts: &Texts) -> Value {
        let base = self.base();
        let mut value: Value = serde_json::from_str(&texts.manifest).unwrap_or_default();
        if let Some(text) = &texts.openapi {
            let of_manifest = manifest::read_beside(&texts.manifest, base.as_ref(), true).manifest;
            let source = if self.is_document {
                base
            } else {
                of_manifest.and_then(|manifest| manifest.openapi)
            };
            value[&DOCUMENT[1..]] = openapi::summary(text, source.as_ref());
        }
        value
    }
}

impl Texts {
    /// Identifies this version of the texts.
    pub(crate) fn hash(&self) -> String {
        let text = format!("{}\n{}", self.manifest, self.openapi.as_deref().unwrap_or_default());
        blake3::hash(text.as_bytes()).to_hex().to_string()
    }
}

fn made(reading: Reading) -> Result<Manifest, String> {
    let errors = reading.errors();
    reading.manifest.ok_or(errors)
}

pub(crate) async fn stored(records: &dyn Records) -> Result<Vec<(String, Record)>, StoreError> {
    let mut found = Vec::new();
    for (identifier, record) in records.list(BUCKET).await? {
        match serde_json::from_slice(&record.value) {
            Ok(record) => found.push((identifier, record)),
            Err(error) => {
                tracing::warn!(plugin = identifier, %error, "the record of a plugin is invalid; add the plugin again");
            }
        }
    }
    Ok(found)
}
