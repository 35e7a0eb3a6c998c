//! Adding, removing, switching.

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use sa_core::json::difference::Change;
use sa_core::store::{Expect, StoreError};
use sa_core::{ProviderId, RawJson, clock};
use sa_egress::{Allowed, EgressError};
use serde_json::Value;
use url::Url;

use crate::manifest::{self, MAX_MANIFEST, Manifest, Problem};
use crate::record::{BUCKET, HeldBack, Record, Texts};
use crate::source::{FetchError, Fetched, Validators};
use crate::{KIND, MAX_PLUGINS, Plugins, index, openapi};

/// How many plugins an error about an index names.
const MAX_NAMED: usize = 5;
/// Manifests of an index that are fetched at once.
const AT_ONCE: usize = 8;

/// What an operator wants to add.
#[derive(Debug, Clone)]
pub enum Addition {
    /// The address of a manifest or an index.
    Url(Url),
    /// A manifest or an index itself.
    Text(String),
}

/// How it is added.
#[derive(Debug, Clone, Default)]
pub struct Terms {
    /// Accept it in place of the plugin that has its identifier already.
    pub replace: bool,
    /// `host:port` of what it may reach, and be fetched from, though it is not public: it, and nothing else. For development.
    pub allow_private: Vec<String>,
}

impl Terms {
    pub(crate) fn allowed(&self) -> Result<Allowed, ChangeError> {
        Allowed::parse(&self.allow_private).map_err(ChangeError::Private)
    }
}

/// What became of it.
#[derive(Debug, Clone)]
pub struct Added {
    pub plugins: Vec<View>,
    /// Those of an index that could not be added, with the reason.
    pub failed: Vec<(String, String)>,
    /// What is wrong with those that were added, by their identifiers: an error names what was left out.
    pub problems: Vec<(String, Problem)>,
    /// The index, if it was one.
    pub index: Option<String>,
}

impl Added {
    fn take(&mut self, (view, problems): (View, Vec<Problem>)) {
        let identifier = &view.manifest.identifier;
        self.problems.extend(problems.into_iter().map(|problem| (identifier.clone(), problem)));
        self.plugins.push(view);
    }
}

/// A plugin as people see it.
#[derive(Debug, Clone)]
pub struct View {
    pub manifest: Manifest,
    pub enabled: bool,
    pub source: Option<String>,
    /// `host:port` of what it may reach though it is not public.
    pub allow_private: Vec<String>,
    pub added_ms: i64,
    pub fetched_ms: i64,
    /// Where its functions are, which is where settings go.
    pub origins: Vec<String>,
    pub functions: Vec<FunctionView>,
    /// JSON Schema of what its users can set, for its OpenAPI document too.
    pub settings: Option<Value>,
    /// What its source has now.
    pub held_back: Option<HeldBackView>,
    pub last_error: Option<String>,
}

/// A change that waits to be accepted.
#[derive(Debug, Clone)]
pub struct HeldBackView {
    pub at_ms: i64,
    /// Tells it from what may come after it.
    pub hash: String,
    pub changes: Vec<Change>,
}

#[derive(Debug, Clone)]
pub struct FunctionView {
    pub name: String,
    pub description: Option<String>,
    pub parameters: RawJson,
    /// Its exposed name; absent for one that the plugin's page runs, and while the plugin is disabled.
    pub tool: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    #[error("the manifest cannot be used: {0}")]
    Invalid(String),
    #[error("no plugin of the index could be added: {0}")]
    Index(String),
    #[error("allow_private: {0}")]
    Private(String),
    #[error("there is a plugin \"{0}\" already")]
    Exists(String),
    #[error("the identifier belongs to the {0}")]
    Taken(ProviderId),
    #[error("there is no plugin \"{0}\"")]
    Unknown(String),
    #[error("nothing of the plugin \"{0}\" is held back")]
    NothingHeldBack(String),
    #[error("the plugin \"{0}\" has changed again since the change that is to be accepted")]
    Moved(String),
    #[error("the plugin \"{0}\" was handed over as a file, and has no address to look at")]
    NoSource(String),
    #[error("there are {MAX_PLUGINS} plugins already, the most there may be")]
    Full,
    #[error("it cannot be fetched: {0}")]
    Fetch(#[from] FetchError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<EgressError> for ChangeError {
    fn from(error: EgressError) -> Self {
        Self::Fetch(FetchError::Egress(error))
    }
}

impl Plugins {
    /// Every plugin, by its identifier.
    pub fn list(&self) -> Vec<View> {
        let identifiers: Vec<String> = self.entries().keys().cloned().collect();
        identifiers.iter().filter_map(|identifier| self.show(identifier).ok()).collect()
    }

    pub fn show(&self, identifier: &str) -> Result<View, ChangeError> {
        let entries = self.entries();
        let entry = entries.get(identifier).ok_or_else(|| ChangeError::Unknown(identifier.into()))?;
        let id = ProviderId::new(KIND, identifier);
        let exposed = |own: &str| self.router.directory().exposed_name(&id, own).map(|name| name.to_string());
        let Record { source, allow_private, enabled, added_ms, fetched_ms, held_back, .. } = &entry.record;
        let held_view = |held: &HeldBack| HeldBackView {
            at_ms: held.at_ms,
            hash: held.texts.hash(),
            changes: entry.record.difference(&held.texts),
        };
        let plugin = &entry.plugin;
        let mut functions: Vec<FunctionView> = plugin
            .functions
            .iter()
            .map(|function| FunctionView {
                name: function.name.clone(),
                description: function.description.clone(),
                parameters: function.input.raw().clone(),
                tool: exposed(&function.own),
            })
            .collect();
        for api in plugin.manifest.apis.iter().filter(|api| plugin.by_name(&api.name).is_none()) {
            let (name, description, parameters) = (api.name.clone(), api.description.clone(), api.parameters.clone());
            functions.push(FunctionView { name, description, parameters, tool: None });
        }
        Ok(View {
            manifest: plugin.manifest.clone(),
            enabled: *enabled,
            source: source.clone(),
            allow_private: allow_private.clone(),
            added_ms: *added_ms,
            fetched_ms: *fetched_ms,
            origins: plugin.origins.iter().cloned().collect(),
            functions,
            settings: plugin.settings.as_ref().map(|schema| schema.value().clone()),
            held_back: held_back.as_ref().map(held_view),
            last_error: entry.last_error.clone(),
        })
    }

    /// Adds a plugin, or all those of an index.
    pub async fn add(&self, addition: Addition, terms: &Terms) -> Result<Added, ChangeError> {
        let allowed = terms.allowed()?;
        let (fetched, source) = match addition {
            Addition::Url(url) => {
                let fetched = self.fetch(&url, &allowed, &Validators::default(), index::MAX_INDEX).await?;
                (fetched.ok_or(FetchError::Status(304))?, Some(url))
            }
            Addition::Text(text) => (Fetched { text, validators: Validators::default() }, None),
        };
        if let Some(entries) = index::read(&fetched.text) {
            return self.add_index(entries, source, terms).await;
        }
        let mut added = Added { plugins: Vec::new(), failed: Vec::new(), problems: Vec::new(), index: None };
        added.take(self.add_manifest(fetched, source, terms).await?);
        Ok(added)
    }

    async fn add_index(&self, entries: Vec<Value>, source: Option<Url>, terms: &Terms) -> Result<Added, ChangeError> {
        let (listed, allowed) = (entries.len(), &terms.allowed()?);
        let entries = entries.into_iter().take(MAX_PLUGINS).map(|entry| index::entry(&entry, source.as_ref()));
        let fetched = stream::iter(entries).map(|entry| async move {
            match entry {
                Ok((identifier, url)) => {
                    let fetched = self.fetch(&url, allowed, &Validators::default(), MAX_MANIFEST).await;
                    (identifier, Ok((url, fetched)))
                }
                Err(why) => (String::from("?"), Err(why)),
            }
        });
        let mut fetched = fetched.buffered(AT_ONCE);
        let index = source.as_ref().map(Url::to_string);
        let mut added = Added { plugins: Vec::new(), failed: Vec::new(), problems: Vec::new(), index };
        while let Some((identifier, result)) = fetched.next().await {
            let result = match result {
                Ok((url, Ok(Some(fetched)))) => {
                    self.add_manifest(fetched, Some(url), terms).await.map_err(|error| error.to_string())
                }
                Ok((_, Ok(None))) => Err("the server says that nothing has changed, though nothing was known".into()),
                Ok((_, Err(error))) => Err(ChangeError::from(error).to_string()),
                Err(why) => Err(why),
            };
            match result {
                Ok(new) => added.take(new),
                Err(why) => added.failed.push((identifier, why)),
            }
        }
        if listed > MAX_PLUGINS {
            added.failed.push((
                "…".into(),
                format!("{} more, beyond the {MAX_PLUGINS} that there may be", listed - MAX_PLUGINS),
            ));
        }
        if added.plugins.is_empty() && !added.failed.is_empty() {
            let failed = added.failed.iter().take(MAX_NAMED).map(|(identifier, why)| format!("{identifier}: {why}"));
            let more = if added.failed.len() > MAX_NAMED { "; …" } else { "" };
            return Err(ChangeError::Index(format!("{}{more}", failed.collect::<Vec<_>>().join("; "))));
        }
        if let Some(url) = &source {
            self.indexes.add(&*self.records, url, &terms.allow_private).await?;
        }
        Ok(added)
    }

    /// What was added, and what is wrong with it.
    async fn add_manifest(
        &self,
        fetched: Fetched,
        source: Option<Url>,
        terms: &Terms,
    ) -> Result<(View, Vec<Problem>), ChangeError> {
        let now = clock::now_ms();
        let validators = fetched.validators.clone();
        let (texts, is_document) = self.collect(fetched, source.as_ref(), &terms.allowed()?).await?;
        let mut problems = Vec::new();
        // That of a document alone was written here.
        if !is_document {
            problems = manifest::read_beside(&texts.manifest, source.as_ref(), texts.openapi.is_some()).problems;
        }
        let mut record = Record {
            source: source.map(|url| url.to_string()),
            is_document,
            texts,
            validators,
            allow_private: terms.allow_private.clone(),
            enabled: true,
            added_ms: now,
            fetched_ms: now,
            held_back: None,
            refused: None,
        };
        let plugin = record.plugin().map_err(ChangeError::Invalid)?;
        if plugin.origins.is_empty() && !plugin.functions.is_empty() {
            return Err(ChangeError::Invalid(openapi::NO_SERVER.to_owned()));
        }
        let identifier = plugin.identifier().to_owned();
        let _one = self.changing.lock().await;
        let former = self.entries().get(&identifier).map(|entry| entry.record.clone());
        match former {
            Some(_) if !terms.replace => return Err(ChangeError::Exists(identifier)),
            Some(former) => (record.added_ms, record.enabled) = (former.added_ms, former.enabled),
            None if self.entries().len() >= MAX_PLUGINS => return Err(ChangeError::Full),
            None => {
                let id = ProviderId::new(KIND, &identifier);
                if let Some(holder) = self.router.directory().installed_besides(&id) {
                    return Err(ChangeError::Taken(holder));
                }
            }
        }
        self.keep(&identifier, &record).await?;
        self.enter(record, plugin);
        Ok((self.show(&identifier)?, problems))
    }

    /// A manifest with the OpenAPI document that it names, or such a document alone, which is told by the `true`.
    pub(crate) async fn collect(
        &self,
        fetched: Fetched,
        source: Option<&Url>,
        allowed: &Allowed,
    ) -> Result<(Texts, bool), ChangeError> {
        let text = fetched.text;
        let reading = manifest::read(&text, source);
        let Some(manifest) = &reading.manifest else {
            let value = serde_json::from_str::<Value>(&text).unwrap_or_default();
            let is_manifest = value.get("identifier").is_some();
            return match openapi::read(&text, source) {
                Ok(document) if !is_manifest => {
                    let manifest = format!("{:#}", openapi::manifest_for(&document));
                    Ok((Texts { manifest, openapi: Some(text) }, true))
                }
                Err(why) if !is_manifest && (text.contains("openapi") || text.contains("swagger")) => {
                    Err(ChangeError::Invalid(format!("the OpenAPI document cannot be used: {why}")))
                }
                _ => Err(ChangeError::Invalid(reading.errors())),
            };
        };
        let openapi = match &manifest.openapi {
            Some(url) => {
                let fetched = self.fetch(url, allowed, &Validators::default(), openapi::MAX_DOCUMENT).await?;
                Some(fetched.ok_or(FetchError::Status(304))?.text)
            }
            None => None,
        };
        Ok((Texts { manifest: text, openapi }, false))
    }

    /// Removes a plugin, with everything that anybody has set for it.
    pub async fn remove(&self, identifier: &str) -> Result<View, ChangeError> {
        let _one = self.changing.lock().await;
        let view = self.show(identifier)?;
        self.records.delete(BUCKET, identifier).await?;
        let entry = self.entries().remove(identifier);
        if let Some(registration) = entry.and_then(|entry| entry.registration) {
            registration.withdraw();
        }
        self.shared.settings.delete_where(|plugin, _| plugin == identifier).await?;
        Ok(view)
    }

    /// Forgets an index. The plugins that came with it stay.
    pub async fn remove_index(&self, url: &str) -> Result<bool, StoreError> {
        self.indexes.remove(&*self.records, url).await
    }

    /// The indexes that were added.
    pub fn indexes(&self) -> Vec<String> {
        self.indexes.urls()
    }

    pub async fn set_enabled(&self, identifier: &str, enabled: bool) -> Result<View, ChangeError> {
        let _one = self.changing.lock().await;
        self.change(identifier, |record| record.enabled = enabled).await
    }

    pub(crate) fn record(&self, identifier: &str) -> Result<Record, ChangeError> {
        let entries = self.entries();
        let entry = entries.get(identifier).ok_or_else(|| ChangeError::Unknown(identifier.into()))?;
        Ok(entry.record.clone())
    }

    /// Changes a record, on disk first, and puts the plugin in its place as it now is.
    pub(crate) async fn change(&self, identifier: &str, change: impl FnOnce(&mut Record)) -> Result<View, ChangeError> {
        let mut record = self.record(identifier)?;
        change(&mut record);
        let plugin = record.plugin().map_err(ChangeError::Invalid)?;
        self.keep(identifier, &record).await?;
        self.enter(record, plugin);
        self.show(identifier)
    }

    pub(crate) async fn keep(&self, identifier: &str, record: &Record) -> Result<(), ChangeError> {
        let json = serde_json::to_vec(record).map_err(|error| ChangeError::Invalid(error.to_string()))?;
        self.records.put(BUCKET, identifier, Bytes::from(json), Expect::Anything).await?;
        Ok(())
    }
}
