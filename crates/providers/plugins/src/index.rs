//! Indexes: lists of plugins, which are searched when a host names a plugin that was not added.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use sa_core::store::{Expect, Records, StoreError};
use sa_egress::Allowed;
use sa_protocol::plugin::{PluginErrorType, PluginIndex, PluginIndexEntry};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::Instant;
use url::Url;

use crate::Plugins;
use crate::manifest::is_identifier;
use crate::source::Validators;

const BUCKET: &str = "plugin-indexes";
/// The maximum size of an index.
const MAX_INDEX: usize = 4 << 20;
/// How long an index is cached.
const FRESH: Duration = Duration::from_secs(60);
/// The maximum number of cached indexes.
const MAX_CACHED: usize = 16;

/// Returns the entries of an index, if the text is one.
pub(crate) fn read(text: &str) -> Option<Vec<Value>> {
    if text.len() > MAX_INDEX {
        return None;
    }
    serde_json::from_str::<PluginIndex>(text).ok().map(|index| index.plugins)
}

/// Returns a plugin's identifier and the URL of its manifest.
pub(crate) fn entry(value: &Value, base: Option<&Url>) -> Result<(String, Url), String> {
    let entry: PluginIndexEntry = serde_json::from_value(value.clone()).map_err(|_| {
        "an index entry needs an \"identifier\" and a \"manifest\" with the URL of its manifest"
            .to_owned()
    })?;
    if !is_identifier(&entry.identifier) {
        return Err("its identifier is invalid".into());
    }
    let url = match base {
        Some(base) => base.join(&entry.manifest),
        None => Url::parse(&entry.manifest),
    };
    let url = url.ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    Ok((
        entry.identifier,
        url.ok_or("its \"manifest\" must be a URL that begins with http:// or https://")?,
    ))
}

/// A stored index.
#[derive(Serialize, Deserialize)]
struct Stored {
    url: String,
    /// `host:port` of private addresses that it and its plugins may be fetched from, and may
    /// call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    allow_private: Vec<String>,
}

#[derive(Default)]
pub(crate) struct Indexes {
    /// The added indexes by address, with the private addresses that each may use.
    added: Mutex<BTreeMap<String, Vec<String>>>,
    cached: Mutex<BTreeMap<String, Cached>>,
}

#[derive(Clone)]
struct Cached {
    entries: Vec<Value>,
    validators: Validators,
    at: Instant,
}

impl Indexes {
    pub(crate) async fn load(records: &dyn Records) -> Result<Self, StoreError> {
        let stored = records.list(BUCKET).await?;
        let added = stored.into_iter().filter_map(|(_, record)| {
            match serde_json::from_slice(&record.value) {
                Ok(Stored { url, allow_private }) => Some((url, allow_private)),
                // Older versions stored only the address.
                Err(_) => Some((String::from_utf8(record.value.to_vec()).ok()?, Vec::new())),
            }
        });
        Ok(Self { added: Mutex::new(added.collect()), cached: Mutex::default() })
    }

    pub(crate) fn urls(&self) -> Vec<String> {
        self.added.lock().keys().cloned().collect()
    }

    pub(crate) fn has(&self, url: &str) -> bool {
        self.added.lock().contains_key(url)
    }

    /// Returns the private addresses that an index and its plugins may reach.
    pub(crate) fn allowed(&self, url: &str) -> Allowed {
        let added = self.added.lock();
        added.get(url).and_then(|entries| Allowed::parse(entries).ok()).unwrap_or_default()
    }

    pub(crate) async fn add(
        &self,
        records: &dyn Records,
        url: &Url,
        allow_private: &[String],
    ) -> Result<(), StoreError> {
        let stored = Stored { url: url.to_string(), allow_private: allow_private.to_vec() };
        let json = serde_json::json!(stored).to_string();
        records.put(BUCKET, &key(&stored.url), Bytes::from(json), Expect::Anything).await?;
        self.added.lock().insert(stored.url, stored.allow_private);
        Ok(())
    }

    pub(crate) async fn remove(
        &self,
        records: &dyn Records,
        url: &str,
    ) -> Result<bool, StoreError> {
        let removed = records.delete(BUCKET, &key(url)).await?;
        self.added.lock().remove(url);
        Ok(removed)
    }
}

/// A URL may be longer than a record's key, so it is hashed.
fn key(url: &str) -> String {
    blake3::hash(url.as_bytes()).to_hex().to_string()
}

/// Why a plugin cannot be found with an index.
pub(crate) type Missing = (PluginErrorType, String);

impl Plugins {
    /// Returns the URL of a plugin's manifest from an index.
    pub(crate) async fn look_up(
        &self,
        index: &Url,
        allowed: &Allowed,
        identifier: &str,
    ) -> Result<Url, Missing> {
        let entries = self.index(index, allowed).await?;
        let named =
            |entry: &&Value| entry.get("identifier").and_then(Value::as_str) == Some(identifier);
        let found = entries.iter().find(named).ok_or_else(|| {
            (
                PluginErrorType::PluginMetaNotFound,
                format!("the index does not list a plugin \"{identifier}\""),
            )
        })?;
        entry(found, Some(index)).map(|(_, url)| url).map_err(|why| {
            (
                PluginErrorType::PluginMetaInvalid,
                format!("the index's entry for \"{identifier}\" cannot be used: {why}"),
            )
        })
    }

    async fn index(&self, url: &Url, allowed: &Allowed) -> Result<Vec<Value>, Missing> {
        let cache = || self.indexes.cached.lock();
        let known = cache().get(url.as_str()).cloned();
        if let Some(known) = known.as_ref().filter(|known| known.at.elapsed() < FRESH) {
            return Ok(known.entries.clone());
        }
        let validators = known.as_ref().map(|known| known.validators.clone()).unwrap_or_default();
        let fetched = self.fetch(url, allowed, &validators, MAX_INDEX).await.map_err(|error| {
            (
                PluginErrorType::PluginMarketIndexNotFound,
                format!("the plugin index cannot be fetched: {error}"),
            )
        })?;
        let (entries, validators) = match (fetched, known) {
            (Some(fetched), _) => {
                let entries = read(&fetched.text).ok_or_else(|| {
                    let why =
                        "the plugin index is not JSON of the form { \"plugins\": […] }".to_owned();
                    (PluginErrorType::PluginMarketIndexInvalid, why)
                })?;
                (entries, fetched.validators)
            }
            (None, Some(known)) => (known.entries, known.validators),
            (None, None) => (Vec::new(), Validators::default()),
        };
        let mut cached = cache();
        if cached.len() >= MAX_CACHED {
            cached.retain(|_, known| known.at.elapsed() < FRESH);
        }
        if cached.len() < MAX_CACHED {
            cached.insert(
                url.to_string(),
                Cached { entries: entries.clone(), validators, at: Instant::now() },
            );
        }
        Ok(entries)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    proptest! {
        #[test]
        fn an_entry_names_a_plugin_and_an_address_or_is_refused(
            text in sa_hostile::nearly(json!({ "plugins": [{ "identifier": "a", "manifest": "https://a.example/m.json" }, { "identifier": "b", "manifest": "m.json" }] })),
        ) {
            let base: Url = "https://b.example/index.json".parse().unwrap();
            for value in read(&text).into_iter().flatten() {
                match entry(&value, Some(&base)) {
                    Ok((identifier, url)) => prop_assert!(is_identifier(&identifier) && matches!(url.scheme(), "http" | "https")),
                    Err(why) => prop_assert!(why.len() < sa_hostile::SHORT),
                }
                let _ = entry(&value, None);
            }
        }
    }
}
