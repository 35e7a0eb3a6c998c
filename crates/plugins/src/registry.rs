//! Adding, removing, switching, and what is held back until an operator has seen it.

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use sa_core::store::{Expect, Records, StoreError};
use sa_core::{AuditEvent, ProviderId, clock};
use sa_egress::EgressError;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use url::Url;

use crate::difference::{Change, between};
use crate::manifest::{self, MAX_MANIFEST, Manifest, Problem, Reading};
use crate::plugin::Plugin;
use crate::source::{FetchError, Fetched, Validators};
use crate::{KIND, MAX_PLUGINS, Plugins, index};

const BUCKET: &str = "plugins";
/// Manifests of an index that are fetched at once.
const AT_ONCE: usize = 8;

/// A plugin as it is stored.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The manifest's address; absent for one that was handed over.
    pub(crate) source: Option<String>,
    /// The manifest that was accepted.
    pub(crate) manifest: String,
    #[serde(default)]
    pub(crate) validators: Validators,
    pub(crate) enabled: bool,
    pub(crate) added_ms: i64,
    /// When the source was last seen.
    pub(crate) fetched_ms: i64,
    /// What the source has now, and nobody has accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) held_back: Option<HeldBack>,
    /// The hash of what was refused, so that it is not shown again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) refused: Option<String>,
}

#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct HeldBack {
    pub(crate) manifest: String,
    pub(crate) at_ms: i64,
}

impl Record {
    pub(crate) fn base(&self) -> Option<Url> {
        self.source.as_ref().and_then(|source| Url::parse(source).ok())
    }

    /// The plugin as it was accepted.
    pub(crate) fn plugin(&self) -> Result<Plugin, String> {
        made(manifest::read(&self.manifest, self.base().as_ref())).map(|manifest| Plugin::new(manifest, true, ""))
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
            Err(error) => tracing::warn!(plugin = identifier, %error, "its record cannot be read; add it again"),
        }
    }
    Ok(found)
}

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
    /// Its functions that can be called, and what they are exposed as while it is enabled.
    pub tools: Vec<(String, Option<String>)>,
    /// What its source has now, as a difference to what was accepted, and since when.
    pub held_back: Option<(i64, Vec<Change>)>,
    pub last_error: Option<String>,
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
        let difference = |held: &HeldBack| (held.at_ms, difference(&entry.record.manifest, &held.manifest));
        Ok(View {
            manifest: entry.plugin.manifest.clone(),
            enabled: *enabled,
            source: source.clone(),
            added_ms: *added_ms,
            fetched_ms: *fetched_ms,
            origins: entry.plugin.origins.iter().cloned().collect(),
            tools: entry.plugin.functions.iter().map(|f| (f.name.clone(), exposed(&f.own))).collect(),
            held_back: held_back.as_ref().map(difference),
            last_error: entry.last_error.clone(),
        })
    }

    /// Adds a plugin, or all those of an index. `replace` accepts a manifest in place of the one that is there.
    pub async fn add(&self, addition: Addition, replace: bool) -> Result<Added, ChangeError> {
        let _one = self.changing.lock().await;
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
            added.failed.push(("…".into(), format!("{} more, beyond the {MAX_PLUGINS} that there may be", listed - MAX_PLUGINS)));
        }
        if let Some(url) = &source {
            self.indexes.add(&*self.records, url).await?;
        }
        Ok(added)
    }

    async fn add_manifest(&self, fetched: Fetched, source: Option<Url>, replace: bool) -> Result<View, ChangeError> {
        let now = clock::now_ms();
        let mut record = Record {
            source: source.map(|url| url.to_string()),
            manifest: fetched.text,
            validators: fetched.validators,
            enabled: true,
            added_ms: now,
            fetched_ms: now,
            held_back: None,
            refused: None,
        };
        let plugin = record.plugin().map_err(ChangeError::Invalid)?;
        let identifier = plugin.identifier().to_owned();
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

    /// Takes what is held back.
    pub async fn accept(&self, identifier: &str) -> Result<View, ChangeError> {
        let _one = self.changing.lock().await;
        self.held_back(identifier)?;
        self.change(identifier, |record| {
            if let Some(held) = record.held_back.take() {
                record.manifest = held.manifest;
            }
        })
        .await
    }

    /// Leaves what is held back, until there is something else.
    pub async fn refuse(&self, identifier: &str) -> Result<View, ChangeError> {
        let _one = self.changing.lock().await;
        let refused = hash(&self.held_back(identifier)?.manifest);
        self.change(identifier, |record| {
            record.held_back = None;
            record.refused = Some(refused);
        })
        .await
    }

    fn held_back(&self, identifier: &str) -> Result<HeldBack, ChangeError> {
        let entries = self.entries();
        let entry = entries.get(identifier).ok_or_else(|| ChangeError::Unknown(identifier.into()))?;
        entry.record.held_back.clone().ok_or_else(|| ChangeError::NothingHeldBack(identifier.into()))
    }

    /// Looks at a plugin's source again.
    pub async fn refresh(&self, identifier: &str) -> Result<View, ChangeError> {
        let _one = self.changing.lock().await;
        let record = {
            let entries = self.entries();
            let entry = entries.get(identifier).ok_or_else(|| ChangeError::Unknown(identifier.into()))?;
            entry.record.clone()
        };
        let source = record.base().ok_or_else(|| ChangeError::NoSource(identifier.into()))?;
        let result = match self.fetch(&source, &record.validators, MAX_MANIFEST).await {
            Ok(fetched) => self.seen(identifier, &record, fetched).await,
            Err(error) => Err(error.into()),
        };
        if let Some(entry) = self.entries().get_mut(identifier) {
            entry.last_error = result.as_ref().err().map(ToString::to_string);
        }
        result?;
        self.show(identifier)
    }

    /// Makes something of what the source has now.
    async fn seen(&self, identifier: &str, record: &Record, fetched: Option<Fetched>) -> Result<(), ChangeError> {
        let mut new = Record { fetched_ms: clock::now_ms(), ..record.clone() };
        if let Some(fetched) = fetched {
            let manifest = made(manifest::read(&fetched.text, record.base().as_ref())).map_err(ChangeError::Invalid)?;
            if manifest.identifier != identifier {
                let why = format!("at its source there is now the manifest of \"{}\"", manifest.identifier);
                return Err(ChangeError::Invalid(why));
            }
            new.validators = fetched.validators;
            let same = difference(&record.manifest, &fetched.text).is_empty();
            if same {
                new.held_back = None;
            } else if self.options.accept_changes {
                new.manifest = fetched.text;
            } else if record.refused.as_ref() != Some(&hash(&fetched.text)) {
                let known = record.held_back.as_ref().is_some_and(|held| held.manifest == fetched.text);
                if !known {
                    self.router.journal().audit(AuditEvent {
                        what: "plugin.held_back",
                        who: "its source".into(),
                        subject: identifier.into(),
                        detail: "its manifest has changed, and the change waits to be accepted".into(),
                    });
                    new.held_back = Some(HeldBack { manifest: fetched.text, at_ms: clock::now_ms() });
                }
            }
        }
        let changed = new.manifest != record.manifest;
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
        let record = self.entries().get(identifier).map(|entry| entry.record.clone());
        let mut record = record.ok_or_else(|| ChangeError::Unknown(identifier.into()))?;
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

    /// What is wrong with a manifest, line by line, and whether it could be added.
    pub async fn check(&self, addition: Addition) -> Result<(bool, Vec<Problem>), ChangeError> {
        let (text, base) = match addition {
            Addition::Url(url) => {
                let fetched = self.fetch(&url, &Validators::default(), MAX_MANIFEST).await?;
                (fetched.ok_or(FetchError::Status(304))?.text, Some(url))
            }
            Addition::Text(text) => (text, None),
        };
        let reading = manifest::read(&text, base.as_ref());
        let mut problems = reading.problems;
        if let Some(manifest) = &reading.manifest {
            problems.extend(self.unreachable(&text, manifest));
            problems.sort_by_key(|problem| problem.line);
        }
        Ok((reading.manifest.is_some(), problems))
    }

    /// Functions at addresses that could never be called from here.
    fn unreachable(&self, text: &str, manifest: &Manifest) -> Vec<Problem> {
        let lines = crate::places::lines(text);
        let apis = manifest.apis.iter().filter_map(|api| Some((api, self.shared.egress.check(api.url.as_ref()?).err()?)));
        apis.map(|(api, error)| {
            let at = serde_json::from_str::<Value>(text).ok().and_then(|value| {
                value.get("api")?.as_array()?.iter().position(|entry| entry.get("name") == Some(&api.name.as_str().into()))
            });
            let path = format!("/api/{}/url", at.unwrap_or_default());
            let line = crate::places::line_of(&lines, &path);
            let message = format!("\"{}\" cannot be called from here: {error}", api.name);
            Problem { severity: manifest::Severity::Warning, line, path, message }
        })
        .collect()
    }
}

fn difference(was: &str, now: &str) -> Vec<Change> {
    let parse = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_default();
    between(&parse(was), &parse(now))
}

fn hash(text: &str) -> String {
    blake3::hash(text.as_bytes()).to_hex().to_string()
}
