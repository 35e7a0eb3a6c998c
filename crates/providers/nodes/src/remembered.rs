//! Stores the known nodes, so that a call after a restart waits for its node instead of failing.
//!
//! The stored data is limited like the data in memory: nodes that the directory forgets are deleted
//! here.

use std::collections::HashMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use sa_core::directory::{Directory, SavedProvider};
use sa_core::store::{Expect, Records, StoreError};
use sa_core::{Grant, ProviderId, Rank, RawJson, Schema, Tool, Trimmer};
use sa_http::annotations::is_repeatable;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::sync::Mutex;
use tracing::warn;

use crate::{Access, Nodes};

const BUCKET: &str = "nodes";
/// The maximum number of nodes that are taken from the directory and written at a time.
const BATCH: usize = 16;

/// See [`self`].
pub struct NodeStore {
    directory: Arc<Directory>,
    records: Arc<dyn Records>,
    /// Provides the trusted time.
    trimmer: Arc<Trimmer>,
    /// The hash of each stored node, so that an unchanged node is not written again. The lock is
    /// held during a save, because concurrent saves could leave an older state.
    stored: Mutex<HashMap<String, u64>>,
}

/// The stored form of [`SavedProvider`].
#[derive(Serialize, Deserialize)]
struct Document {
    /// The id of the token's grant. Absent for a node without a token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    grant: Option<Arc<str>>,
    age: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tools: Vec<ToolDocument>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    prefixes: Vec<(Arc<str>, u64)>,
    bare_names: bool,
    about: Box<RawValue>,
    /// The time of disconnection, in milliseconds since 1970. Absent while the node is online, and
    /// if the clock was not trusted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    gone_ms: Option<i64>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    stopped: bool,
}

#[derive(Serialize, Deserialize)]
struct ToolDocument {
    name: Arc<str>,
    age: u64,
    preferred_name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    title: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    input: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    output: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    annotations: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    capabilities: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    timeout_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    held: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    open: bool,
}

impl NodeStore {
    /// Restores the stored nodes if their tokens are valid. While the clock is not trusted, an
    /// offline node counts as having just disconnected. So a wrong clock makes no node forgotten.
    pub async fn load(
        nodes: &Nodes,
        directory: Arc<Directory>,
        records: Arc<dyn Records>,
        trimmer: Arc<Trimmer>,
        access: &Access,
    ) -> Result<Self, StoreError> {
        let now_ms = trimmer.now_ms();
        let mut stored = HashMap::new();
        let mut saved = Vec::new();
        for (id, record) in records.list(BUCKET).await? {
            stored.insert(id.clone(), hash(&record.value));
            match serde_json::from_slice::<Document>(&record.value)
                .and_then(|document| document.read(&id, now_ms))
            {
                Ok(node) => saved.push(node),
                Err(error) => {
                    warn!(node = id, %error, "a saved node cannot be read; it is unknown until it connects");
                }
            }
        }
        let valid = access.valid_grants();
        nodes.restore(saved, |grant| valid.contains(grant));
        Ok(Self { directory, records, trimmer, stored: Mutex::new(stored) })
    }

    /// Saves all changes so far.
    pub async fn save(&self) -> Result<(), StoreError> {
        let mut stored = self.stored.lock().await;
        let now_ms = self.trimmer.now_ms();
        loop {
            let batch = self.directory.take_unsaved_providers(BATCH);
            if batch.is_empty() {
                return Ok(());
            }
            let changes = batch.into_iter().filter_map(|(id, node)| {
                let write = |node| serde_json::to_vec(&Document::of(&node, now_ms));
                let value = node.map(|node| write(node).unwrap_or_default());
                let known = stored.get(&*id.id).copied();
                (value.as_deref().map(hash) != known).then_some((id, value))
            });
            let changes: Vec<_> = changes.collect();
            let written: Vec<_> = futures_util::stream::iter(changes)
                .map(|change| self.write(change))
                .buffer_unordered(BATCH)
                .collect()
                .await;
            let mut result = Ok(());
            for (id, written) in written {
                match written {
                    Ok(Some(hash)) => drop(stored.insert(id.id.to_string(), hash)),
                    Ok(None) => drop(stored.remove(&*id.id)),
                    Err(error) => {
                        self.directory.keep_unsaved_provider(&id);
                        result = Err(error);
                    }
                }
            }
            result?;
        }
    }

    async fn write(
        &self,
        (id, value): (ProviderId, Option<Vec<u8>>),
    ) -> (ProviderId, Result<Option<u64>, StoreError>) {
        let written = match value {
            Some(value) => {
                let hash = hash(&value);
                self.records
                    .put(BUCKET, &id.id, value.into(), Expect::Anything)
                    .await
                    .map(|_| Some(hash))
            }
            None => self.records.delete(BUCKET, &id.id).await.map(|_| None),
        };
        (id, written)
    }
}

impl fmt::Debug for NodeStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeStore").finish_non_exhaustive()
    }
}

impl Document {
    fn of(node: &SavedProvider, now_ms: Option<i64>) -> Self {
        let gone = |gone: Duration| {
            Some(now_ms?.saturating_sub_unsigned(gone.as_millis().try_into().unwrap_or(u64::MAX)))
        };
        Self {
            grant: (node.grant.rank != Rank::None).then(|| Arc::clone(&node.grant.id)),
            age: node.age,
            tools: node.tools.iter().map(|(tool, age)| ToolDocument::of(tool, *age)).collect(),
            prefixes: node.prefixes.clone(),
            bare_names: node.bare_names,
            about: raw(&node.about),
            gone_ms: node.gone_for.and_then(gone),
            stopped: node.stopped,
        }
    }

    fn read(self, id: &str, now_ms: Option<i64>) -> Result<SavedProvider, serde_json::Error> {
        let gone = |at: i64| {
            let ms = now_ms.map_or(0, |now_ms| now_ms.saturating_sub(at));
            Duration::from_millis(ms.try_into().unwrap_or(0))
        };
        Ok(SavedProvider {
            id: id.into(),
            grant: self.grant.map_or_else(Grant::none, |id| Grant::token(&id)),
            age: self.age,
            tools: self.tools.into_iter().map(ToolDocument::read).collect::<Result<_, _>>()?,
            prefixes: self.prefixes,
            bare_names: self.bare_names,
            preferred: false,
            about: RawJson::part(&self.about)?,
            gone_for: self.gone_ms.map(gone),
            stopped: self.stopped,
        })
    }
}

impl ToolDocument {
    fn of(tool: &Tool, age: u64) -> Self {
        Self {
            name: Arc::clone(&tool.name),
            age,
            preferred_name: tool.preferred_name.clone(),
            title: tool.title.clone(),
            description: tool.description.clone(),
            input: tool.input.as_ref().map(|schema| raw(schema.raw())),
            output: tool.output.as_ref().map(|schema| raw(schema.raw())),
            annotations: tool.annotations.as_ref().map(raw),
            capabilities: tool.capabilities.clone(),
            timeout_ms: tool
                .timeout
                .map(|timeout| timeout.as_millis().try_into().unwrap_or(u64::MAX)),
            held: tool.held,
            open: tool.open,
        }
    }

    fn read(self) -> Result<(Arc<Tool>, u64), serde_json::Error> {
        let json = |raw: Option<Box<RawValue>>| raw.map(|raw| RawJson::part(&raw)).transpose();
        let annotations = json(self.annotations)?;
        let tool = Tool {
            preferred_name: self.preferred_name,
            title: self.title,
            description: self.description,
            input: json(self.input)?.map(Schema::new),
            output: json(self.output)?.map(Schema::new),
            repeatable: is_repeatable(annotations.as_ref()),
            annotations,
            capabilities: self.capabilities,
            timeout: self.timeout_ms.map(Duration::from_millis),
            held: self.held,
            open: self.open,
            ..Tool::named(&self.name)
        };
        Ok((Arc::new(tool), self.age))
    }
}

fn raw(json: &RawJson) -> Box<RawValue> {
    RawValue::from_string(json.as_str().to_owned()).unwrap_or_default()
}

fn hash(document: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    document.hash(&mut hasher);
    hasher.finish()
}
