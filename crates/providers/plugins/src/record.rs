//! The stored record of a plugin: the accepted version, and a change that waits for review.

use std::collections::HashMap;
use std::sync::OnceLock;

use bytes::Bytes;
use sa_core::store::{Expect, Records, StoreError};
use sa_egress::Allowed;
use sa_limits::offload;
use sa_text::json::difference::{Change, between};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tracing::warn;
use url::Url;

use crate::manifest::{self, Manifest, Reading};
use crate::openapi;
use crate::plugin::Plugin;
use crate::registry::ChangeError;
use crate::source::Validators;

const BUCKET: &str = "plugins";
/// Changes that wait for review, by identifier. Together with the accepted texts, a large document
/// would exceed the maximum size of a record.
const HELD_BACK: &str = "plugins-held-back";
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
    /// The source's current version, which is not accepted yet. It has its own record; older
    /// versions stored it in this one.
    #[serde(default, skip_serializing)]
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
    /// The changes of the accepted texts, computed once: that takes long for a large document.
    #[serde(skip)]
    pub(crate) changes: OnceLock<Vec<Change>>,
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

    /// Does the same without blocking other tasks of this thread.
    pub(crate) async fn plugin_queued(&self) -> Result<Plugin, ChangeError> {
        let plugin = offload::run_queued(self.texts.bytes(), || self.plugin()).await;
        plugin.map_err(ChangeError::Invalid)
    }

    pub(crate) fn allowed(&self) -> Result<Allowed, String> {
        Allowed::parse(&self.allow_private)
    }

    /// Returns the changes that wait for review.
    pub(crate) fn changes(&self) -> &[Change] {
        let changes = |held: &HeldBack| self.difference(&held.texts);
        let held_back = self.held_back.as_ref();
        held_back.map_or(&[], |held| held.changes.get_or_init(|| changes(held)))
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
    pub(crate) fn bytes(&self) -> usize {
        self.manifest.len() + self.openapi.as_ref().map_or(0, String::len)
    }

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
    let mut held_back: HashMap<String, HeldBack> = list(records, HELD_BACK).await?.collect();
    let found = list(records, BUCKET).await?.map(|(identifier, mut record): (String, Record)| {
        record.held_back = held_back.remove(&identifier).or(record.held_back);
        (identifier, record)
    });
    Ok(found.collect())
}

async fn list<T: DeserializeOwned>(
    records: &dyn Records,
    bucket: &str,
) -> Result<impl Iterator<Item = (String, T)>, StoreError> {
    let stored = records.list(bucket).await?.into_iter();
    Ok(stored.filter_map(move |(identifier, record)| match serde_json::from_slice(&record.value) {
        Ok(value) => Some((identifier, value)),
        Err(error) => {
            let advice = "add the plugin again, or refresh it";
            warn!(plugin = identifier, bucket, %error, advice, "a record of a plugin is invalid");
            None
        }
    }))
}

/// Stores a plugin. The order of the writes ensures that a crash between them leaves no change
/// that has been accepted or rejected.
pub(crate) async fn store(
    records: &dyn Records,
    identifier: &str,
    record: &Record,
) -> Result<(), ChangeError> {
    match &record.held_back {
        Some(held_back) => put(records, HELD_BACK, identifier, held_back).await?,
        None => drop(records.delete(HELD_BACK, identifier).await?),
    }
    put(records, BUCKET, identifier, record).await
}

async fn put(
    records: &dyn Records,
    bucket: &str,
    identifier: &str,
    value: &impl Serialize,
) -> Result<(), ChangeError> {
    let json =
        serde_json::to_vec(value).map_err(|error| ChangeError::Invalid(error.to_string()))?;
    records.put(bucket, identifier, Bytes::from(json), Expect::Anything).await?;
    Ok(())
}

pub(crate) async fn delete(records: &dyn Records, identifier: &str) -> Result<(), StoreError> {
    records.delete(HELD_BACK, identifier).await?;
    records.delete(BUCKET, identifier).await?;
    Ok(())
}
