//! The registry: adding, removing, enabling and disabling plugins.

use futures_util::{StreamExt as _, stream};
use sa_core::store::StoreError;
use sa_core::{ProviderId, RawJson, clock};
use sa_egress::{Allowed, EgressError};
use sa_limits::offload;
use sa_text::json::difference::Change;
use serde_json::Value;
use url::Url;

use crate::manifest::{self, MAX_MANIFEST, Manifest, Problem};
use crate::record::{self, HeldBack, Record, Texts};
use crate::source::{FetchError, Fetched, Validators};
use crate::{KIND, MAX_PLUGINS, Plugins, index, openapi};

/// The maximum number of plugins that an error about an index names.
const MAX_NAMED: usize = 5;
/// The number of an index's manifests that are fetched concurrently.
const AT_ONCE: usize = 8;

/// The thing that an operator adds.
#[derive(Debug, Clone)]
pub enum Addition {
    /// The URL of a manifest, an OpenAPI document or an index.
    Url(Url),
    /// The text of a manifest, an OpenAPI document or an index.
    Text(String),
}

/// The terms on which it is added.
#[derive(Debug, Clone, Default)]
pub struct Terms {
    /// Whether to replace the plugin that already has this identifier.
    pub replace: bool,
    /// `host:port` of the private servers that it may reach, and be fetched from. They are
    /// allowed for this plugin only. Intended for development.
    pub allow_private: Vec<String>,
}

impl Terms {
    pub(crate) fn allowed(&self) -> Result<Allowed, ChangeError> {
        Allowed::parse(&self.allow_private).map_err(ChangeError::Private)
    }
}

/// The result of adding.
#[derive(Debug, Clone)]
pub struct Added {
    pub plugins: Vec<View>,
    /// The plugins of an index that could not be added, with the reason.
    pub failed: Vec<(String, String)>,
    /// The problems of the added plugins, by their identifiers. An error names an omitted part.
    pub problems: Vec<(String, Problem)>,
    /// The URL of the index, if it was one.
    pub index: Option<String>,
}

impl Added {
    fn take(&mut self, (view, problems): (View, Vec<Problem>)) {
        let identifier = &view.manifest.identifier;
        self.problems.extend(problems.into_iter().map(|problem| (identifier.clone(), problem)));
        self.plugins.push(view);
    }
}

/// A plugin as users see it.
#[derive(Debug, Clone)]
pub struct View {
    pub manifest: Manifest,
    pub enabled: bool,
    pub source: Option<String>,
    /// `host:port` of the private servers that it may reach.
    pub allow_private: Vec<String>,
    pub added_ms: i64,
    pub fetched_ms: i64,
    /// The origins of its functions, to which settings are sent.
    pub origins: Vec<String>,
    pub functions: Vec<FunctionView>,
    /// The JSON Schema of its settings, including those of its OpenAPI document.
    pub settings: Option<Value>,
    /// The change at its source that waits for review.
    pub held_back: Option<HeldBackView>,
    pub last_error: Option<String>,
}

/// A change that waits for review.
#[derive(Debug, Clone)]
pub struct HeldBackView {
    pub at_ms: i64,
    /// Distinguishes it from a later change.
    pub hash: String,
    pub changes: Vec<Change>,
}

#[derive(Debug, Clone)]
pub struct FunctionView {
    pub name: String,
    pub description: Option<String>,
    pub parameters: RawJson,
    /// Its exposed name; `None` for a function that the plugin's page runs, and while the plugin
    /// is disabled.
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
    #[error("the plugin \"{0}\" already exists")]
    Exists(String),
    #[error("the identifier belongs to the {0}")]
    Taken(ProviderId),
    #[error("no plugin has the id \"{0}\"")]
    Unknown(String),
    #[error("the plugin \"{0}\" has no change to accept")]
    NothingHeldBack(String),
    #[error("the plugin \"{0}\" has changed again since the change to accept")]
    Moved(String),
    #[error("the plugin \"{0}\" was added from a file, so it has no source to check")]
    NoSource(String),
    #[error("the limit of {MAX_PLUGINS} plugins is reached")]
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
    /// Returns every plugin, sorted by identifier.
    pub fn list(&self) -> Vec<View> {
        let identifiers: Vec<String> = self.entries().keys().cloned().collect();
        identifiers.iter().filter_map(|identifier| self.show(identifier).ok()).collect()
    }

    pub fn show(&self, identifier: &str) -> Result<View, ChangeError> {
        let entries = self.entries();
        let entry =
            entries.get(identifier).ok_or_else(|| ChangeError::Unknown(identifier.into()))?;
        let id = ProviderId::new(KIND, identifier);
        let exposed =
            |own: &str| self.router.directory().exposed_name(&id, own).map(|name| name.to_string());
        let Record { source, allow_private, enabled, added_ms, fetched_ms, held_back, .. } =
            &entry.record;
        let held_view = |held: &HeldBack| HeldBackView {
            at_ms: held.at_ms,
            hash: held.texts.hash(),
            changes: entry.record.changes().to_vec(),
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
            let (name, description, parameters) =
                (api.name.clone(), api.description.clone(), api.parameters.clone());
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

    /// Adds a plugin, or all plugins of an index.
    pub async fn add(&self, addition: Addition, terms: &Terms) -> Result<Added, ChangeError> {
        let allowed = terms.allowed()?;
        let (fetched, source) = match addition {
            Addition::Url(url) => {
                let fetched = self
                    .fetch(&url, &allowed, &Validators::default(), openapi::MAX_DOCUMENT)
                    .await?;
                (fetched.ok_or(FetchError::Status(304))?, Some(url))
            }
            Addition::Text(text) => (Fetched::of(text), None),
        };
        if let Some(entries) = index::read(&fetched.text) {
            return self.add_index(entries, source, terms).await;
        }
        let mut added =
            Added { plugins: Vec::new(), failed: Vec::new(), problems: Vec::new(), index: None };
        added.take(self.add_manifest(fetched, source, terms).await?);
        Ok(added)
    }

    async fn add_index(
        &self,
        entries: Vec<Value>,
        source: Option<Url>,
        terms: &Terms,
    ) -> Result<Added, ChangeError> {
        let (listed, allowed) = (entries.len(), &terms.allowed()?);
        let entries = entries
            .into_iter()
            .take(MAX_PLUGINS)
            .map(|entry| index::entry(&entry, source.as_ref()));
        let fetched = stream::iter(entries).map(|entry| async move {
            match entry {
                Ok((identifier, url)) => {
                    let fetched =
                        self.fetch(&url, allowed, &Validators::default(), MAX_MANIFEST).await;
                    (identifier, Ok((url, fetched)))
                }
                Err(why) => (String::from("?"), Err(why)),
            }
        });
        let mut fetched = fetched.buffered(AT_ONCE);
        let index = source.as_ref().map(Url::to_string);
        let mut added =
            Added { plugins: Vec::new(), failed: Vec::new(), problems: Vec::new(), index };
        while let Some((identifier, result)) = fetched.next().await {
            let result = match result {
                Ok((url, Ok(Some(fetched)))) => self
                    .add_manifest(fetched, Some(url), terms)
                    .await
                    .map_err(|error| error.to_string()),
                Ok((_, Ok(None))) => {
                    Err("the server returned \"not modified\" to an unconditional request".into())
                }
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
                format!("{} more exceed the limit of {MAX_PLUGINS} plugins", listed - MAX_PLUGINS),
            ));
        }
        if listed == 0 {
            return Err(ChangeError::Index("the index lists no plugins".into()));
        }
        if added.plugins.is_empty() {
            let failed = added
                .failed
                .iter()
                .take(MAX_NAMED)
                .map(|(identifier, why)| format!("{identifier}: {why}"));
            let more = if added.failed.len() > MAX_NAMED { "; …" } else { "" };
            return Err(ChangeError::Index(format!(
                "{}{more}",
                failed.collect::<Vec<_>>().join("; ")
            )));
        }
        if let Some(url) = &source {
            self.indexes.add(&*self.records, url, &terms.allow_private).await?;
        }
        Ok(added)
    }

    /// Adds one manifest. Returns the plugin and its problems.
    async fn add_manifest(
        &self,
        fetched: Fetched,
        source: Option<Url>,
        terms: &Terms,
    ) -> Result<(View, Vec<Problem>), ChangeError> {
        let now = clock::now_ms();
        let validators = fetched.validators.clone();
        let (texts, is_document) =
            self.collect(fetched, source.as_ref(), &terms.allowed()?).await?;
        let mut problems = Vec::new();
        // The manifest of a plain document was generated here, so it has no problems to report.
        if !is_document {
            problems =
                manifest::read_beside(&texts.manifest, source.as_ref(), texts.openapi.is_some())
                    .problems;
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
        let plugin = record.plugin_queued().await?;
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
        record::store(&*self.records, &identifier, &record).await?;
        self.enter(record, plugin);
        Ok((self.show(&identifier)?, problems))
    }

    /// Collects a manifest and the OpenAPI document that it names, or such a document alone. The
    /// second value is `true` for a document alone.
    pub(crate) async fn collect(
        &self,
        fetched: Fetched,
        source: Option<&Url>,
        allowed: &Allowed,
    ) -> Result<(Texts, bool), ChangeError> {
        let text = fetched.text;
        let reading = manifest::read(&text, source);
        let Some(manifest) = &reading.manifest else {
            let is_manifest = openapi::is_manifest(&text);
            let document = offload::run_queued(text.len(), || openapi::read(&text, source)).await;
            return match document {
                Ok(document) if !is_manifest => {
                    let manifest = format!("{:#}", openapi::manifest_for(&document));
                    Ok((Texts { manifest, openapi: Some(text) }, true))
                }
                Err(why)
                    if !is_manifest && (text.contains("openapi") || text.contains("swagger")) =>
                {
                    Err(ChangeError::Invalid(format!("the OpenAPI document cannot be used: {why}")))
                }
                _ => Err(ChangeError::Invalid(reading.errors())),
            };
        };
        let openapi = match &manifest.openapi {
            Some(url) => {
                let fetched =
                    self.fetch(url, allowed, &Validators::default(), openapi::MAX_DOCUMENT).await?;
                Some(fetched.ok_or(FetchError::Status(304))?.text)
            }
            None => None,
        };
        Ok((Texts { manifest: text, openapi }, false))
    }

    /// Removes a plugin, and all settings that are stored for it.
    pub async fn remove(&self, identifier: &str) -> Result<View, ChangeError> {
        let _one = self.changing.lock().await;
        let view = self.show(identifier)?;
        record::delete(&*self.records, identifier).await?;
        let entry = self.entries().remove(identifier);
        if let Some(registration) = entry.and_then(|entry| entry.registration) {
            registration.withdraw();
        }
        self.shared.settings.delete_where(|plugin, _| plugin == identifier).await?;
        Ok(view)
    }

    /// Removes an index. The plugins that were added from it stay.
    pub async fn remove_index(&self, url: &str) -> Result<bool, StoreError> {
        self.indexes.remove(&*self.records, url).await
    }

    /// Returns the indexes that were added.
    pub fn indexes(&self) -> Vec<String> {
        self.indexes.urls()
    }

    pub async fn set_enabled(&self, identifier: &str, enabled: bool) -> Result<View, ChangeError> {
        let _one = self.changing.lock().await;
        self.change(identifier, |record| record.enabled = enabled).await
    }

    pub(crate) fn record(&self, identifier: &str) -> Result<Record, ChangeError> {
        let entries = self.entries();
        let entry =
            entries.get(identifier).ok_or_else(|| ChangeError::Unknown(identifier.into()))?;
        Ok(entry.record.clone())
    }

    /// Changes a record, first on disk, and registers the changed plugin.
    pub(crate) async fn change(
        &self,
        identifier: &str,
        change: impl FnOnce(&mut Record),
    ) -> Result<View, ChangeError> {
        let mut record = self.record(identifier)?;
        change(&mut record);
        let plugin = record.plugin_queued().await?;
        record::store(&*self.records, identifier, &record).await?;
        self.enter(record, plugin);
        self.show(identifier)
    }
}
