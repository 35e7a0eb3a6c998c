//! Adding, removing, switching, and what is held back until an operator has seen it.

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use sa_core::store::{Expect, StoreError};
use sa_core::{AuditEvent, ProviderId, RawJson, clock};
use sa_egress::EgressError;
use serde_json::Value;
use url::Url;

use crate::difference::Change;
use crate::manifest::{self, MAX_MANIFEST, Manifest};
use crate::record::{BUCKET, HeldBack, Record, Texts};
use crate::source::{FetchError, Fetched, Validators};
use crate::{KIND, MAX_PLUGINS, Plugins, index, openapi};

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

/// What became of it.
#[derive(Debug, Clone)]
pub struct Added {
    pub plugins: Vec<View>,
    /// Those of an index that could not be added, with the reason.
    pub failed: Vec<(String, String)>,
    /// The index, if it was one.
    pub index: Option<String>,
}

/// A plugin as people see it.
#[derive(Debug, Clone)]
pub struct View {
    pub manifest: Manifest,
    pub enabled: bool,
    pub source: Option<String>,
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
    #[error("there is a plugin \"{0}\" already")]
    Exists(String),
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
        let Record { source, enabled, added_ms, fetched_ms, held_back, .. } = &entry.record;
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
            added_ms: *added_ms,
            fetched_ms: *fetched_ms,
            origins: plugin.origins.iter().cloned().collect(),
            functions,
            settings: plugin.settings.as_ref().map(|schema| schema.value().clone()),
            held_back: held_back.as_ref().map(held_view),
            last_error: entry.last_error.clone(),
        })
    }

    /// Adds a plugin, or all those of an index. `replace` accepts a manifest in place of the one that is there.
    pub async fn add(&self, addition: Addition, replace: bool) -> Result<Added, ChangeError> {
        let (fetched, source) = match addition {
            Addition::Url(url) => {
                let fetched = self.fetch(&url, &Validators::default(), index::MAX_INDEX).await?;
                (fetched.ok_or(FetchError::Status(304))?, Some(url))
            }
            Addition::Text(text) => (Fetched { text, validators: Validators::default() }, None),
        };
        if let Some(entries) = index::read(&fetched.text) {
            return self.add_index(entries, source, replace).await;
        }
        let view = self.add_manifest(fetched, source, replace).await?;
        Ok(Added { plugins: vec![view], failed: Vec::new(), index: None })
    }

    async fn add_index(&self, entries: Vec<Value>, source: Option<Url>, replace: bool) -> Result<Added, ChangeError> {
        let listed = entries.len();
        let entries = entries.into_iter().take(MAX_PLUGINS).map(|entry| index::entry(&entry, source.as_ref()));
        let fetched = stream::iter(entries).map(|entry| async move {
            match entry {
                Ok((identifier, url)) => {
                    let fetched = self.fetch(&url, &Validators::default(), MAX_MANIFEST).await;
                    (identifier, Ok((url, fetched)))
                }
                Err(why) => (String::from("?"), Err(why)),
            }
        });
        let mut fetched = fetched.buffered(AT_ONCE);
        let mut added = Added { plugins: Vec::new(), failed: Vec::new(), index: source.as_ref().map(Url::to_string) };
        while let Some((identifier, result)) = fetched.next().await {
            let result = match result {
                Ok((url, Ok(Some(fetched)))) => {
                    self.add_manifest(fetched, Some(url), replace).await.map_err(|error| error.to_string())
                }
                Ok((_, Ok(None))) => Err("the server says that nothing has changed, though nothing was known".into()),
                Ok((_, Err(error))) => Err(ChangeError::from(error).to_string()),
                Err(why) => Err(why),
            };
            match result {
                Ok(view) => added.plugins.push(view),
                Err(why) => added.failed.push((identifier, why)),
            }
        }
        if listed > MAX_PLUGINS {
            added.failed.push((
                "…".into(),
                format!("{} more, beyond the {MAX_PLUGINS} that there may be", listed - MAX_PLUGINS),
            ));
        }
        if let Some(url) = &source {
            self.indexes.add(&*self.records, url).await?;
        }
        Ok(added)
    }

    async fn add_manifest(&self, fetched: Fetched, source: Option<Url>, replace: bool) -> Result<View, ChangeError> {
        let now = clock::now_ms();
        let validators = fetched.validators.clone();
        let (texts, is_document) = self.collect(fetched, source.as_ref()).await?;
        let mut record = Record {
            source: source.map(|url| url.to_string()),
            is_document,
            texts,
            validators,
            enabled: true,
            added_ms: now,
            fetched_ms: now,
            held_back: None,
            refused: None,
        };
        let plugin = record.plugin().map_err(ChangeError::Invalid)?;
        let identifier = plugin.identifier().to_owned();
        let _one = self.changing.lock().await;
        let former = self.entries().get(&identifier).map(|entry| entry.record.clone());
        match former {
            Some(_) if !replace => return Err(ChangeError::Exists(identifier)),
            Some(former) => (record.added_ms, record.enabled) = (former.added_ms, former.enabled),
            None if self.entries().len() >= MAX_PLUGINS => return Err(ChangeError::Full),
            None => {}
        }
        self.keep(&identifier, &record).await?;
        self.enter(record, plugin);
        self.show(&identifier)
    }

    /// A manifest with the OpenAPI document that it names, or such a document alone, which is told by the `true`.
    async fn collect(&self, fetched: Fetched, source: Option<&Url>) -> Result<(Texts, bool), ChangeError> {
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
                Err(why) if !is_manifest && text.contains("openapi") => {
                    Err(ChangeError::Invalid(format!("the OpenAPI document cannot be used: {why}")))
                }
                _ => Err(ChangeError::Invalid(reading.errors())),
            };
        };
        let openapi = match &manifest.openapi {
            Some(url) => {
                let fetched = self.fetch(url, &Validators::default(), openapi::MAX_DOCUMENT).await?;
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

    /// Takes what is held back; with a `hash`, only if it is what had this one, and not something newer.
    pub async fn accept(&self, identifier: &str, hash: Option<&str>) -> Result<View, ChangeError> {
        let _one = self.changing.lock().await;
        let held = self.held_back(identifier)?.texts.hash();
        if hash.is_some_and(|hash| hash != held) {
            return Err(ChangeError::Moved(identifier.into()));
        }
        self.change(identifier, |record| {
            if let Some(held) = record.held_back.take() {
                record.texts = held.texts;
            }
        })
        .await
    }

    /// Leaves what is held back, until there is something else.
    pub async fn refuse(&self, identifier: &str) -> Result<View, ChangeError> {
        let _one = self.changing.lock().await;
        let refused = self.held_back(identifier)?.texts.hash();
        self.change(identifier, |record| {
            record.held_back = None;
            record.refused = Some(refused);
        })
        .await
    }

    fn held_back(&self, identifier: &str) -> Result<HeldBack, ChangeError> {
        let held_back = self.record(identifier)?.held_back;
        held_back.ok_or_else(|| ChangeError::NothingHeldBack(identifier.into()))
    }

    /// Looks at a plugin's source again.
    pub async fn refresh(&self, identifier: &str) -> Result<View, ChangeError> {
        let result = self.look(identifier).await;
        if let Some(entry) = self.entries().get_mut(identifier) {
            entry.last_error = result.as_ref().err().map(ToString::to_string);
        }
        result?;
        self.show(identifier)
    }

    async fn look(&self, identifier: &str) -> Result<(), ChangeError> {
        let record = self.record(identifier)?;
        let source = record.base().ok_or_else(|| ChangeError::NoSource(identifier.into()))?;
        // That a manifest is the same says nothing of the document that it names.
        let names_document = record.texts.openapi.is_some() && !record.is_document;
        let validators = if names_document { Validators::default() } else { record.validators.clone() };
        let fetched = self.fetch(&source, &validators, openapi::MAX_DOCUMENT).await?;
        let seen = match fetched {
            Some(fetched) => {
                let validators = fetched.validators.clone();
                let (texts, is_document) = self.collect(fetched, Some(&source)).await?;
                if is_document != record.is_document {
                    return Err(ChangeError::Invalid("at its source there is now something else than it was".into()));
                }
                Some((texts, validators))
            }
            None => None,
        };
        // Only now: a slow source must not keep an operator from changing anything.
        let _one = self.changing.lock().await;
        let record = self.record(identifier)?;
        if record.base().as_ref() != Some(&source) {
            return Ok(());
        }
        self.seen(identifier, &record, seen).await
    }

    fn record(&self, identifier: &str) -> Result<Record, ChangeError> {
        let entries = self.entries();
        let entry = entries.get(identifier).ok_or_else(|| ChangeError::Unknown(identifier.into()))?;
        Ok(entry.record.clone())
    }

    /// Makes something of what the source has now.
    async fn seen(
        &self,
        identifier: &str,
        record: &Record,
        seen: Option<(Texts, Validators)>,
    ) -> Result<(), ChangeError> {
        let mut new = Record { fetched_ms: clock::now_ms(), ..record.clone() };
        if let Some((mut texts, validators)) = seen {
            new.validators = validators;
            if record.is_document {
                // Its name is what it was added by, though the title may have changed.
                texts.manifest.clone_from(&record.texts.manifest);
            }
            let now = Record { texts: texts.clone(), ..record.clone() }.plugin().map_err(ChangeError::Invalid)?;
            if now.identifier() != identifier {
                let why = format!("at its source there is now the manifest of \"{}\"", now.identifier());
                return Err(ChangeError::Invalid(why));
            }
            if self.options.accept_changes {
                new.texts = texts;
                new.held_back = None;
            } else if record.difference(&texts).is_empty() || record.refused.as_ref() == Some(&texts.hash()) {
                new.held_back = None;
            } else if record.held_back.as_ref().is_none_or(|held| held.texts != texts) {
                self.router.journal().audit(AuditEvent {
                    what: "plugin.held_back",
                    who: "its source".into(),
                    subject: identifier.into(),
                    detail: "it has changed, and the change waits to be accepted".into(),
                });
                new.held_back = Some(HeldBack { texts, at_ms: clock::now_ms() });
            }
        }
        let changed = new.texts != record.texts;
        self.keep(identifier, &new).await?;
        if changed {
            let plugin = new.plugin().map_err(ChangeError::Invalid)?;
            self.enter(new, plugin);
        } else if let Some(entry) = self.entries().get_mut(identifier) {
            entry.record = new;
        }
        Ok(())
    }

    /// Changes a record, on disk first, and puts the plugin in its place as it now is.
    async fn change(&self, identifier: &str, change: impl FnOnce(&mut Record)) -> Result<View, ChangeError> {
        let mut record = self.record(identifier)?;
        change(&mut record);
        let plugin = record.plugin().map_err(ChangeError::Invalid)?;
        self.keep(identifier, &record).await?;
        self.enter(record, plugin);
        self.show(identifier)
    }

    async fn keep(&self, identifier: &str, record: &Record) -> Result<(), ChangeError> {
        let json = serde_json::to_vec(record).map_err(|error| ChangeError::Invalid(error.to_string()))?;
        self.records.put(BUCKET, identifier, Bytes::from(json), Expect::Anything).await?;
        Ok(())
    }
}
