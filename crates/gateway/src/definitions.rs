//! Stores the definitions of tools, so that a change is also detected after a restart.
//!
//! Each tool has its own record, and each provider has one for its common state. The definitions of
//! a provider can exceed the size of one record. A large provider must not prevent an operator from
//! accepting changes of others.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use futures_util::StreamExt as _;
use sa_core::directory::{Directory, OnChange, SavedDefinitions, SavedFinding, SavedTool};
use sa_core::store::{Expect, Records, StoreError};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::sync::Mutex;
use tracing::warn;

const BUCKET: &str = "definitions";
/// The separator between the key of a provider and the hash of a tool.
const TOOL: &str = "\n#";
/// The maximum number of concurrent writes.
const BATCH: usize = 16;

pub(crate) struct DefinitionStore {
    directory: Arc<Directory>,
    records: Arc<dyn Records>,
    /// The hashes of the stored records of each provider, so that unchanged records are not
    /// written. The lock is held during a save, because concurrent saves could leave an older
    /// state.
    stored: Mutex<HashMap<Arc<str>, Stored>>,
}

/// The hashes of one provider's records, by key.
type Stored = HashMap<String, blake3::Hash>;

/// The stored form of [`SavedDefinitions`], without the tools.
#[derive(Serialize, Deserialize)]
struct Document {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pool: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    incomplete: bool,
    /// Earlier versions stored all tools here.
    #[serde(default, skip_serializing)]
    tools: Vec<ToolDocument>,
}

#[derive(Serialize, Deserialize)]
struct ToolDocument {
    name: Arc<str>,
    definition: Box<RawValue>,
    #[serde(default, skip_serializing_if = "is_zero")]
    invisible: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    finding: Option<FindingDocument>,
}

#[derive(Serialize, Deserialize)]
struct FindingDocument {
    revision: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    before: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    proposed: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "is_zero")]
    invisible: usize,
}

impl DefinitionStore {
    /// Loads the stored definitions into the directory.
    pub(crate) async fn load(
        directory: Arc<Directory>,
        records: Arc<dyn Records>,
        on_change: OnChange,
    ) -> Result<Self, StoreError> {
        let mut stored: HashMap<Arc<str>, Stored> = HashMap::new();
        let mut saved: BTreeMap<String, SavedDefinitions> = BTreeMap::new();
        let mut tools: Vec<(String, ToolDocument)> = Vec::new();
        for (key, record) in records.list(BUCKET).await? {
            let (provider, is_tool) = match key.rsplit_once(TOOL) {
                Some((provider, _)) => (provider.to_owned(), true),
                None => (key.clone(), false),
            };
            stored
                .entry(provider.as_str().into())
                .or_default()
                .insert(key.clone(), blake3::hash(&record.value));
            let read = if is_tool {
                serde_json::from_slice(&record.value).map(|tool| tools.push((provider, tool)))
            } else {
                let read = serde_json::from_slice::<Document>(&record.value);
                read.map(|document| drop(saved.insert(provider, document.into())))
            };
            if let Err(error) = read {
                warn!(key, %error, "the saved tool definitions of a provider cannot be read; its next tool list is \
                                    treated as the first");
            }
        }
        // The provider's record is missing. The tool was left by an interrupted save, or is about
        // to be deleted.
        for (provider, tool) in tools {
            if let Some(saved) = saved.get_mut(&provider) {
                let tool = SavedTool::from(tool);
                saved.tools.retain(|old| old.name != tool.name);
                saved.tools.push(tool);
            }
        }
        directory.load_definitions(on_change, saved);
        Ok(Self { directory, records, stored: Mutex::new(stored) })
    }

    /// Saves all changes so far.
    pub(crate) async fn save(&self) -> Result<(), StoreError> {
        let mut stored = self.stored.lock().await;
        let mut result = Ok(());
        for (key, saved) in self.directory.take_unsaved_definitions() {
            let known = stored.entry(Arc::clone(&key)).or_default();
            if let Err(error) = self.write(&key, saved, known).await {
                self.directory.keep_unsaved_definitions(Arc::clone(&key));
                result = Err(error);
            }
            if known.is_empty() {
                stored.remove(&key);
            }
        }
        result
    }

    /// Writes the records of one provider. The tools are written first, because the provider's
    /// record may replace one of an earlier version that contains all tools.
    async fn write(
        &self,
        key: &str,
        saved: Option<SavedDefinitions>,
        known: &mut Stored,
    ) -> Result<(), StoreError> {
        let mut wanted: HashMap<String, Vec<u8>> = HashMap::new();
        let mut document = None;
        if let Some(SavedDefinitions { pool, incomplete, tools }) = saved {
            wanted.extend(tools.into_iter().map(|tool| (tool_key(key, &tool.name), bytes(tool))));
            document = serde_json::to_vec(&Document { pool, incomplete, tools: Vec::new() }).ok();
        }
        let gone: Vec<String> = known
            .keys()
            .filter(|stored| **stored != *key && !wanted.contains_key(*stored))
            .cloned()
            .collect();
        let news = wanted.into_iter().map(|(key, value)| (blake3::hash(&value), key, value));
        let news: Vec<_> = news.filter(|(hash, key, _)| known.get(key) != Some(hash)).collect();
        let mut written = futures_util::stream::iter(news)
            .map(async |(hash, key, value)| {
                self.records
                    .put(BUCKET, &key, value.into(), Expect::Anything)
                    .await
                    .map(|_| (key, hash))
            })
            .buffer_unordered(BATCH);
        while let Some(one) = written.next().await {
            let (key, hash) = one?;
            known.insert(key, hash);
        }
        if let Some(document) = document {
            let hash = blake3::hash(&document);
            if known.get(key) != Some(&hash) {
                self.records.put(BUCKET, key, document.into(), Expect::Anything).await?;
                known.insert(key.to_owned(), hash);
            }
        } else {
            self.records.delete(BUCKET, key).await?;
            known.remove(key);
        }
        for key in gone {
            self.records.delete(BUCKET, &key).await?;
            known.remove(&key);
        }
        Ok(())
    }
}

/// Returns the key of a tool's record. It contains a hash, because a tool name can be longer than a
/// key.
fn tool_key(provider: &str, tool: &str) -> String {
    let hash = blake3::hash(tool.as_bytes()).to_hex();
    format!("{provider}{TOOL}{}", &hash[..32])
}

/// Serializes a tool. If it is too large for the store, only its name is stored, and it counts as
/// changed after a restart.
fn bytes(tool: SavedTool) -> Vec<u8> {
    let name = Arc::clone(&tool.name);
    let whole = serde_json::to_vec(&ToolDocument::from(tool)).unwrap_or_default();
    if (1..=sa_store::MAX_BODY_BYTES).contains(&whole.len()) {
        return whole;
    }
    warn!(
        tool = &*name,
        bytes = whole.len(),
        "a tool definition is too large to save; after a restart it is reported as changed"
    );
    let forgotten =
        ToolDocument { name, definition: RawValue::NULL.to_owned(), invisible: 0, finding: None };
    serde_json::to_vec(&forgotten).unwrap_or_default()
}

impl fmt::Debug for DefinitionStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DefinitionStore").finish_non_exhaustive()
    }
}

impl From<SavedTool> for ToolDocument {
    fn from(SavedTool { name, definition, invisible, finding }: SavedTool) -> Self {
        Self {
            name,
            definition: raw(&definition),
            invisible,
            finding: finding.map(|SavedFinding { revision, before, proposed, invisible }| {
                FindingDocument {
                    revision,
                    before: before.as_deref().map(raw),
                    proposed: proposed.as_deref().map(raw),
                    invisible,
                }
            }),
        }
    }
}

impl From<ToolDocument> for SavedTool {
    fn from(ToolDocument { name, definition, invisible, finding }: ToolDocument) -> Self {
        let text = |raw: Box<RawValue>| Arc::from(raw.get());
        Self {
            name,
            definition: text(definition),
            invisible,
            finding: finding.map(|FindingDocument { revision, before, proposed, invisible }| {
                SavedFinding {
                    revision,
                    before: before.map(text),
                    proposed: proposed.map(text),
                    invisible,
                }
            }),
        }
    }
}

impl From<Document> for SavedDefinitions {
    fn from(Document { pool, incomplete, tools }: Document) -> Self {
        Self { pool, incomplete, tools: tools.into_iter().map(SavedTool::from).collect() }
    }
}

/// Converts a definition that the directory has serialized.
fn raw(definition: &str) -> Box<RawValue> {
    RawValue::from_string(definition.to_owned()).unwrap_or_default()
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the form that serde asks for")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sa_core::directory::{Attach, Registration};
    use sa_core::{
        Call, CallError, Catalog, Grant, Notices, Outcome, Provider, ProviderId, RawJson, Scope,
        Tool, Updates,
    };

    use super::*;

    struct Nobody;

    impl Provider for Nobody {
        fn call(
            &self,
            _: Arc<Call>,
            _: Updates,
        ) -> futures_util::future::BoxFuture<'static, Outcome> {
            Box::pin(std::future::ready(Err(CallError::undelivered("nobody is here"))))
        }
    }

    fn catalog(tools: &[(&str, &str)]) -> Catalog {
        let tool = |(name, text): &(&str, &str)| Tool {
            title: Some((*text).to_owned()),
            ..Tool::named(name)
        };
        Catalog { tools: tools.iter().map(tool).collect(), watched: true, ..Catalog::default() }
    }

    fn connect(directory: &Arc<Directory>, id: &str, tools: &[(&str, &str)]) -> Registration {
        let attach = Attach {
            id: ProviderId::new("test", id),
            scope: Scope::Everyone,
            grant: Grant::token(id),
            provider: Arc::new(Nobody),
            catalog: catalog(tools),
            max_running: 1,
            about: RawJson::empty_object(),
            may_take_over: false,
        };
        directory.attach(attach).unwrap()
    }

    async fn start(records: &Arc<dyn Records>) -> (Arc<Directory>, DefinitionStore) {
        let directory = Directory::new(Notices::new(), Duration::from_secs(600));
        let store =
            DefinitionStore::load(Arc::clone(&directory), Arc::clone(records), OnChange::Hold)
                .await
                .unwrap();
        (directory, store)
    }

    fn held(directory: &Directory) -> Vec<String> {
        let changes = directory.tool_changes().into_iter().filter(|change| change.held);
        changes.map(|change| change.tool.to_string()).collect()
    }

    #[tokio::test]
    async fn a_provider_that_describes_too_much_keeps_nobody_from_accepting() {
        let dir = tempfile::tempdir().unwrap();
        let store =
            sa_store::Store::open(sa_store::OpenOptions::new(dir.path().join("store.db"))).unwrap();
        let records: Arc<dyn Records> = Arc::new(store.clone());
        let (directory, definitions) = start(&records).await;
        // In JSON, a control character takes six bytes.
        let large = "\u{1}".repeat(3 << 20);
        let large_node = connect(&directory, "large", &[("l.a", &large), ("l.b", &large)]);
        let node = connect(&directory, "n", &[("n.a", "Reads."), ("n.b", "Writes.")]);
        definitions.save().await.unwrap();
        node.publish(catalog(&[("n.a", "Sends."), ("n.b", "Deletes.")]));
        let larger = large.clone() + "\u{1}";
        large_node.publish(catalog(&[("l.a", &larger), ("l.b", &large)]));
        directory.accept_change("test", "n", "n.a", None).unwrap();
        definitions.save().await.unwrap();
        // All definitions are restored. A tool that was too large for a record is reported as
        // changed.
        let (directory, definitions) = start(&records).await;
        assert_eq!(held(&directory), ["n.b"]);
        let large_node = connect(&directory, "large", &[("l.a", &large), ("l.b", &large)]);
        let node = connect(&directory, "n", &[("n.a", "Sends."), ("n.b", "Deletes.")]);
        assert_eq!(held(&directory), ["l.a", "n.b"]);
        // Records of withdrawn tools are deleted.
        node.withdraw();
        large_node.withdraw();
        definitions.save().await.unwrap();
        assert!(records.list(BUCKET).await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn a_document_of_an_earlier_version_is_taken_up_and_split() {
        let records: Arc<dyn Records> =
            Arc::new(crate::records_for_tests::MemoryRecords::default());
        let old = r#"{"pool":"Token n","tools":[{"name":"n.a","definition":{"title":"Reads."}}]}"#;
        records.put(BUCKET, "test/n", old.into(), Expect::Anything).await.unwrap();
        let (_, definitions) = start(&records).await;
        definitions.save().await.unwrap();
        let keys: Vec<String> =
            records.list(BUCKET).await.unwrap().into_iter().map(|(key, _)| key).collect();
        assert_eq!(keys, ["test/n\nToken n".to_owned(), tool_key("test/n\nToken n", "n.a")]);
        let (directory, _) = start(&records).await;
        let _node = connect(&directory, "n", &[("n.a", "Sends.")]);
        assert_eq!(held(&directory), ["n.a"]);
    }
}
